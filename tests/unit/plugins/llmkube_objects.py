# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""LLMKube's models and services, and their statuses, that the tests of the plugins use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fake_api import FakeApi
from krypton_models import conditions

Object = dict[str, Any]

API = "inference.llmkube.dev/v1alpha1"
MODELS = f"/apis/{API}/namespaces/models/models/"
SERVICES = f"/apis/{API}/namespaces/models/inferenceservices/"
MODEL_SPEC: Object = {"source": "https://files.example/tiny.gguf", "format": "gguf"}
SPEC: Object = {"modelRef": "a", "contextSize": 2048}

MODEL_READY: Object = {
    "phase": "Ready",
    "conditions": conditions(
        Available=("True", "ModelReady", "The weights are complete in the cache."),
        Progressing=("False", "AsExpected", "Nothing is in progress."),
        Degraded=("False", "AsExpected", "Nothing is wrong."),
    ),
}
LOADING: Object = {
    "phase": "Downloading",
    "conditions": conditions(
        Available=("False", "LoadingCache", "1.2 of 3.4 GiB are loaded."),
        Progressing=("True", "DownloadStarted", "See the condition Available."),
        Degraded=("False", "AsExpected", "Nothing is wrong."),
    ),
}
MODEL_FAILED: Object = {
    "phase": "Failed",
    "conditions": conditions(
        Available=("False", "IntegrityCheckFailed", "tiny.gguf has another SHA-256."),
        Progressing=("False", "IntegrityCheckFailed", "See the condition Available."),
        Degraded=("True", "IntegrityCheckFailed", "See the condition Available."),
    ),
}

ACCEPTED = ("True", "Valid", "The spec is valid and its objects are in place.")
SERVICE_READY: Object = {
    "phase": "Ready",
    "endpoint": "http://a.models.svc.cluster.local:8080/v1/chat/completions",
    "queuePosition": 0,
    "conditions": conditions(
        Accepted=ACCEPTED,
        Available=("True", "Ready", "1 replica answers."),
        Progressing=("False", "Complete", "The replica runs the latest spec."),
    ),
}
STOPPED: Object = {
    "phase": "Stopped",
    "conditions": conditions(
        Accepted=ACCEPTED,
        Available=("False", "ScaledToZero", "Scaled to zero replicas."),
        Progressing=(
            "False",
            "Complete",
            "Scaled to zero replicas. The next one starts with the latest spec.",
        ),
    ),
}
WAITING_FOR_GPU: Object = {
    "phase": "WaitingForGPU",
    "waitingFor": "nvidia.com/gpu: 4",
    "queuePosition": 2,
    "conditions": conditions(
        Accepted=ACCEPTED,
        Available=("False", "WaitingForGPU", "The pods are waiting for nvidia.com/gpu."),
        Progressing=("True", "WaitingForGPU", "The pods are waiting for nvidia.com/gpu."),
    ),
}
METAL: Object = {
    "phase": "Failed",
    "conditions": conditions(
        Accepted=("False", "MetalOutOfReach", "A Mac outside of the cluster computes it."),
        Available=("False", "MetalOutOfReach", "See the condition Accepted."),
        Progressing=("False", "MetalOutOfReach", "See the condition Accepted."),
    ),
}
NO_MODEL: Object = {
    "phase": "Failed",
    "observedModels": [],
    "conditions": conditions(
        Accepted=("False", "ModelNotFound", "There is no Model a in the namespace models."),
        Available=("False", "ModelNotFound", "See the condition Accepted."),
        Progressing=("False", "ModelNotFound", "See the condition Accepted."),
    ),
}
REFUSED: Object = {
    "phase": "Failed",
    "conditions": conditions(
        Accepted=("False", "InvalidSpec", "spec.extraArgs sets --port: remove it."),
        Available=("False", "InvalidSpec", "See the condition Accepted."),
        Progressing=("False", "InvalidSpec", "See the condition Accepted."),
    ),
}
CRASHING: Object = {
    "phase": "Failed",
    "conditions": conditions(
        Accepted=ACCEPTED,
        Available=("False", "UnsupportedModel", "llama-server cannot load tiny.gguf."),
        Progressing=("False", "UnsupportedModel", "See the condition Available."),
    ),
}


def becomes(model: Object | None = None, service: Object | None = None) -> Callable[[FakeApi, Object], None]:
    """A controller that at once gives each model, and each service, this status."""

    def act(api: FakeApi, resource: Object) -> None:
        name = resource["metadata"]["name"]
        path, status = (MODELS, model) if resource["kind"] == "Model" else (SERVICES, service)
        if status is not None and resource["kind"] == "Model":
            api.set_status(path + name, **status)
        elif status is not None:
            tell(api, name, status)

    return act


def tell(api: FakeApi, name: str, status: Object) -> None:
    """Simulates the controller's reconciliation of the current service and model."""
    model = api.objects.get(MODELS + api.objects[SERVICES + name]["spec"]["modelRef"])
    seen = []
    if model is not None:
        metadata = model["metadata"]
        ready = (model.get("status") or {}).get("phase") == "Ready"
        identity = {"uid": metadata["uid"], "generation": metadata["generation"]}
        seen.append({"name": metadata["name"], **identity, "ready": ready})
    api.set_status(SERVICES + name, **{"observedModels": seen, **status})


def task(*names: str, **options: Any) -> Object:
    """Arguments of a task with a model and a service for each name."""
    return {
        "namespace": "models",
        "models": [{"name": name, "spec": MODEL_SPEC} for name in names],
        "inference_services": [{"name": name, "spec": {**SPEC, "modelRef": name}} for name in names],
        **options,
    }
