"""What the Ansible collection knows of the APIs is what `slipway apis` writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipway.apis import APIS, DESCRIPTIONS, collection
from slipway.apis.description import Description, Resource, Scrape
from slipway.kube.objects import Kind
from slipway.serving.contract.readiness import Condition, Readiness
from tests import documents

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("path", collection.files())
def test_generated_files_are_up_to_date(path: str) -> None:
    assert (ROOT / path).read_text() == collection.files()[path], "write them again: make generate"


def test_every_kind_of_an_api_is_described() -> None:
    declared = {(api.name, api.resource.kind) for api in APIS}
    assert {(api.name, resource.kind) for api in DESCRIPTIONS for resource in api.resources} == declared


def test_kinds_that_can_be_woken_have_a_scale_subresource() -> None:
    scaled = {api.resource.kind for api in APIS if api.resource.scale}
    assert {resource.kind for api in DESCRIPTIONS for resource in api.resources if resource.wakes} <= scaled


def test_a_resource_comes_after_the_resources_of_its_api_that_it_needs() -> None:
    """The modules write resources in this order, and delete them in the opposite one."""
    for api in DESCRIPTIONS:
        kinds = [resource.kind.kind for resource in api.resources]
        needs = [(number, need.kind) for number, resource in enumerate(api.resources) for need in resource.needs]
        assert all(kind in kinds[:number] for number, kind in needs)


WIDE = Kind("example.com", "v1", "Base", "bases", namespaced=False)
NARROW = Kind("example.com", "v1", "Model", "models")
READINESS = Readiness(ready=Condition("Ready"), failed=Condition("Failed"))
DESCRIPTION = Description(
    name="example",
    resources=(
        Resource(kind=NARROW, module="model", readiness=READINESS),
        Resource(kind=WIDE, module="model", readiness=READINESS),
    ),
    scrape=Scrape(labels={}),
)


def test_kinds_of_the_cluster_are_granted_in_the_cluster() -> None:
    rules = collection.rules(DESCRIPTION)
    assert [rule["resources"] for rule in rules["resources"]] == [["models"], ["models/status"], ["models/finalizers"]]
    assert [rule["resources"] for rule in rules["cluster"]] == [["bases"], ["bases/status"], ["bases/finalizers"]]


def test_model_authors_only_read_cluster_scoped_objects() -> None:
    first, second, *_ = documents.load(collection.author_role([DESCRIPTION]))["rules"]
    assert (first["resources"], "create" in first["verbs"]) == (["models"], True)
    assert (second["resources"], second["verbs"]) == (["bases"], ["get", "list", "watch"])


def test_authors_only_read_what_the_operator_writes() -> None:
    limits = Kind(group="example.com", version="v1", kind="Limit", plural="limits")
    narrow = (Resource(kind=NARROW, readiness=READINESS), Resource(kind=limits, readiness=READINESS, authored=False))
    first, second, *_ = documents.load(collection.author_role([Description(name="a", resources=narrow)]))["rules"]
    assert first["resources"] == ["models"]
    assert (second["resources"], second["verbs"]) == (["limits"], ["get", "list", "watch"])
    real = documents.load(collection.author_role(DESCRIPTIONS))["rules"]
    assert [rule["verbs"] for rule in real if "gpuquotas" in rule["resources"]] == [["get", "list", "watch"]]


def test_the_kind_of_a_module_is_the_one_that_has_a_namespace() -> None:
    assert collection.modules(DESCRIPTION.resources)["definition"] == "models.example.com"


def test_an_api_without_a_kind_for_the_module_is_reported_with_the_valid_choices() -> None:
    with pytest.raises(ValueError, match='module="model"'):
        collection.modules([Resource(kind=NARROW, readiness=READINESS)])


def test_a_written_module_is_data_again() -> None:
    value = {"a": [1, True, None, "ü\"'"], "b": {"c": [], "d": {}}, "e": [["x" * 100], ["y" * 130]]}
    text = collection.python("Purpose.", collection.BSD, "DATA", value)
    names: dict[str, object] = {}
    exec(text, names)  # noqa: S102 - it is our own
    assert names["DATA"] == value
    assert max(map(len, text.splitlines())) < 160
