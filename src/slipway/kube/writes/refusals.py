"""Intents that the API server rejected. They are not sent again for a while; otherwise every event would resend
them."""

from __future__ import annotations

import time
from typing import NamedTuple

from slipway.kube.api.errors import ApiError, InvalidObjectError
from slipway.kube.caches.informer import Informer
from slipway.kube.objects import Key, Kind
from slipway.kube.writes.intents import Intent
from slipway.kube.writes.outcomes import MISSING_KIND, NAME_TAKEN, REFUSED_SECONDS, Failure, RefusedError


class _Refusal(NamedTuple):
    """An intent that the API server rejected, and the monotonic time until which it is not sent again."""

    desired: bytes
    failure: Failure
    until: float


class Refusals:
    """The intents of one applier that the API server rejected."""

    def __init__(self) -> None:
        self._refusals: dict[tuple[Kind, Key], _Refusal] = {}

    def record(self, intent: Intent, error: ApiError) -> RefusedError:
        """Record the API server's rejection of an intent. Return the error to raise."""
        kind, name = intent.kind, intent.name
        failure = Failure(kind.kind, name.name, error.reason, error.message)
        now = time.monotonic()
        self._refusals = {child: refusal for child, refusal in self._refusals.items() if refusal.until > now}
        # One second less, so that it has expired by the time of the slow retry.
        self._refusals[kind, name] = _Refusal(intent.desired, failure, now + REFUSED_SECONDS - 1)
        return RefusedError(failure)

    def raise_recent(self, intent: Intent) -> None:
        """Raise RefusedError if the API server recently rejected the same intent. Otherwise forget any older
        rejection."""
        child = intent.kind, intent.name
        refusal = self._refusals.pop(child, None)
        if refusal is not None and refusal.desired == intent.desired and time.monotonic() < refusal.until:
            self._refusals[child] = refusal
            raise RefusedError(refusal.failure)

    def forget(self, kind: Kind, name: Key) -> None:
        self._refusals.pop((kind, name), None)


def name_taken(intent: Intent) -> RefusedError:
    kind, name = intent.kind.kind, intent.name.name
    message = f"{kind} {name} exists and was not created by Slipway; delete or rename one of the two"
    return RefusedError(Failure(kind, name, NAME_TAKEN, message))


def require_kind(informer: Informer, name: Key) -> None:
    """Raise RefusedError if the cluster lacks an optional kind, because every request would fail with a 404."""
    if informer.missing and informer.optional:
        kind = informer.kind
        text = f"The cluster has no {kind.plural} of {kind.api_version}; install {informer.optional}"
        raise RefusedError(Failure(kind.kind, name.name, MISSING_KIND, text))


def is_immutable(error: InvalidObjectError) -> bool:
    return any("immutable" in message for _unused, message in error.causes) or "immutable" in error.message
