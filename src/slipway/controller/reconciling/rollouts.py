"""Events for a resource whose pods are replaced or drained, or whose replicas are reset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from slipway.kube.objects import Key, Kind, Object, annotations_of, deleting, key
from slipway.kube.values.times import unix_time
from slipway.kube.writes.events import Recorder
from slipway.serving.containers.diagnosis import ended, template_digest
from slipway.serving.contract.api import World
from slipway.serving.pods.job import job_of

FRESH_SECONDS = 60.0
"""Maximum age, in seconds, of a termination that causes an Event. A starting controller would otherwise report old
terminations again."""
MAX_LISTED = 3
"""Maximum number of pods that a message lists."""
COMPARED = ("image", "command", "args")
"""Fields of containers that a message compares. The API server neither changes nor defaults them."""

Children = Mapping[tuple[Kind, Key], Object]


class RolloutEvents:
    """A recorder of the Events RolloutStarted, ReplicasReset and Draining for resources of one kind."""

    def __init__(self, kind: Kind, recorder: Recorder, mark: str) -> None:
        """Create a recorder. ``mark`` is the annotation of children with the digest of the object last applied."""
        self._kind, self._recorder, self._mark = kind, recorder, mark
        self._draining: dict[Key, frozenset[str]] = {}
        """UIDs of each resource's draining pods that already have an Event."""

    def record_rollouts(self, resource: Object, before: Children, applied: Iterable[Object]) -> None:
        """Record the rollouts that an apply started. ``before`` contains the children before the apply, and ``applied``
        the objects that were sent."""
        for message in describe_rollouts(before, applied):
            self._recorder.record(self._kind, resource, "Normal", "RolloutStarted", message)

    def record_resets(self, resource: Object, before: Children, after: Children, applied: Iterable[Object]) -> None:
        """Record an Event for each workload whose replicas an apply reset.

        ``before`` and ``after`` contain the children before and after the apply, and ``applied`` the objects that were
        sent.
        """
        for message in describe_resets(before, after, applied, self._mark):
            text = f"{message} Set the replicas in {self._kind.kind} {key(resource).name} instead."
            self._recorder.record(self._kind, resource, "Normal", "ReplicasReset", text)

    def record_draining(self, world: World) -> None:
        """Record one Event for all pods that began to drain since the last call."""
        name = key(world.resource)
        message, pods = describe_draining(world.pods, self._draining.pop(name, frozenset()), world.now)
        if pods:
            self._draining[name] = pods
        if message:
            self._recorder.record(self._kind, world.resource, "Normal", "Draining", message)

    def forget(self, name: Key) -> None:
        self._draining.pop(name, None)


def describe_rollouts(before: Children, applied: Iterable[Object]) -> list[str]:
    """Return a message for each workload whose pods are replaced. Workloads that are new or had no replicas are
    skipped."""
    previous = {(kind.kind, name): child for (kind, name), child in before.items()}
    pairs = ((previous.get((child["kind"], key(child))), child) for child in applied)
    return [_rollout(old, new) for old, new in pairs if old is not None and _is_rollout(old, new)]


def describe_resets(before: Children, after: Children, applied: Iterable[Object], mark: str) -> list[str]:
    """Return a message for each workload that another client had scaled: the apply changed its replicas, but not its
    mark.

    The message does not contain that client's number, so repetitions are merged into one Event.
    """
    old, new = ({(kind.kind, name): child for (kind, name), child in one.items()} for one in (before, after))
    names = [(child["kind"], key(child)) for child in applied if _replicas(child) is not None]
    return [
        f"{kind} {name.name} was scaled by another client and is back at {_replicas(new[kind, name])}."
        for kind, name in names
        if (kind, name) in old and (kind, name) in new and _was_scaled(old[kind, name], new[kind, name], mark)
    ]


def describe_draining(pods: Iterable[Object], reported: frozenset[str], now: float) -> tuple[str, frozenset[str]]:
    """Return a message about pods that began to drain, empty if there are none, and the UIDs of all draining pods.

    ``reported`` contains the UIDs of the draining pods in earlier messages.
    """
    going = [pod for pod in pods if deleting(pod) and not ended(pod) and job_of(pod) is None]
    fresh = [pod for pod in going if _uid(pod) not in reported and now - _deleted_at(pod) < FRESH_SECONDS]
    return _draining(fresh) if fresh else "", frozenset(map(_uid, going))


def _draining(pods: Sequence[Object]) -> str:
    names = sorted(key(pod).name for pod in pods)
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    subject = f"Pod {names[0]} drains" if len(pods) == 1 else f"Pods {', '.join(names[:MAX_LISTED])}{more} drain"
    return f"{subject}: no new requests, and at most {max(map(_grace, pods)):g} s for requests in flight."


def _rollout(old: Object, new: Object) -> str:
    changed = "; ".join(_changes(old, new)) or "pod template"
    return f"{new['kind']} {key(new).name}: {changed} changed.{_replacement(old, new)}"


def _replacement(old: Object, new: Object) -> str:
    """Return a sentence about when old pods are removed. The result is empty if the workload is scaled to zero."""
    replicas = old["spec"].get("replicas", 1)
    if not new["spec"].get("replicas", replicas):
        return ""
    order = "after new ones are ready" if _has_surge(new) else "before new ones start"
    return f" {replicas} old replica{'s are' if replicas != 1 else ' is'} removed {order}."


def _has_surge(workload: Object) -> bool:
    """Whether a rollout may create more pods than replicas, either by its settings or by Kubernetes' defaults."""
    strategy = workload["spec"].get("strategy") or {}
    surge = (strategy.get("rollingUpdate") or {}).get("maxSurge")
    return strategy.get("type") != "Recreate" and surge not in (0, "0", "0%")


def _changes(old: Object, new: Object) -> list[str]:
    """Return the changed fields of each container, such as ``image, args of server``."""
    before = {container["name"]: container for container in _containers(old)}
    changes = {
        container["name"]: [field for field in COMPARED if _differs(field, before[container["name"]], container)]
        for container in _containers(new)
        if container["name"] in before
    }
    return [f"{', '.join(fields)} of {name}" for name, fields in changes.items() if fields]


def _differs(field: str, old: Object, new: Object) -> bool:
    return (old.get(field) or None) != (new.get(field) or None)


def _containers(workload: Object) -> list[Object]:
    containers: list[Object] = workload["spec"]["template"]["spec"].get("containers") or []
    return containers


def _is_rollout(old: Object, new: Object) -> bool:
    if not old.get("spec", {}).get("replicas", 1):
        return False
    before, after = (template_digest(one.get("spec", {}).get("template", {})) for one in (old, new))
    return None not in (before, after) and before != after


def _was_scaled(old: Object, new: Object, mark: str) -> bool:
    digests = [annotations_of(one).get(mark) for one in (old, new)]
    return _replicas(old) != _replicas(new) and digests[0] is not None and digests[0] == digests[1]


def _replicas(workload: Object) -> int | None:
    replicas: int | None = (workload.get("spec") or {}).get("replicas")
    return replicas


def _grace(pod: Object) -> float:
    seconds: float = pod["metadata"].get("deletionGracePeriodSeconds") or 0
    return seconds


def _deleted_at(pod: Object) -> float:
    return unix_time(pod["metadata"]["deletionTimestamp"]) - _grace(pod)


def _uid(pod: Object) -> str:
    return str(pod["metadata"].get("uid", ""))
