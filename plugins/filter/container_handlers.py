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
  - Takes what C(containerd config dump) or C(crio config) says, and gives back the names that a RuntimeClass may ask
    for.
  - The role P(slipway.inference.gpu_node#role) uses it, to see that a change is read before anything is
    restarted.
positional: _input
options:
  _input:
    description: What C(containerd config dump) or C(crio config) says.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: See that there is a runtime for GPUs
  ansible.builtin.assert:
    that: "'nvidia' in dumped.stdout | slipway.inference.container_handlers"
"""

RETURN = r"""
_value:
  description: Name of each runtime, with the program that runs its containers. Empty where that is the usual one.
  type: dict
"""

from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.plugin_utils._runtime_state import handlers_of


def container_handlers(value: Any) -> dict[str, str]:
    try:
        return handlers_of(str(value))
    except ValueError as error:
        raise AnsibleFilterError(f"What the container runtime says is no TOML: {error}") from error


class FilterModule:
    """The filter."""

    def filters(self) -> dict[str, Any]:
        return {"container_handlers": container_handlers}
