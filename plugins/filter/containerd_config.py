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
  - Parses the output of C(containerd config dump), and returns the files to write to add a runtime to containerd. The
    filter itself does not read or write files.
  - containerd 2 merges imported files, so the runtime is written to an additional file, with an import if necessary. In
    containerd 1, imports replace whole sections, so its main file is changed, in as few lines as possible.
  - If a file already defines the runtime, that file is changed.
  - Files keep their version. The new runtime gets all options of a runc runtime, such as C(SystemdCgroup), preferably
    those of the default runtime. Existing runtimes keep their options.
  - The role P(slipway.inference.gpu_node#role) uses it.
positional: _input
options:
  _input:
    description: Output of C(containerd config dump).
    type: str
    required: true
  top:
    description: Content of containerd's main file. V(null) if it does not exist.
    type: str
  path:
    description: Path of that file.
    type: str
    default: /etc/containerd/config.toml
  imported:
    description: Content of the imported files by path.
    type: dict
    default: {}
  defaults:
    description: Output of C(containerd config default). Used if the node has no runc runtime.
    type: str
    default: ""
  handlers:
    description: Names of the runtime in RuntimeClasses. The first one is the default runtime if O(default=yes).
    type: list
    elements: str
    default: [nvidia]
  binary:
    description: Binary of the runtime.
    type: str
    default: /usr/bin/nvidia-container-runtime
  cdi:
    description: Whether to enable CDI. V(false) does not change the setting.
    type: bool
    default: true
  default:
    description:
      - V(leave) keeps the default runtime. V(yes) makes it the first of O(handlers).
      - V(no) selects another one if it is one of O(handlers).
      - Booleans mean V(yes) and V(no).
    type: raw
    default: leave
  state:
    description: Whether the runtime should exist.
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
  description: The changes to make.
  type: dict
  contains:
    version:
      description: Version of containerd's main file. Files without a version have version 1.
      type: int
    method:
      description: V(drop_in) if the runtime is in a separate file, V(top_file) if it is in containerd's main file.
      type: str
    files:
      description: Files to write, in this order. Each has a V(path) and a V(content).
      type: list
      elements: dict
    removed:
      description: Paths of files to delete after the others are written.
      type: list
      elements: str
    expected:
      description: The resulting runtimes, as the filter P(slipway.inference.container_runtimes#filter) returns them.
      type: dict
    changes:
      description: One line per change of a runtime or of the default runtime.
      type: list
      elements: str
    trial:
      description:
        - All resulting files, for a test in a temporary directory. containerd reads C(config.toml) there before any
          file is replaced. Each has a V(name) and a V(content).
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
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"containerd_config": containerd_config}
