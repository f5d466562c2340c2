# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: object_differences
short_description: Show what a task changed in each of several objects
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - M(kubernetes.core.k8s) shows the difference of a single object, but none if a task applies several. This filter
    returns the differences from the registered result of such a task. The task needs C(diff).
  - The role P(slipway.inference.component#role) uses it.
options:
  _input:
    description: The registered result of the task.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the changes
  ansible.builtin.debug:
    msg: "{{ applied | slipway.inference.object_differences }}"
  when: ansible_diff_mode
"""

RETURN = r"""
_value:
  description:
    - The difference of each changed object, by its kind, namespace and name.
    - An object that changed only in the C(hidden_fields) of the task is left out.
  type: dict
"""

from collections.abc import Mapping
from typing import Any


def object_differences(registered: Mapping[str, Any]) -> dict[str, Any]:
    results = (registered.get("result") or {}).get("results") or []
    changed = (one for one in results if one.get("changed") and "diff" in one)
    return {_title(one["result"]): one["diff"] for one in changed if one["diff"]["before"] != one["diff"]["after"]}


def _title(manifest: Mapping[str, Any]) -> str:
    metadata = manifest["metadata"]
    name = "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)
    return f"{manifest['kind']} {name}"


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Any]:
        return {"object_differences": object_differences}
