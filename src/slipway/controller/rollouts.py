"""Rollouts: what a person is told when pods are about to be replaced, and when some begin to go. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from slipway.kube.objects import Key, Kind, Object, deleting, key
from slipway.serving.diagnosis import ended, template_digest
from slipway.serving.job import job_of
from slipway.serving.times import unix_time

FRESH_SECONDS = 60.0
"""How long ago the end of a pod may have begun to be news: a controller that starts finds older ones."""
MOST_TOLD = 3
"""How many pods a message names."""
COMPARED = ("image", "command", "args")
"""Fields of containers that are told by name. The API server leaves them as they are written."""


def begun(before: Mapping[tuple[Kind, Key], Object], wanted: Iterable[Object]) -> list[str]:
    """A sentence for each workload whose pods are to be replaced. ``before``: the children as they were; ``wanted``:
    as they are now. A workload that sleeps has no pods to replace."""
    known = {(kind.kind, name): child for (kind, name), child in before.items()}
    found = ((known.get((child["kind"], key(child))), child) for child in wanted)
    return [_sentence(old, new) for old, new in found if old is not None and _differs(old, new)]


def draining(pods: Iterable[Object], known: frozenset[str], now: float) -> tuple[str, frozenset[str]]:
    """What is told of pods that have begun to end, empty where there are none, and all that are ending by their uids.
    ``known``: those that were told before."""
    ending = [pod for pod in pods if deleting(pod) and not ended(pod) and job_of(pod) is None]
    fresh = [pod for pod in ending if pod["metadata"].get("uid", "") not in known and now - _since(pod) < FRESH_SECONDS]
    return _draining(fresh) if fresh else "", frozenset(pod["metadata"].get("uid", "") for pod in ending)


def _draining(pods: Sequence[Object]) -> str:
    several, names = len(pods) > 1, sorted(key(pod).name for pod in pods)
    more = f" and {len(names) - MOST_TOLD} more" if len(names) > MOST_TOLD else ""
    seconds = max(_grace(pod) for pod in pods)
    subject = f"Pod{'s' * several} {', '.join(names[:MOST_TOLD])}{more}"
    verb, own = ("get", "their") if several else ("gets", "its")
    return f"{subject} {verb} no new requests, and ha{'ve' if several else 's'} {seconds:g} s to finish {own} own."


def _sentence(old: Object, new: Object) -> str:
    what = ", ".join(_changed(old, new)) or "its pods' template"
    return f"{new['kind']} {key(new).name}: {what} changed.{_replaced(old, new)}"


def _replaced(old: Object, new: Object) -> str:
    """How the replicas that there are make place for new ones; nothing of those that are only removed."""
    replicas = old["spec"].get("replicas", 1)
    if not new["spec"].get("replicas", replicas):
        return ""
    one, when = replicas == 1, "as new ones become ready" if _surges(new) else "before new ones start"
    return f" {replicas} replica{'s' * (not one)} of the old spec {'goes' if one else 'go'} {when}."


def _surges(workload: Object) -> bool:
    """Whether there may be more pods than replicas while some are replaced. As Kubernetes has it where nothing is
    said."""
    strategy = workload["spec"].get("strategy") or {}
    rolling = strategy.get("rollingUpdate") or {}
    return strategy.get("type") != "Recreate" and rolling.get("maxSurge") not in (0, "0", "0%")


def _changed(old: Object, new: Object) -> list[str]:
    """The fields of containers that differ, such as ``args of server``."""
    before = {one["name"]: one for one in _containers(old)}
    found = ((one, before.get(one["name"])) for one in _containers(new))
    return [
        f"{field} of {one['name']}"
        for one, was in found
        if was is not None
        for field in COMPARED
        if (one.get(field) or None) != (was.get(field) or None)
    ]


def _containers(workload: Object) -> list[Object]:
    found: list[Object] = workload["spec"]["template"]["spec"].get("containers") or []
    return found


def _differs(old: Object, new: Object) -> bool:
    if not old.get("spec", {}).get("replicas", 1):
        return False
    was, wanted = (template_digest(one.get("spec", {}).get("template", {})) for one in (old, new))
    return None not in (was, wanted) and was != wanted


def _grace(pod: Object) -> float:
    seconds: float = pod["metadata"].get("deletionGracePeriodSeconds") or 0
    return seconds


def _since(pod: Object) -> float:
    return unix_time(pod["metadata"]["deletionTimestamp"]) - _grace(pod)
