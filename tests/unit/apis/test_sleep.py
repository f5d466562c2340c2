"""Who can sleep and be woken by a request: every resource whose API lets it have no replicas while it is served."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slipway.apis import APIS
from slipway.serving.api import Plan
from slipway.serving.route import ROUTE
from tests.schemas import faults, schema_of

from .kubeai import test_kubeai as kubeai
from .llmkube import services as llmkube
from .ome import services as ome

SPECS = {
    (api.name, api.resource.kind.kind): schema_of(api.resource.manifest())["properties"]["spec"]["properties"]
    for api in APIS
}


def woken(plan: Plan) -> list[str]:
    """What requests scale from zero, as ``plural/name``."""
    annotations = (made["metadata"].get("annotations", {}) for made in plan.children if made["kind"] == "Service")
    routes = (json.loads(one[ROUTE]) for one in annotations if ROUTE in one)
    return [f"{route['scale']['plural']}/{route['scale']['name']}" for route in routes if "scale" in route]


def test_a_request_wakes_a_model_of_kubeai() -> None:
    assert woken(kubeai.plan(kubeai.world(minReplicas=0))) == ["models/tiny"]


def test_a_request_wakes_a_model_of_kubeai_unless_its_replicas_are_its_owners() -> None:
    assert woken(kubeai.plan(kubeai.world(minReplicas=0, autoscalingDisabled=True))) == []


def test_a_request_wakes_a_service_of_ome() -> None:
    assert woken(ome.plan(ome.world(engine={"minReplicas": 0, "maxReplicas": 2}))) == ["deployments/chat-engine"]


def test_zero_replicas_of_llmkube_mean_that_the_service_stands_still() -> None:
    assert woken(llmkube.plan(llmkube.world(replicas=0))) == []


@pytest.mark.parametrize(
    ("api", "kind", "path"),
    [("krypton", "Model", ("minReplicas",)), ("llmkube", "InferenceService", ("autoscaling", "minReplicas"))],
)
def test_an_api_without_a_word_for_sleep_refuses_zero(api: str, kind: str, path: tuple[str, ...]) -> None:
    schema: Any = SPECS[api, kind]
    for name in path[:-1]:
        schema = schema[name]["properties"]
    assert faults(schema[path[-1]], 0) != []
    assert faults(schema[path[-1]], 1) == []
