"""Models as metrics, under the original's names."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from slipway.apis.deckhouse import names
from slipway.apis.deckhouse.metrics import samples
from slipway.apis.description import Description, Scrape
from slipway.controller.metrics.samples import SamplesCollector
from slipway.kube.api.client import Client
from slipway.kube.caches.informer import Informer
from slipway.kube.objects import Object
from slipway.serving.contract.settings import Settings

DESCRIPTION = Description(name="deckhouse", resources=(), scrape=Scrape(labels={}), samples=samples)
READY = {
    "phase": "Ready",
    "source": {"resolvedType": "HuggingFace"},
    "resolved": {"format": "GGUF"},
    "artifact": {"kind": "OCI", "digest": "sha256:1", "sizeBytes": 600},
    "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}],
}


def model(name: str, namespace: str = "", **status: Any) -> Object:
    place = {"namespace": namespace} if namespace else {}
    return {"metadata": {"name": name, "uid": f"u-{name}", "resourceVersion": "1", **place}, "status": status}


def shown(limit: str, *models: Object) -> dict[str, float]:
    client: Client = None  # type: ignore[assignment]  # nothing is read from a server here
    informers = [Informer(client, kind) for kind in (names.MODEL, names.CLUSTER_MODEL)]
    for one in models:
        informers[0 if "namespace" in one["metadata"] else 1].store.put(one)
    settings = msgspec.convert({"apis": {"deckhouse": {"capacityLimit": limit}}}, Settings)
    registry = CollectorRegistry(auto_describe=True)
    registry.register(SamplesCollector([DESCRIPTION], informers, settings))
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0].removeprefix("d8_ai_models_"): float(line.rpartition(" ")[2]) for line in lines}


def test_a_model_that_is_ready_has_all_series():
    of = 'name="tiny",namespace="team",uid="u-tiny"'
    series = shown("", model("tiny", "team", **READY))
    assert {name: value for name, value in series.items() if name.startswith("model")} == {
        'model_status_phase{name="tiny",namespace="team",phase="Ready",source_type="HuggingFace",uid="u-tiny"}': 1,
        f"model_ready{{{of}}}": 1,
        'model_condition{name="tiny",namespace="team",reason="Ready",status="True",type="Ready",uid="u-tiny"}': 1,
        (
            'model_info{artifact_kind="OCI",format="GGUF",name="tiny",namespace="team",'
            'resolved_source_type="HuggingFace",uid="u-tiny"}'
        ): 1,
        f"model_artifact_size_bytes{{{of}}}": 600,
    }


def test_a_model_of_the_cluster_has_no_namespace():
    series = shown("", model("tiny"))
    assert series['clustermodel_status_phase{name="tiny",phase="Pending",source_type="",uid="u-tiny"}'] == 1
    assert series['clustermodel_ready{name="tiny",uid="u-tiny"}'] == 0
    assert not any("size_bytes" in name for name in series)


@pytest.mark.parametrize(
    ("limit", "storage"),
    [
        ("", {"capacity_known": 0, "used_bytes": 1200}),
        ("2k", {"capacity_known": 1, "used_bytes": 1200, "limit_bytes": 2000, "available_bytes": 800}),
        ("1k", {"capacity_known": 1, "used_bytes": 1200, "limit_bytes": 1000, "available_bytes": 0}),
    ],
)
def test_storage_is_that_of_all_models(limit, storage):
    series = shown(limit, model("tiny", "team", **READY), model("big", **READY), model("new"))
    actual = {name.removeprefix("storage_backend_"): value for name, value in series.items() if "storage" in name}
    assert actual == storage
