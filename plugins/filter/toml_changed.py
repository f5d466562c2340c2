# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: toml_changed
short_description: Set values in a TOML document and leave all other lines unchanged
version_added: 0.4.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Returns the document with the given values. All other lines, including comments, do not change. If the document
    already has the values, it is returned unchanged.
  - The filter parses the result to verify that it contains exactly the requested changes.
positional: _input
options:
  _input:
    description: Content of the file. It can be empty.
    type: str
    required: true
  changes:
    description: Values, in the same tables as in the file.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Set the mode of NVIDIA's runtime
  ansible.builtin.copy:
    content: "{{ file.content | b64decode | slipway.inference.toml_changed(changes) }}"
    dest: /etc/nvidia-container-runtime/config.toml
    mode: "0644"
  vars:
    changes: {nvidia-container-runtime: {mode: cdi}}
"""

RETURN = r"""
_value:
  description: The changed document.
  type: str
"""

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.plugin_utils._toml import changed


def toml_changed(value: Any, changes: Mapping[str, Any]) -> str:
    try:
        return changed(str(value), changes)
    except (TypeError, ValueError) as error:
        raise AnsibleFilterError(f"The file cannot be changed: {error}") from error


class FilterModule:
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"toml_changed": toml_changed}
