# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: too_old
short_description: Choose the versions from which an upgrade would leave releases out
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
- An upgrade goes from one minor release to the next, or to the next major one.
- The role P(slipway.inference.preflight#role) uses it.
positional: _input, wanted
options:
  _input:
    description: Versions that are installed.
    type: list
    elements: str
    required: true
  wanted:
    description: The version to upgrade to.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: See that no release is left out
  ansible.builtin.assert:
    that: "['0.4.0'] | slipway.inference.too_old('0.5.0') | length == 0"
"""

RETURN = r"""
_value:
  description: Those of them from which one has to take a step between.
  type: list
  elements: str
"""

import re
from collections.abc import Iterable
from typing import Any


def too_old(versions: Iterable[str], wanted: str) -> list[str]:
    to = _release(wanted)
    return [version for version in versions if _leaves_out(_release(version), to)]


def _leaves_out(since: tuple[int, int], to: tuple[int, int]) -> bool:
    return to[0] - since[0] > 1 or (to[0] == since[0] and to[1] - since[1] > 1)


def _release(version: str) -> tuple[int, int]:
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Any]:
        return {"too_old": too_old}
