"""The peer: a Model's three children as a straightforward handler of kopf makes them, with the official client.

It does less than Slipway does (no probes of pods, no conditions, no events of its own, no repair of what others edit).
"""

from __future__ import annotations

from typing import Any

import kopf
import kubernetes

kubernetes.config.load_kube_config()
CORE, APPS = kubernetes.client.CoreV1Api(), kubernetes.client.AppsV1Api()


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_rest: Any) -> None:
    settings.posting.enabled = False
    settings.execution.max_workers = 20


@kopf.on.create("krypton.ai", "v1alpha1", "models")
@kopf.on.update("krypton.ai", "v1alpha1", "models", field="spec")
def apply(name: str, namespace: str, spec: kopf.Spec, patch: kopf.Patch, meta: kopf.Meta, **_rest: Any) -> None:
    labels = {"krypton.ai/model": name}
    source, port = spec["source"], spec.get("port", 8080)
    place = ["--host", "0.0.0.0", "--port", str(port)]  # noqa: S104 - inside a pod
    args = [*place, "--hf-repo", source["huggingface"], "--hf-file", source["file"]]
    health = {"httpGet": {"path": "/health", "port": "http"}}
    container = {
        "name": "llama-server",
        "image": spec.get("image") or "ghcr.io/ggml-org/llama.cpp:server-v0.5.0",
        "imagePullPolicy": spec.get("imagePullPolicy"),
        "args": [*args, "--alias", name, *spec.get("args", [])],
        "ports": [{"name": "http", "containerPort": port}],
        "startupProbe": {**health, "periodSeconds": 1, "failureThreshold": 600},
        "readinessProbe": {**health, "periodSeconds": 5},
        "livenessProbe": {**health, "periodSeconds": 20},
        "env": spec.get("env", []),
        "envFrom": spec.get("envFrom", []),
        "resources": dict(spec.get("resources", {})),
        "volumeMounts": [{"name": "model-cache", "mountPath": "/cache"}],
    }
    pod = {
        "serviceAccountName": name,
        "containers": [container],
        "volumes": [{"name": "model-cache", "emptyDir": {"sizeLimit": "20Gi"}}],
    }
    deployment = {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": spec["minReplicas"],
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    ports = [{"name": "http", "port": port, "targetPort": "http"}]
    service = {"metadata": {"name": name, "labels": labels}, "spec": {"selector": labels, "ports": ports}}
    account = {"metadata": {"name": name, "labels": labels}}
    kopf.adopt([account, service, deployment])
    put(CORE.create_namespaced_service_account, CORE.patch_namespaced_service_account, namespace, account)
    put(CORE.create_namespaced_service, CORE.patch_namespaced_service, namespace, service)
    put(APPS.create_namespaced_deployment, APPS.patch_namespaced_deployment, namespace, deployment)
    patch.status["phase"] = "Pending"
    patch.status["url"] = f"http://{name}.{namespace}.svc:{port}/v1"
    patch.status["observedGeneration"] = meta["generation"]


def put(create: Any, change: Any, namespace: str, body: dict[str, Any]) -> None:
    try:
        create(namespace, body)
    except kubernetes.client.ApiException as error:
        if error.status != 409:
            raise
        change(body["metadata"]["name"], namespace, body)
