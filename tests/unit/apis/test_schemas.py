"""Every golden example is a resource that its definition takes, and every golden status one that it keeps whole.

The API server would refuse what is wrong in them, and drop without a word what it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipway.apis import APIS
from slipway.apis.ome.types.service import LATER
from slipway.kube.objects import Object
from slipway.kube.schemas.core import core_schema
from tests import documents, goldens
from tests.schemas import KEEP, definition_of, faults, schema_of
from tests.tables import each

ROOT = Path(__file__).parents[3]
EXAMPLES = goldens.examples(*(Path(__file__).parent / "golden").iterdir())
SCHEMAS = {(api.name, api.resource.kind.kind): schema_of(definition_of(api.resource))["properties"] for api in APIS}
ANY_JSON = {"configuration", "hyperParameters", "modelConfiguration", "value"}
"""Fields of OME's that are any JSON, by its contract."""
NOT_YET = "2026-11-21T09:05:00Z"


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def example_of(path: Path) -> Object:
    example: Object = documents.read(path)["resource"]
    return example


def parts_of(path: Path) -> Object:
    """Part of a resource -> its schema."""
    schemas: Object = SCHEMAS[path.parent.name, example_of(path).get("kind", "Model")]
    return schemas


def stamped(status: Any) -> Any:
    """With the times of its conditions, which the controller adds."""
    given = [{**condition, "lastTransitionTime": NOT_YET} for condition in status.get("conditions", ())]
    return status | {"conditions": given}


@each(EXAMPLES, ids=name_of)
def test_a_status_is_kept_whole(path: Path) -> None:
    assert faults(parts_of(path)["status"], stamped(goldens.expected(path)["status"])) == []


@each(EXAMPLES, ids=name_of)
def test_an_example_is_one_that_the_api_server_takes(path: Path) -> None:
    assert faults(parts_of(path)["spec"], example_of(path)["spec"]) == []


@each(EXAMPLES, ids=name_of)
def test_pods_are_as_kubernetes_has_them(path: Path) -> None:
    """With all that is required, and every quantity one."""
    workloads = [child for child in goldens.expected(path)["children"] if child["kind"] in ("Deployment", "Job")]
    fault_lists = [faults(core_schema("PodSpec"), workload["spec"]["template"]["spec"]) for workload in workloads]
    assert not any(fault_lists), fault_lists


def test_a_status_that_would_not_be_kept_is_found() -> None:
    schema = SCHEMAS["llmkube", "Model"]["status"]
    wrong = {"phase": "Cached", "lastUpdated": "", "progress": 1, "conditions": [{"type": "Available"}]}
    assert [fault.partition(":")[0] for fault in faults(schema, wrong)] == [
        "",
        "conditions.0",
        "conditions.0",
        "conditions.0",
        "conditions.0",
        "lastUpdated",
        "phase",
    ]


KRYPTON = SCHEMAS["krypton", "Model"]["spec"]
SOURCE = {"source": {"huggingface": "acme/tiny", "file": "tiny.gguf"}}


@pytest.mark.parametrize(
    "spec",
    [
        {"resources": {"limits": {"memory": "1Gi", "cpu": 2, "nvidia.com/gpu": "1"}, "requests": {"cpu": "1e-1"}}},
        {"env": [{"name": "A", "value": ""}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}]},
        {"env": [{"name": "C", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}}]},
        {"envFrom": [{"prefix": "X_", "secretRef": {"name": "s"}}, {"configMapRef": {"name": "c", "optional": True}}]},
    ],
)
def test_the_definition_of_a_krypton_model_accepts_what_a_pod_accepts(spec: Object) -> None:
    assert faults(KRYPTON, SOURCE | spec) == []


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"resources": {"limits": {"memory": "1GB"}}}, "resources.limits.memory"),
        ({"resources": {"requests": {"cpu": "a lot"}}}, "resources.requests.cpu"),
        ({"resources": {"limits": {"memory": [[[]]]}}}, "resources.limits.memory"),
        ({"resources": {"deep": [[[]]]}}, "resources"),
        ({"env": [{"value": "nameless"}]}, "env.0"),
        ({"env": [{"name": "A", "deep": [[[]]]}]}, "env.0"),
        ({"envFrom": [{"secretRef": {"name": 7}}]}, "envFrom.0.secretRef.name"),
    ],
)
def test_the_definition_of_a_krypton_model_refuses_or_drops_what_a_pod_rejects(spec: Object, place: str) -> None:
    """An unknown field counts as a fault here; the API server drops it with all that is nested in it."""
    assert [fault.partition(":")[0] for fault in faults(KRYPTON, SOURCE | spec)] == [place]


def test_definitions_keep_only_the_fields_of_later_versions_that_they_name() -> None:
    """Whatever else is kept unseen anybody could nest deeper than a decoder goes."""
    definitions = [documents.read(path) for path in (ROOT / "roles/crds/files").iterdir()]
    kept = {field for definition in definitions for field in _kept(definition)}
    assert kept
    assert kept - ANY_JSON <= {field.rpartition(".")[2] for field in LATER}


def _kept(schema: Any, field: str = "") -> Iterator[str]:
    """Names of the properties below which a definition keeps what it does not know."""
    if isinstance(schema, dict):
        if schema.get(KEEP):
            yield field
        for name, part in schema.items():
            yield from _kept(part, field if name in {"items", "properties"} else name)
    elif isinstance(schema, list):
        for part in schema:
            yield from _kept(part, field)
