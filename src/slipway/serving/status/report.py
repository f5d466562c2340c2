"""The conditions of every served model, in all APIs. Pure.

- Accepted: the spec can be served, and its objects exist.
- Available: at least one replica serves requests.
- Progressing: pods of the latest spec are starting. ``False/Complete`` once all of them serve requests, and
  ``False/<failure>`` if they cannot until something changes.
- Routed: the gateway serves the model under its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from slipway.kube.objects import DEPLOYMENT, Key, Kind, Object, generation
from slipway.kube.schemas.conditions import Condition
from slipway.serving.containers.diagnosis import Diagnosis, Failure, sentence
from slipway.serving.contract.api import Rejection
from slipway.serving.contract.readiness import ROUTED
from slipway.serving.pods.groups import LEADER_WORKER_SET
from slipway.serving.routing.claims import NOT_ROUTED, owners, winners
from slipway.serving.routing.route import RoutedService
from slipway.serving.status.builder import permanent, verdict

MODEL_ID = "modelId"
"""Name of the status field with the model ID that clients send."""
REPORTED = frozenset({"Accepted", "Available", "Progressing", ROUTED})
"""Types of the conditions in a report, including the condition that :func:`routed` returns."""
PASSED_THROUGH = frozenset({"WaitingForPods", "RollingOut"})
"""Reasons that models pass through during a rollout. They cause no Events."""
SETTLED = frozenset({"Complete", "ScaledToZero", "AsExpected"})
"""Reasons for which the status ``False`` of a condition is normal."""
STARTING = "No replica answers yet; the first start downloads the weights."
REPLICAS_STARTING = "Replicas of the latest spec are starting."
SERVING = frozenset({DEPLOYMENT, LEADER_WORKER_SET})
"""Kinds of workloads whose replicas serve requests."""
MAX_LISTED = 3
"""Maximum number of aliases that a message lists."""


class Pending(msgspec.Struct, frozen=True):
    """The reason why no replica serves requests yet, if it is not a failure."""

    reason: str
    message: str


class Component(msgspec.Struct, frozen=True):
    """One workload of a resource as last observed, and its diagnosis."""

    workload: Object | None
    """The workload, or None if it does not exist."""
    diagnosis: Diagnosis
    name: str = ""
    """Name of the component for messages. The value is empty if there is only one component."""

    @property
    def ready(self) -> int:
        """The number of ready replicas, according to the workload's status."""
        number: int = ((self.workload or {}).get("status") or {}).get("readyReplicas", 0)
        return number


class Report(msgspec.Struct, frozen=True):
    """Phase, numbers of replicas, and conditions without times and generation. ``phase`` is ``Ready``, ``Failed`` or
    ``Pending``."""

    phase: str
    replicas: int
    ready_replicas: int
    conditions: tuple[Condition, ...]


def report(
    components: Sequence[Component],
    rejection: Rejection | None,
    others: Sequence[Condition],
    pending: Pending | None = None,
    starting: str = STARTING,
) -> Report:
    """Derive the phase, the numbers of replicas and the conditions from at least one component.

    The model is available if each component has a ready replica. ``rejection`` is None if the plan is applied.
    ``others`` are the API's own conditions, including Routed. ``pending`` is the reason why no replica can be ready
    yet, or None if replicas are only starting. ``starting`` is the message in the latter case.
    """
    replicas = sum(((one.workload or {}).get("status") or {}).get("replicas", 0) for one in components)
    ready = all(one.ready for one in components)
    refused = permanent(rejection)
    wrong = next((one.diagnosis.failure for one in components if one.diagnosis.failure), None)
    failure = Failure(refused.reason, "See the condition Accepted.") if refused else wrong
    # A failure is described once: if Available describes it, Progressing refers to that.
    elsewhere = failure and not refused and not ready
    stopped = Failure(failure.reason, "See the condition Available.") if failure and elsewhere else failure
    conditions = (
        verdict(rejection, "The spec is valid and its objects are in place."),
        _available(components, failure, _asleep(components) or pending or Pending("WaitingForPods", starting)),
        _progressing(components, stopped, pending),
        *others,
    )
    phase = "Ready" if ready else "Failed" if failure else "Pending"
    return Report(phase, replicas, sum(one.ready for one in components), conditions)


def _available(components: Sequence[Component], failure: Failure | None, pending: Pending) -> Condition:
    if all(one.ready for one in components):
        return Condition("Available", "True", "Ready", " ".join(map(_answering, components)))
    if failure:
        # If there are several lines, the last ones are a log.
        message = failure.message if "\n" in failure.message else sentence(failure.message)
        return Condition("Available", "False", failure.reason, message)
    return Condition("Available", "False", pending.reason, pending.message)


def _answering(component: Component) -> str:
    ready, prefix = component.ready, f"{component.name}: " if component.name else ""
    return f"{prefix}{ready} replica{'s' * (ready != 1)} answer{'s' * (ready == 1)}."


def _asleep(components: Sequence[Component]) -> Pending | None:
    if any(one.workload is None or one.workload["spec"].get("replicas", 1) for one in components):
        return None
    return Pending("ScaledToZero", "Scaled to zero replicas.")


def _progressing(components: Sequence[Component], failure: Failure | None, pending: Pending | None) -> Condition:
    if failure:
        return Condition("Progressing", "False", failure.reason, failure.message)
    if pending:
        return Condition("Progressing", "True", pending.reason, pending.message)
    workloads = [one.workload for one in components if one.workload is not None]
    if len(workloads) < len(components) or not all(map(complete, workloads)):
        return Condition("Progressing", "True", "RollingOut", REPLICAS_STARTING)
    return Condition(
        "Progressing", "False", "Complete", _describe_complete(sum(_count_replicas(one)[0] for one in workloads))
    )


def _describe_complete(replicas: int) -> str:
    if replicas == 0:
        return "Scaled to zero replicas. The next one starts with the latest spec."
    return "The replica runs the latest spec." if replicas == 1 else f"All {replicas} replicas run the latest spec."


def complete(workload: Object) -> bool:
    """Whether all replicas of a workload run the latest spec and are ready."""
    desired, updated, ready, total = _count_replicas(workload)
    return _current(workload) and updated == desired and ready >= desired and total == desired


def newest_answers(children: Mapping[tuple[Kind, Key], Object]) -> bool:
    """Whether only replicas of the latest specs serve requests: no workload has replicas of an earlier spec, and each
    that should have replicas has a ready one. Without a ready canary, all requests go to the earlier spec."""
    counts = [_count_replicas(child) for (kind, _name), child in children.items() if kind in SERVING]
    return all(updated >= total and (ready or not desired) for desired, updated, ready, total in counts)


def _current(deployment: Object) -> bool:
    observed: int = deployment.get("status", {}).get("observedGeneration", 0)
    return observed >= generation(deployment)


def _count_replicas(deployment: Object) -> tuple[int, int, int, int]:
    status = deployment.get("status", {})
    desired = deployment["spec"].get("replicas", 1)
    return desired, status.get("updatedReplicas", 0), status.get("readyReplicas", 0), status.get("replicas", 0)


def routed(key: str, names: Sequence[str], services: Sequence[RoutedService]) -> Condition:
    """Return the condition Routed: whether the Service ``namespace/name`` in ``key`` serves the public IDs in
    ``names``. ``services`` contains this Service and those that request the same IDs (see ``World.routed``)."""
    own = next((service for service in services if service.key == key), None)
    if own is None:
        return Condition("Routed", "False", "NoService", "The Service that the gateway routes to does not exist yet.")
    ident = own.qualified
    if own.why_not(ident) == NOT_ROUTED:
        return Condition("Routed", "False", "NotRouted", f"This model {NOT_ROUTED}.")
    decided, qualified = winners(services), owners(services)
    if ident in qualified and qualified[ident].key != key:
        text = f"An older model of another API in the same namespace has this name, and requests for {ident} go to it."
        return Condition(ROUTED, "False", "NoId", f"{text} This model has no model ID. Rename one of the two.")
    refused = [f"{name} {why}." for name in (*names, ident) if (why := own.why_not(name))]
    conflicting = [(name, decided[name].qualified) for name in names if name in decided and decided[name].key != key]
    if not refused and not conflicting:
        served = f"The gateway serves this model as {', '.join([*names, ident])}."
        return Condition("Routed", "True", "Routed", " ".join([served, *_of_aliases(own)]))
    conflicts = ", ".join(f"{name} is served by {winner}" for name, winner in conflicting)
    texts = [*([f"An older model has the name: {conflicts}."] if conflicting else []), *refused]
    texts += [f"The model ID of this one is {ident}."] if ident in qualified else []
    return Condition(ROUTED, "False", "NameConflict", " ".join(texts))


def model_id(key: str, names: Sequence[str], services: Sequence[RoutedService]) -> Object:
    """Return the status field with the model ID that clients send: the first of ``names`` that leads to the Service, or
    else the qualified ID ``namespace/name``. The result is empty if no ID leads to the Service, or if ``services`` does
    not contain it."""
    own = next((service for service in services if service.key == key), None)
    if own is None:
        return {}
    short, qualified = winners(services), owners(services)
    held = [name for name in names if name in short and short[name].key == key]
    if own.qualified in qualified and qualified[own.qualified].key == key:
        held.append(own.qualified)
    return {MODEL_ID: held[0]} if held else {}


def _of_aliases(service: RoutedService) -> Iterator[str]:
    aliases = service.route.aliases
    if aliases:
        rest = f" and {len(aliases) - MAX_LISTED} more" if len(aliases) > MAX_LISTED else ""
        yield f"It also answers requests for {', '.join(aliases[:MAX_LISTED])}{rest}, unless another model has that ID."
    yield from (f"It does not answer requests for {model}, which {why}." for model, why in service.denied[:MAX_LISTED])
