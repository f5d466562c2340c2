"""OME's runtimes that come with the role models: what they serve, how they start, and that the role applies them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slipway.apis.ome.runtimes.candidates import Candidate, candidate
from slipway.apis.ome.runtimes.selection import select
from slipway.apis.ome.types.runtime import ServingRuntimeSpec
from slipway.artifacts.facts.config import facts_of_gguf
from slipway.artifacts.headers.gguf import Gguf
from slipway.engines.definition.engine import FULL_SECONDS, Engine
from slipway.engines.programs.llamacpp import LLAMACPP, http_threads
from slipway.engines.programs.ollama import OLLAMA
from slipway.engines.recognition import recognise
from slipway.kube.objects import Object
from tests import documents

from .api_server import Kind
from .cluster_api import ClusterApi
from .role_run import ROOT, run_role

RUNTIMES: dict[str, Object] = {
    one["metadata"]["name"]: one for one in documents.read(ROOT / "roles/models/files/runtimes.yml")
}
KINDS = (
    Kind("ome.io/v1beta1", "ServingRuntime", "servingruntimes", namespaced=True),
    Kind("ome.io/v1beta1", "ClusterServingRuntime", "clusterservingruntimes", namespaced=False),
)
LISTED: list[Any] = [
    "llama-cpp-cpu",
    {"name": "mine", "namespace": "chat", "spec": {"disabled": True}},
    {"kind": "ServingRuntime", "metadata": {"name": "whole"}, "spec": {"disabled": True}},
]


def runner_of(name: str) -> Object:
    return RUNTIMES[name]["spec"]["engineConfig"]["runner"]


def runner(name: str) -> Object:
    return dict(runner_of(name))


def read(name: str) -> Candidate:
    runtime = candidate(RUNTIMES[name])
    assert isinstance(runtime, Candidate)
    return runtime


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_runtime_is_what_the_definition_takes(name: str) -> None:
    msgspec.convert(RUNTIMES[name]["spec"], ServingRuntimeSpec, strict=True)


def test_a_gguf_file_is_served_by_llama_cpp_unless_the_service_says_else() -> None:
    model = facts_of_gguf([Gguf(file_version=3, tensor_count=290, architecture="qwen2", parameters=494_032_768)])
    selected = select(model, [read(name) for name in RUNTIMES])
    assert selected.chosen is not None
    assert selected.chosen.reference.name == "llama-cpp-cpu"
    named = select(model, [read(name) for name in RUNTIMES], requested=read("ollama-cpu").reference)
    assert named.chosen is not None
    assert named.chosen.unfit == ()


@pytest.mark.parametrize(("name", "engine"), [("llama-cpp-cpu", LLAMACPP), ("ollama-cpu", OLLAMA)])
def test_its_engine_is_known_by_its_command(name: str, engine: Engine) -> None:
    recognition = recognise(runner(name))
    assert recognition.engine is engine
    assert recognition.port == 8080
    assert runner(name)["image"] == engine.images[""]


def test_llama_cpp_is_probed_like_in_other_apis() -> None:
    probed = runner("llama-cpp-cpu")
    liveness = probed["livenessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] == FULL_SECONDS
    assert liveness["httpGet"] == probed["readinessProbe"]["httpGet"]
    assert probed["readinessProbe"]["httpGet"]["path"] == LLAMACPP.probes.readiness.path
    threads = {variable["name"]: variable["value"] for variable in probed["env"]}["LLAMA_ARG_THREADS_HTTP"]
    assert threads == str(http_threads(()))


def started(folder: Path, name: str, *files: str) -> tuple[int, str]:
    """Exit status and output of a runtime's start with these files in the model's folder, and what it runs stood in."""
    model, programs = folder / "model", folder / "bin"
    for path in (model / file for file in files):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    model.mkdir(exist_ok=True)
    programs.mkdir()
    for program in ("llama-server", "ollama"):
        (programs / program).write_text('#!/bin/sh\necho "$0 $* $OLLAMA_HOST"\n')
        (programs / program).chmod(0o755)
    (script,) = runner(name)["args"]
    script = script.replace("/app/", f"{programs}/").replace("/store/", f"{folder}/")
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "MODEL_PATH": str(model), "SERVED_MODEL_NAME": "chat"}
    done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def test_llama_cpp_gets_the_first_part_of_a_model_and_the_services_name(tmp_path: Path) -> None:
    files = ("mmproj-f16.gguf", "sub/tiny-00002-of-00002.gguf", "sub/tiny-00001-of-00002.gguf", "README.md")
    status, output = started(tmp_path, "llama-cpp-cpu", *files)
    assert status == 0
    assert f"--model {tmp_path}/model/sub/tiny-00001-of-00002.gguf --alias chat " in output


def test_ollama_takes_the_model_under_the_services_name(tmp_path: Path) -> None:
    status, output = started(tmp_path, "ollama-cpu", "tiny.gguf")
    assert status == 0
    assert (tmp_path / "Modelfile").read_text() == f"FROM {tmp_path}/model/tiny.gguf\n"
    assert "ollama create chat --file" in output
    assert "ollama serve" in output


@pytest.mark.parametrize("name", RUNTIMES)
def test_it_listens_on_the_addresses_that_its_node_has(tmp_path: Path, monkeypatch: Any, name: str) -> None:
    six = tmp_path / "if_inet6"
    monkeypatch.setitem(runner_of(name), "args", [runner(name)["args"][0].replace("/proc/net/if_inet6", str(six))])
    for folder, address in (("four", "0.0.0.0"), ("six", "[::]" if name == "ollama-cpu" else "::")):
        (tmp_path / folder).mkdir()
        status, output = started(tmp_path / folder, name, "tiny.gguf")
        assert status == 0
        assert f"--host {address} " in output or f"serve {address}:8080" in output
        six.touch()


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_folder_without_a_gguf_file_is_reported(tmp_path: Path, name: str) -> None:
    status, output = started(tmp_path, name, "model.safetensors")
    assert status == 1
    assert f"there is no GGUF file in {tmp_path}/model" in output


@pytest.mark.plays
def test_runtimes_are_applied_and_removed(tmp_path: Path, api: ClusterApi) -> None:
    api.kinds += KINDS
    run_role(tmp_path, api, "models", "main", models_runtimes=LISTED)
    assert {key for key in api.objects if "Runtime" in key[0]} == {
        ("ClusterServingRuntime", "", "llama-cpp-cpu"),
        ("ServingRuntime", "chat", "mine"),
        ("ServingRuntime", "models", "whole"),
    }
    assert {name for kind, _namespace, name in api.objects if kind == "Namespace"} == {"chat", "models"}
    written = [*api.writes]
    run_role(tmp_path, api, "models", "main", models_runtimes=LISTED)
    assert api.writes == written
    run_role(tmp_path, api, "models", "main", models_runtimes=LISTED, models_state="absent")
    assert not [key for key in api.objects if "Runtime" in key[0]]


@pytest.mark.plays
def test_a_name_that_the_role_does_not_have_is_reported_before_anything_is_changed(
    tmp_path: Path, api: ClusterApi
) -> None:
    output = run_role(tmp_path, api, "models", "main", failing=True, models_runtimes="llama-cpp-cpu, nope")
    assert "unknown runtime nope. Use llama-cpp-cpu, ollama-cpu" in output
    assert api.writes == []
