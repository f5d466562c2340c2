"""Runtimes' own status: those that cannot be read, and those of which only the name decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slipway.apis.ome import names
from slipway.apis.ome.runtimes.status import SELECTED, status, watch
from slipway.kube.caches.store import Change, Store, Stores
from slipway.kube.objects import Key, Object
from slipway.serving.contract.api import World
from slipway.serving.contract.settings import Settings

KIND = names.SERVING_RUNTIME
OTHER_CASES = Path(__file__).parents[5] / "shared/reference/samples/ome/other-cases"
RANGES: list[dict[str, Any]] = [
    row for path in OTHER_CASES.glob("TestAreModelSizeRangesEqual.json") for row in json.loads(path.read_text())
]
WITHOUT_BOUNDS = ("First nil, second not nil", "First not nil, second nil")
"""A range without bounds is none to us: either way any size will do."""
ENTRY: Object = {
    "modelFormat": {"name": "safetensors", "version": "1.0.0"},
    "modelFramework": {"name": "transformers", "version": "4.43.0"},
    "modelArchitecture": "LlamaForCausalLM",
    "autoSelect": True,
}


def runtime(name: str, hour: int, namespace: str = "default", entry: Object | None = None, **spec: Any) -> Object:
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"{namespace}-{name}",
        "generation": 3,
        "resourceVersion": "1",
        "creationTimestamp": f"2026-11-22T{hour:02}:00:00Z",
    }
    return {"metadata": metadata, "spec": {"supportedModelFormats": [ENTRY | (entry or {})], **spec}}


def stores(*runtimes: Object) -> Stores:
    store = Store(watch(KIND).indexes)
    for one in runtimes:
        store.put(one)
    return Stores({KIND: store})


def accepted(of: Object, *others: Object) -> Object:
    world = World(
        resource=of, children={}, pods=(), routed=(), settings=Settings(), now=0.0, listers=stores(of, *others)
    )
    status_fields = status(world, None, KIND).status
    assert status_fields["observedGeneration"] == 3
    [condition] = status_fields["conditions"]
    assert condition["type"] == "Accepted"
    return condition


def test_a_runtime_that_is_alone_is_accepted() -> None:
    assert accepted(runtime("a", 1))["status"] == "True"


def test_the_newer_of_two_with_the_same_model_reports_its_rival() -> None:
    young, old = runtime("a", 9), runtime("b", 1)
    assert accepted(old, young)["status"] == "True"
    assert accepted(young, old)["reason"] == "Shadowed"
    assert accepted(young, old)["message"].startswith("b, which is older, matches the same models")


@pytest.mark.parametrize(
    "other",
    [
        runtime("b", 1, namespace="other"),
        runtime("b", 1, disabled=True),
        runtime("b", 1, entry={"autoSelect": False}),
        runtime("b", 1, entry={"priority": 2}),
        runtime("b", 1, entry={"quantization": "fp8"}),
        runtime("b", 1, entry={"modelFramework": {"name": "transformers", "version": "4.44.0"}}),
        runtime("b", 1, modelSizeRange={"min": "1B"}),
        runtime("b", 1, protocolVersions=["openInference-v2"]),
        runtime("b", 1, acceleratorRequirements={"acceleratorClasses": ["h100"]}),
    ],
)
def test_a_runtime_with_different_selection_fields_is_no_rival(other: Object) -> None:
    assert accepted(runtime("a", 9), other)["status"] == "True"


def test_a_shared_format_entry_is_enough_to_shadow_a_runtime() -> None:
    several = runtime("a", 9, supportedModelFormats=[ENTRY | {"quantization": "fp8"}, ENTRY])
    assert accepted(several, runtime("b", 1))["reason"] == "Shadowed"


def test_a_shared_protocol_is_enough_to_shadow_a_runtime() -> None:
    young = runtime("a", 9, protocolVersions=["openInference-v2", "openAI"])
    assert accepted(young, runtime("b", 1, protocolVersions=["openAI"]))["reason"] == "Shadowed"


def test_an_unreadable_runtime_is_reported_with_the_field() -> None:
    broken = accepted(runtime("a", 1, modelSizeRange={"max": "huge"}))
    assert (broken["status"], broken["reason"]) == ("False", "InvalidSpec")
    assert broken["message"] == "it cannot be read: modelSizeRange.max 'huge' is not a size such as 7B or 350M."


def test_a_runtime_that_goes_brings_those_back_that_it_shadowed() -> None:
    young, old = runtime("a", 9), runtime("b", 1)
    listers = stores(young, runtime("c", 1, entry={"priority": 2}))
    assert set(watch(KIND).enqueue(Change(old, None), listers)) == {Key("default", "a")}


@pytest.mark.parametrize("row", RANGES, ids=lambda row: row["name"])
def test_size_ranges_are_equal_where_the_original_treats_them_as_equal(row: Object) -> None:
    first, second = (runtime("a", 1, modelSizeRange=row[name]) for name in ("range1", "range2"))
    index = watch(KIND).indexes[SELECTED]
    assert (list(index(first)) == list(index(second))) is (row["expected"] or row["name"] in WITHOUT_BOUNDS)
