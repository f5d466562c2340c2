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
    returns the differences from the registered result of such a task. A task with several objects needs C(diff).
  - The role P(slipway.inference.component#role) uses it.
positional: _input, before
options:
  _input:
    description: The registered result of the task.
    type: dict
    required: true
  before:
    description:
      - If the task applies a single object, a list with its state before the task. Empty if the task creates it.
      - The task and this object must hide the same fields.
    type: list
    elements: dict
    default: []
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

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.common.dict_transformations import recursive_diff


def object_differences(
    registered: Mapping[str, Any], before: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Mapping[str, Any]]:
    result = registered.get("result") or {}
    if "kind" in result:
        return _difference(before[0] if before else {}, result)
    changed = (one for one in result.get("results") or [] if one.get("changed") and "diff" in one)
    return {_title(one["result"]): one["diff"] for one in changed if one["diff"]["before"] != one["diff"]["after"]}


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    diff = recursive_diff(before, after)
    return {_title(after): {"before": diff[0], "after": diff[1]}} if diff else {}


def _title(manifest: Mapping[str, Any]) -> str:
    metadata = manifest["metadata"]
    name = "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)
    return f"{manifest['kind']} {name}"


class FilterModule:
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"object_differences": object_differences}
