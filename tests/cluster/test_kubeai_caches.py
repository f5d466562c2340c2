"""Where weights come from: caches that are filled once and evicted, buckets, volumes, files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .cluster import PATIENCE, Object, condition, unique, wait
from .kubeai import ENGINE_STARTS, MODEL, PROFILE_CLAIM, KubeAI, chat


def args(pod: Object) -> list[str]:
    server = next(container for container in pod["spec"]["containers"] if container["name"] == "server")
    arguments: list[str] = server["args"]
    return arguments


def notes(kubeai: KubeAI, namespace: str, name: str) -> Any:
    """What the volume's claim says about a model."""
    claim = kubeai.get("PersistentVolumeClaim", namespace, PROFILE_CLAIM)
    text = (claim or {}).get("metadata", {}).get("annotations", {}).get(f"models.kubeai.org/{name}")
    return json.loads(text) if text else None


@pytest.mark.usefixtures("shared_volume")
def test_a_cache_is_filled_once_mounted_and_evicted(kubeai: KubeAI, free_namespace: str, gateway_url: str) -> None:
    name = unique("cached")
    instance = kubeai.make_model(free_namespace, name, minReplicas=2, maxReplicas=2, cacheProfile="shared")
    job = wait("the Job is made", PATIENCE, lambda: kubeai.get("Job", free_namespace, f"load-cache-{name}"))
    assert job
    [loader] = job["spec"]["template"]["spec"]["containers"]
    folder = f"/models/{name}-{instance['metadata']['uid']}"
    arguments = loader["args"]
    assert arguments[arguments.index("hf://acme/base") + 1] == folder
    model = kubeai.wait_ready(free_namespace, name)
    assert model["status"]["cache"]["loaded"] is True
    assert condition(model, "CacheLoaded")["status"] == "True"
    assert notes(kubeai, free_namespace, name)["uid"] == instance["metadata"]["uid"]
    kubeai.wait_gone("Job", free_namespace, f"load-cache-{name}")
    claim = kubeai.get("PersistentVolumeClaim", free_namespace, PROFILE_CLAIM)
    assert claim
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for pod in kubeai.pods(free_namespace, name):
        assert f"--model={folder}" in args(pod)
        [mount] = [
            volume_mount
            for volume_mount in pod["spec"]["containers"][0]["volumeMounts"]
            if volume_mount["mountPath"] == folder
        ]
        assert mount["readOnly"] is True
    assert chat(gateway_url, name).words[1] == "base"

    kubeai.delete(MODEL, free_namespace, name)
    wait("the evicting Job runs", PATIENCE, lambda: kubeai.get("Job", free_namespace, f"evict-cache-{name}"))
    kubeai.wait_gone(MODEL, free_namespace, name)
    wait(
        "the claim says nothing of it", PATIENCE, lambda: notes(kubeai, free_namespace, name), lambda note: note is None
    )
    wait("no Job is left", PATIENCE, lambda: kubeai.list("Job", free_namespace), lambda jobs: not jobs)
    assert kubeai.get("PersistentVolumeClaim", free_namespace, PROFILE_CLAIM)


@pytest.mark.usefixtures("shared_volume")
def test_a_cached_model_is_deleted_though_its_profile_or_namespace_goes(kubeai: KubeAI, free_namespace: str) -> None:
    name = unique("leaving")
    kubeai.make_model(free_namespace, name, cacheProfile="shared")
    kubeai.wait_ready(free_namespace, name)
    kubeai.delete("Namespace", "", free_namespace)
    kubeai.wait_gone("Namespace", "", free_namespace)


@pytest.mark.usefixtures("shared_volume")
def test_a_cache_that_cannot_be_filled_says_why(kubeai: KubeAI, free_namespace: str) -> None:
    name = unique("nothing")
    kubeai.make_model(free_namespace, name, url="hf://acme/no-such-model", cacheProfile="shared")
    failure = kubeai.wait_condition(free_namespace, name, "CacheLoaded", "False", "CacheLoadFailed")
    assert "acme/no-such-model" in failure["message"]
    assert kubeai.pods(free_namespace, name) == []
    kubeai.delete(MODEL, free_namespace, name)
    kubeai.wait_gone(MODEL, free_namespace, name)


@pytest.mark.usefixtures("shared_volume")
def test_a_model_comes_from_a_bucket(kubeai: KubeAI, free_namespace: str, gateway_url: str) -> None:
    name = unique("bucket")
    secret = {"kind": "Secret", "metadata": {"name": "kubeai-aws", "namespace": free_namespace}}
    kubeai.create(secret | {"stringData": {"accessKeyID": "testuser", "secretAccessKey": "testuser"}})
    kubeai.make_model(
        free_namespace,
        name,
        url="s3://models/facebook/opt-125m",
        cacheProfile="shared",
        env={"AWS_ENDPOINT_URL": "http://s3.test-stores.svc:9000"},
    )
    kubeai.wait_ready(free_namespace, name)
    assert chat(gateway_url, name).words[1] == "base"
    # Without a cache the engine streams from the bucket by itself.
    streamed = unique("streamed")
    kubeai.make_model(free_namespace, streamed, url="s3://models/facebook/opt-125m")
    kubeai.wait_ready(free_namespace, streamed)
    [pod] = kubeai.pods(free_namespace, streamed)
    assert {"--model=s3://models/facebook/opt-125m", "--load-format=runai_streamer"} <= set(args(pod))


@pytest.mark.parametrize("engine", ["VLLM", "OLlama"])
def test_a_model_comes_from_a_volume(kubeai: KubeAI, free_namespace: str, gateway_url: str, engine: str) -> None:
    name = unique("volume")
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    kubeai.create(
        {
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "weights", "namespace": free_namespace},
            "spec": claim,
        }
    )
    fill = {
        "VLLM": "mkdir /weights/opt && echo '{}' > /weights/opt/config.json",
        "OLlama": "OLLAMA_MODELS=/weights ollama serve & until ollama list; do sleep 0.2; done;"
        " ollama pull qwen2:0.5b && chmod -R a+rwX /weights",
    }[engine]
    fill_volume(kubeai, free_namespace, fill)
    url = {"VLLM": "pvc://weights/opt", "OLlama": "pvc://weights?model=qwen2:0.5b"}[engine]
    kubeai.make_model(free_namespace, name, **ENGINE_STARTS[engine] | {"engine": engine, "url": url})
    kubeai.wait_ready(free_namespace, name)
    assert chat(gateway_url, name).status == 200


def fill_volume(kubeai: KubeAI, namespace: str, script: str) -> None:
    """Runs a script as root with the claim ``weights`` at /weights."""
    container = {
        "name": "fill",
        "image": "slipway/test-engines:1",
        "command": ["bash", "-c", script],
        "securityContext": {"runAsUser": 0},
        "volumeMounts": [{"name": "weights", "mountPath": "/weights"}],
    }
    volume = {"name": "weights", "persistentVolumeClaim": {"claimName": "weights"}}
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    kubeai.create({"kind": "Pod", "metadata": {"name": "fill", "namespace": namespace}, "spec": spec})
    wait(
        "the volume is filled",
        PATIENCE,
        lambda: kubeai.get("Pod", namespace, "fill"),
        lambda pod: pod is not None and pod["status"].get("phase") == "Succeeded",
    )


def test_files_are_seen_by_the_engine_and_a_changed_one_rolls_out(kubeai: KubeAI, free_namespace: str) -> None:
    name, path = unique("files"), "/config/chat-template.jinja"
    kubeai.make_model(
        free_namespace, name, args=[f"--chat-template={path}"], files=[{"path": path, "content": "{{ first }}"}]
    )
    kubeai.wait_ready(free_namespace, name)
    [before] = kubeai.pods(free_namespace, name)

    def content() -> str:
        pods = kubeai.pods(free_namespace, name)
        return kubeai.kubectl(
            "exec", "-n", free_namespace, pods[-1]["metadata"]["name"], "-c", "server", "--", "cat", path
        )

    assert content() == "{{ first }}"
    kubeai.change_model(free_namespace, name, files=[{"path": path, "content": "{{ second }}"}])
    kubeai.wait_ready(free_namespace, name)
    assert content() == "{{ second }}"
    assert before["metadata"]["uid"] not in [pod["metadata"]["uid"] for pod in kubeai.pods(free_namespace, name)]
