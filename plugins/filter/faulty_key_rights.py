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
positional: _input, keys, count_tokens, tokens_let_in, accounts_let_in
options:
  _input:
    description: >-
      By the name of a key, C(jwt:OWNER), C(jwt:*), C(serviceaccount:NAMESPACE:NAME) or C(serviceaccount:*) its rights.
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
  accounts_let_in:
    description: Whether the gateway lets in tokens of service accounts, so that these may have rights.
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
  description: "What is wrong, such as V(alice: unknown option owners)."
  type: list
  elements: str
"""

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any

OF_TOKENS = ("tokensPerMinute", "tokensPerDay")
NUMBERS = ("requestsPerMinute", "requestsPerDay", "requestsAtOnce", *OF_TOKENS)
KNOWN = ("owner", "models", "selector", "ends", *NUMBERS)
OWNERS = "jwt:"
ACCOUNTS = "serviceaccount:"
OWNER = re.compile(rf"{OWNERS}([A-Za-z0-9._:/@|+=~,-]{{1,200}}|[*])")
ACCOUNT = re.compile(rf"{ACCOUNTS}([a-z0-9-]{{1,63}}:[a-z0-9.-]{{1,170}}|[*])")
MOST = 1_000_000_000
MOST_NAME = 253
TEXTS = {"owner": MOST_NAME, "selector": 1024}
TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(Z|[+-]\d{2}:\d{2})")


def faulty_key_rights(
    rights: Mapping[str, Any],
    keys: Collection[str],
    count_tokens: bool = True,
    tokens_let_in: bool = False,
    accounts_let_in: bool = False,
) -> list[str]:
    return [
        f"{name}: {fault}"
        for name, own in rights.items()
        for fault in (*_unknown(name, keys, tokens_let_in, accounts_let_in), *_faults(own, count_tokens))
    ]


def _unknown(name: str, keys: Collection[str], tokens_let_in: bool, accounts_let_in: bool) -> Iterator[str]:
    if name.startswith(OWNERS):
        if not tokens_let_in:
            yield "owners of tokens need gateway_jwt"
        elif not OWNER.fullmatch(name):
            yield "this is not the name of an owner"
    elif name.startswith(ACCOUNTS):
        if not accounts_let_in:
            yield "service accounts need gateway_service_account_audience"
        elif not ACCOUNT.fullmatch(name):
            yield "this is not the namespace and name of a service account"
    elif name not in keys:
        yield "there is no such key"


def _faults(rights: Any, count_tokens: bool) -> Iterator[str]:
    if not isinstance(rights, Mapping):
        yield "not a mapping"
        return
    yield from (f"unknown option {option}" for option in rights if option not in KNOWN)
    for option in NUMBERS:
        if option in rights and not _limit(rights[option]):
            yield f"{option} is not a whole number from 1 to {MOST}"
    if not count_tokens:
        yield from (f"{option} needs gateway_count_tokens" for option in OF_TOKENS if option in rights)
    for option, most in TEXTS.items():
        if option in rights and not _text(rights[option], most):
            yield f"{option} is not a text of at most {most} characters"
    if "models" in rights and not _names(rights["models"]):
        yield f"models is not a list of ids of at most {MOST_NAME} characters"
    if "ends" in rights and not _time(rights["ends"]):
        yield 'ends is not a time in quotes such as "2030-01-31T00:00:00Z"'


def _text(value: Any, most: int) -> bool:
    return isinstance(value, str) and len(value) <= most


def _names(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(_text(one, MOST_NAME) for one in value)


def _time(value: Any) -> bool:
    if not isinstance(value, str) or not TIME.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _limit(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Any]:
        return {"faulty_key_rights": faulty_key_rights}
