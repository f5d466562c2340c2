"""Whatever a status says, kstatus and the Ansible modules take it for the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipway.apis import APIS
from slipway.kube.objects import Object
from slipway.serving.contract.api import Api
from slipway.serving.contract.readiness import summarize
from tests import documents, goldens
from tests.tables import each

from ..plugins.importable import make_importable

make_importable()

from ansible_collections.slipway.inference.plugins.module_utils import _apis, _readiness  # noqa: E402

HERE = Path(__file__).parent
KINDS: dict[tuple[str, str], Api[Any]] = {(api.name, api.resource.kind.kind): api for api in APIS}
HANDLED = (*_apis.MODELS.values(), *_apis.SERVICES.values(), *_apis.BENCHMARKS.values())
MODULES = {kind.resource: kind for handled in HANDLED for kind in handled.all}
VERDICTS = {"ready": "Current", "settled": "Current", "failed": "Failed", "waiting": "InProgress"}
TELLING = {"failed": "Stalled", "waiting": "Reconciling"}
"""Verdict of the modules -> the condition that has the same reason."""
OUT_OF_REACH = "llmkube/metal"
"""For a service that runs on a Mac, modules continue, and the status tells other clients that it never serves here."""


def examples() -> Iterator[tuple[str, Api[Any], Object]]:
    """Name, API and status of every golden example."""
    for path in goldens.examples(*(HERE / "golden").iterdir()):
        kind = documents.read(path)["resource"].get("kind", "Model")
        yield f"{path.parent.name}/{path.stem}", KINDS[path.parent.name, kind], goldens.expected(path)["status"]
    for path in goldens.examples(HERE / "llmkube/models"):
        yield f"models/{path.stem}", KINDS["llmkube", "Model"], goldens.expected(path)["status"]


EXAMPLES = {
    name: (api, status)
    for name, api, status in examples()
    if f"{api.resource.kind.plural}.{api.resource.kind.group}" in MODULES
}


def summed_up(api: Api[Any], status: Object) -> Object:
    """The resource as the controller leaves it."""
    assert api.readiness is not None
    generation = status["observedGeneration"]
    summary_conditions = [
        {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message}
        for one in summarize(status, api.readiness, generation)
    ]
    metadata = {"name": "a", "namespace": "models", "generation": generation}
    return {"metadata": metadata, "status": {**status, "conditions": [*status["conditions"], *summary_conditions]}}


def judged(api: Api[Any], resource: Object) -> Any:
    """The modules' verdict."""
    kind = api.resource.kind
    return _readiness.judge(MODULES[f"{kind.plural}.{kind.group}"], resource)


def kstatus(resource: Object) -> str:
    """As sigs.k8s.io/cli-utils computes it of kinds that it does not know."""
    if "deletionTimestamp" in resource["metadata"]:
        return "Terminating"
    if resource["status"].get("observedGeneration", 0) != resource["metadata"]["generation"]:
        return "InProgress"
    for condition in resource["status"]["conditions"]:
        if condition["status"] == "True" and condition["type"] in ("Reconciling", "Stalled"):
            return {"Reconciling": "InProgress", "Stalled": "Failed"}[condition["type"]]
    ready = next(
        (condition["status"] for condition in resource["status"]["conditions"] if condition["type"] == "Ready"), "True"
    )
    return "Current" if ready == "True" else "InProgress"


@each(EXAMPLES)
def test_kstatus_and_the_modules_agree(name: str) -> None:
    api, status = EXAMPLES[name]
    resource = summed_up(api, status)
    verdict = judged(api, resource)
    assert kstatus(resource) == ("Failed" if name == OUT_OF_REACH else VERDICTS[verdict.state])
    if verdict.state in TELLING:
        condition = next(one for one in resource["status"]["conditions"] if one["type"] == TELLING[verdict.state])
        assert (verdict.reason, verdict.message) == (condition["reason"], condition["message"])


@each(EXAMPLES)
def test_a_current_status_is_ready_reconciling_or_stalled_and_never_both_of_the_last_two(name: str) -> None:
    api, status = EXAMPLES[name]
    assert api.readiness is not None
    ready, reconciling, stalled = (one.status == "True" for one in summarize(status, api.readiness, 1))
    assert ready or reconciling or stalled
    assert not (reconciling and stalled)


@each(EXAMPLES)
def test_a_condition_of_the_status_gives_the_reason(name: str) -> None:
    api, status = EXAMPLES[name]
    assert api.readiness is not None
    own = {(condition["reason"], condition["message"]) for condition in status["conditions"]}
    for one in summarize(status, api.readiness, 1):
        assert one.message
        if (one.type == "Ready") != (one.status == "True"):
            assert (one.reason, one.message) in own


def test_the_examples_have_every_verdict() -> None:
    seen = Counter((api.name, kstatus(summed_up(api, status))) for api, status in EXAMPLES.values())
    assert {(api.name, verdict) for api in APIS for verdict in ("Current", "InProgress", "Failed")} <= seen.keys()


@pytest.mark.parametrize("name", ["krypton/ready", "kubeai/ready", "llmkube/ready"])
def test_a_spec_that_the_api_server_has_not_taken_yet_is_on_its_way_while_the_one_before_answers(name: str) -> None:
    api, status = EXAMPLES[name]
    refused = {"status": "Unknown", "reason": "Retrying"}
    conditions = [
        condition | (refused if condition["type"] == "Accepted" else {}) for condition in status["conditions"]
    ]
    resource = summed_up(api, status | {"conditions": conditions})
    assert kstatus(resource) == "InProgress"
    assert VERDICTS[judged(api, resource).state] == "InProgress"
    assert {condition["type"]: condition["status"] for condition in resource["status"]["conditions"]}["Ready"] == "True"


def test_a_status_of_the_spec_before_is_not_current() -> None:
    api, status = EXAMPLES["krypton/ready"]
    resource = summed_up(api, status)
    resource["metadata"]["generation"] += 1
    assert kstatus(resource) == "InProgress"


@pytest.mark.parametrize("api", APIS, ids=lambda api: f"{api.name}-{api.resource.kind.kind}")
def test_every_kind_says_what_its_status_means(api: Api[Any]) -> None:
    assert api.readiness is not None
    assert api.readiness.telling
