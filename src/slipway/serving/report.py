"""Report: the conditions that every served model shows, whatever API declared it. Pure.

Accepted: the spec can be served and its objects are in place. Available: at least one replica answers. Progressing:
pods of the newest spec are on their way; ``False/Complete`` once all of them answer, ``False/<failure>`` when they will
not by themselves. Routed: the gateway serves the model under its name.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from slipway.kube.conditions import Condition
from slipway.kube.objects import Object, generation
from slipway.serving.claims import NOT_ROUTED
from slipway.serving.diagnosis import Diagnosis, Failure
from slipway.serving.plan import Refusal
from slipway.serving.route import RoutedService, owners, winners

PASSED_THROUGH = frozenset(
    {"WaitingForPods", "RollingOut", "LoadingCache", "LoadingAdapters", "Leaving", "ModelNotReady", "NotScheduled"}
)
"""Reasons that models go through on their way, so that they are no news."""
SETTLED = frozenset({"Complete", "ScaledToZero", "AsExpected"})
"""Reasons for ``False`` with which all is well."""
STARTING = "No replica answers yet; the first start downloads the weights."
ON_THEIR_WAY = "Replicas of the newest spec are on their way."


class Awaited(msgspec.Struct, frozen=True):
    """What has to come before pods are made, or why there are none; nothing is wrong."""

    reason: str
    message: str


class Report(msgspec.Struct, frozen=True):
    """``phase`` is Ready, Failed or Pending; the conditions carry no times, the status writer adds them."""

    phase: str
    replicas: int
    ready_replicas: int
    conditions: tuple[Condition, ...]


def report(
    deployment: Object | None,
    diagnosis: Diagnosis,
    refusal: Refusal | None,
    others: Sequence[Condition],
    observed: int,
    awaited: Awaited | None = None,
    starting: str = STARTING,
) -> Report:
    """``observed``: generation of the resource; ``deployment``: as last observed, None while there is none; ``others``:
    the conditions that the API finds itself, Routed among them; ``starting``: what is told while nothing is wrong and
    nothing answers."""
    status = (deployment or {}).get("status", {})
    replicas, ready = status.get("replicas", 0), status.get("readyReplicas", 0)
    refused = refusal and not refusal.passing
    failure = Failure(refusal.reason, "See the condition Accepted.") if refusal and refused else diagnosis.failure
    # A failure is told once: where Available tells it, Progressing points there.
    elsewhere = failure and not refused and not ready
    stopped = Failure(failure.reason, "See the condition Available.") if failure and elsewhere else failure
    found = (
        _accepted(refusal),
        _available(ready, failure, _asleep(deployment) or awaited or Awaited("WaitingForPods", starting)),
        _progressing(deployment, stopped, awaited),
        *others,
    )
    phase = "Ready" if ready else "Failed" if failure else "Pending"
    conditions = tuple(msgspec.structs.replace(condition, observed_generation=observed) for condition in found)
    return Report(phase, replicas, ready, conditions)


def _accepted(refusal: Refusal | None) -> Condition:
    if refusal:
        return Condition("Accepted", "Unknown" if refusal.passing else "False", refusal.reason, refusal.message)
    return Condition("Accepted", "True", "Valid", "The spec is valid and its objects are in place.")


def _available(ready: int, failure: Failure | None, awaited: Awaited) -> Condition:
    if ready:
        return Condition(
            "Available", "True", "Ready", f"{ready} replica{'s' * (ready != 1)} answer{'s' * (ready == 1)}."
        )
    if failure:
        return Condition("Available", "False", failure.reason, failure.message)
    return Condition("Available", "False", awaited.reason, awaited.message)


def _asleep(deployment: Object | None) -> Awaited | None:
    if deployment is None or deployment["spec"].get("replicas", 1):
        return None
    return Awaited("ScaledToZero", "No replica is wanted at the moment, so none runs.")


def _progressing(deployment: Object | None, failure: Failure | None, awaited: Awaited | None) -> Condition:
    if failure:
        return Condition("Progressing", "False", failure.reason, failure.message)
    if awaited:
        return Condition("Progressing", "True", awaited.reason, awaited.message)
    if deployment is None:
        return Condition("Progressing", "True", "RollingOut", ON_THEIR_WAY)
    wanted, updated, ready, total = _counts(deployment)
    if _current(deployment) and updated == wanted and ready >= wanted and total == wanted:
        return Condition(
            "Progressing", "False", "Complete", f"All {wanted} replica{'s' * (wanted != 1)} run the newest spec."
        )
    return Condition("Progressing", "True", "RollingOut", ON_THEIR_WAY)


def _current(deployment: Object) -> bool:
    observed: int = deployment.get("status", {}).get("observedGeneration", 0)
    return observed >= generation(deployment)


def _counts(deployment: Object) -> tuple[int, int, int, int]:
    status = deployment.get("status", {})
    wanted = deployment["spec"].get("replicas", 1)
    return wanted, status.get("updatedReplicas", 0), status.get("readyReplicas", 0), status.get("replicas", 0)


def routed(key: str, names: Sequence[str], services: Sequence[RoutedService]) -> Condition:
    """Whether the Service ``namespace/name`` answers for the public names that it asks for."""
    own = next((service for service in services if service.key == key), None)
    if own is None:
        return Condition("Routed", "False", "NoService", "The Service that the gateway routes to does not exist yet.")
    ident = own.qualified
    if own.why_not(ident) == NOT_ROUTED:
        return Condition("Routed", "False", "NotRouted", f"This model {NOT_ROUTED}.")
    decided, qualified = winners(services), owners(services)
    if ident in qualified and qualified[ident].key != key:
        text = f"An older model of another API has this name in the same namespace, and requests for {ident} go to it."
        return Condition("Routed", "False", "NameConflict", f"{text} No id leads to this one: rename one of the two.")
    refused = [f"{name} {why}." for name in (*names, ident) if (why := own.why_not(name))]
    lost = [(name, decided[name].qualified) for name in names if name in decided and decided[name].key != key]
    if not refused and not lost:
        return Condition("Routed", "True", "Routed", f"The gateway serves this model as {', '.join([*names, ident])}.")
    told = ", ".join(f"{name} is served by {winner}" for name, winner in lost)
    texts = [*([f"An older model has the name: {told}."] if lost else []), *refused]
    texts += [f"Requests reach this one as {ident}."] if ident in qualified else []
    return Condition("Routed", "False", "NameConflict", " ".join(texts))
