"""Proofs that an attack failed: what the API server, a status or another server must say. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection

from tests.cluster.cluster import Object, condition

Answer = tuple[int, str]
"""Status and text of an answer."""


def require_policy(answer: Answer, policy: str, message: str, hidden: Collection[str] = ()) -> None:
    """An admission policy rejected a request, with 403, its name and its message, and shows nothing of ``hidden``."""
    status, text = answer
    assert status == 403, f"the answer is {status}, not 403 by the policy {policy}: {text}"
    assert f"'{policy}'" in text, f"403, but not by the policy {policy}: {text}"
    assert message in text, f"the policy {policy} does not state the reason {message!r}: {text}"
    require_hidden(text, hidden)


def require_no_right(answer: Answer, verb: str, resource: str, hidden: Collection[str] = ()) -> None:
    """The account has no right to do this, whatever the object."""
    status, text = answer
    assert status == 403, f"the answer is {status}, not 403: {text}"
    assert f'cannot {verb} resource \\"{resource}\\"' in text or f'cannot {verb} resource "{resource}"' in text, (
        f"403, but not because the account cannot {verb} {resource}: {text}"
    )
    require_hidden(text, hidden)


def require_level(answer: Answer, level: str, word: str) -> None:
    """The Pod Security level of the namespace rejected a pod, and says this of it."""
    status, text = answer
    assert status == 403, f"the answer is {status}, not 403 by the level {level}: {text}"
    assert "violates PodSecurity" in text, f"403, but not by a Pod Security level: {text}"
    assert f'"{level}:' in text, f"not the level {level} rejected the pod: {text}"
    assert word in text, f"the level {level} does not state {word!r}: {text}"


def require_hidden(text: str, hidden: Collection[str]) -> None:
    shown = [secret for secret in hidden if secret in text]
    assert not shown, f"the answer shows {len(shown)} secrets"


def require_rejected(resource: Object, reason: str, *words: str, kind: str = "Accepted") -> None:
    """The status rejects the resource for this reason, with these words in the message."""
    actual = condition(resource, kind)
    seen = json.dumps(resource.get("status", {}))
    assert (actual.get("status"), actual.get("reason")) == ("False", reason), f"not {kind}=False/{reason}: {seen}"
    missing = [word for word in words if word not in actual.get("message", "")]
    assert not missing, f"the message of {reason} lacks {missing}: {actual.get('message')}"


def require_status(answer: Answer, statuses: Collection[int], *words: str) -> None:
    """A server rejected a request."""
    status, text = answer
    assert status in statuses, f"the answer is {status}, not one of {sorted(statuses)}: {text[:500]}"
    missing = [word for word in words if word not in text]
    assert not missing, f"the answer lacks {missing}: {text[:500]}"
