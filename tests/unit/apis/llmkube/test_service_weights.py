"""How an InferenceService's engine comes to its weights."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.apis.llmkube import SERVICES
from slipway.apis.llmkube.models import usage
from slipway.apis.llmkube.services.surroundings import references
from slipway.kube.objects import DEPLOYMENT
from slipway.serving.contract.api import InvalidSpecError
from slipway.serving.contract.settings import Settings, Sources
from tests import worlds
from tests.worlds import at

from .services import (
    GGUF,
    HUB,
    NEWEST,
    READY,
    VLLM,
    child,
    container,
    kinds,
    line,
    model,
    plan,
    pod,
    refusal,
    tiny_at,
    unused,
    world,
)


@pytest.mark.parametrize(
    ("runtime", "block", "variable"),
    [
        ("vllm", "vllmConfig", "HF_TOKEN"),
        ("tgi", "tgiConfig", "HUGGING_FACE_HUB_TOKEN"),
        ("personaplex", "personaPlexConfig", "HF_TOKEN"),
    ],
)
def test_the_hubs_token_has_the_name_that_the_runtime_reads(runtime: str, block: str, variable: str) -> None:
    secret = {"name": "hf", "key": "token"}
    snapshot = world(runtime=runtime, image="own:1", model=NEWEST, **{block: {"hfTokenSecretRef": secret}})
    assert {"name": variable, "valueFrom": {"secretKeyRef": secret}} in container(snapshot)["env"]


def test_a_secret_of_the_model_opens_gated_repositories_for_an_engine_that_fetches_them() -> None:
    snapshot = world(runtime="vllm", model={**HUB, "sourceSecretRef": {"name": "gated"}})
    (token,) = container(snapshot)["env"]
    assert token["valueFrom"]["secretKeyRef"] == {"name": "gated", "key": "HF_TOKEN", "optional": True}


def test_weights_come_from_the_cache_read_only() -> None:
    snapshot = world(tiny_at("/models/ab12/tiny.gguf"))
    assert container(snapshot)["volumeMounts"] == [{"name": "model-cache", "mountPath": "/models", "readOnly": True}]
    assert pod(snapshot)["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "llmkube-model-cache"}
    assert "initContainers" not in pod(snapshot)["spec"]
    assert container(snapshot)["args"][:2] == ["--model", "/models/ab12/tiny.gguf"]


@pytest.mark.parametrize(
    ("spec", "volume"),
    [
        ({"modelCache": {"persistence": "Ephemeral"}, "resources": {"ephemeralStorage": "9Gi"}}, "model-storage"),
        ({"modelCache": {"claimName": "mine"}}, "model-cache"),
    ],
)
def test_pods_load_weights_themselves_if_configured(spec: dict[str, Any], volume: str) -> None:
    snapshot = world(model("tiny", GGUF, {}), **spec)
    (loader,) = pod(snapshot)["spec"]["initContainers"]
    assert loader["name"] == "model-downloader"
    assert loader["volumeMounts"] == [{"name": volume, "mountPath": "/models"}]
    (actual,) = pod(snapshot)["spec"]["volumes"]
    kept = {"persistentVolumeClaim": {"claimName": "mine"}} if volume == "model-cache" else {}
    assert actual == {"name": volume, **(kept or {"emptyDir": {"sizeLimit": "9Gi"}})}


def test_sources_that_pods_cannot_load_themselves_are_rejected() -> None:
    spec = {"source": "acme/tiny-GGUF", "files": ["*Q4*.gguf"]}
    assert "--model /models/ab/x-Q4.gguf" in line(model("tiny", spec, READY | {"path": "/models/ab/x-Q4.gguf"}))
    refused = refusal(model=spec, modelCache={"persistence": "Ephemeral"})
    assert "a pattern are not known yet" in refused.message


def test_the_operator_may_have_no_cache_at_all() -> None:
    settings = Settings(apis={"llmkube": {"modelCache": {"persistence": "Ephemeral"}}})
    snapshot = msgspec.structs.replace(world(model("tiny", GGUF, {})), settings=settings)
    assert [one["name"] for one in pod(snapshot)["spec"]["initContainers"]] == ["model-downloader"]
    caching = world(model("tiny", GGUF, {}), modelCache={"persistence": "Cached"})
    conditions = worlds.status(SERVICES, msgspec.structs.replace(caching, settings=settings), None).status["conditions"]
    assert any("modelCache.persistence" in condition["message"] for condition in conditions)


def test_a_claim_that_the_model_names_is_read_where_it_is() -> None:
    snapshot = world(model={"source": "pvc://weights/llama/tiny.gguf"}, modelCache={"claimName": "mine"})
    assert container(snapshot)["args"][1] == "/model-source/llama/tiny.gguf"
    assert "initContainers" not in pod(snapshot)["spec"]
    assert "modelCache (" in unused(model={"source": "pvc://weights/x.gguf"}, modelCache={"claimName": "mine"})


@pytest.mark.parametrize(
    ("source", "runtime", "words"),
    [
        ("https://models.example/x.gguf", "llamacpp", "--host"),
        ("/opt/x.gguf", "llamacpp", "--model /opt/x.gguf --host"),
        ("file:///opt/model", "tgi", "--model-id /opt/model"),
        ("acme/tiny", "vllm", "acme/tiny --host"),
        ("acme/tiny-GGUF", "llamacpp", "--hf-repo acme/tiny-GGUF --host"),
    ],
)
def test_without_model_init_the_engine_sees_to_its_weights(source: str, runtime: str, words: str) -> None:
    snapshot = world(model={"source": source}, runtime=runtime, skipModelInit=True)
    assert " ".join(container(snapshot)["args"]).startswith(words)
    volumes = [volume["name"] for volume in pod(snapshot)["spec"].get("volumes", [])]
    assert set(volumes) <= {"dshm", "downloads"}
    assert "initContainers" not in pod(snapshot)["spec"]


OWN = {"image": "own:1"}
OTHER = {"extraArgs": ["--model-id", "acme/other"]}


@pytest.mark.parametrize(
    "spec",
    [
        {"runtime": "generic", **OWN},
        {"runtime": "generic", **OWN, "args": ["--model", "/opt/models/x.gguf", "/models-of-mine"]},
        {"runtime": "generic", **OWN, "modelCache": {"persistence": "Ephemeral"}},
        {
            "runtime": "generic",
            **OWN,
            "args": ["/models/x"],
            "extraVolumeMounts": [{"name": "m", "mountPath": "/models/"}],
        },
        {"runtime": "personaplex", **OWN},
        {"runtime": "tgi", **OTHER},
    ],
)
def test_a_runtime_that_names_no_weights_gets_none_and_waits_for_none(spec: dict[str, Any]) -> None:
    snapshot = world(model("tiny", GGUF, {"phase": "Pending"}), **spec)
    mounts = [mount["mountPath"] for mount in container(snapshot).get("volumeMounts", [])]
    assert not {"/models", "/model-source"} & set(mounts)
    assert "initContainers" not in pod(snapshot)["spec"]
    assert not usage.reads_cache(snapshot.resource)


@pytest.mark.parametrize(
    "spec",
    [
        {"runtime": "generic", **OWN, "args": ["--model=/models/ab/tiny.gguf"]},
        {"runtime": "generic", **OWN, "command": ["serve", "/models"]},
        {"runtime": "generic", **OWN, "env": [{"name": "MODEL_DIR", "value": "/models"}]},
        {"runtime": "personaplex", **OWN, "extraArgs": ["--moshi-weight", "/models/ab/tiny.gguf"]},
        {"runtime": "tgi", "extraArgs": ["--model-id=/models/ab"]},
        {"runtime": "tgi"},
        {"runtime": "vllm"},
        {},
    ],
)
def test_a_runtime_that_names_the_cache_gets_it_and_waits_for_it(spec: dict[str, Any]) -> None:
    snapshot = world(tiny_at("/models/ab/tiny.gguf"), **spec)
    assert {"name": "model-cache", "mountPath": "/models", "readOnly": True} in container(snapshot)["volumeMounts"]
    assert "Deployment" not in kinds(world(model("tiny", GGUF, {"phase": "Pending"}), **spec))
    assert usage.reads_cache(snapshot.resource)


def test_tgi_gets_one_model() -> None:
    assert line(runtime="tgi", model=HUB, **OTHER).count("--model-id") == 1


def test_a_projector_lies_beside_its_model() -> None:
    spec = {"source": "acme/vision-GGUF", "files": ["q4/a-00001.gguf", "q4/a-00002.gguf"], "mmproj": "mmproj.gguf"}
    words = line(model=spec).split()
    path, projector = words[words.index("--model") + 1], words[words.index("--mmproj") + 1]
    assert path.endswith("/q4/a-00001.gguf")
    assert projector == f"{path.removesuffix('/q4/a-00001.gguf')}/mmproj.gguf"


def test_engines_that_take_folders_are_given_the_folder_of_a_set_of_files() -> None:
    spec = {"source": "acme/big", "format": "safetensors", "files": ["model-1.safetensors", "model-2.safetensors"]}
    assert line(runtime="vllm", model=spec).split()[0].count("/") == 2


def test_nothing_is_made_for_a_mac() -> None:
    assert kinds(world(model={"source": "acme/tiny", "hardware": {"accelerator": "metal"}})) == []


def test_a_service_refers_to_its_models_and_its_class() -> None:
    snapshot = world(**VLLM, vllmConfig={"speculative": {"enabled": True, "model": "draft"}}, priorityClassName="mine")
    actual = references(snapshot.resource)
    assert [(one.kind.kind, one.namespace, one.name) for one in actual] == [
        ("Model", "models", "tiny"),
        ("Model", "models", "draft"),
        ("PriorityClass", "", "mine"),
    ]


@pytest.mark.parametrize("status", [{}, {"phase": "Downloading", "observedGeneration": 1}, {"phase": "Ready"}])
def test_no_pod_is_made_before_the_model_is_ready_and_those_that_run_stay(status: dict[str, Any]) -> None:
    snapshot = world(model("tiny", GGUF, status))
    assert kinds(snapshot) == ["Service"]
    running = child(world(), "Deployment")
    kept = msgspec.structs.replace(snapshot, children={at(DEPLOYMENT, "chat"): running})
    assert child(kept, "Deployment")["spec"] == running["spec"]


def test_an_image_that_has_its_weights_needs_no_model_that_is_ready() -> None:
    failed = model("tiny", {"source": "/opt/x.gguf"}, {"phase": "Failed", "observedGeneration": 1})
    assert "Deployment" in kinds(world(failed, skipModelInit=True))


def test_a_claim_of_a_user_is_read_only_so_that_its_files_keep_their_group() -> None:
    (volume,) = pod(world(model={"source": "pvc://mine/tiny.gguf"}))["spec"]["volumes"]
    assert volume["persistentVolumeClaim"] == {"claimName": "mine", "readOnly": True}


def test_a_runtime_that_takes_a_file_is_given_no_folder() -> None:
    error = refusal(model={"source": "pvc://mine/", "format": "safetensors"})
    assert error.message == (
        "The Model tiny cannot be served: this runtime needs a file, and its source does not name one: pvc://mine/model.gguf"
    )


@pytest.mark.parametrize(
    ("path", "roots", "taken"),
    [
        ("/mnt/data", (), False),
        ("/", (), False),
        ("/", ("/mnt",), False),
        ("/mnt/data", ("/mnt",), True),
        ("/mnt/", ("/mnt",), True),
        ("/mnt/../etc", ("/mnt",), False),
        ("/mntx", ("/mnt",), False),
    ],
)
def test_volumes_of_the_node_are_those_that_the_operator_allows(path: str, roots: tuple[str, ...], taken: bool) -> None:
    snapshot = world(extraVolumes=[{"name": "node", "hostPath": {"path": path}}])
    snapshot = msgspec.structs.replace(snapshot, settings=Settings(sources=Sources(allowed_host_path_roots=roots)))
    if taken:
        assert {"name": "node", "hostPath": {"path": path}} in pod(snapshot)["spec"]["volumes"]
    else:
        with pytest.raises(InvalidSpecError) as refused:
            plan(snapshot)
        assert refused.value.reason == "SourceNotAllowed"


@pytest.mark.parametrize("mount", [{}, {"readOnly": False}, {"readOnly": True}])
def test_no_link_lets_a_tenant_write_elsewhere_on_the_node(mount: dict[str, bool]) -> None:
    place = {"name": "node", "mountPath": "/data", **mount}
    snapshot = world(extraVolumes=[{"name": "node", "hostPath": {"path": "/mnt/models"}}], extraVolumeMounts=[place])
    snapshot = msgspec.structs.replace(snapshot, settings=Settings(sources=Sources(allowed_host_path_roots=("/mnt",))))
    if mount.get("readOnly"):
        assert place in container(snapshot)["volumeMounts"]
    else:
        with pytest.raises(InvalidSpecError, match="must be readOnly"):
            plan(snapshot)
