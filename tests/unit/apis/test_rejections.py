"""A rejection shows in the status of every kind alike: False if it is permanent, Unknown while it is retried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from slipway.apis import APIS
from slipway.kube.objects import Object
from slipway.serving.contract.api import Api, Plan, Rejection, World
from slipway.serving.contract.readiness import summarize
from slipway.serving.contract.settings import Settings
from tests import worlds
from tests.tables import each

from .llmkube import test_models
from .test_golden import CONTROLLER_KEY, EXAMPLES, GOLDEN, NOW, SYSTEM, api_of, planned, world_of

RETRIED = Rejection("Retrying", "The API server is busy.", retryable=True)
REFUSED = Rejection("Forbidden", "Deployment a: exceeded quota.", of_object=True)
KINDS: dict[tuple[str, str], Api[Any]] = {(api.name, api.resource.kind.kind): api for api in APIS}


class Row(NamedTuple):
    """An example of a kind with a valid spec, and the condition of its plan."""

    example: str
    """A golden file; ``bare``: the spec in :data:`BARE`."""
    condition: str = "Accepted"


TABLE: dict[tuple[str, str], Row] = {
    ("krypton", "Model"): Row("krypton/minimal"),
    ("kubeai", "Model"): Row("kubeai/vllm"),
    ("llmkube", "Model"): Row("models/hub-file", "Available"),
    ("llmkube", "InferenceService"): Row("llmkube/llamacpp"),
    ("llmkube", "ModelRouter"): Row("llmkube/router"),
    ("llmkube", "LoRAAdapter"): Row("llmkube/lora-adapter", "Available"),
    ("llmkube", "GPUQuota"): Row("llmkube/quota"),
    ("llmkube", "ModelPool"): Row("llmkube/pool"),
    ("ome", "BaseModel"): Row("ome/model-of-a-namespace"),
    ("ome", "ClusterBaseModel"): Row("ome/model"),
    ("ome", "FineTunedWeight"): Row("ome/weight"),
    ("ome", "ServingRuntime"): Row("bare"),
    ("ome", "ClusterServingRuntime"): Row("ome/runtime"),
    ("ome", "InferenceService"): Row("ome/selected"),
    ("ome", "BenchmarkJob"): Row("ome/benchmark"),
    ("deckhouse", "Model"): Row("deckhouse/begins", "Ready"),
    ("deckhouse", "ClusterModel"): Row("deckhouse/of-the-cluster", "Ready"),
    ("deckhouse", "ModelCatalogSource"): Row("bare", "Ready"),
}
BARE: dict[str, Object] = {
    "ServingRuntime": {"supportedModelFormats": [], "containers": []},
    "ModelCatalogSource": {"url": "https://depot.example", "credentialsSecretName": "token"},
}


def test_the_table_has_every_kind() -> None:
    assert TABLE.keys() == KINDS.keys()


@pytest.mark.parametrize(
    ("kind", "example"),
    [*((kind, row.example) for kind, row in TABLE.items()), (("ome", "InferenceService"), "ome/virtual")],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else value,
)
@pytest.mark.parametrize(
    ("rejection", "expected", "stalled"),
    [(REFUSED, "False", "True"), (RETRIED, "Unknown", "False")],
    ids=["permanent", "retryable"],
)
def test_a_rejection_is_false_or_unknown(
    kind: tuple[str, str], example: str, rejection: Rejection, expected: str, stalled: str
) -> None:
    api, world, row = KINDS[kind], world_for(kind, example), TABLE[kind]
    actual = conditions(api, world, rejection)
    assert actual[row.condition][0] == expected
    assert actual["Stalled"][0] == stalled
    failed = {type_ for type_, (status, reason) in actual.items() if reason == RETRIED.reason and status == "False"}
    assert failed <= {"Ready"}, "the summary is False until all is in place"


def world_for(kind: tuple[str, str], example: str) -> World:
    folder, _unused, name = example.partition("/")
    if folder == "models":
        return test_models.example(Path(test_models.__file__).parent / "models" / f"{name}.yaml")
    if name:
        return world_of(GOLDEN / folder / f"{name}.yaml")
    api, settings = KINDS[kind], Settings(system_namespace=SYSTEM)
    metadata = {"name": "a", "namespace": "models", "uid": "u", "generation": 1}
    resource = {"metadata": metadata | {"creationTimestamp": "2026-11-21T09:00:00Z"}, "spec": BARE[kind[1]]}
    return World(
        resource=resource,
        children={},
        pods=[],
        routed=[],
        settings=settings,
        controller_key=CONTROLLER_KEY,
        now=NOW,
        listers=worlds.known_world(api, settings, others=[resource]),
    )


def conditions(api: Api[Any], world: World, rejection: Rejection | None) -> dict[str, tuple[str, str]]:
    """Type -> status and reason, with those that the controller adds."""
    status = worlds.status(api, world, rejection).status
    assert api.readiness is not None
    own = {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}
    return {one.type: (one.status, one.reason) for one in summarize(status, api.readiness, 1)} | own


# A retry changes nothing else

_DECKHOUSE = frozenset({"ArtifactResolved", "Turn"})
ALSO_CHANGED: dict[tuple[str, str], frozenset[str]] = {
    ("deckhouse", "Model"): _DECKHOUSE,
    ("deckhouse", "ClusterModel"): _DECKHOUSE,
    ("llmkube", "Model"): frozenset(
        {"Progressing", "phase", "doneBytes", "totalBytes", "sourceETag", "sourceContentLength", "lastRevalidated"}
    ),
}
"""Fields and conditions that follow the condition of the plan. A model that cannot begin gives its turn to others, and
one of LLMKube without its plan is Pending."""


def examples() -> Iterator[tuple[str, Api[Any], World]]:
    """The golden examples of all kinds."""
    for path in EXAMPLES:
        yield f"{path.parent.name}/{path.stem}", api_of(path), world_of(path)
    for path in test_models.EXAMPLES:
        yield f"models/{path.stem}", KINDS["llmkube", "Model"], test_models.example(path)


def is_valid(api: Api[Any], world: World) -> bool:
    """Whether an example has a plan, and something in it that the API server may refuse."""
    return planned(api, world)[0] not in (None, Plan(children=()))


VALID = [(name, api, world) for name, api, world in examples() if is_valid(api, world)]


@each(VALID, ids=lambda row: row[0])
def test_a_retry_changes_only_the_condition_of_the_plan(name: str, api: Api[Any], world: World) -> None:
    before, after = (worlds.status(api, world, rejection).status for rejection in (None, RETRIED))
    row = TABLE[api.name, api.resource.kind.kind]
    also = ALSO_CHANGED.get((api.name, api.resource.kind.kind), frozenset())
    assert _changed(before, after) <= {row.condition} | also, name
    ready, retried = (conditions(api, world, rejection) for rejection in (None, RETRIED))
    assert (ready["Ready"][0] == "True") == (retried["Ready"][0] == "True")
    assert ready["Stalled"][0] == retried["Stalled"][0]


def _changed(before: Object, after: Object) -> set[str]:
    """Names of fields, and types of conditions, that differ."""
    old, new = (
        {**status, "lastUpdated": "", "conditions": ()} | {one["type"]: one for one in status["conditions"]}
        for status in (before, after)
    )
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
