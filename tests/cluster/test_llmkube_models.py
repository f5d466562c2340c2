"""Where LLMKube's weights come from: caches that are filled once, checked, resumed, watched and cleared; volumes."""

from __future__ import annotations

import hashlib

import pytest

from .cluster import PATIENCE, Object, condition, unique, wait
from .kubeai import chat
from .llmkube import CLAIM, HUB, MODEL, REVALIDATE_SECONDS, SERVICE, LLMKube, Shelf

SLOW = 15_000
"""Bytes in a second: most of a minute for the whole file."""
HEADER = {
    "architecture": "llama",
    "modelName": "tiny-random",
    "quantization": "F32",
    "contextLength": 4096,
    "embeddingSize": 64,
    "layerCount": 2,
    "headCount": 4,
    "fileVersion": 3,
}
"""What the generated model says of itself."""


def key_of(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:16]


@pytest.mark.parametrize("place", ["hub", "web"])
def test_two_services_share_weights_that_are_loaded_once(
    llmkube: LLMKube, llmkube_namespace: str, shelf: Shelf, gateway_url: str, place: str
) -> None:
    source, weights = {"hub": HUB, "web": shelf.url}[place], unique("weights")
    first, second = unique("first"), unique("second")
    llmkube.make_model(llmkube_namespace, weights, source=source)
    llmkube.make_service(llmkube_namespace, first, weights)
    llmkube.wait_serving(llmkube_namespace, first)
    status = llmkube.wait_model(llmkube_namespace, weights, "Ready", "ModelReady")["status"]
    assert status["gguf"].items() >= HEADER.items()
    assert status["gguf"]["tensorCount"] > 0
    key = key_of(source)
    assert (status["cacheKey"], status["path"]) == (key, f"/models/{key}/tiny.gguf")
    report = shelf.look()
    assert (status["sha256"], status["size"]) == (report["sha256"], f"{report['size'] / 1024:.1f} KiB")

    other = unique("other")
    llmkube.make_model(llmkube_namespace, other, source=source)
    assert llmkube.wait_model(llmkube_namespace, other, "Ready", "ModelCached")["status"]["path"] == status["path"]
    llmkube.make_service(llmkube_namespace, second, other, contextSize=512)
    llmkube.wait_serving(llmkube_namespace, second)
    assert llmkube.loads(llmkube_namespace) == {f"{weights}-download": 1}
    llmkube.wait_routed(llmkube_namespace, first, second)
    for name in (first, second):
        answer = chat(gateway_url, name)
        assert (answer.status, answer.json["model"]) == (200, name)
        [pod] = llmkube.pods(llmkube_namespace, name)
        [server] = pod["spec"]["containers"]
        assert server["args"][:2] == ["--model", status["path"]]
        [cache] = [mount for mount in server["volumeMounts"] if mount["mountPath"] == "/models"]
        assert cache["readOnly"] is True
        assert "initContainers" not in pod["spec"]


def test_weights_with_another_hash_are_not_served_and_leave_nothing(
    llmkube: LLMKube, llmkube_namespace: str, shelf: Shelf, gateway_url: str
) -> None:
    weights, name, wrong = unique("hash"), unique("hash"), "0" * 64
    llmkube.make_model(llmkube_namespace, weights, source=shelf.url, sha256=wrong)
    llmkube.make_service(llmkube_namespace, name, weights)
    model = llmkube.wait_model(llmkube_namespace, weights, "Failed", "IntegrityCheckFailed")
    message = condition(model, "Available")["message"]
    assert wrong in message
    assert shelf.look()["sha256"] in message
    assert condition(model, "Degraded")["status"] == "True"
    service = llmkube.wait_phase(llmkube_namespace, name, "Failed", "ModelFailed")
    assert weights in condition(service, "Available")["message"]
    assert llmkube.files(llmkube_namespace) == []

    llmkube.change_model(llmkube_namespace, weights, sha256=shelf.look()["sha256"].upper())
    llmkube.wait_model(llmkube_namespace, weights)
    llmkube.wait_serving(llmkube_namespace, name)
    assert llmkube.files(llmkube_namespace) == [f"{key_of(shelf.url)}/tiny.gguf"]
    llmkube.wait_routed(llmkube_namespace, name)
    assert chat(gateway_url, name).status == 200


def test_a_download_that_is_cut_is_gone_on_with(llmkube: LLMKube, llmkube_namespace: str, shelf: Shelf) -> None:
    weights = unique("cut")
    shelf.change(bytesPerSecond=SLOW)
    llmkube.make_model(llmkube_namespace, weights, source=shelf.url)

    def under_way(model: Object) -> bool:
        status = model.get("status", {})
        return status.get("phase") == "Downloading" and 0 < status.get("doneBytes", 0) < status.get("totalBytes", 0)

    wait("bytes have come", PATIENCE, lambda: llmkube.model(llmkube_namespace, weights), under_way)
    [pod] = llmkube.list("Pod", llmkube_namespace, f"inference.llmkube.dev/model={weights}")
    shelf.change(bytesPerSecond=0)
    llmkube.kill(llmkube_namespace, pod["metadata"]["name"], pod["spec"]["containers"][0]["name"])
    status = llmkube.wait_model(llmkube_namespace, weights)["status"]
    report = shelf.look()
    assert status["sha256"] == report["sha256"]
    assert [request["status"] for request in report["requests"] if request["range"] not in ("", "bytes=0-")] == [206]
    assert llmkube.loads(llmkube_namespace) == {f"{weights}-download": 2}
    assert not {"doneBytes", "totalBytes"} & set(status)


def test_a_changed_source_is_reported_and_loaded_again_if_the_spec_allows_it(
    llmkube: LLMKube, llmkube_namespace: str, shelf: Shelf
) -> None:
    weights, name = unique("drift"), unique("drift")
    llmkube.make_model(llmkube_namespace, weights, source=shelf.url)
    llmkube.make_service(llmkube_namespace, name, weights)
    llmkube.wait_serving(llmkube_namespace, name)
    [old] = llmkube.pods(llmkube_namespace, name)
    before = llmkube.wait_model(llmkube_namespace, weights)["status"]
    shelf.change(edition=2)
    patience = PATIENCE + REVALIDATE_SECONDS
    llmkube.wait_condition(llmkube_namespace, weights, "SourceDrifted", "True", "SourceChanged", patience)
    after = llmkube.wait_model(llmkube_namespace, weights)["status"]
    assert after["sha256"] == before["sha256"] != shelf.look()["sha256"]
    assert after["lastRevalidated"] > before["lastRevalidated"]
    assert llmkube.loads(llmkube_namespace) == {f"{weights}-download": 1}

    llmkube.change_model(llmkube_namespace, weights, refreshPolicy="OnChange")
    digest = shelf.look()["sha256"]

    def loaded(model: Object) -> bool:
        status = model["status"]
        assert status["phase"] == "Ready", "what is there serves on"
        return bool(status["sha256"] == digest and condition(model, "SourceDrifted").get("status") != "True")

    wait("the change is loaded", PATIENCE, lambda: llmkube.model(llmkube_namespace, weights), loaded)
    llmkube.wait_condition(llmkube_namespace, weights, "SourceDrifted", "False", "AsExpected", patience)
    assert llmkube.loads(llmkube_namespace) == {f"{weights}-download": 2}
    assert llmkube.files(llmkube_namespace) == [f"{key_of(shelf.url)}/tiny.gguf"]
    llmkube.wait_serving(llmkube_namespace, name)
    [new] = llmkube.pods(llmkube_namespace, name)
    assert new["metadata"]["uid"] != old["metadata"]["uid"], "the pods of the old weights are replaced"


def test_weights_leave_the_cache_with_the_last_model_that_has_them(
    llmkube: LLMKube, llmkube_namespace: str, shelf: Shelf
) -> None:
    one, two, keeper = unique("one"), unique("two"), unique("keeper")
    llmkube.make_model(llmkube_namespace, one, source=shelf.url)
    llmkube.make_model(llmkube_namespace, two, source=shelf.url)
    llmkube.make_model(llmkube_namespace, keeper)
    for name in (one, two, keeper):
        llmkube.wait_model(llmkube_namespace, name)
    shared, kept = key_of(shelf.url), key_of(HUB)
    assert set(llmkube.inventory(llmkube_namespace)) == {shared, kept}

    llmkube.delete(MODEL, llmkube_namespace, one)
    llmkube.wait_gone(MODEL, llmkube_namespace, one)
    assert llmkube.files(llmkube_namespace) == sorted([f"{kept}/tiny.gguf", f"{shared}/tiny.gguf"])
    llmkube.delete(MODEL, llmkube_namespace, two)
    llmkube.wait_gone(MODEL, llmkube_namespace, two)
    wait(
        "no Model has a record of it",
        PATIENCE,
        lambda: llmkube.inventory(llmkube_namespace),
        lambda kinds: shared not in kinds,
    )
    assert llmkube.files(llmkube_namespace) == [f"{kept}/tiny.gguf"]
    assert llmkube.on_claim(llmkube_namespace, CLAIM, "ls /volume").split() == [kept]


def test_weights_stay_while_pods_read_them(llmkube: LLMKube, llmkube_namespace: str, gateway_url: str) -> None:
    weights, name = unique("read"), unique("read")
    llmkube.make_model(llmkube_namespace, weights)
    llmkube.make_service(llmkube_namespace, name, weights)
    llmkube.wait_serving(llmkube_namespace, name)
    llmkube.wait_routed(llmkube_namespace, name)
    llmkube.delete(MODEL, llmkube_namespace, weights)
    model = llmkube.wait_model(llmkube_namespace, weights, "Pending", "InUse")
    assert name in condition(model, "Available")["message"]
    assert llmkube.files(llmkube_namespace) == [f"{key_of(HUB)}/tiny.gguf"]
    assert chat(gateway_url, name).status == 200
    llmkube.delete(SERVICE, llmkube_namespace, name)
    llmkube.wait_gone(MODEL, llmkube_namespace, weights)
    assert llmkube.files(llmkube_namespace) == []


def test_a_namespace_goes_with_its_models(llmkube: LLMKube) -> None:
    namespace, name = llmkube.namespace("leaving"), unique("leaving")
    llmkube.make_model(namespace, name)
    llmkube.make_service(namespace, name, name)
    llmkube.wait_serving(namespace, name)
    llmkube.delete("Namespace", "", namespace)
    llmkube.wait_gone("Namespace", "", namespace)


def test_weights_are_served_from_a_volume_of_the_users_own(
    llmkube: LLMKube, llmkube_namespace: str, shelf: Shelf, gateway_url: str
) -> None:
    weights, name = unique("volume"), unique("volume")
    source, digest = "pvc://weights/llm/tiny.gguf", shelf.look()["sha256"]
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": "weights", "namespace": llmkube_namespace}
    llmkube.create({"kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    fill = "mkdir /volume/llm && cp /opt/standins/tiny.gguf /volume/llm/"
    llmkube.on_claim(llmkube_namespace, "weights", fill)
    llmkube.make_model(llmkube_namespace, weights, source=source, sha256=digest)
    llmkube.make_service(llmkube_namespace, name, weights)
    status = llmkube.wait_model(llmkube_namespace, weights, "Ready", "PVCModelReady")["status"]
    assert status["path"] == "/model-source/llm/tiny.gguf"
    assert status["gguf"].items() >= HEADER.items()
    assert (status["sha256"], "cacheKey" in status) == (digest, False)
    llmkube.wait_serving(llmkube_namespace, name)
    llmkube.wait_routed(llmkube_namespace, name)
    assert chat(gateway_url, name).status == 200
    # The original creates a claim even for an unused cache.
    assert llmkube.get("PersistentVolumeClaim", llmkube_namespace, CLAIM) is None
    llmkube.change_model(llmkube_namespace, weights, sha256="0" * 64)
    llmkube.wait_model(llmkube_namespace, weights, "Failed", "IntegrityCheckFailed")


def test_pods_load_the_weights_themselves_where_the_service_wants_no_cache(
    llmkube: LLMKube, llmkube_namespace: str, gateway_url: str
) -> None:
    weights, name = unique("ephemeral"), unique("ephemeral")
    llmkube.make_service(llmkube_namespace, name, weights, modelCache={"persistence": "Ephemeral"})
    llmkube.make_model(llmkube_namespace, weights)
    llmkube.wait_serving(llmkube_namespace, name)
    model = llmkube.wait_model(llmkube_namespace, weights, "Ready", "WorkloadResolved")
    wait("the header is read", PATIENCE, lambda: llmkube.model(llmkube_namespace, weights)["status"].get("gguf"))
    assert "cacheKey" not in model["status"]
    assert llmkube.get("PersistentVolumeClaim", llmkube_namespace, CLAIM) is None
    [pod] = llmkube.pods(llmkube_namespace, name)
    assert [container["name"] for container in pod["spec"]["initContainers"]] == ["model-downloader"]
    assert not [volume for volume in pod["spec"]["volumes"] if "persistentVolumeClaim" in volume]
    llmkube.wait_routed(llmkube_namespace, name)
    assert chat(gateway_url, name).status == 200


@pytest.mark.parametrize(
    ("source", "reason", "word"),
    [
        ("http://kubernetes.default.svc/model.gguf", "SourceNotAllowed", "private address"),
        ("http://169.254.169.254/latest/model.gguf", "SourceNotAllowed", "metadata"),
        ("/etc/kubernetes/admin.conf", "SourceNotAllowed", "/etc/kubernetes/admin.conf"),
        ("pvc://nowhere/model.gguf", "PVCNotFound", "nowhere"),
        ("hf://acme/tiny/other.gguf", "SourceNotFound", "other.gguf"),
        ("hf://acme/no-such-model/tiny.gguf", "DownloadFailed", "no-such-model"),
    ],
    ids=["neighbour", "metadata", "host", "claim", "file", "repository"],
)
def test_a_source_that_is_unavailable_is_reported_with_its_reason(
    llmkube: LLMKube, llmkube_namespace: str, source: str, reason: str, word: str
) -> None:
    name = unique("nothing")
    llmkube.make_model(llmkube_namespace, name, source=source)
    model = llmkube.wait_model(llmkube_namespace, name, "Failed", reason)
    assert word in condition(model, "Available")["message"]
    llmkube.delete(MODEL, llmkube_namespace, name)
    llmkube.wait_gone(MODEL, llmkube_namespace, name)
