"""Results of applying an owner's children, and the exceptions of the applier's steps."""

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
"""Seconds before a rejected intent is sent again."""
_TAKEN_SECONDS = 30.0
_MISSING_SECONDS = 10.0


class Failure(msgspec.Struct, frozen=True):
    """An object that cannot be written until a person or a program changes something."""

    kind: str
    name: str
    reason: str
    """``NameTaken``, ``MissingKind``, or the API server's reason, such as ``Invalid``, ``Forbidden`` or
    ``NotFound``."""
    message: str


class Applied(msgspec.Struct, frozen=True):
    """The results of applying an owner's children."""

    failures: tuple[Failure, ...] = ()
    waiting: tuple[str, ...] = ()
    """Children (``kind name``) to create once the old object with their name is gone. The deletion of the old object
    requeues the owner."""
    errors: tuple[ApiError, ...] = ()
    """Transient errors, such as conflicts, overload and timeouts."""
    waited: bool = False
    """Whether the applier waited, so that the stores may have changed."""
    again_after: float | None = None
    """Seconds until an object must be written again even if nothing changes. The value is None if there is no such
    object."""

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
        """Seconds until a failure is retried or an object must be written again. The value is None if neither is
        necessary."""
        waits = {NAME_TAKEN: _TAKEN_SECONDS, MISSING_KIND: _MISSING_SECONDS}
        retries = [waits.get(failure.reason, REFUSED_SECONDS) for failure in self.failures]
        return min([*retries, *([] if self.again_after is None else [self.again_after])], default=None)

    def raise_transient(self) -> None:
        """Raise the transient error with the longest retry-after, so that the owner backs off. Do nothing if there is
        none."""
        if self.errors:
            raise max(self.errors, key=lambda error: error.retry_after or 0.0)


class RefusedError(Exception):
    """The API server rejected an object, or the object must not be written."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class NameTakenError(Exception):
    """An old object with the child's name must be deleted first."""


async def run_all(steps: Sequence[Coroutine[Any, Any, None]]) -> list[BaseException | None]:
    """Run the steps concurrently. Return the exception that each step raised, or None, in the order of the steps."""
    return await asyncio.gather(*steps, return_exceptions=True) if steps else []


def summarize(outcomes: Sequence[BaseException | None], intents: Sequence[Intent]) -> Applied:
    """Return the results of :func:`run_all` as one result. The first of ``outcomes`` are those of ``intents``, in the
    same order. Raise any exception that is neither a RefusedError, a NameTakenError of an intent, nor an ApiError."""
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
