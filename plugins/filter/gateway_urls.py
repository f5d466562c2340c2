# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: gateway_urls
short_description: Tell the addresses of the gateway from outside of the cluster
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
- Takes those of routes that a router has taken, then those of the Service's load balancer, else its port on a node.
- The role P(slipway.inference.status#role) uses it.
positional: _input, service, addresses
options:
  _input:
    description: Routes of OpenShift to the gateway.
    type: list
    elements: dict
    required: true
  service:
    description: Its Service, or an empty dictionary.
    type: dict
    required: true
  addresses:
    description: Addresses of nodes, of which the first is told with the port of the node.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Show where the gateway is
  ansible.builtin.debug:
    msg: "{{ [] | slipway.inference.gateway_urls(service) }}"
"""

RETURN = r"""
_value:
  description: The addresses, each once.
  type: list
  elements: str
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Object = Mapping[str, Any]


def gateway_urls(routes: Iterable[Object], service: Object, addresses: Sequence[str] = ()) -> list[str]:
    urls = [f"https://{route['spec']['host']}/v1" for route in routes if _admitted(route)]
    if service:
        port = service["spec"]["ports"][0]
        suffix = "" if port["port"] == 80 else f":{port['port']}"
        places = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
        urls += [f"http://{place.get('hostname') or place['ip']}{suffix}/v1" for place in places]
        # That others than the nodes reach it is a guess.
        if service["spec"].get("type") == "NodePort" and addresses:
            urls.append(f"http://{addresses[0]}:{port['nodePort']}/v1")
    return [*dict.fromkeys(urls)]


def _admitted(route: Object) -> bool:
    routers = (route.get("status") or {}).get("ingress") or []
    conditions = [condition for router in routers for condition in router.get("conditions") or []]
    return any(condition["type"] == "Admitted" and condition["status"] == "True" for condition in conditions)


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Any]:
        return {"gateway_urls": gateway_urls}
