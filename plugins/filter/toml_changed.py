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
  - Gives back the text with the values that are asked for. Every line that says something else stays as it is, comments
    too. A text that has the values already comes back untouched.
  - The result is read again before it is given back, so that it says what was asked for and nothing else.
positional: _input
options:
  _input:
    description: The text of the file. It may be empty.
    type: str
    required: true
  changes:
    description: Values, in tables as they are in the file.
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
  description: The text with these values.
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
    """The filter."""

    def filters(self) -> dict[str, Any]:
        return {"toml_changed": toml_changed}
