"""Replicas: the number of replicas of a workload that another autoscaler may scale as well. Pure.

Server-side apply resets a field to its default when its last owner omits it: a Deployment whose autoscaler has not set
its replicas yet would drop to one. The controller therefore keeps setting its last number, and omits the field once the
number has been changed.
"""

from __future__ import annotations

from slipway.kube.objects import Object, annotations_of

REPLICAS_ANNOTATION = "slipway.inference/replicas"
"""Annotation of a workload: the number of replicas that the controller set last. None: it set none."""


def scaled_by_others(observed: Object | None, lowest: int, highest: int) -> int | None:
    """Returns the replicas to set for a workload that another autoscaler may scale; None: the field is omitted.

    ``observed``: the existing workload; ``lowest``: its initial number. A workload that the controller did not create
    belongs to the other autoscaler from the start.
    """
    if observed is None:
        return lowest
    running: int = observed["spec"].get("replicas", 1)
    annotation = annotations_of(observed).get(REPLICAS_ANNOTATION)
    if annotation != str(running):
        return None
    return max(min(running, highest), lowest)


def record_replicas(workload: Object, replicas: int | None) -> Object:
    """Returns the workload with an annotation that records its replicas."""
    if replicas is None:
        return workload
    metadata = workload["metadata"]
    annotations = {**(metadata.get("annotations") or {}), REPLICAS_ANNOTATION: str(replicas)}
    return {**workload, "metadata": {**metadata, "annotations": annotations}}
