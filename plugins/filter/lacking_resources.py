# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: lacking_resources
short_description: Tell of which resources a node offers fewer than it had
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
- Compares what a node had with what it can give to pods now.
- The role P(slipway.inference.gpu_node#role) uses it.
positional: _input, allocatable, pattern
options:
  _input:
    description: By each resource how many the node had.
    type: dict
    required: true
  allocatable:
    description: By each resource how many it has now.
    type: dict
    required: true
  pattern:
    description: A regular expression that fits the beginning of the name of a resource that counts.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show what is missing
  ansible.builtin.debug:
    msg: "{{ before.allocatable | slipway.inference.lacking_resources(after.allocatable, 'nvidia[.]com/') }}"
"""

RETURN = r"""
_value:
  description: What it had of each, such as V(8 nvidia.com/gpu).
  type: list
  elements: str
"""

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.slipway.inference.plugins.plugin_utils._quantity import whole


def lacking_resources(had: Mapping[str, Any], allocatable: Mapping[str, Any], pattern: str) -> list[str]:
    return [
        f"{count} {name}"
        for name, count in had.items()
        if re.match(pattern, name) and whole(count) > whole(allocatable.get(name, 0))
    ]


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Any]:
        return {"lacking_resources": lacking_resources}
