"""Engines with their own API key or TLS cannot answer through the gateway, so every API rejects these settings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slipway.serving.contract.api import InvalidSpecError

from . import test_krypton as krypton
from .kubeai import test_kubeai as kubeai
from .llmkube import services as llmkube
from .ome import services as ome

SECRET = {"valueFrom": {"secretKeyRef": {"name": "keys", "key": "engine"}}}
FROM = [{"secretRef": {"name": "keys"}}]
MAP = [{"prefix": "VLLM_", "configMapRef": {"name": "keys"}}]
FILES = [{"path": "/etc/v.yaml", "content": "api-key: k"}]
PATCHES = [{"op": "add", "path": "/spec/containers/0/args/-", "value": "--api-key=k"}]
INFINITY = {"engine": "Infinity", "features": ["TextEmbedding"]}
WHISPER = {"engine": "FasterWhisper", "features": ["SpeechToText"]}
LLAMA = {"engine": "LlamaCpp", "url": "hf://acme/tiny-GGUF"}
VLLM = {"runtime": "vllm", "model": llmkube.HUB}
SGLANG = {"runtime": "sglang", "model": llmkube.HUB}
TGI = {"runtime": "tgi", "model": llmkube.HUB}
GENERIC = {"runtime": "generic", "image": "acme/vllm-openai:v1", "containerPort": 8000, "model": llmkube.HUB}
LINE = {"command": ["sh", "-c", "exec llama-server --api-key k"], "image": "acme/own"}


def script(text: str, **env: str) -> dict[str, Any]:
    given = [{"name": name, "value": value} for name, value in env.items()]
    return {"command": ["bash", "-ec", text], "image": "acme/own", "env": given}


def config(text: str) -> dict[str, Any]:
    return {"args": ["--config=/v"], "files": [{"path": "/v", "content": text}]}


CASES = [
    (kubeai, {"args": ["--api-key=k"]}, "--api-key"),
    (kubeai, {"args": ["--api-key", "k"]}, "--api-key"),
    (kubeai, {"args": ["--api_key", "k"]}, "--api_key"),
    (kubeai, {"args": ["--api-k", "k"]}, "--api-k"),
    (kubeai, {"args": ["--api-k=k"], "image": "acme/mine:1"}, "--api-k"),
    (kubeai, {"args": ["--served-model=x"]}, "--served-model"),
    (kubeai, {"args": ["--ssl-certf=/c"]}, "--ssl-certf"),
    (kubeai, {"env": {"VLLM_API_KEY": "k"}}, "VLLM_API_KEY"),
    (
        kubeai,
        {"args": ["--config=/etc/v.yaml"], "files": [{"path": "/etc/v.yaml", "content": "api-key: k"}]},
        "--api-key",
    ),
    (kubeai, {"args": ["--config", "/v"], "files": [{"path": "/v", "content": "seed: 1\napi_key:\n- k"}]}, "--api_key"),
    (
        kubeai,
        {"jsonPatches": PATCHES},
        "--api-key",
    ),
    (kubeai, {**LLAMA, "args": ["--api-key", "k"]}, "--api-key"),
    (kubeai, {**LLAMA, "args": ["--api-key-file", "/k"]}, "--api-key-file"),
    (kubeai, {**LLAMA, "env": {"LLAMA_API_KEY": "k"}}, "LLAMA_API_KEY"),
    (kubeai, {**LLAMA, "env": {"LLAMA_ARG_API_KEY_FILE": "/k"}}, "LLAMA_ARG_API_KEY_FILE"),
    (kubeai, {"engine": "SGLang", "args": ["--api-key=k"]}, "--api-key"),
    (kubeai, {"engine": "SGLang", "args": ["--api-ke", "k"]}, "--api-ke"),
    (kubeai, {**INFINITY, "env": {"INFINITY_API_KEY": "k"}}, "INFINITY_API_KEY"),
    (kubeai, {**INFINITY, "args": ["--api-key=k"]}, "--api-key"),
    (kubeai, {**WHISPER, "env": {"API_KEY": "k"}}, "API_KEY"),
    (krypton, {"args": ["--api-key", "k"]}, "--api-key"),
    (krypton, {"args": ["--api_key", "k"]}, "--api_key"),
    (krypton, {"args": ["--api-key-file", "/k"]}, "--api-key-file"),
    (krypton, {"args": ["--ssl-key-file", "/k", "--ssl-cert-file", "/c"]}, "--ssl-key-file, --ssl-cert-file"),
    (krypton, {"env": [{"name": "LLAMA_API_KEY", "value": "k"}]}, "LLAMA_API_KEY"),
    (krypton, {"env": [{"name": "LLAMA_API_KEY", **SECRET}]}, "LLAMA_API_KEY"),
    (llmkube, {"extraArgs": ["--api-key", "k"]}, "--api-key"),
    (llmkube, {"env": [{"name": "LLAMA_API_KEY", **SECRET}]}, "LLAMA_API_KEY"),
    (llmkube, {**VLLM, "env": [{"name": "VLLM_API_KEY", **SECRET}]}, "VLLM_API_KEY"),
    (llmkube, {**VLLM, "extraArgs": ["--api-k=k"]}, "--api-k"),
    (llmkube, {**SGLANG, "extraArgs": ["--api-key=k"]}, "--api-key"),
    (llmkube, {**TGI, "extraArgs": ["--api-key=k"]}, "--api-key"),
    (llmkube, {**TGI, "env": [{"name": "API_KEY", "value": "k"}]}, "API_KEY"),
    (llmkube, {**GENERIC, "args": ["--api-key=k"]}, "--api-key"),
    (llmkube, {**GENERIC, "env": [{"name": "VLLM_API_KEY", "value": "k"}]}, "VLLM_API_KEY"),
    (llmkube, LINE, "--api-key"),
    (llmkube, script("exec llama-server $MORE", MORE="--jinja --api-key k"), "--api-key"),
    (llmkube, script("export LLAMA_API_KEY=k; exec llama-server"), "LLAMA_API_KEY"),
    (llmkube, script("VLLM_API_KEY=$KEY exec vllm serve x"), "VLLM_API_KEY"),
    (llmkube, script("set -e\nexport A=b VLLM_API_KEY=k\nexec vllm serve x"), "VLLM_API_KEY"),
    (llmkube, script("exec env VLLM_API_KEY=k \\\n vllm serve x"), "VLLM_API_KEY"),
    (llmkube, script("A='b c' VLLM_API_KEY=k python3 -m vllm.entrypoints.openai.api_server"), "VLLM_API_KEY"),
    (llmkube, {"command": ["env", "VLLM_API_KEY=k", "vllm", "serve", "x"], "image": "acme/own"}, "VLLM_API_KEY"),
    (kubeai, {**WHISPER, "env": {"Api_Key": "k"}}, "Api_Key"),
    (kubeai, {**WHISPER, "env": {"UVICORN_SSL_KEYFILE": "/k"}}, "UVICORN_SSL_KEYFILE"),
]
ASTRAY: list[tuple[Any, dict[str, Any], str]] = [
    (kubeai, config("port: 9000"), "spec.files sets --port"),
    (kubeai, config("host: '127.0.0.1' # here\nseed: 1"), "spec.files sets --host"),
    (kubeai, config("headless: true"), "spec.files sets --headless"),
    (kubeai, config('"uds": /x'), "spec.files sets --uds"),
    (kubeai, {"args": ["--headless"]}, "--headless"),
    (kubeai, {"args": ["--grpc"]}, "--grpc"),
    (kubeai, {"engine": "SGLang", "args": ["--grpc-mode"]}, "--grpc-mode"),
    (kubeai, {"engine": "SGLang", "args": ["--grpc-m"]}, "--grpc-m"),
    (kubeai, {**LLAMA, "args": ["--api-prefix", "/x"]}, "--api-prefix"),
    (kubeai, {**LLAMA, "env": {"LLAMA_ARG_API_PREFIX": "/x"}}, "LLAMA_ARG_API_PREFIX"),
    (kubeai, {**INFINITY, "args": ["--served-model-name", "x"]}, "--served-model-name"),
    (kubeai, {**INFINITY, "args": ["--model-id=x/y"]}, "--model-id"),
    (kubeai, {**INFINITY, "env": {"INFINITY_HOST": "127.0.0.1"}}, "INFINITY_HOST"),
    (kubeai, {**INFINITY, "env": {"INFINITY_MODEL_ID": "x/y"}}, "INFINITY_MODEL_ID"),
    (kubeai, {**WHISPER, "env": {"UVICORN_HOST": "127.0.0.1"}}, "UVICORN_HOST"),
    (kubeai, {**WHISPER, "env": {"UVICORN_PORT": "9"}}, "UVICORN_PORT"),
    (kubeai, {**WHISPER, "env": {"WHISPER__MODEL": "x/y"}}, "WHISPER__MODEL"),
    (kubeai, {**WHISPER, "env": {"whisper__model": "x/y"}}, "whisper__model"),
    (kubeai, {**WHISPER, "env": {"UVICORN_FD": "3"}}, "UVICORN_FD"),
    (krypton, {"args": ["--api-prefix", "/x"]}, "spec.args sets --api-prefix"),
    (krypton, {"env": [{"name": "LLAMA_ARG_API_PREFIX", "value": "/x"}]}, "spec.env sets LLAMA_ARG_API_PREFIX"),
    (llmkube, {"extraArgs": ["--api-prefix", "/x"]}, "--api-prefix"),
    (llmkube, {"env": [{"name": "LLAMA_ARG_API_PREFIX", "value": "/x"}]}, "env sets LLAMA_ARG_API_PREFIX"),
    (llmkube, {**VLLM, "extraArgs": ["--uds", "/s"]}, "--uds"),
    (llmkube, {**SGLANG, "extraArgs": ["--grpc-mode"]}, "--grpc-mode"),
]
"""They answer somewhere else, or for another model."""
OPEN = [
    (kubeai, {"env": {"VLLM_API_KEY": ""}}),
    (kubeai, {"env": {"OPENAI_API_KEY": "k", "API_KEY": "k"}}),
    (kubeai, {"args": ["--seed=1", "--disable-log-stats"]}),
    (kubeai, {"args": ["--config=/etc/other.yaml"], "files": FILES}),
    (kubeai, config("seed: 1\nserved-model-name: other")),
    (kubeai, {**INFINITY, "env": {"INFINITY_HOST": "::", "INFINITY_PORT": "8000"}}),
    (kubeai, {**WHISPER, "env": {"UVICORN_HOST": "0.0.0.0", "UVICORN_ROOT_PATH": "/x"}}),
    (kubeai, {**WHISPER, "env": {"uvicorn_ssl_keyfile": "/k", "uvicorn_port": "9", "UVICORN_FD": ""}}),
    (krypton, {"env": [{"name": "LLAMA_ARG_API_PREFIX", "value": ""}]}),
    (llmkube, script("exec llama-server $MORE", MORE="--jinja")),
    (llmkube, script("LLAMA_API_KEY= exec llama-server")),
    *((kubeai, config(text)) for text in ("headless: False", "headless: no", "headless: off")),
    *((kubeai, config(text)) for text in ("uds:", "uds: ~", "uds: null", "host:\nseed: 1", "grpc: false # here")),
    (kubeai, {**LLAMA, "args": ["--api-prefix", ""]}),
    (kubeai, {**LLAMA, "env": {"LLAMA_ARG_API_PREFIX": "/"}}),
    (kubeai, {"args": ["--enable-lora", "--lora-modules", "VLLM_API_KEY=/x"]}),
    *(
        (llmkube, script(text))
        for text in (
            "exec vllm serve m --lora-modules VLLM_API_KEY=/x",
            "echo set VLLM_API_KEY=abc; vllm serve m",
            "(sleep 9; VLLM_API_KEY=x notify) & exec vllm serve m",
            "VLLM_API_KEY=x notify vllm serve & exec vllm serve m",
            "(export VLLM_API_KEY=x; notify) & exec vllm serve m",
            "VLLM_API_KEY=${VLLM_API_KEY:-} vllm serve m",
            "VLLM_API_KEY=x\nexec vllm serve m",
            "# VLLM_API_KEY=x vllm serve m\nvllm serve m",
        )
    ),
    (llmkube, script("VLLM_API_KEY=$KEY vllm serve m", KEY="")),
    (kubeai, {**WHISPER, "args": ["sh", "-c", "api_key=$(cat x); fetch $api_key"]}),
    (krypton, {"env": [{"name": "LLAMA_API_KEY", "value": ""}]}),
    (llmkube, {**SGLANG, "extraArgs": ["--admin-api-key=k"]}),
]


def named(case: Any) -> str:
    return case.__name__.rsplit(".", 1)[-1] if hasattr(case, "__name__") else json.dumps(case)


@pytest.mark.parametrize(("api", "spec", "named_by"), [*CASES, *ASTRAY], ids=named)
def test_it_is_refused_and_the_message_names_what_to_remove(api: Any, spec: dict[str, Any], named_by: str) -> None:
    with pytest.raises(InvalidSpecError, match=named_by) as refused:
        api.container(api.world(**spec))
    assert refused.value.reason == "InvalidSpec"
    assert "sk-" not in refused.value.message


@pytest.mark.parametrize(("api", "spec"), OPEN, ids=named)
def test_a_spec_that_seals_nothing_is_accepted(api: Any, spec: dict[str, Any]) -> None:
    assert api.container(api.world(**spec))


@pytest.mark.parametrize(
    ("api", "spec", "empty"),
    [
        (kubeai, {"envFrom": FROM}, ["VLLM_API_KEY"]),
        (kubeai, {"envFrom": MAP, "image": "acme/mine:1"}, ["VLLM_API_KEY"]),
        (kubeai, {"envFrom": FROM, **INFINITY}, ["INFINITY_API_KEY"]),
        (kubeai, {"envFrom": FROM, **LLAMA}, ["LLAMA_API_KEY", "LLAMA_ARG_SSL_KEY_FILE", "LLAMA_ARG_SSL_CERT_FILE"]),
        (kubeai, {"envFrom": FROM, **LLAMA, "image": "acme/mine:1"}, []),
        (kubeai, {}, []),
        (krypton, {"envFrom": FROM}, ["LLAMA_API_KEY", "LLAMA_ARG_SSL_KEY_FILE", "LLAMA_ARG_SSL_CERT_FILE"]),
        (krypton, {}, []),
    ],
    ids=named,
)
def test_a_key_in_a_secret_or_config_map_has_no_effect(api: Any, spec: dict[str, Any], empty: list[str]) -> None:
    env = api.container(api.world(**spec))["env"]
    assert [one["name"] for one in env if one.get("value") == ""] == empty


@pytest.mark.parametrize(
    ("fields", "named_by"),
    [
        ({"args": ["--api-key", "k"]}, "--api-key"),
        ({"args": ["--api-k=k"]}, "--api-k"),
        ({"command": ["sh", "-c", "python3 -m sglang.launch_server --api-key k"]}, "--api-key"),
        ({"command": ["vllm", "serve", "x"], "env": [{"name": "VLLM_API_KEY", **SECRET}]}, "VLLM_API_KEY"),
        ({"command": ["text-generation-launcher"], "env": [{"name": "API_KEY", "value": "k"}]}, "API_KEY"),
        ({"command": ["llama-server", "--api-key-file", "/k"]}, "--api-key-file"),
        ({"command": ["sh", "-c", "VLLM_API_KEY=k exec vllm serve x"]}, "VLLM_API_KEY"),
    ],
)
def test_a_runtime_of_ome_with_a_key_is_refused(fields: dict[str, Any], named_by: str) -> None:
    runtime = ome.runtime(engineConfig={"runner": ome.runner(**fields)})
    assert named_by in ome.refusal(ome.world(None, ome.model(), runtime)).message


def test_behind_a_router_that_knows_the_key_an_engine_may_have_one() -> None:
    sealed = ome.runner(args=["--api-key", "k"])
    runtime = ome.runtime(engineConfig={"runner": sealed})
    assert ome.plan(ome.world(None, ome.model(), runtime, router={"minReplicas": 1})).children


def test_a_runtime_of_ome_takes_no_key_from_a_secret() -> None:
    fields = {"command": ["vllm", "serve", "x"], "envFrom": FROM}
    runtime = ome.runtime(engineConfig={"runner": ome.runner(**fields)})
    deployment = ome.find_child(ome.world(None, ome.model(), runtime), "Deployment", "chat-engine")
    env = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "VLLM_API_KEY", "value": ""} in env
