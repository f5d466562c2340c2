# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: crio_config
short_description: Compute the CRI-O configuration that registers an additional runtime
version_added: 0.4.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Parses the output of C(crio config), and returns a file for C(/etc/crio/crio.conf.d). The filter itself does not
    read or write files.
  - The new runtime gets all settings of a runc or crun runtime, such as the monitor, preferably those of the default
    runtime. An existing runtime keeps its settings. In CRI-O, CDI is always enabled.
  - The role P(slipway.inference.gpu_node#role) uses it.
positional: _input
options:
  _input:
    description: Output of C(crio config).
    type: str
    required: true
  handlers:
    description: Names of the runtime in RuntimeClasses. The first one is the default runtime if O(default=yes).
    type: list
    elements: str
    default: [nvidia]
  binary:
    description: Binary of the runtime.
    type: str
    default: /usr/bin/nvidia-container-runtime
  default:
    description:
      - V(leave) keeps the default runtime. V(yes) makes it the first of O(handlers).
      - V(no) selects another one if it is one of O(handlers).
      - Booleans mean V(yes) and V(no).
    type: raw
    default: leave
  drop_in:
    description: Current content of the file. V(null) if it does not exist.
    type: str
  state:
    description: Whether the runtime should exist.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Add the runtime to CRI-O
  ansible.builtin.copy:
    content: "{{ (shown.stdout | slipway.inference.crio_config).content }}"
    dest: /etc/crio/crio.conf.d/99-nvidia.toml
    mode: "0644"
"""

RETURN = r"""
_value:
  description: The changes to make.
  type: dict
  contains:
    content:
      description: Content of the file. Empty if O(state=absent).
      type: str
    expected:
      description: The resulting runtimes, as the filter P(slipway.inference.container_runtimes#filter) returns them.
      type: dict
    changes:
      description: One line per change of a runtime or of the default runtime.
      type: list
      elements: str
"""

from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.plugin_utils._crio import crio_plan
from ansible_collections.slipway.inference.plugins.plugin_utils._runtime_state import Request, default_choice


def crio_config(
    value: Any,
    handlers: tuple[str, ...] = ("nvidia",),
    binary: str = "/usr/bin/nvidia-container-runtime",
    default: Any = "leave",
    drop_in: str | None = None,
    state: str = "present",
) -> dict[str, Any]:
    try:
        request = Request(tuple(handlers), binary, cdi=True, default=default_choice(default))
        return crio_plan(str(value), drop_in, request, state == "present")
    except ValueError as error:
        raise AnsibleFilterError(f"CRI-O was not changed: {error}") from error


class FilterModule:
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"crio_config": crio_config}
