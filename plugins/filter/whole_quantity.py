# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: whole_quantity
short_description: Convert a Kubernetes quantity to a whole number
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Converts a quantity such as V(1k), V(16Gi) or V(2e3) to a number, rounded down.
  - Kubernetes writes 1,000 devices as V(1k).
  - Invalid and negative quantities become V(0).
positional: _input
options:
  _input:
    description: A Kubernetes quantity.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Show how many GPUs a node offers
  ansible.builtin.debug:
    msg: "{{ node.status.allocatable['nvidia.com/gpu'] | slipway.inference.whole_quantity }}"
"""

RETURN = r"""
_value:
  description: The number.
  type: int
"""

from typing import Any

from ansible_collections.slipway.inference.plugins.plugin_utils._quantity import whole_number


def whole_quantity(value: Any) -> int:
    return whole_number(value)


class FilterModule:
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"whole_quantity": whole_quantity}
