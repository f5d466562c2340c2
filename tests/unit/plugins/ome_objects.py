# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""OME's models, services and benchmarks, and their statuses, that the tests of the plugins use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fake_api import FakeApi, path_of
from krypton_models import conditions

Object = dict[str, Any]

API = "ome.io/v1beta1"
CLUSTER_MODELS = f"/apis/{API}/clusterbasemodels/"
MODELS = f"/apis/{API}/namespaces/models/basemodels/"
BENCHMARKS = f"/apis/{API}/namespaces/models/benchmarkjobs/"
MODEL_SPEC: Object = {"storage": {"storageUri": "hf://acme/tiny", "path": "/raid/models/acme/tiny"}}
SERVICE_SPEC: Object = {"model": {"name": "tiny"}, "engine": {"minReplicas": 1}}
BENCHMARK_SPEC: Object = {
    "endpoint": {"inferenceService": {"name": "chat", "namespace": "models"}},
    "task": "text-to-text",
    "maxTimePerIteration": 1,
    "maxRequestsPerIteration": 10,
    "outputLocation": {"storageUri": "pvc://results"},
}

ACCEPTED = ("True", "Valid", "The spec is valid.")
MODEL_READY: Object = {
    "state": "Ready",
    "nodesReady": ["node-1", "node-2"],
    "nodesFailed": ["node-3"],
    "conditions": conditions(Accepted=ACCEPTED, Available=("True", "Ready", "2 of 3 nodes have it.")),
}
SERVICE_READY: Object = {
    "url": "http://chat.models.svc",
    "conditions": conditions(
        Accepted=ACCEPTED,
        Available=("True", "Ready", "1 replica answers."),
        Progressing=("False", "Complete", "The replica runs the latest spec."),
    ),
}
COMPLETED: Object = {
    "state": "Completed",
    "details": '{"requests":10,"failed":0,"runs":[]}',
    "conditions": conditions(
        Accepted=ACCEPTED,
        Available=("True", "Completed", "10 requests were answered, and none failed."),
        Progressing=("False", "Complete", "The benchmark is complete."),
    ),
}
WAITING: Object = {
    "state": "Pending",
    "conditions": conditions(
        Accepted=ACCEPTED,
        Available=("False", "WaitingForService", "The InferenceService models/chat is not ready yet."),
        Progressing=("True", "WaitingForService", "The InferenceService models/chat is not ready yet."),
    ),
}
FAILED: Object = {
    "state": "Failed",
    "details": '{"requests":10,"failed":10,"runs":[]}',
    "failureMessage": "10 of 10 requests failed.",
    "conditions": conditions(
        Accepted=ACCEPTED,
        Available=("False", "RequestsFailed", "10 of 10 requests failed, the first with HTTP 404: no such model."),
        Progressing=("False", "RequestsFailed", "See the condition Available."),
    ),
}
READY: dict[str, Object] = {
    "BaseModel": MODEL_READY,
    "ClusterBaseModel": MODEL_READY,
    "FineTunedWeight": MODEL_READY,
    "InferenceService": SERVICE_READY,
    "BenchmarkJob": COMPLETED,
}


def becomes(others: Object | None = None, **states: Object) -> Callable[[FakeApi, Object], None]:
    """A controller that at once gives each object the status under its name, else ``others``, else all that is well."""

    def act(api: FakeApi, resource: Object) -> None:
        status = states.get(resource["metadata"]["name"], others or READY[resource["kind"]])
        api.set_status(path_of(resource), **status)

    return act


def benchmarks(*names: str, **more: Any) -> Object:
    """Arguments of a task that measures with jobs of these names."""
    return {"namespace": "models", "benchmark_jobs": [{"name": name, "spec": BENCHMARK_SPEC} for name in names], **more}
