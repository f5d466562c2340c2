"""What common mistakes are reported as. tests/unit/mistakes.yml has each whole message, so that all can be read in one
place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.apis import APIS
from slipway.kube.objects import DEPLOYMENT, Key, Object
from slipway.kube.values.times import unix_time
from slipway.serving.containers.diagnosis import TEMPLATE
from slipway.serving.containers.freedoms import Labels
from slipway.serving.contract.api import InvalidSpecError, Rejection, World
from slipway.serving.contract.authors import build_allowed_plan
from slipway.serving.contract.readiness import summarize
from slipway.serving.contract.settings import Settings
from slipway.serving.routing.route import Route, RoutedService
from tests import worlds

ROWS: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parents[1] / "mistakes.yml").read_text())
STATUSES = [row for row in ROWS if row["reported"].startswith("condition")]
KINDS = {
    ("krypton", "Model"): {"source": {"huggingface": "slipway/tiny", "file": "tiny.gguf"}},
    ("kubeai", "Model"): {
        "url": "ollama://tiny",
        "engine": "OLlama",
        "features": ["TextGeneration"],
        "resourceProfile": "cpu:1",
    },
    ("llmkube", "InferenceService"): {"modelRef": "tiny"},
}
"""A spec without mistakes, by API and kind."""
CREATED, NOW = "2026-11-21T09:00:00Z", unix_time("2026-11-21T09:10:00Z")
CONTAINERS = {"krypton": "llama-server", "kubeai": "server", "llmkube": "llama-server"}
FORM = re.compile(r"[A-Za-z].*[.?]", re.DOTALL)


def resource_of(row: dict[str, Any]) -> Object:
    spec = KINDS[row["api"], row["kind"]] | row.get("spec", {})
    metadata = {"name": "tiny", "namespace": row.get("namespace", "models"), "uid": "u", "generation": 1}
    return {"metadata": metadata | {"creationTimestamp": CREATED}, "spec": spec}


def pods_of(row: dict[str, Any]) -> list[Object]:
    container = {"name": CONTAINERS[row["api"]], "image": "nope:1", "restartCount": 0, "started": False}
    status: Object = {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}]}
    if "scheduler" in row:
        condition = {"type": "PodScheduled", "status": "False", "message": row["scheduler"]}
        status["conditions"].append(condition | {"lastTransitionTime": CREATED})
    elif "waiting" in row:
        status["containerStatuses"] = [container | {"state": {"waiting": row["waiting"]}}]
    elif "ended" in row:
        ended = {"startedAt": CREATED, "finishedAt": CREATED, **row["ended"]}
        status["containerStatuses"] = [container | {"state": {"terminated": ended}}]
    else:
        return []
    metadata = {"name": "tiny-1", "namespace": "models", "creationTimestamp": CREATED, "annotations": {TEMPLATE: "t"}}
    return [{"metadata": metadata, "status": status}]


def deployment_of(row: dict[str, Any]) -> Object:
    status: Object = {"replicas": 1}
    if "replicas" in row:
        failure = {
            "type": "ReplicaFailure",
            "status": "True",
            "message": row["replicas"],
            "lastTransitionTime": CREATED,
        }
        status["conditions"] = [failure]
    template = {"metadata": {"annotations": {TEMPLATE: "t"}}, "spec": {"containers": []}}
    return {"metadata": {"generation": 1}, "spec": {"replicas": 1, "template": template}, "status": status}


def world_of(row: dict[str, Any]) -> World:
    resource, api = resource_of(row), api_of(row)
    settings = Settings(system_namespace="slipway-system", hugging_face_endpoint=row.get("hub", ""))
    service = {"krypton": "tiny", "kubeai": "model-tiny", "llmkube": "tiny"}[row["api"]]
    own = RoutedService("models", service, Route(models=("tiny",), name="tiny"), 2)
    others = [
        RoutedService(*other.split("/"), Route(models=("tiny",), name="tiny"), 1) for other in row.get("older", ())
    ]
    return World(
        resource=resource,
        children={(DEPLOYMENT, Key("models", service)): deployment_of(row)},
        pods=pods_of(row),
        routed=[own, *others],
        settings=settings,
        controller_key="",
        now=NOW,
        listers=worlds.known_world(api, settings, others=[resource | {"kind": row["kind"]}]),
    )


def api_of(row: dict[str, Any]) -> Any:
    return next(api for api in APIS if (api.name, api.resource.kind.kind) == (row["api"], row["kind"]))


def conditions(row: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Type -> reason and message."""
    api, world = api_of(row), world_of(row)
    try:
        build_allowed_plan(api, world, api.resolve(world), Labels())
        rejection = None
    except InvalidSpecError as error:
        rejection = Rejection(error.reason, error.message)
    status = worlds.status(api, world, rejection).status
    own = {one["type"]: (one["reason"], one["message"]) for one in status["conditions"]}
    return own | {one.type: (one.reason, one.message) for one in summarize(status, api.readiness, 1)}


@pytest.mark.parametrize("row", STATUSES, ids=lambda row: row["mistake"])
def test_a_mistake_is_reported_in_these_words(row: dict[str, Any]) -> None:
    _word, type_ = row["reported"].split()
    assert conditions(row)[type_] == (row["reason"], row["message"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["mistake"])
def test_each_message_is_made_of_sentences(row: dict[str, Any]) -> None:
    assert FORM.fullmatch(row["message"])
