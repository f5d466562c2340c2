"""The example of each API is one that its definition takes, and that leads to pods."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipway.apis import APIS
from tests import documents

from ...schemas import definition_of, faults, schema_of

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples/models").glob("*.yaml"))
DEFINITIONS = {(api.resource.kind.api_version, api.resource.kind.kind): definition_of(api.resource) for api in APIS}
SMALL = {"100m"}
"""What each asks for of a core, so that all of them fit a machine with two."""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_one_that_the_api_server_takes(path: Path) -> None:
    manifest = documents.read(path)
    assert faults(schema_of(DEFINITIONS[manifest["apiVersion"], manifest["kind"]]), manifest) == []
    assert manifest["metadata"]["namespace"] == "models"


def test_all_fit_a_small_machine() -> None:
    specs = {path.name: documents.read(path)["spec"] for path in EXAMPLES}
    demo = next(play for play in documents.read(ROOT / "playbooks/demo.yml") if "models_list" in play.get("vars", {}))
    profiles = demo["vars"]["controller_kubeai_config"]["resourceProfiles"]
    profile, _unused, count = specs["kubeai.yaml"]["resourceProfile"].partition(":")
    assert count == "1"
    cpu_requests = {
        specs["krypton.yaml"]["resources"]["requests"]["cpu"],
        specs["llmkube-service.yaml"]["resources"]["cpu"],
        profiles[profile]["requests"]["cpu"],
    }
    assert cpu_requests == SMALL


def test_the_page_names_every_example() -> None:
    page = (ROOT / "examples/models/README.md").read_text()
    assert [path.name for path in EXAMPLES if f"`{path.name}`" not in page] == []
    service = documents.read(ROOT / "examples/models/llmkube-service.yaml")
    model = documents.read(ROOT / "examples/models/llmkube-model.yaml")
    assert service["spec"]["modelRef"] == model["metadata"]["name"]
