"""Manifests as people have them for LLMKube apply unchanged, and become what they say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from .cluster import PATIENCE, Object, condition, observed, wait
from .kubeai import chat
from .llmkube import MODEL, SERVICE, LLMKube

OURS = Path(__file__).parent / "manifests" / "llmkube"
THEIRS = Path(__file__).parents[3] / "shared" / "reference" / "samples" / "llmkube"
"""Manifests of the original's own documents, where they lie beside this project."""
KINDS = {"Model": MODEL, "InferenceService": SERVICE}
WEIGHTS = ("/acme/tiny/", "/TheBloke/TinyLlama-1.1B", "/bartowski/Llama-3.2-3B", "/microsoft/Phi-3-mini")
"""What the hub of the test cluster has, among all that they name."""


def documents(manifest: Path) -> list[Object]:
    """The models and services of a file, which has several documents or a List."""
    bodies: list[Object] = []
    for document in filter(None, yaml.safe_load_all(manifest.read_text())):
        bodies += document["items"] if document.get("kind") == "List" else [document]
    ours = [one for one in bodies if one.get("kind") in KINDS]
    return [one for one in ours if one["apiVersion"] == "inference.llmkube.dev/v1alpha1"]


def manifests() -> list[Path]:
    paths = sorted(OURS.glob("*.yaml")) + sorted(THEIRS.glob("*.yaml"))
    return [path for path in paths if documents_or_none(path)]


def documents_or_none(path: Path) -> list[Object]:
    """The catalog in the same folder is not a manifest."""
    return documents(path) if "\nkind: " in path.read_text() else []


@pytest.fixture
def manifest_namespace(llmkube: LLMKube) -> Iterator[str]:
    """A new namespace that is gone after the test: the next manifest may use the same names."""
    name = llmkube.namespace()
    yield name
    llmkube.delete("Namespace", "", name)
    llmkube.wait_gone("Namespace", "", name)


def placed(document: Object, namespace: str) -> Object:
    """The same resource in the namespace of a test."""
    return document | {"metadata": document["metadata"] | {"namespace": namespace}}


def expected_of_model(model: Object) -> tuple[str, str]:
    """Phase and reason on a cluster without GPUs, whose hub has little."""
    source, spec = model["spec"]["source"], model["spec"]
    hardware = spec.get("hardware", {})
    if hardware.get("accelerator") == "metal":
        return "Ready", "MetalAgentManaged"
    if source.startswith("/"):
        return "Failed", "SourceNotAllowed"
    if any(place in f"/{source.removeprefix('hf://')}" for place in WEIGHTS):
        return "Ready", "ModelReady"
    if "://" not in source:
        return "Ready", "RuntimeResolved"
    return "Failed", "DownloadFailed"


def expected_of_service(service: Object, model: Object) -> str:
    """Phase."""
    phase, reason = expected_of_model(model)
    if phase == "Failed" or reason == "MetalAgentManaged":
        return "Failed"
    gpu = model["spec"].get("hardware", {}).get("gpu", {}).get("count") or service["spec"].get("resources", {}).get(
        "gpu"
    )
    return "WaitingForGPU" if gpu else "Ready"


# The services of some wait for GPUs, which another test gives to the node and takes away.
@pytest.mark.xdist_group("accelerators")
@pytest.mark.parametrize("manifest", manifests(), ids=lambda path: path.stem)
def test_manifests_written_for_llmkube_apply_unchanged_and_become_what_they_say(
    llmkube: LLMKube, gateway_url: str, manifest_namespace: str, manifest: Path
) -> None:
    written = [placed(document, manifest_namespace) for document in documents(manifest)]
    text = yaml.safe_dump_all(written)
    # The API server checks every field, and refuses those that it does not know.
    strict = ("--server-side", "--field-manager", "tests", "--validate=strict", "--filename", "-")
    llmkube.kubectl("apply", "--dry-run=server", *strict, stdin=text)
    llmkube.kubectl("apply", *strict, stdin=text)
    models = {body["metadata"]["name"]: body for body in written if body["kind"] == "Model"}
    for name, model in models.items():
        actual = llmkube.wait_model(manifest_namespace, name, *expected_of_model(model))
        same(actual["spec"], model["spec"], manifest)
    for service in (candidate for candidate in written if candidate["kind"] == "InferenceService"):
        name = service["metadata"]["name"]
        phase = expected_of_service(service, models[service["spec"]["modelRef"]])
        actual = llmkube.wait_phase(manifest_namespace, name, phase)
        same(actual["spec"], service["spec"], manifest)
        if phase == "Ready":
            llmkube.wait_routed(manifest_namespace, name)
            assert chat(gateway_url, name).status == 200
        if phase == "WaitingForGPU":
            [waiting] = llmkube.pods(manifest_namespace, name)
            assert waiting["status"]["phase"] == "Pending"


def same(actual: Object, written: Object, manifest: Path) -> None:
    """What was written is what is there; defaults may have come."""
    for field, value in written.items():
        if isinstance(value, dict):
            same(actual[field], value, manifest)
        else:
            assert actual[field] == value, f"{manifest}: {field}"


def test_all_of_the_original_were_found_where_they_are_there() -> None:
    if not THEIRS.exists():
        pytest.skip("the original's manifests are not beside this project")
    assert len(manifests()) > len(list(OURS.glob("*.yaml")))


def is_reported(service: Object) -> bool:
    return observed(service) and bool(condition(service, "FieldsUsed"))


def test_a_services_fields_without_effect_are_reported(llmkube: LLMKube, llmkube_namespace: str) -> None:
    llmkube.make_model(llmkube_namespace, "weights")
    idle = {"flashAttention": True, "vllmConfig": {"maxModelLen": 512}, "args": ["--verbose"]}
    llmkube.make_service(llmkube_namespace, "idle", "weights", **idle)
    service = wait("the fields are reported", PATIENCE, lambda: llmkube.service(llmkube_namespace, "idle"), is_reported)
    fields_used = condition(service, "FieldsUsed")
    assert fields_used["status"] == "False"
    assert all(field in fields_used["message"] for field in ("flashAttention", "vllmConfig", "args"))
