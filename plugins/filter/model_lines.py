# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: model_lines
short_description: Summarize the result of each model and inference service in one line
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Summarizes the results of M(slipway.inference.model) and M(slipway.inference.inference_service). A line contains the
    URL if the object is ready, and the explanation if it is not.
options:
  _input:
    description: C(results) of one of these modules.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the result for each model
  ansible.builtin.debug:
    msg: "{{ registered.results | slipway.inference.model_lines }}"
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
"""

from collections.abc import Iterable, Mapping
from typing import Any


def model_lines(results: Iterable[Mapping[str, Any]]) -> list[str]:
    return [_line(one) for one in results]


def _line(one: Mapping[str, Any]) -> str:
    kind = "" if one["kind"] == "Model" else f"{one['kind']} "
    more = one["url"] if one["ready"] else one["message"]
    return f"{kind}{one['namespace']}/{one['name']}: {one['phase'] or 'Pending'} {more}".strip()


class FilterModule:
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"model_lines": model_lines}
