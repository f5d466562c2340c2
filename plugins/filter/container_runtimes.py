# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: container_runtimes
short_description: Return the runtimes of containerd or CRI-O with their settings
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Parses the output of C(containerd config dump) or C(crio config). Returns the default runtime, and all runtimes with
    their types and options. Settings with default values are omitted.
  - The role P(slipway.inference.gpu_node#role) uses it to compare the configuration before and after a change.
positional: _input
options:
  _input:
    description: Output of C(containerd config dump) or C(crio config).
    type: str
    required: true
  path:
    description: Configuration file of containerd. Relative imports are relative to it.
    type: str
    default: /etc/containerd/config.toml
"""

EXAMPLES = r"""
- name: Show the default runtime
  ansible.builtin.debug:
    msg: "{{ (dumped.stdout | slipway.inference.container_runtimes).default }}"
"""

RETURN = r"""
_value:
  description: Configuration of the runtimes.
  type: dict
  contains:
    default:
      description: Runtime of pods without a RuntimeClass. Empty if it is not printed.
      type: str
    runtimes:
      description: Settings of each runtime, by name.
      type: dict
    cdi:
      description: Whether CDI is enabled. V(null) if it is not printed.
      type: bool
    imports:
      description: Paths and patterns of files that containerd imports.
      type: list
      elements: str
"""

from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.plugin_utils._runtime_state import state_of


def container_runtimes(value: Any, path: str = "/etc/containerd/config.toml") -> dict[str, Any]:
    try:
        return state_of(str(value), path).as_dict()
    except ValueError as error:
        raise AnsibleFilterError(f"The output of the container runtime is not TOML: {error}") from error


class FilterModule:
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"container_runtimes": container_runtimes}
