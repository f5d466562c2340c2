# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: containerd_config
short_description: Work out how containerd comes to know a further runtime
version_added: 0.4.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Takes what C(containerd config dump) says, and gives back which files are to be written, and how, so that containerd
    has a further runtime. Nothing is read or written.
  - containerd 2 merges what its file imports, so it gets a further file, and a line that imports it where none does.
    containerd 1 replaces whole sections by what it imports, so its own file is changed, in as few lines as can be.
  - A file that has such a runtime already is changed where it has it.
  - Files keep the version they have. The new runtime takes over the options of the one that pods have today, such as
    C(SystemdCgroup).
  - The role P(slipway.inference.gpu_node#role) uses it.
positional: _input
options:
  _input:
    description: What C(containerd config dump) says.
    type: str
    required: true
  top:
    description: The text of containerd's file. V(null) where it has none.
    type: str
  path:
    description: Where that file is, or is to be.
    type: str
    default: /etc/containerd/config.toml
  handlers:
    description: Names by which RuntimeClasses ask for the runtime. The first one is the default where O(default).
    type: list
    elements: str
    default: [nvidia]
  binary:
    description: Program that runs the containers.
    type: str
    default: /usr/bin/nvidia-container-runtime
  cdi:
    description: Whether containerd is told to look at CDI specifications. V(false) leaves that as it is.
    type: bool
    default: true
  default:
    description: Whether pods without a RuntimeClass run by it too.
    type: bool
    default: false
  state:
    description: Whether the runtime is to be there.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Work out what to write
  ansible.builtin.set_fact:
    plan: "{{ dumped.stdout | slipway.inference.containerd_config(top=file.content | b64decode) }}"
"""

RETURN = r"""
_value:
  description: What is to be done.
  type: dict
  contains:
    version:
      description: Version of containerd's own file. One without a version is of version 1.
      type: int
    method:
      description: Whether the runtime stands in a file of its own, V(drop_in), or in containerd's file, V(top_file).
      type: str
    files:
      description: Files to be written, in this order. Each has a V(path) and a V(content).
      type: list
      elements: dict
    removed:
      description: Paths of files that are to go, after the others were written.
      type: list
      elements: str
"""

from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.plugin_utils._container_runtimes import Wanted, containerd_plan


def containerd_config(
    value: Any,
    top: str | None = None,
    path: str = "/etc/containerd/config.toml",
    handlers: tuple[str, ...] = ("nvidia",),
    binary: str = "/usr/bin/nvidia-container-runtime",
    cdi: bool = True,
    default: bool = False,
    state: str = "present",
) -> dict[str, Any]:
    wanted = Wanted(tuple(handlers), binary, bool(cdi), bool(default))
    try:
        return containerd_plan(str(value), top, path, wanted, state == "present")
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """The filter."""

    def filters(self) -> dict[str, Any]:
        return {"containerd_config": containerd_config}
