# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: container_runtime_mismatches
short_description: List how the runtimes of containerd or CRI-O differ from the expected ones
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Compares the default runtime, and the types and options of all runtimes. An undefined default runtime is also a
    difference.
  - The role P(slipway.inference.gpu_node#role) uses it before it replaces a file.
positional: _input, expected
options:
  _input:
    description: Output of C(containerd config dump) or C(crio config).
    type: str
    required: true
  expected:
    description: The RV(slipway.inference.containerd_config#filter:_value.expected) of a plan.
    type: dict
    required: true
  exact:
    description: Whether further runtimes and settings are differences. CRI-O prints its defaults only in part.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Check the new configuration
  ansible.builtin.assert:
    that: dumped.stdout | slipway.inference.container_runtime_mismatches(plan.expected) | length == 0
"""

RETURN = r"""
_value:
  description: One line per difference.
  type: list
  elements: str
"""

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.plugin_utils._runtime_state import mismatches, state_of


def container_runtime_mismatches(value: Any, expected: Mapping[str, Any], exact: bool = True) -> list[str]:
    try:
        return mismatches(expected, state_of(str(value)).as_dict(), bool(exact))
    except ValueError as error:
        raise AnsibleFilterError(f"The output of the container runtime is not TOML: {error}") from error


class FilterModule:
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"container_runtime_mismatches": container_runtime_mismatches}
