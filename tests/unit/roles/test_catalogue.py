"""The models that the role knows by name: what a play gets for a name, and that the definition takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.slipway.inference.plugins.filter.from_catalogue import from_catalogue

from tests import documents

ROOT = Path(__file__).parents[3]
CATALOGUE = documents.read(ROOT / "roles/models/files/catalogue.yml")
GOLDEN = documents.load((Path(__file__).parent / "golden/catalogue.yaml").read_text())
ORIGINALS = sorted((ROOT.parent / "shared/reference/samples/kubeai/models").glob("*.yaml"))


@pytest.fixture(scope="module")
def schema() -> Any:
    """Of a Model's spec as a person writes it: with no unknown field, and without those that have a default."""
    definition = documents.read(ROOT / "roles/crds/files/kubeai.org_models.yaml")
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    required = [field for field in spec["required"] if "default" not in spec["properties"][field]]
    return {**spec, "additionalProperties": False, "required": required}


def rendered(name: str) -> Any:
    [model] = from_catalogue([name], CATALOGUE)
    assert model["name"] == name
    return model["spec"]


def test_the_catalogue_is_complete() -> None:
    assert len(CATALOGUE["models"]) == 48


@pytest.mark.parametrize("name", CATALOGUE["models"])
def test_the_definition_takes_every_model(name: str, schema: Any) -> None:
    jsonschema.validate(rendered(name), schema)
    assert len(name) <= 40


@pytest.mark.parametrize("name", GOLDEN)
def test_a_model_is_as_it_was_written_down(name: str) -> None:
    assert rendered(name) == GOLDEN[name]


GONE = ("--disable-log-requests", "--num-scheduler-steps", "--max-seq-len-to-capture")
"""Arguments of the originals that vLLM no longer takes: the first is what it does anyway."""
RESPELLED = {"--enable-chunked-prefill=false": "--no-enable-chunked-prefill"}


def current(spec: Any) -> Any:
    """A spec of the original with arguments that the vLLM of our defaults takes, which those for TPUs are not of."""
    if spec["engine"] != "VLLM" or "tpu" in spec["resourceProfile"] or "args" not in spec:
        return spec
    args = [RESPELLED.get(arg, arg) for arg in spec["args"] if arg.partition("=")[0] not in GONE]
    return {**spec, "args": args}


@pytest.mark.parametrize("original", ORIGINALS, ids=lambda path: path.stem)
def test_a_model_is_as_the_original_has_it(original: Path) -> None:
    manifest = documents.read(original)
    ours = rendered(manifest["metadata"]["name"])
    image = ours.pop("image", "")
    assert ours == (manifest["spec"] if image else current(manifest["spec"]))


def test_every_profile_is_one_that_the_controller_knows_or_the_cluster_s_operator_defines() -> None:
    defaults = documents.read(ROOT / "src/slipway/apis/kubeai/defaults.yaml")
    profiles = {spec["resourceProfile"].partition(":")[0] for spec in CATALOGUE["models"].values()}
    assert {name for name in profiles - set(defaults["resourceProfiles"]) if "tpu" not in name} == set()
