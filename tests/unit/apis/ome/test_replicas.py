"""A number of replicas that another writer set is never reverted."""

from __future__ import annotations

import pytest

from slipway.apis.ome.components.replicas import REPLICAS_ANNOTATION, record_replicas, scaled_by_others
from slipway.kube.objects import Object


def deployment(replicas: int, annotation: int | None) -> Object:
    metadata: Object = {
        "name": "chat",
        "annotations": {} if annotation is None else {REPLICAS_ANNOTATION: str(annotation)},
    }
    return {"metadata": metadata, "spec": {"replicas": replicas}}


@pytest.mark.parametrize(
    ("observed", "requested"),
    [
        (None, 1),  # it begins with the lowest
        (deployment(1, 1), 1),  # ours, until another writer changes it
        (deployment(5, 1), None),  # an autoscaler's
        (deployment(5, None), None),  # still an autoscaler's, or made by another controller
        (deployment(0, 1), None),  # scaled to zero by another writer
        (deployment(9, 9), 6),  # ours from before it was scaled, and more than it may have
    ],
)
def test_the_last_writer_determines_the_replicas(observed: Object | None, requested: int | None) -> None:
    assert scaled_by_others(observed, 1, 6) == requested


def test_a_workload_that_becomes_scaled_keeps_its_replicas_until_its_autoscaler_has_said_how_many() -> None:
    fixed = record_replicas({"metadata": {"name": "chat"}, "spec": {"replicas": 3}}, 3)
    assert scaled_by_others(fixed, 1, 6) == 3
    scaled = {**fixed, "spec": {"replicas": 5}}
    assert scaled_by_others(scaled, 1, 6) is None
    released = record_replicas({"metadata": {"name": "chat"}, "spec": {}}, None)
    assert REPLICAS_ANNOTATION not in released["metadata"].get("annotations", {})
