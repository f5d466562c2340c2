# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: object_differences
short_description: Show what a task changed on each of several objects
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - With C(--diff), M(kubernetes.core.k8s) shows the difference of a single object, and none of several that one task
    applies. This filter finds them in what such a task registered.
  - The role P(slipway.inference.component#role) uses it.
options:
  _input:
    description: What the task registered.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show what changed
  ansible.builtin.debug:
    msg: "{{ applied | slipway.inference.object_differences }}"
  when:
    - ansible_diff_mode
    - applied is changed
"""

RETURN = r"""
_value:
  description:
    - The difference of each changed object, by its kind and name. Of a single object there is none, as the module shows
      that itself, nor of one that changed only in fields that the task hides.
  type: dict
"""

from collections.abc import Mapping
from typing import Any


def object_differences(registered: Mapping[str, Any]) -> dict[str, Any]:
    results = (registered.get("result") or {}).get("results") or []
    changed = (one for one in results if one.get("changed") and "diff" in one)
    return {_title(one["result"]): one["diff"] for one in changed if one["diff"]["before"] != one["diff"]["after"]}


def _title(manifest: Mapping[str, Any]) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Any]:
        return {"object_differences": object_differences}
