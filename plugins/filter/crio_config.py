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
  - Takes what C(crio config) says, and gives back a file for C(/etc/crio/crio.conf.d). Nothing is read or written.
  - The new runtime gets all settings, such as the monitor, of a runtime that runs by runc or crun, preferably of the
    default runtime. A runtime that exists keeps its settings. CRI-O looks at CDI specifications anyway.
  - The role P(slipway.inference.gpu_node#role) uses it.
positional: _input
options:
  _input:
    description: What C(crio config) says.
    type: str
    required: true
  handlers:
    description: Names of the runtime in RuntimeClasses. The first one is the default runtime if O(default=yes).
    type: list
    elements: str
    default: [nvidia]
  binary:
    description: Program that runs the containers.
    type: str
    default: /usr/bin/nvidia-container-runtime
  default:
    description:
      - V(leave) keeps the default runtime. V(yes) makes it the first of O(handlers).
      - V(no) makes it another one if it is one of O(handlers).
      - Booleans mean V(yes) and V(no).
    type: raw
    default: leave
  drop_in:
    description: The current text of the file. V(null) if it does not exist.
    type: str
  state:
    description: Whether the runtime is to be there.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Have CRI-O know the runtime
  ansible.builtin.copy:
    content: "{{ (shown.stdout | slipway.inference.crio_config).content }}"
    dest: /etc/crio/crio.conf.d/99-nvidia.toml
    mode: "0644"
"""

RETURN = r"""
_value:
  description: What is to be done.
  type: dict
  contains:
    content:
      description: The text of the file. Empty if O(state=absent).
      type: str
    expected:
      description: The runtimes afterwards, as the filter P(slipway.inference.container_runtimes#filter) returns them.
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
    """The filter."""

    def filters(self) -> dict[str, Any]:
        return {"crio_config": crio_config}
