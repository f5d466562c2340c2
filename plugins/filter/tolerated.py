# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: tolerated
short_description: Return how many of several hosts may be unavailable
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Turns a number, or a share of all, into a number of hosts. Shares are rounded down, but one that is not V(0%) is at
    least one host.
  - The variables of this collection whose names end in C(_tolerate) are read by it.
positional: _input, total
options:
  _input:
    description: A number, or a share such as V(5%).
    type: raw
    required: true
  total:
    description: How many hosts there are.
    type: int
    required: true
"""

EXAMPLES = r"""
- name: See that not too many hosts are away
  ansible.builtin.assert:
    that: away | length <= '5%' | slipway.inference.tolerated(groups.gpu_nodes | length)
"""

RETURN = r"""
_value:
  description: How many may be away.
  type: int
"""

from typing import Any

from ansible_collections.slipway.inference.plugins.plugin_utils._tolerance import tolerated


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Any]:
        return {"tolerated": tolerated}
