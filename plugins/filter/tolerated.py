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
  - Converts a number or a percentage to a number of hosts. Percentages round down, with a minimum of one host, except
    V(0%).
  - The roles of this collection use it for all variables with names that end in C(_tolerate).
positional: _input, total
options:
  _input:
    description: A number, or a percentage such as V(5%).
    type: raw
    required: true
  total:
    description: Total number of hosts.
    type: int
    required: true
"""

EXAMPLES = r"""
- name: Check that not too many hosts are unavailable
  ansible.builtin.assert:
    that: away | length <= '5%' | slipway.inference.tolerated(groups.gpu_nodes | length)
"""

RETURN = r"""
_value:
  description: Number of hosts that can be unavailable.
  type: int
"""

from typing import Any

from ansible_collections.slipway.inference.plugins.plugin_utils._tolerance import tolerated


class FilterModule:
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"tolerated": tolerated}
