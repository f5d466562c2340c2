# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: accelerator_totals
short_description: Sum what nodes offer of each accelerator
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
- Sums the allocatable resources whose names fit a pattern.
- The role P(slipway.inference.status#role) uses it.
positional: _input, pattern
options:
  _input:
    description: Nodes, as the API server lists them.
    type: list
    elements: dict
    required: true
  pattern:
    description: A regular expression that fits the beginning of a resource's name.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show the GPUs of NVIDIA
  ansible.builtin.debug:
    msg: "{{ nodes.resources | slipway.inference.accelerator_totals('nvidia[.]com/') }}"
"""

RETURN = r"""
_value:
  description: By each resource how many of it all nodes have together.
  type: dict
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.slipway.inference.plugins.plugin_utils._quantity import whole


def accelerator_totals(nodes: Iterable[Mapping[str, Any]], pattern: str) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for node in nodes:
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        totals.update({str(name): whole(count) for name, count in allocatable.items() if re.match(pattern, name)})
    return dict(totals)


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Any]:
        return {"accelerator_totals": accelerator_totals}
