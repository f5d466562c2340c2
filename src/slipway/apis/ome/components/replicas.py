"""Replicas: the number of replicas of a workload that another autoscaler may also scale. Pure.

Server-side apply resets a field to its default when its last owner omits the field. A Deployment whose autoscaler has
not set its replicas yet would therefore drop to one replica. The controller keeps setting the number that it set last,
and omits the field once another client has changed the number.
"""

from __future__ import annotations

from slipway.kube.objects import Object, annotations_of

REPLICAS_ANNOTATION = "slipway.inference/replicas"
"""Annotation of a workload with the number of replicas that the controller set last. Missing if the controller never
set a number."""


def scaled_by_others(observed: Object | None, lowest: int, highest: int) -> int | None:
    """Return the number of replicas to set for a workload that another autoscaler may also scale, between ``lowest``
    and ``highest``. Return None if the controller must omit the field, because another client has changed the number
    since the controller last set it, or the controller never set it.

    ``observed`` is the existing workload, or None for a new one, which gets ``lowest`` replicas. If the controller did
    not create the workload, the other autoscaler sets its replicas from the start.
    """
    if observed is None:
        return lowest
    running: int = observed["spec"].get("replicas", 1)
    annotation = annotations_of(observed).get(REPLICAS_ANNOTATION)
    if annotation != str(running):
        return None
    return max(min(running, highest), lowest)


def record_replicas(workload: Object, replicas: int | None) -> Object:
    """Return the workload with its number of replicas recorded in an annotation, or unchanged if ``replicas`` is
    None."""
    if replicas is None:
        return workload
    metadata = workload["metadata"]
    annotations = {**(metadata.get("annotations") or {}), REPLICAS_ANNOTATION: str(replicas)}
    return {**workload, "metadata": {**metadata, "annotations": annotations}}
