"""What the original's webhook takes and refuses of services is planned and refused; its tables say it."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.apis.ome import names
from slipway.kube.objects import Object
from slipway.serving.contract.api import InvalidSpecError

from . import services as bench
from .cases import rows

NOT_TAKEN = {
    "no engine - should skip validation": "the table wants a service without an engine to pass unread",
    "engine with runtime specified - should pass": "its runtime is missing, which only the controller reports",
}
"""Row -> the reason why it does not apply to Slipway."""


def _ids(table: str) -> list[Any]:
    return [pytest.param(row, id=row["name"].replace(" ", "-")) for row in rows(table) if row["name"] not in NOT_TAKEN]


def refused(row: Object, **spec: Any) -> str:
    """The reason; empty: it is planned."""
    given = row["isvc"]
    own = {**spec, **{field: value for field, value in given["spec"].items() if field != "predictor" or value}}
    resource = bench.service(given["metadata"]["name"], given["metadata"].get("annotations")) | {"spec": own}
    others = [_whole(one) for one in row.get("objects") or ()] or [bench.model(), bench.runtime()]
    try:
        bench.plan(bench.world(resource, *others))
    except InvalidSpecError as error:
        return error.reason
    return ""


def _whole(obj: Object) -> Object:
    """With what the table leaves out, as Go's types have it."""
    is_runtime = "supportedModelFormats" in obj["spec"]
    kind = names.CLUSTER_SERVING_RUNTIME if is_runtime else names.CLUSTER_BASE_MODEL
    spec = {field: value for field, value in obj["spec"].items() if value is not None}
    filled = bench.PARTS if is_runtime else {"storage": {"storageUri": "vendor://a/b"}}
    return {"kind": kind.kind, "metadata": {"name": obj["metadata"]["name"], "uid": "u"}, "spec": {**filled, **spec}}


@pytest.mark.parametrize("row", _ids("TestValidateKEDAConfig"))
def test_settings_for_keda_are_checked(row: Object) -> None:
    assert bool(refused(row, model={"name": "tiny"}, engine={"maxReplicas": 4})) == row["wantErr"]


@pytest.mark.parametrize("row", _ids("TestValidateInferenceService_ComprehensiveErrorPaths"))
def test_services_that_cannot_be_served_are_refused(row: Object) -> None:
    spec: Object = {} if set(row["isvc"]["spec"]) & {"engine", "decoder"} else {"engine": {}, "model": {"name": "tiny"}}
    assert bool(refused(row, **spec)) == row["wantErr"]


@pytest.mark.parametrize("row", _ids("TestInferenceService_RuntimeResolution"))
def test_runtimes_are_found_or_missed_as_in_the_original(row: Object) -> None:
    assert bool(refused(row)) == row["wantErr"]


@pytest.mark.parametrize(
    ("names_", "reason"),
    [("chat", ""), ("Chat", "InvalidSpec"), ("a.b", "InvalidSpec"), ("1a", "InvalidSpec"), ("a" * 64, "InvalidSpec")],
)
def test_a_name_has_to_be_one_that_a_service_can_have(names_: str, reason: str) -> None:
    row = {"isvc": {"metadata": {"name": names_}, "spec": {}}}
    assert refused(row, model={"name": "tiny"}, engine={}) == reason


@pytest.mark.parametrize(("component", "bounds"), [("engine", (1, 3)), ("decoder", (1, 3)), ("router", (1, 2))])
def test_replicas_are_bounded_as_by_the_originals_defaults(component: str, bounds: tuple[int, int]) -> None:
    world = bench.world(**{"engine": {}, component: {}})
    spec = bench.find_child(world, "HorizontalPodAutoscaler", f"chat-{component}")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == bounds
