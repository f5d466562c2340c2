# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: containerd_config
short_description: Compute the containerd configuration that registers an additional runtime
version_added: 0.4.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Takes what C(containerd config dump) says, and gives back which files are to be written, and how, so that containerd
    has a further runtime. Nothing is read or written.
  - containerd 2 merges what its file imports, so it gets a further file, and a line that imports it where none does.
    containerd 1 replaces whole sections by what it imports, so its own file is changed, in as few lines as can be.
  - A file that has such a runtime already is changed where it has it.
  - Files keep the version they have. The new runtime gets all options of a runtime that runs by runc, such as
    C(SystemdCgroup), preferably of the default runtime. Runtimes that exist keep their options.
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
  imported:
    description: Texts of the files that containerd imports, by path. Their order does not matter.
    type: dict
    default: {}
  defaults:
    description: Output of C(containerd config default). Used if the node has no runtime that runs by runc.
    type: str
    default: ""
  handlers:
    description: Names of the runtime in RuntimeClasses. The first one is the default runtime if O(default=yes).
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
    description:
      - V(leave) keeps the default runtime. V(yes) makes it the first of O(handlers).
      - V(no) makes it another one if it is one of O(handlers).
      - Booleans mean V(yes) and V(no).
    type: raw
    default: leave
  state:
    description: Whether the runtime is to be there.
    type: str
    choices: [present, absent]
    default: present
"""

EXAMPLES = r"""
- name: Plan the changes
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
    expected:
      description: The runtimes afterwards, as the filter P(slipway.inference.container_runtimes#filter) returns them.
      type: dict
    changes:
      description: One line per change of a runtime or of the default runtime.
      type: list
      elements: str
    trial:
      description:
        - All files as they will be, for one temporary directory. containerd reads C(config.toml) there before any file
          is replaced. Each has a V(name) and a V(content).
      type: list
      elements: dict
"""

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.plugin_utils._container_runtimes import containerd_plan
from ansible_collections.slipway.inference.plugins.plugin_utils._runtime_state import Request, default_choice


def containerd_config(
    value: Any,
    top: str | None = None,
    path: str = "/etc/containerd/config.toml",
    imported: Mapping[str, str] | None = None,
    defaults: str = "",
    handlers: tuple[str, ...] = ("nvidia",),
    binary: str = "/usr/bin/nvidia-container-runtime",
    cdi: bool = True,
    default: Any = "leave",
    state: str = "present",
) -> dict[str, Any]:
    try:
        request = Request(tuple(handlers), binary, bool(cdi), default_choice(default))
        return containerd_plan(str(value), top, path, request, state == "present", imported, defaults)
    except ValueError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """The filter."""

    def filters(self) -> dict[str, Any]:
        return {"containerd_config": containerd_config}
