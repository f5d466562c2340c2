"""Replicas: who says how many a workload has, where somebody else may say it beside the controller. Pure.

Server-side apply takes a field back to its default when its last owner leaves it out: a Deployment whose autoscaler has
not written yet would fall to one replica. So the controller goes on saying the number that it gave, and leaves the
field alone once it finds another number there, which is somebody else's.
"""

from __future__ import annotations

from slipway.kube.objects import Object, annotations_of

REPLICAS_ANNOTATION = "slipway.inference/replicas"
"""Annotation of a workload: the number that the controller gave it last. None: it gave none."""


def scaled_by_others(observed: Object | None, lowest: int, highest: int) -> int | None:
    """What a workload is told that somebody else scales, such as an autoscaler; None: nothing.

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
    """The workload, with the number that it is given written down."""
    if replicas is None:
        return workload
    metadata = workload["metadata"]
    annotations = {**(metadata.get("annotations") or {}), REPLICAS_ANNOTATION: str(replicas)}
    return {**workload, "metadata": {**metadata, "annotations": annotations}}
