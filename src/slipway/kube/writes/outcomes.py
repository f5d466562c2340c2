"""Outcomes: the results of applying an owner's children, and the exceptions of the applier's steps."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec

from slipway.kube.api.errors import ApiError
from slipway.kube.writes.intents import Intent

NAME_TAKEN = "NameTaken"
MISSING_KIND = "MissingKind"
REFUSED_SECONDS = 60.0
"""How long to wait before a rejected intent is sent again."""
_TAKEN_SECONDS = 30.0
_MISSING_SECONDS = 10.0


class Failure(msgspec.Struct, frozen=True):
    """A child that cannot be applied until a person or program changes something."""

    kind: str
    name: str
    reason: str
    """``NameTaken``, ``MissingKind``, or the API server's reason: ``Invalid``, ``Forbidden``, ``NotFound`` ..."""
    message: str


class Applied(msgspec.Struct, frozen=True):
    """The results of applying the children."""

    failures: tuple[Failure, ...] = ()
    waiting: tuple[str, ...] = ()
    """Children (``kind name``) to create once the old object with their name is gone; its deletion requeues the
    owner."""
    errors: tuple[ApiError, ...] = ()
    """Transient errors: conflicts, overload, timeouts."""
    waited: bool = False
    """Whether the applier waited, so that the stores may have changed."""
    again_after: float | None = None
    """Seconds until something must be written again even without a change."""

    def __add__(self, other: Applied) -> Applied:
        return Applied(
            self.failures + other.failures,
            self.waiting + other.waiting,
            self.errors + other.errors,
            self.waited or other.waited,
            min((one.again_after for one in (self, other) if one.again_after is not None), default=None),
        )

    @property
    def retry_after(self) -> float | None:
        """Seconds until a failure is retried or something must be written again; None: never."""
        waits = {NAME_TAKEN: _TAKEN_SECONDS, MISSING_KIND: _MISSING_SECONDS}
        retries = [waits.get(failure.reason, REFUSED_SECONDS) for failure in self.failures]
        return min([*retries, *([] if self.again_after is None else [self.again_after])], default=None)

    def raise_transient(self) -> None:
        """Raises the transient error with the longest retry-after, so that the owner backs off."""
        if self.errors:
            raise max(self.errors, key=lambda error: error.retry_after or 0.0)


class RefusedError(Exception):
    """A child that the API server rejected, or that must not be written."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class NameTakenError(Exception):
    """The old object with the child's name must be deleted first."""


async def run_all(steps: Sequence[Coroutine[Any, Any, None]]) -> list[BaseException | None]:
    """Runs the steps concurrently. Returns what each raised."""
    return await asyncio.gather(*steps, return_exceptions=True) if steps else []


def summarize(outcomes: Sequence[BaseException | None], intents: Sequence[Intent]) -> Applied:
    """Sorts the exceptions of the steps. The first outcomes are those of ``intents``, in its order."""
    failures: list[Failure] = []
    waiting: list[str] = []
    errors: list[ApiError] = []
    for position, outcome in enumerate(outcomes):
        intent = intents[position] if position < len(intents) else None
        if outcome is None:
            continue
        if isinstance(outcome, RefusedError):
            failures.append(outcome.failure)
        elif isinstance(outcome, NameTakenError) and intent:
            waiting.append(f"{intent.kind.kind} {intent.name.name}")
        elif isinstance(outcome, ApiError):
            errors.append(outcome)
        else:
            raise outcome
    return Applied(tuple(failures), tuple(waiting), tuple(errors), waited=bool(outcomes))
