# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: listed
short_description: Split the text of an AWX survey field into a list of names
version_added: 0.4.0
author:
  - The slipway.inference authors (@slipway)
description:
  - AWX surveys and C(--extra-vars name=value) pass several names as one string. Argument specs accept such a string for
    a list, but do not convert it.
  - Lists are returned unchanged.
  - The roles of this collection use it for all lists of names.
options:
  _input:
    description: A list, or a string with names separated by commas, spaces or line breaks.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Show the serving APIs, from a survey or a list
  ansible.builtin.debug:
    msg: "{{ slipway_apis | slipway.inference.listed }}"
  vars:
    slipway_apis: one, two
"""

RETURN = r"""
_value:
  description: The names, in the same order.
  type: list
  elements: raw
"""

from typing import Any

from ansible.errors import AnsibleFilterError


def listed(names: Any) -> list[Any]:
    if isinstance(names, str):
        return names.replace(",", " ").split()
    if isinstance(names, (list, tuple)):
        return list(names)
    raise AnsibleFilterError(f"Names must be a list or a comma-separated string, not {names!r}.")


class FilterModule:
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"listed": listed}
