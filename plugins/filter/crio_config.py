# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: crio_config
short_description: Write the file by which CRI-O comes to know a further runtime
version_added: 0.4.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Takes what C(crio config) says, and gives back a file for C(/etc/crio/crio.conf.d). Nothing is read or written.
  - The new runtime takes over the settings of the one that pods have today, such as its monitor. CRI-O looks at CDI
    specifications anyway.
  - The role P(slipway.inference.gpu_node#role) uses it.
positional: _input
options:
  _input:
    description: What C(crio config) says.
    type: str
    required: true
  handlers:
    description: Names by which RuntimeClasses ask for the runtime. The first one is the default where O(default).
    type: list
    elements: str
    default: [nvidia]
  binary:
    description: Program that runs the containers.
    type: str
    default: /usr/bin/nvidia-container-runtime
  default:
    description: Whether pods without a RuntimeClass run by it too.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Have CRI-O know the runtime
  ansible.builtin.copy:
    content: "{{ shown.stdout | slipway.inference.crio_config }}"
    dest: /etc/crio/crio.conf.d/99-nvidia.toml
    mode: "0644"
"""

RETURN = r"""
_value:
  description: The text of the file.
  type: str
"""

from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.plugin_utils._container_runtimes import Wanted, crio_drop_in


def crio_config(
    value: Any,
    handlers: tuple[str, ...] = ("nvidia",),
    binary: str = "/usr/bin/nvidia-container-runtime",
    default: bool = False,
) -> str:
    try:
        return crio_drop_in(str(value), Wanted(tuple(handlers), binary, cdi=True, default=bool(default)))
    except ValueError as error:
        raise AnsibleFilterError(f"What crio config says is no TOML: {error}") from error


class FilterModule:
    """The filter."""

    def filters(self) -> dict[str, Any]:
        return {"crio_config": crio_config}
