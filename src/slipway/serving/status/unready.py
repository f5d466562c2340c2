"""The reason why a model serves no requests, for the gateway's error responses. Pure.

The controller writes the reason, one word, into an annotation of the model's Services, because clients may not have
permission to read the status. For a rejected resource without a Service, the controller creates one that has no pods
and claims no model ID.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec

from slipway.decoding import DecodingError, decode_json
from slipway.kube.objects import SERVICE, Object, deleting, key
from slipway.kube.schemas.conditions import STALLED
from slipway.kube.values.names import fitting
from slipway.kube.values.times import unix_time
from slipway.serving.containers.diagnosis import WAITING, is_ready
from slipway.serving.pods.workload import child
from slipway.serving.routing.route import Refusal, Route, route_metadata

UNREADY = "slipway.inference/unready"
"""Annotation of a Service with an :class:`Unready` as JSON."""
MOST_BYTES = 256
RESTARTING = frozenset({"OOMKilled", "CrashLoopBackOff", "StartupTimeout"})
"""Reasons of engines that terminated. The kubelet restarts them, and the next start may succeed."""


class Unready(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reason why no pod of a Service serves requests."""

    reason: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z][A-Za-z0-9_]{0,99}\Z")]
    """The reason of the condition Stalled."""
    final: bool = False
    """Whether waiting is useless, because a person must change something first."""


class Explanation(NamedTuple):
    """Why a resource serves no requests, and the seconds until this may change even if no object changes."""

    unready: Unready | None = None
    recheck_seconds: float | None = None


def explain(conditions: Iterable[Object], pods: Sequence[Object], now: float, node_wait_seconds: float) -> Explanation:
    """Explain from a resource's conditions and pods why nothing serves requests. The explanation is empty while the
    resource is starting or serving.

    A ready pod serves requests, or will in a moment. The workload's status may lag behind, and another failure, such as
    that of an adapter, does not prevent the pod from serving. ``node_wait_seconds`` is how long requests wait for a pod
    without a node, because a node or a claim may be added.
    """
    by_type = {condition["type"]: condition for condition in conditions}
    stalled, available = by_type.get(STALLED), by_type.get("Available")
    if not _is_true(stalled) or stalled is None or _is_true(available):
        return Explanation()
    if any(is_ready(pod) and not deleting(pod) for pod in pods):
        return Explanation()
    reason = stalled.get("reason", "")
    if reason not in WAITING:
        return Explanation(_parse(reason, final=reason not in RESTARTING))
    remaining = max((since + node_wait_seconds - now for since in map(_unscheduled_since, pods) if since), default=0.0)
    return Explanation(_parse(reason, final=remaining <= 0), remaining if remaining > 0 else None)


def parse_unready(annotations: Mapping[str, str]) -> Unready | None:
    """Parse the annotation :data:`UNREADY`. Return None if it is missing or invalid."""
    text = annotations.get(UNREADY)
    if text is None:
        return None
    try:
        return decode_json(text, Unready, most=MOST_BYTES)
    except DecodingError:
        return None


def annotation(unready: Unready | None) -> str | None:
    """Return the value of the annotation :data:`UNREADY`, or None if ``unready`` is None and the Service should have no
    such annotation."""
    return msgspec.json.encode(unready).decode() if unready else None


def stand_in(api: str, resource: Object, unready: Unready) -> Object:
    """Build a Service without pods and without model IDs, from which the gateway reads why it rejects requests for
    ``resource``."""
    namespace, name = key(resource)
    route = Route(name=name, internal=True, refusal=Refusal(unready.reason, (name, f"{namespace}/{name}")))
    labels, annotations = route_metadata(route)
    spec = {"clusterIP": "None", "ports": [{"name": "http", "port": 80}]}
    service = child(SERVICE, fitting(f"refused-{api}-{name}"), namespace, labels, spec=spec)
    service["metadata"]["annotations"] = dict(annotations)
    return service


def _parse(reason: str, *, final: bool) -> Unready | None:
    """Return an Unready, or None if the reason is invalid. Conditions of other writers may contain any text."""
    try:
        return msgspec.convert({"reason": reason, "final": final}, Unready)
    except msgspec.ValidationError:
        return None


def _is_true(condition: Object | None) -> bool:
    return condition is not None and condition["status"] == "True"


def _unscheduled_since(pod: Object) -> float:
    """Return the Unix time since which the pod has waited for a node, or 0 if it does not wait for a node or is
    terminating."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    condition = next((one for one in conditions if one["type"] == "PodScheduled"), None)
    waits = condition is not None and condition["status"] == "False" and not deleting(pod)
    return unix_time(condition["lastTransitionTime"]) if waits and condition else 0.0
