# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: container_handlers
short_description: List the runtimes that containerd or CRI-O has registered
version_added: 0.4.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Parses the output of C(containerd config dump) or C(crio config), and returns the handler names that RuntimeClasses
    can use.
  - The role P(slipway.inference.gpu_node#role) uses it to verify a change before a restart.
positional: _input
options:
  _input:
    description: Output of C(containerd config dump) or C(crio config).
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Check that there is a runtime for GPUs
  ansible.builtin.assert:
    that: "'nvidia' in dumped.stdout | slipway.inference.container_handlers"
"""

RETURN = r"""
_value:
  description: Name of each runtime, with its binary. Empty for the default binary.
  type: dict
"""

from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.plugin_utils._runtime_state import handlers_of


def container_handlers(value: Any) -> dict[str, str]:
    try:
        return handlers_of(str(value))
    except ValueError as error:
        raise AnsibleFilterError(f"The output of the container runtime is not TOML: {error}") from error


class FilterModule:
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"container_handlers": container_handlers}
