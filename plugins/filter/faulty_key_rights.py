# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: faulty_key_rights
short_description: Tell what a gateway would not take of the rights of API keys and owners of tokens
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
- Checks names, types and ranges before anything is installed.
- The role P(slipway.inference.gateway#role) uses it.
positional: _input, keys, count_tokens, tokens_let_in
options:
  _input:
    description: By the name of a key, C(jwt:OWNER) or C(jwt:*) its rights.
    type: dict
    required: true
  keys:
    description: Names of the keys that there are.
    type: list
    elements: str
    required: true
  count_tokens:
    description: Whether the gateway counts tokens.
    type: bool
    default: true
  tokens_let_in:
    description: Whether the gateway lets in tokens (JWT) of an issuer, so that their owners may have rights.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: See that the rights can be used
  ansible.builtin.assert:
    that: "{'alice': {'requestsPerMinute': 60}} | slipway.inference.faulty_key_rights(['alice']) | length == 0"
"""

RETURN = r"""
_value:
  description: "What is wrong, such as V(alice: there is no owners)."
  type: list
  elements: str
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

OF_TOKENS = ("tokensPerMinute", "tokensPerDay")
NUMBERS = ("requestsPerMinute", "requestsPerDay", "requestsAtOnce", *OF_TOKENS)
KNOWN = ("owner", "models", "selector", "ends", *NUMBERS)
OWNERS = "jwt:"
OWNER = re.compile(rf"{OWNERS}([A-Za-z0-9._:/@|+=~,-]{{1,200}}|[*])")
MOST = 1_000_000_000
TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(Z|[+-]\d{2}:\d{2})")


def faulty_key_rights(
    rights: Mapping[str, Any], keys: Collection[str], count_tokens: bool = True, tokens_let_in: bool = False
) -> list[str]:
    return [
        f"{name}: {fault}"
        for name, own in rights.items()
        for fault in (*_unknown(name, keys, tokens_let_in), *_faults(own, count_tokens))
    ]


def _unknown(name: str, keys: Collection[str], tokens_let_in: bool) -> Iterator[str]:
    if not name.startswith(OWNERS):
        if name not in keys:
            yield "there is no such key"
    elif not tokens_let_in:
        yield "owners of tokens need gateway_jwt"
    elif not OWNER.fullmatch(name):
        yield "this is no name of an owner"


def _faults(rights: Any, count_tokens: bool) -> Iterator[str]:
    if not isinstance(rights, Mapping):
        yield "not a mapping"
        return
    yield from (f"there is no {option}" for option in rights if option not in KNOWN)
    for option in NUMBERS:
        if option in rights and not _limit(rights[option]):
            yield f"{option} is no whole number from 1 to {MOST}"
    if not count_tokens:
        yield from (f"{option} needs gateway_count_tokens" for option in OF_TOKENS if option in rights)
    if "models" in rights and not isinstance(rights["models"], (list, tuple)):
        yield "models is no list"
    if "ends" in rights and not TIME.fullmatch(str(rights["ends"])):
        yield 'ends is no time in quotes such as "2030-01-31T00:00:00Z"'


def _limit(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Any]:
        return {"faulty_key_rights": faulty_key_rights}
