"""LLMKube's kinds: the definitions take what its documents allow, and the types read what the definitions take."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from slipway.apis.llmkube.types.model import MODEL, ModelSpec
from slipway.apis.llmkube.types.service import INFERENCE_SERVICE, InferenceServiceSpec
from slipway.kube.objects import Object
from slipway.kube.schemas.crd import to_yaml
from tests.conformance.cases import is_part, laid_over
from tests.conformance.llmkube import CASES, LEAST, MANIFESTS, UNKNOWN
from tests.schemas import definition_of, faults, filled, schema_of
from tests.tables import each

ROOT = Path(__file__).parents[4]
SHARED = ROOT.parent / "shared"
COMPARE = SHARED / "conformance" / "crd_diff.py"
ANNOTATION_LIMIT = 262144
"""Bytes of all annotations; kubectl apply keeps the whole object in one."""
RESOURCES = {"Model": MODEL, "InferenceService": INFERENCE_SERVICE}
SCHEMAS = {kind: schema_of(definition_of(resource))["properties"]["spec"] for kind, resource in RESOURCES.items()}
SPECS: dict[str, type[msgspec.Struct]] = {"Model": ModelSpec, "InferenceService": InferenceServiceSpec}
TAKEN = [(kind, case) for kind, case in CASES if "says" not in case]


def name_of(row: tuple[str, Object]) -> str:
    kind, case = row
    return f"{kind}-{case['case']}"


def spec_of(kind: str, case: Object) -> Object:
    spec = laid_over(LEAST[kind], case.get("spec", {}))
    return {name: value for name, value in (spec | case.get("update", {})).items() if value is not None}


@each(CASES, ids=name_of)
def test_the_schema_takes_or_refuses_a_spec(kind: str, case: Object) -> None:
    messages = faults(SCHEMAS[kind], spec_of(kind, case))
    assert bool(messages) == ("says" in case and not case.get("cel", False)), messages


@each(TAKEN, ids=name_of)
def test_the_type_reads_what_the_schema_takes_and_has_the_same_defaults(kind: str, case: Object) -> None:
    spec = spec_of(kind, case)
    assert msgspec.convert(spec, SPECS[kind]) == msgspec.convert(filled(SCHEMAS[kind], spec), SPECS[kind])


@each(TAKEN, ids=name_of)
def test_the_type_loses_nothing(kind: str, case: Object) -> None:
    spec = spec_of(kind, case)
    assert is_part(spec, msgspec.to_builtins(msgspec.convert(spec, SPECS[kind])))


@pytest.mark.parametrize("kind", RESOURCES)
def test_there_is_a_case_for_every_field(kind: str) -> None:
    named = {name for case_kind, case in TAKEN if case_kind == kind for name in spec_of(kind, case)}
    assert named == {field.encode_name for field in msgspec.structs.fields(SPECS[kind])}


@pytest.mark.parametrize(("kind", "spec", "place"), UNKNOWN, ids=[place for kind, spec, place in UNKNOWN])
def test_a_misspelt_field_is_found(kind: str, spec: Object, place: str) -> None:
    name = place.rpartition(".")[2]
    assert [fault for fault in faults(SCHEMAS[kind], LEAST[kind] | spec) if f"'{name}' was unexpected" in fault]


@pytest.mark.parametrize("observed", MANIFESTS)
def test_a_manifest_of_the_original_is_valid_and_read(observed: Object) -> None:
    kind = observed["kind"]
    assert faults(SCHEMAS[kind], observed["spec"]) == []
    spec = msgspec.convert(filled(SCHEMAS[kind], observed["spec"]), SPECS[kind])
    assert spec == msgspec.convert(observed["spec"], SPECS[kind])


@pytest.mark.parametrize("kind", RESOURCES)
def test_a_definition_fits_what_kubectl_apply_keeps(kind: str) -> None:
    manifest = RESOURCES[kind].manifest()
    assert len(json.dumps(manifest).encode()) < ANNOTATION_LIMIT / 2
    assert yaml.safe_load(to_yaml(manifest)) == manifest
    assert "&id" not in to_yaml(manifest)


@pytest.mark.parametrize("kind", RESOURCES)
def test_every_field_of_ours_is_described(kind: str) -> None:
    properties = schema_of(RESOURCES[kind].manifest())["properties"]
    for part in ("spec", "status"):
        bare = [name for name, below in properties[part]["properties"].items() if not below.get("description")]
        assert bare == []


@pytest.mark.skipif(not COMPARE.exists(), reason="the originals' definitions do not lie beside this checkout")
@pytest.mark.parametrize("version", ["-v0.8.7", ""])
@pytest.mark.parametrize("kind", RESOURCES)
def test_the_definition_agrees_with_the_original(kind: str, version: str, tmp_path: Path) -> None:
    definition = RESOURCES[kind].manifest()
    (tmp_path / "ours.yaml").write_text(to_yaml(definition))
    allowed = ROOT / "tests" / "conformance" / "allowed.txt"
    name = f"llmkube{version}-inference.llmkube.dev_{RESOURCES[kind].kind.plural}.yaml"
    reference = SHARED / "reference" / "crds" / name
    command = [sys.executable, str(COMPARE), str(tmp_path), str(reference), "--allow", str(allowed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
