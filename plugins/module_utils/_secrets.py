# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Secrets in manifests: detected by their names, and masked in everything that a module returns. All functions are
pure.

A manifest should refer to a Secret instead of containing the value. If it contains the value, the value must not reach
a log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

MASK = "********"

# Environment variables, such as HUGGINGFACE_HUB_TOKEN, AWS_SECRET_ACCESS_KEY or DB_PASSWORD.
_VARIABLE = re.compile(
    r"token|secret|passw|credential|api_?key|access_?key|private_?key|(^|_)key$|(^|_)auth(_|$)", re.IGNORECASE
)
# Fields that contain a secret. Fields that name a Secret, such as secretName, are not included.
_FIELD = re.compile(r"(token|password|passwd|api_?key|access_?key|private_?key|client_?secret)$", re.IGNORECASE)
# Arguments of engines, such as --api-key VALUE, --hf-token=VALUE or llama.cpp's short -hft VALUE.
_ARGUMENT = re.compile(
    r"^--?(?:hft|[\w-]*(?:token|api[-_]?key|password|secret))(?P<value>=.*)?$", re.IGNORECASE | re.DOTALL
)
# http://user:password@host, such as the address of a proxy.
_USERINFO = re.compile(r"(?<=://)[^\s/?#]+(?=@)")
# https://host/file?X-Amz-Signature=..., a signed URL that gives everyone who has it access to the file.
_SIGNATURE = re.compile(
    r"(?<=[?&])([\w.-]*(?:sig|signature|token|api[-_]?key|password|secret)=)([^\s&#]+)", re.IGNORECASE
)

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def mask(value: Any) -> Any:
    """Return a copy in which every secret is replaced by asterisks."""
    return _walk(value, [])


def secrets_in(value: Any) -> list[str]:
    """Return the secrets that ``mask`` replaces, so that callers can hide them in other texts."""
    secrets: list[str] = []
    _walk(value, secrets)
    return secrets


def _walk(value: Any, secrets: list[str], *, variables: bool = False) -> Any:
    """Return a copy with masked secrets, and add the secrets to the list. ``variables`` is whether the keys of a
    dictionary are environment variables."""
    if isinstance(value, dict):
        secret_keys = set(_secret_keys(value, _VARIABLE if variables else _FIELD))
        return {
            key: _hide(part, secrets) if key in secret_keys else _walk(part, secrets, variables=key == "env")
            for key, part in value.items()
            if key != _LAST_APPLIED
        }
    if isinstance(value, list):
        return list(_arguments(value, secrets))
    if isinstance(value, str):
        bare = _USERINFO.sub(lambda match: _hide_userinfo(match[0], secrets), value)
        return _SIGNATURE.sub(lambda match: match[1] + _hide(match[2], secrets), bare)
    return value


def _secret_keys(value: dict[Any, Any], names: re.Pattern[str]) -> Iterator[Any]:
    if isinstance(value.get("name"), str) and "value" in value and _VARIABLE.search(value["name"]):
        yield "value"
    for key, part in value.items():
        if isinstance(key, str) and isinstance(part, str) and names.search(key):
            yield key


def _arguments(values: list[Any], secrets: list[str]) -> Iterator[Any]:
    """Yield the elements of a list, which may be a command line, with masked secrets."""
    after_flag = False
    for value in values:
        flag = _ARGUMENT.match(value) if isinstance(value, str) else None
        if after_flag and not flag and isinstance(value, str):
            yield _hide(value, secrets)
        elif flag and flag["value"]:
            name, _equals, secret = value.partition("=")
            yield f"{name}={_hide(secret, secrets)}"
        else:
            yield _walk(value, secrets)
        after_flag = bool(flag and not flag["value"])


def _hide(value: Any, secrets: list[str]) -> Any:
    if value in (None, ""):
        return value
    secrets.append(str(value))
    return MASK


def _hide_userinfo(text: str, secrets: list[str]) -> str:
    user, _colon, password = text.partition(":")
    secret = password or user
    secrets += {text, secret, unquote(secret)}
    return MASK
