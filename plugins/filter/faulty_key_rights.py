# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: faulty_key_rights
short_description: List the rights of API keys and token subjects that a gateway would reject
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Checks names, types and ranges before anything is installed.
  - The role P(slipway.inference.gateway#role) uses it.
positional: _input, keys, count_tokens, accepts_tokens
options:
  _input:
    description: Rights by the name of the key, C(jwt:SUBJECT) or C(jwt:*).
    type: dict
    required: true
  keys:
    description: Names of the existing keys.
    type: list
    elements: str
    required: true
  count_tokens:
    description: Whether the gateway counts tokens.
    type: bool
    default: true
  accepts_tokens:
    description: Whether the gateway accepts tokens (JWT), so that their subjects may have rights.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Check the rights
  ansible.builtin.assert:
    that: "{'alice': {'requestsPerMinute': 60}} | slipway.inference.faulty_key_rights(['alice']) | length == 0"
"""

RETURN = r"""
_value:
  description: "The problems, such as V(alice.owners: unknown option. Use owner.)"
  type: list
  elements: str
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any

TOKENS = ("tokensPerMinute", "tokensPerDay")
NUMBERS = ("requestsPerMinute", "requestsPerDay", "requestsAtOnce", *TOKENS)
MOST = 1_000_000_000
MOST_NAME = 253
TEXTS = {"owner": MOST_NAME, "selector": 1024}
KNOWN = ("owner", "models", "selector", "ends", *NUMBERS)
SUBJECT = re.compile(r"jwt:([A-Za-z0-9._:/@|+=~,-]{1,200}|\*)", re.ASCII)
TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(Z|[+-]\d{2}:\d{2})", re.ASCII)


def faulty_key_rights(
    rights: Mapping[Any, Any], keys: Collection[Any], count_tokens: bool = True, accepts_tokens: bool = False
) -> list[str]:
    return [
        *(f"{name}: {fault}" for name in rights if (fault := _name_fault(name, keys, accepts_tokens))),
        *(f"{name}{fault}" for name, own in rights.items() for fault in _faults(own, count_tokens)),
    ]


def _name_fault(name: Any, keys: Collection[str], accepts_tokens: bool) -> str:
    """Return why there is no key or subject with this name, or an empty string if there is one. YAML reads some names,
    such as 1, as numbers."""
    if not isinstance(name, str) or not name.startswith("jwt:"):
        return "" if name in keys else "no such key in gateway_api_keys."
    if not accepts_tokens:
        return "the gateway accepts no tokens. Set gateway_jwt."
    return "" if SUBJECT.fullmatch(name) else "not a valid subject. Use 1 to 200 of A-Za-z0-9._:/@|+=~,- or jwt:*."


def _faults(rights: Any, count_tokens: bool) -> Iterator[str]:
    if not isinstance(rights, Mapping):
        yield f": {_shown(rights)} is not a mapping."
        return
    for option, value in rights.items():
        if option not in KNOWN:
            yield f".{option}: unknown option. Use {_nearest(option)}."
        elif problem := _problem(option, value):
            yield f".{option}: {_shown(value)} is not {problem}."
        elif option in TOKENS and not count_tokens:
            yield f".{option}: the gateway counts no tokens. Set gateway_count_tokens."


def _problem(option: str, value: Any) -> str:
    """Return what the value should be, such as ``a whole number from 1 to 10``, or an empty string if it is valid."""
    if option in NUMBERS:
        return "" if _is_limit(value) else f"a whole number from 1 to {MOST}"
    if option in TEXTS:
        return "" if _is_text(value, TEXTS[option]) else f"a text of at most {TEXTS[option]} characters"
    if option == "models":
        return "" if _is_names(value) else f"a list of IDs of at most {MOST_NAME} characters"
    return "" if _is_time(value) else 'a time in quotes, such as "2030-01-31T00:00:00Z"'


def _is_limit(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST


def _is_text(value: Any, most: int) -> bool:
    return isinstance(value, str) and len(value) <= most


def _is_names(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(_is_text(name, MOST_NAME) for name in value)


def _is_time(value: Any) -> bool:
    if not isinstance(value, str) or not TIME.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _nearest(option: Any) -> str:
    return (get_close_matches(str(option), KNOWN, 1) or [", ".join(KNOWN)])[0]


def _shown(value: Any) -> str:
    return json.dumps(value, default=str)[:100]


class FilterModule:
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"faulty_key_rights": faulty_key_rights}
