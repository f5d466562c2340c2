# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: image_pulls
short_description: Tell which images a node has yet to pull, for each the first node without it
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
- Gives each image the whole name by which nodes list it, and finds the first node that lacks it.
- The role P(slipway.inference.preflight#role) uses it.
positional: _input, nodes
options:
  _input:
    description: For each image C(image), C(policy) and C(secrets), the names of the Secrets with which it is pulled.
    type: list
    elements: dict
    required: true
  nodes:
    description: Nodes that may run the images, as the API server lists them.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show which node would pull which image
  ansible.builtin.debug:
    msg: "{{ (images | slipway.inference.image_pulls(nodes.resources)).pulls }}"
  vars:
    images:
      - {image: busybox, policy: IfNotPresent, secrets: []}
"""

RETURN = r"""
_value:
  description: What is to be pulled.
  type: dict
  contains:
    images:
      description: By each image its C(whole) name, its C(policy), and the C(secrets) of all that name it.
      type: dict
    pulls:
      description: By the name of a node the images that it is the first to lack.
      type: dict
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

Object = Mapping[str, Any]


def image_pulls(named: Iterable[Object], nodes: Iterable[Object]) -> dict[str, Any]:
    images: dict[str, dict[str, Any]] = {}
    for one in named:
        before = images.get(one["image"], {"secrets": []})["secrets"]
        secrets = [*dict.fromkeys([*before, *one["secrets"]])]
        images[one["image"]] = {"whole": whole_name(one["image"]), "policy": one["policy"], "secrets": secrets}
    has = {node["metadata"]["name"]: _listed(node) for node in nodes}
    pulls: dict[str, list[str]] = {}
    for image, about in images.items():
        lacking = [name for name, there in has.items() if about["whole"] not in there]
        for name in lacking[:1]:
            pulls.setdefault(name, []).append(image)
    return {"images": images, "pulls": pulls}


def whole_name(image: str) -> str:
    """With its registry, and a tag where it has no digest."""
    host, slash, _path = image.partition("/")
    if not (slash and ("." in host or ":" in host or host == "localhost")):
        image = f"docker.io/{'' if slash else 'library/'}{image}"
    if "@" in image:
        return re.sub(r"(:[^:/@]+)?@", "@", image)
    return image if ":" in image.rpartition("/")[2] else f"{image}:latest"


def _listed(node: Object) -> set[str]:
    images = (node.get("status") or {}).get("images") or []
    return {name for image in images for name in image.get("names") or []}


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Any]:
        return {"image_pulls": image_pulls}
