"""Builders of statuses and of the condition that reports a rejection. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from slipway.kube.objects import Object, generation
from slipway.kube.schemas.conditions import Condition
from slipway.serving.containers.diagnosis import sentence
from slipway.serving.contract.api import InvalidSpecError, Rejection, StatusResult

ACCEPTED = "Accepted"


def first_rejection(*causes: object) -> Rejection | None:
    """Return the first permanent rejection among ``causes``, or else the first one that the controller retries, or
    None.

    An InvalidSpecError counts as a permanent rejection. Other values, such as valid views, are ignored.
    """
    rejections = [
        Rejection(cause.reason, cause.message) if isinstance(cause, InvalidSpecError) else cause
        for cause in causes
        if isinstance(cause, InvalidSpecError | Rejection)
    ]
    return next(filter(permanent, rejections), next(iter(rejections), None))


def permanent(rejection: Rejection | None) -> Rejection | None:
    """Return the rejection if only a change of the spec or of the cluster can resolve it, and None otherwise.

    A rejection that the controller retries affects only :func:`verdict`, because existing objects continue to serve.
    """
    return None if rejection is None or rejection.retryable else rejection


def verdict(rejection: Rejection | None, message: str, *, type_: str = ACCEPTED, reason: str = "Valid") -> Condition:
    """Return the condition of a resource's plan: True if the plan is applied, False if it is rejected, and Unknown
    while the controller retries. ``rejection`` is None if the plan is applied; ``message`` and ``reason`` are used in
    this case."""
    if rejection is None:
        return Condition(type_, "True", reason, message)
    status = "Unknown" if rejection.retryable else "False"
    return Condition(type_, status, rejection.reason, sentence(rejection.message))


def build_status(
    resource: Object,
    fields: Object,
    conditions: Iterable[Condition],
    *,
    trailing: Object | None = None,
    rechecks: Iterable[float | None] = (),
    passed_through: frozenset[str] = frozenset(),
) -> StatusResult:
    """Build the status of ``resource``: the fields of its API, then the conditions, then the ``trailing`` fields.

    ``rechecks`` are seconds after which a part of the status may change even if no object changes. The shortest one
    counts. ``passed_through`` is that of StatusResult.
    """
    observed = generation(resource)
    marked = [msgspec.to_builtins(msgspec.structs.replace(one, observed_generation=observed)) for one in conditions]
    status = {**fields, "observedGeneration": observed, "conditions": marked, **(trailing or {})}
    return StatusResult(status, min((one for one in rechecks if one is not None), default=None), passed_through)
