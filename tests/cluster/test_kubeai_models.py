"""A Model of KubeAI from its creation to its end: changes, priorities, refusals, manifests as people have them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from .cluster import PATIENCE, Object, unique, wait
from .kubeai import MODEL, KubeAI, ask, chat
from .load import Load

OURS = Path(__file__).parent / "manifests" / "kubeai"
THEIRS = Path(__file__).parents[3] / "shared" / "reference" / "samples" / "kubeai"
"""Manifests of the original's own documents and tests, where they lie beside this project."""


def test_changed_args_roll_out_without_a_lost_request(kubeai: KubeAI, free_namespace: str, gateway_url: str) -> None:
    name = unique("change")
    kubeai.make_model(free_namespace, name)
    kubeai.wait_ready(free_namespace, name)
    before = {pod["metadata"]["name"] for pod in kubeai.pods(free_namespace, name)}
    with Load(gateway_url, name) as load:
        kubeai.change_model(free_namespace, name, args=["--max-model-len=1024"], env={"STANDIN_DECODE_SECONDS": "0.1"})
        kubeai.wait_ready(free_namespace, name)
        pods = kubeai.pods(free_namespace, name)
        assert before.isdisjoint(pod["metadata"]["name"] for pod in pods)
        assert all("--max-model-len=1024" in pod["spec"]["containers"][0]["args"] for pod in pods)
        load.more(20)
    assert load.failures == []


def test_an_argument_that_the_engine_refuses_is_reported_while_the_old_pods_serve(
    kubeai: KubeAI, free_namespace: str, gateway_url: str
) -> None:
    name = unique("flag")
    kubeai.make_model(free_namespace, name)
    kubeai.wait_ready(free_namespace, name)
    kubeai.change_model(free_namespace, name, args=["--no-such-flag"])

    def has_message(model: Object) -> bool:
        conditions = model.get("status", {}).get("conditions", [])
        return any("unrecognized arguments: --no-such-flag" in condition.get("message", "") for condition in conditions)

    wait("the status shows the engine's message", PATIENCE, lambda: kubeai.model(free_namespace, name), has_message)
    assert chat(gateway_url, name).status == 200


@pytest.mark.parametrize(
    ("spec", "reason", "word"),
    [
        ({"resourceProfile": "no-such-profile:1"}, "UnknownProfile", "no-such-profile"),
        ({"cacheProfile": "no-such-cache"}, "UnknownCacheProfile", "no-such-cache"),
    ],
)
def test_values_unknown_to_the_system_are_rejected_with_the_reason(
    kubeai: KubeAI, free_namespace: str, spec: Object, reason: str, word: str
) -> None:
    name = unique("unknown")
    kubeai.make_model(free_namespace, name, **spec)
    assert word in kubeai.wait_condition(free_namespace, name, "Accepted", "False", reason)["message"]
    assert kubeai.pods(free_namespace, name) == []
    kubeai.delete(MODEL, free_namespace, name)
    kubeai.wait_gone(MODEL, free_namespace, name)


def test_a_priority_class_reaches_the_pods(kubeai: KubeAI, free_namespace: str) -> None:
    name = unique("priority")
    kubeai.create({"kind": "PriorityClass", "metadata": {"name": name}, "value": 1000})
    try:
        kubeai.make_model(free_namespace, name, priorityClassName=name)
        kubeai.wait_ready(free_namespace, name)
        assert [pod["spec"]["priority"] for pod in kubeai.pods(free_namespace, name)] == [1000]
    finally:
        kubeai.delete("PriorityClass", "", name)


def test_a_deleted_model_takes_everything_along(kubeai: KubeAI, free_namespace: str) -> None:
    name = unique("delete")
    kubeai.make_model(free_namespace, name, files=[{"path": "/a", "content": "b"}])
    kubeai.wait_ready(free_namespace, name)
    kubeai.delete(MODEL, free_namespace, name)
    kubeai.wait_gone(MODEL, free_namespace, name)

    def leftovers() -> list[str]:
        kinds = ("Deployment", "Service", "ConfigMap", "Pod", "ServiceAccount")
        children = [child["metadata"]["name"] for kind in kinds for child in kubeai.list(kind, free_namespace)]
        return [child for child in children if child not in ("default", "kube-root-ca.crt")]

    wait("nothing is left", PATIENCE, leftovers, lambda names: not names)


def manifests() -> list[Path]:
    """Ours, and those of theirs that need no accelerator."""
    theirs = ["dev/vllm-rerank.yaml", "dev/kind-cpu.yaml", "e2e/lora-adapter.yaml", "e2e/cache-shared-filesystem.yaml"]
    paths = [THEIRS / path for path in theirs] + sorted((THEIRS / "models").glob("*-cpu.yaml"))
    return sorted(OURS.glob("*.yaml")) + [path for path in paths if path.exists()]


def model_of(manifest: Path) -> Object:
    documents: list[Object] = [body for body in yaml.safe_load_all(manifest.read_text()) if body]
    return next(document for document in documents if document["kind"] == "Model")


def batches() -> list[list[Path]]:
    """Manifests in as few batches as go together: some are of models of one name, which one cluster has once."""
    groups: list[list[Path]] = []
    for manifest in manifests():
        name = model_of(manifest)["metadata"]["name"]
        fitting = (batch for batch in groups if name not in {model_of(member)["metadata"]["name"] for member in batch})
        batch = next(fitting, None)
        if batch is None:
            groups.append([manifest])
        else:
            batch.append(manifest)
    return groups


def answers(gateway_url: str, model: Object) -> bool:
    """Whether a model does what its features say."""
    name, feature = model["metadata"]["name"], model["spec"]["features"][0]
    if feature == "SpeechToText":
        form = FORM.replace(b"NAME", name.encode())
        return "sound.wav" in ask(f"{gateway_url}/v1/audio/transcriptions", form, Content_Type=FORM_TYPE).json["text"]
    if feature == "TextEmbedding":
        return bool(ask(f"{gateway_url}/v1/embeddings", {"model": name, "input": "text"}).json["data"])
    if feature == "Reranking":
        body = {"model": name, "query": "red", "documents": ["blue", "red"]}
        return bool(ask(f"{gateway_url}/v1/rerank", body).json["results"][0]["index"] == 1)
    names = [name, *(f"{name}_{adapter['name']}" for adapter in model["spec"].get("adapters", []))]
    return all(chat(gateway_url, model_id).json["choices"] for model_id in names)


FORM_TYPE = "multipart/form-data; boundary=between"
FORM = (
    b'--between\r\nContent-Disposition: form-data; name="model"\r\n\r\nNAME\r\n'
    b'--between\r\nContent-Disposition: form-data; name="file"; filename="sound.wav"\r\n\r\nsound\r\n--between--\r\n'
)


@pytest.fixture
def shared_volumes(kubeai: KubeAI, free_namespace: str) -> Iterator[None]:
    """One for each cache profile that manifests name."""
    names = [kubeai.shared_volume(free_namespace, profile) for profile in ("shared", "e2e-test-kind-pv")]
    yield
    for name in names:
        kubeai.delete("PersistentVolume", "", name)


@pytest.mark.xdist_group("manifests")  # some batches have models of the same names
@pytest.mark.parametrize("batch", batches(), ids=lambda batch: batch[0].stem)
def test_manifests_written_for_kubeai_apply_unchanged_and_answer(
    kubeai: KubeAI, gateway_url: str, free_namespace: str, shared_volumes: None, batch: list[Path]
) -> None:
    for manifest in batch:
        kubeai.kubectl("apply", "--namespace", free_namespace, "--filename", str(manifest))
    for manifest in batch:
        written = model_of(manifest)
        model = kubeai.wait_ready(free_namespace, written["metadata"]["name"])
        assert {field: model["spec"][field] for field in written["spec"]} == written["spec"], manifest
        assert answers(gateway_url, written), manifest
    for manifest in batch:
        kubeai.delete(MODEL, free_namespace, model_of(manifest)["metadata"]["name"])
    wait("the names are free again", PATIENCE, lambda: kubeai.list(MODEL, free_namespace), lambda models: not models)
