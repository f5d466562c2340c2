"""Services of earlier versions, which have model, runtime and engine in one field."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.apis.ome.components.predictor import migrated, used
from slipway.kube.objects import Object
from tests.unit.apis.ome.cases import rows


def service(predictor: Any, **spec: Any) -> Object:
    return {"metadata": {"name": "chat"}, "spec": {"predictor": predictor, **spec}}


def spec(predictor: Any, **others: Any) -> Object:
    fields: Object = migrated(service(predictor, **others))["spec"]
    return fields


def test_a_predictor_is_read_as_model_runtime_and_engine() -> None:
    predictor = {
        "model": {
            "baseModel": "llama",
            "runtime": "rt",
            "fineTunedWeights": ["lora"],
            "protocolVersion": "openAI",
            "resources": {"limits": {"cpu": "2"}},
        },
        "minReplicas": 2,
        "nodeSelector": {"a": "b"},
        "containers": [
            {"name": "log", "image": "log:1"},
            {"name": "ome-container", "image": "engine:1", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}},
        ],
        "workerSpec": {"size": 2},
    }
    assert spec(predictor) == {
        "model": {"name": "llama", "fineTunedWeights": ["lora"]},
        "runtime": {"name": "rt"},
        "engine": {
            "minReplicas": 2,
            "nodeSelector": {"a": "b"},
            "containers": [{"name": "log", "image": "log:1"}],
            "worker": {"size": 2},
            "runner": {
                "name": "ome-container",
                "image": "engine:1",
                "resources": {"limits": {"cpu": "2", "memory": "1Gi"}},
            },
        },
    }


def test_the_services_own_values_stay() -> None:
    actual = spec({"model": {"baseModel": "old"}, "minReplicas": 2}, model={"name": "new"}, engine={})
    assert actual == {"model": {"name": "new"}, "engine": {}}


@pytest.mark.parametrize("predictor", [None, {}, 7])
def test_a_service_without_a_predictor_stays_as_it_is(predictor: Any) -> None:
    resource = service(predictor, engine={})
    assert not used(resource)
    assert migrated(resource) is resource


def test_a_migrated_service_has_no_predictor_any_more() -> None:
    migrated_service = migrated(service({"minReplicas": 1}))
    assert not used(migrated_service)
    assert migrated(migrated_service) is migrated_service


def test_a_predictor_of_a_model_alone_has_nothing_to_say_of_the_runner() -> None:
    assert spec({"model": {"baseModel": "llama"}}) == {"model": {"name": "llama"}, "engine": {}}


@pytest.mark.parametrize("row", rows("TestIsPredictorUsed"), ids=lambda row: str(row["name"]))
def test_a_predictor_is_used_as_in_the_originals_tables(row: Object) -> None:
    assert used(row["isvc"]) == row["want"]


@pytest.mark.parametrize("row", rows("TestDefaultInferenceService"), ids=lambda row: str(row["name"]))
def test_a_predictor_becomes_what_the_originals_tables_say(row: Object) -> None:
    actual = migrated(row["isvc"])["spec"]
    assert {part: part in actual for part in ("engine", "model", "runtime")} == {
        "engine": row["wantEngine"],
        "model": row["wantModel"],
        "runtime": row["wantRuntime"],
    }


@pytest.mark.parametrize(
    "row", rows("TestMigrateFromPredictorToNewArchitectureContainerHandling"), ids=lambda row: str(row["name"])
)
def test_the_runner_is_the_container_of_the_originals_tables(row: Object) -> None:
    engine = spec({"containers": row["containers"]})["engine"]
    assert engine["runner"]["name"] == row["wantRunnerName"]
    assert len(engine.get("containers", [])) == row["wantContainerCount"]
