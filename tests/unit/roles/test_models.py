"""The role models, run against an API server: models of several APIs and inference services in one go."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .role_run import ROOT, run_play

sys.path.insert(0, str(ROOT / "tests/unit/plugins"))

import krypton_models
import kubeai_models
import llmkube_objects
from fake_api import FakeApi

Object = dict[str, Any]
PLACE = "/namespaces/models"
MANIFESTS: list[Object] = [
    {
        "apiVersion": llmkube_objects.API,
        "kind": "InferenceService",
        "metadata": {"name": "whole"},
        "spec": {"modelRef": "whole"},
    },
    {
        "apiVersion": llmkube_objects.API,
        "kind": "Model",
        "metadata": {"name": "whole"},
        "spec": llmkube_objects.MODEL_SPEC,
    },
]
LISTED: Object = {
    "models_create_namespaces": False,
    "models_list": [
        {"name": "k", "spec": krypton_models.SPEC},
        {"api": "kubeai", "name": "q", "spec": kubeai_models.SPEC},
        {"api": "llmkube", "name": "weights", "spec": llmkube_objects.MODEL_SPEC},
        *MANIFESTS,
        {"api": "llmkube", "name": "mac", "spec": {"source": "/m.gguf", "hardware": {"accelerator": "metal"}}},
    ],
    "models_inference_services": [
        {"name": "chat", "spec": {"modelRef": "weights"}},
        {"name": "on-a-mac", "spec": {"modelRef": "mac"}},
    ],
}


@pytest.fixture
def api() -> Iterator[FakeApi]:
    server = FakeApi()
    server.controller = _answer
    yield server
    server.stop()


def _answer(api: FakeApi, resource: Object) -> None:
    act = {
        "krypton.ai/v1alpha1": krypton_models.becomes(others=krypton_models.READY),
        "kubeai.org/v1": krypton_models.becomes(others=kubeai_models.READY),
        llmkube_objects.API: llmkube_objects.becomes(llmkube_objects.MODEL_READY, llmkube_objects.SERVICE_READY),
    }
    act[resource["apiVersion"]](api, resource)


def play(folder: Path, api: FakeApi, variables: Object, *, failing: bool = False) -> str:
    """Output of a play that runs the role and then tells which names the gateway has to list, in one line."""
    role = {"ansible.builtin.include_role": {"name": "slipway.inference.models", "public": True}}
    tell = {"ansible.builtin.debug": {"msg": "names={{ models_names | join(',') }};"}}
    models = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "module_defaults": {"group/slipway.inference.slipway": {"host": api.url, "api_key": "no-rights"}},
        "vars": {"ansible_python_interpreter": sys.executable, **variables},
        "tasks": [role, tell],
    }
    return run_play(folder, models, failing=failing, ANSIBLE_CALLBACK_RESULT_FORMAT="yaml")


def test_models_and_services_of_all_apis_are_registered_and_removed_in_one_go(tmp_path: Path, api: FakeApi) -> None:
    output = play(tmp_path, api, LISTED)
    llmkube = f"/apis/{llmkube_objects.API}{PLACE}"
    assert set(api.objects) == {
        f"/apis/krypton.ai/v1alpha1{PLACE}/models/k",
        f"/apis/kubeai.org/v1{PLACE}/models/q",
        f"{llmkube}/models/mac",
        f"{llmkube}/models/weights",
        f"{llmkube}/models/whole",
        f"{llmkube}/inferenceservices/chat",
        f"{llmkube}/inferenceservices/on-a-mac",
        f"{llmkube}/inferenceservices/whole",
    }
    assert "names=chat,k,q,whole;" in output
    assert "models/weights: Ready" in output
    assert f"InferenceService models/chat: Ready {llmkube_objects.SERVICE_READY['endpoint']}" in output
    play(tmp_path, api, {**LISTED, "models_state": "absent"})
    assert api.objects == {}


def test_services_of_an_api_that_has_none_are_refused(tmp_path: Path, api: FakeApi) -> None:
    services = [{"api": "krypton", "name": "chat", "spec": {"modelRef": "weights"}}]
    output = play(tmp_path, api, {**LISTED, "models_inference_services": services}, failing=True)
    assert "models_inference_services: krypton has no inference services." in output
    assert api.calls == []


def test_a_name_that_the_catalogue_has_not_is_refused_with_those_that_it_has(tmp_path: Path, api: FakeApi) -> None:
    output = play(tmp_path, api, {"models_catalogue": ["nomic-embed-text-cp"]}, failing=True)
    assert "Did you mean nomic-embed-text-cpu" in output
    assert api.objects == {}
