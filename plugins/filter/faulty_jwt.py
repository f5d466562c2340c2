# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: faulty_jwt
short_description: Tell what a gateway needs to verify tokens of an issuer and lacks
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
- Checks what is missing or too much before anything is installed.
- The role P(slipway.inference.gateway#role) uses it.
positional: _input
options:
  _input:
    description: The issuer, as the role's O(slipway.inference.gateway#role:main:gateway_jwt) has it. Empty means none.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: See that tokens can be verified
  ansible.builtin.assert:
    that: gateway_jwt | slipway.inference.faulty_jwt | length == 0
"""

RETURN = r"""
_value:
  description: "What is wrong, such as V(audience is missing)."
  type: list
  elements: str
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean


def faulty_jwt(jwt: Mapping[str, Any]) -> list[str]:
    return [*_faults(jwt)] if jwt else []


def _faults(jwt: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{option} is missing" for option in ("issuer", "audience") if not jwt.get(option))
    address = jwt.get("jwksUrl") or ""
    if bool(address) == (jwt.get("jwks") is not None):
        yield "give either jwksUrl or jwks"
    plain = boolean(jwt.get("allowHttp") or False, strict=False)
    if address and not str(address).startswith(("https://", "http://") if plain else "https://"):
        yield "jwksUrl is no https:// address"


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Any]:
        return {"faulty_jwt": faulty_jwt}
