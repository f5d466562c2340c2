# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: with_environment
short_description: Give a container variables, and the certificate authorities to trust
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Adds variables to a container of a pod. Those that it has itself go before.
  - Where a variable names a proxy, the API server and the cluster's own names are excepted, as no proxy leads to them.
  - The role P(slipway.inference.component#role) uses it.
positional: _input, variables, trust
options:
  _input:
    description: The container, as in a pod.
    type: dict
    required: true
  variables:
    description: By the name of a variable its text, or where to read it from, as C(valueFrom) of a container has it.
    type: dict
    required: true
  trust:
    description:
      - Whether the pod has a volume C(authorities), whose file C(ca.crt) has the certificate authorities to trust.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Show a container that asks through a proxy
  ansible.builtin.debug:
    msg: "{{ {'name': 'main'} | slipway.inference.with_environment({'HTTPS_PROXY': 'http://proxy.example.com:3128'}) }}"
"""

RETURN = r"""
_value:
  description: The container with its variables.
  type: dict
"""

from collections.abc import Mapping
from typing import Any

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
# Kubernetes puts the address of the API server in.
INSIDE = "$(KUBERNETES_SERVICE_HOST),.svc,.svc.cluster.local,localhost,127.0.0.1"
TRUSTING = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "AWS_CA_BUNDLE")
FOLDER = "/etc/slipway-authorities"


def with_environment(container: Mapping[str, Any], variables: Mapping[str, Any], trust: bool = False) -> dict[str, Any]:
    wanted = {**(dict.fromkeys(TRUSTING, f"{FOLDER}/ca.crt") if trust else {}), **_inside_excepted(variables)}
    own = container.get("env") or []
    names = {variable["name"] for variable in own}
    env = [_variable(name, value) for name, value in wanted.items() if name not in names]
    mounts = [{"name": "authorities", "mountPath": FOLDER, "readOnly": True}] if trust else []
    given = dict(container)
    if env:
        given["env"] = [*env, *own]
    if mounts:
        given["volumeMounts"] = [*(container.get("volumeMounts") or []), *mounts]
    return given


def _inside_excepted(variables: Mapping[str, Any]) -> dict[str, Any]:
    if not any(name.upper() in PROXIES for name in variables):
        return dict(variables)
    named = [name for name in variables if name.upper() == "NO_PROXY"] or ["NO_PROXY"]
    excepted = {name: _also_inside(variables.get(name, "")) for name in named}
    return {**variables, **excepted}


def _also_inside(excepted: Any) -> Any:
    if isinstance(excepted, Mapping) or excepted == "*":
        return excepted
    return f"{excepted},{INSIDE}" if excepted else INSIDE


def _variable(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {"name": name, "valueFrom": dict(value)}
    return {"name": name, "value": str(value)}


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Any]:
        return {"with_environment": with_environment}
