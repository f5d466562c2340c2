"""Replicas: the number of replicas of a workload that another autoscaler may scale, too. Pure.

Server-side apply resets a field to its default when its last owner omits it: a Deployment whose autoscaler has not
written yet would fall to one replica. The controller therefore keeps setting its last number, and omits the field once
another number is there.
"""

from __future__ import annotations

from slipway.kube.objects import Object, annotations_of

REPLICAS_ANNOTATION = "slipway.inference/replicas"
"""Annotation of a workload: the number that the controller gave it last. None: it gave none."""


def scaled_by_others(observed: Object | None, lowest: int, highest: int) -> int | None:
    """Returns the replicas to set for a workload that another autoscaler may scale; None: the field is omitted.

    ``observed``: the workload as it is; ``lowest``: what it begins with. One that the controller did not make is
    somebody else's from the start.
    """
    if observed is None:
        return lowest
    running: int = observed["spec"].get("replicas", 1)
    annotation = annotations_of(observed).get(REPLICAS_ANNOTATION)
    if annotation != str(running):
        return None
    return max(min(running, highest), lowest)


def record_replicas(workload: Object, replicas: int | None) -> Object:
    """Returns the workload with an annotation for the number that it gets."""
    if replicas is None:
        return workload
    metadata = workload["metadata"]
    annotations = {**(metadata.get("annotations") or {}), REPLICAS_ANNOTATION: str(replicas)}
    return {**workload, "metadata": {**metadata, "annotations": annotations}}
