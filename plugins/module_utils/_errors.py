# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""One error type with a stable code and a hint, created from the responses of the API server and from network errors.

Every failure of a module is an InferenceError, so a play can branch on ``error_code``, and a person reads how to fix
it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.slipway.inference.plugins.module_utils._spelling import did_you_mean

_UNSUPPORTED = re.compile(r'Unsupported value: "([^"]*)": supported values: (.*)', re.DOTALL)
_QUOTED = re.compile(r'"([^"]*)"')

# Advice for each code. The keys are the codes that modules return. Their meaning never changes.
HINTS: Mapping[str, str] = {
    "invalid_input": "",
    "missing_library": "",
    "no_connection_details": "Set kubeconfig, or host and api_key, or the K8S_AUTH_* environment variables.",
    "unreachable": "Check the address, the network and the proxy settings, and that the API server runs.",
    "certificate": "Set ca_cert (K8S_AUTH_SSL_CA_CERT) to the cluster's CA certificate.",
    "unauthorized": "The credentials are missing, wrong or expired.",
    "forbidden": "Grant it with a Role and a RoleBinding.",
    "definition_missing": "Run the role slipway.inference.crds first.",
    "namespace_missing": "Create the namespace first.",
    "conflict": "Set force_conflicts to take these fields over, or remove them from the task.",
    "invalid": "",
    "denied": "",
    "not_found": "",
    "server_error": "",
    "failed": "",
    "timeout": "",
    "controller_missing": "Is the controller running? The role slipway.inference.controller installs it.",
    "deleted": "",
    "replaced": "Run the task again.",
    "internal_error": "This is a bug in the module. Please report it.",
}


@dataclass
class InferenceError(Exception):
    """A failure with a code of ``HINTS``. ``status`` is the HTTP status, or 0 if no server responded."""

    code: str
    message: str
    status: int = 0
    retry_after: float | None = None
    transient: bool = False
    # Advice in addition to the hint for the code.
    advice: tuple[str, ...] = ()
    # How to get more information.
    further: str = ""

    def __post_init__(self) -> None:
        super().__init__(self.message)

    @property
    def hint(self) -> str:
        return "\n".join(filter(None, (HINTS[self.code], *self.advice)))

    @property
    def text(self) -> str:
        """The message, followed by the advice."""
        message = f"{self.message} {HINTS[self.code]}".rstrip()
        joint = "\n" if "\n" in message else " "
        return "\n".join([joint.join(filter(None, (message, self.further))), *self.advice])


def from_answer(
    status: int, body: bytes, retry_after: str | None, verb: str, resource: str, where: str
) -> InferenceError:
    """Return the error for an error response of the API server.

    ``verb`` and ``resource`` are as in RBAC, such as ``patch`` and ``models.example.com``. ``where`` is ``namespace``
    or ``namespace/name``, or empty for the whole cluster.
    """
    answer = _status_object(body)
    message = str(answer.get("message") or body[:500].decode(errors="replace").strip() or f"HTTP status {status}")
    details = answer.get("details") or {}
    seconds = _seconds(retry_after, details.get("retryAfterSeconds"))
    code, text = _classify(status, message, answer, verb, resource, where)
    return InferenceError(code, text, status, seconds, _transient(status, message))


def _classify(
    status: int, message: str, answer: dict[str, Any], verb: str, resource: str, where: str
) -> tuple[str, str]:
    details = answer.get("details") or {}
    place = f" in {where}" if where else ""
    if status == 401:
        return "unauthorized", f"The API server rejected the credentials ({verb} {resource}{place})."
    if "admission webhook" in message and status < 500:
        return "denied", _sentence(message)
    if status == 403 and details.get("kind") and "cannot" in message:
        return "forbidden", f"The account is not allowed to {verb} {resource}{place}: {_sentence(message)}"
    if status == 403:
        return "denied", _sentence(message)
    if status == 404 and details.get("kind") == "namespaces":
        return "namespace_missing", f"The namespace {details.get('name')} does not exist."
    if status == 404 and answer.get("reason") != "NotFound":
        return "definition_missing", f"The cluster has no resource type {resource}."
    if status == 404 and not details.get("name"):
        return "definition_missing", f"The cluster has no resource type {resource}."
    if status == 404:
        return "not_found", f"There is no {resource}{place}."
    if status == 409:
        return "conflict", _conflicts(details.get("causes") or ()) or _sentence(message)
    if status in (400, 415, 422) or "typed patch object" in message:
        return "invalid", _invalid(message, details.get("causes") or ())
    return "server_error", f"The API server answered {status} to {verb} {resource}{place}: {_sentence(message)}"


def _transient(status: int, message: str) -> bool:
    # The API server returns 500 for a field that the definition does not have. A retry would not help.
    return status in (408, 429) or (status >= 500 and "typed patch object" not in message)


def _conflicts(causes: Iterable[Mapping[str, str]]) -> str:
    """Return a text such as ``kubectl owns .spec.port, .spec.args`` for the conflicts with each manager. The result is
    empty if there are none."""
    owners: dict[str, list[str]] = {}
    for cause in causes:
        if cause.get("reason") == "FieldManagerConflict":
            manager = cause.get("message", "").partition('"')[2].partition('"')[0] or "another manager"
            owners.setdefault(manager, []).append(cause.get("field", ""))
    return "; ".join(f"{manager} owns {', '.join(fields)}" for manager, fields in owners.items()) + "." * bool(owners)


def _invalid(message: str, causes: Iterable[Mapping[str, str]]) -> str:
    problems = [
        f"{cause['field']}: {_with_choice_meant(cause['message'])}"
        for cause in causes
        if cause.get("field") and cause.get("message")
    ]
    if problems:
        return _sentence("; ".join(problems))
    # failed to create typed patch object (models/a; example.com/v1, Kind=Model): .spec.x: field not declared ...
    return _sentence(message.partition("): ")[2] if "typed patch object" in message else message)


def _with_choice_meant(message: str) -> str:
    """Return a message about an unsupported value with the most similar supported value added. Other messages stay
    unchanged."""
    match = _UNSUPPORTED.match(message)
    return f"{message}. {did_you_mean(match[1], _QUOTED.findall(match[2]))}".rstrip(". ") if match else message


def _sentence(text: str) -> str:
    return text.rstrip() if text.rstrip().endswith((".", "!", "?")) else f"{text.rstrip()}."


def _status_object(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _seconds(header: str | None, detail: Any) -> float | None:
    for value in (header, detail):
        try:
            seconds = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None
