# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.
# Written by `slipway apis` from src/slipway/apis; do not edit.

"""The serving APIs, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

APIS: Mapping[str, Any] = {
    "krypton": {
        "definitions": ["models.krypton.ai"],
        "models": {"definition": "models.krypton.ai", "version": "krypton.ai/v1alpha1"},
        "pod_labels": ["krypton.ai/model"],
        "resources": [
            {
                "group": "krypton.ai",
                "version": "v1alpha1",
                "kind": "Model",
                "plural": "models",
                "namespaced": True,
                "module": "model",
                "pods": ["krypton.ai/model={name}"],
                "ready": {
                    "all": [
                        {"path": "status.phase", "within": ["Ready"]},
                        {"type": "Accepted"},
                        {"type": "Progressing", "status": "False", "reasons": ["Complete"]},
                        {"type": "Routed", "excused": ["NameConflict", "NotRouted", "NoService"], "optional": True},
                    ],
                },
                "failed": {
                    "any": [
                        {"type": "Routed", "status": "False", "reasons": ["NoId"]},
                        {"path": "status.phase", "within": ["Failed"]},
                        {"type": "Progressing", "status": "False", "other_than": ["Complete"]},
                        {"type": "Accepted", "status": "False"},
                    ],
                },
                "telling": [
                    {"type": "Accepted"},
                    {"type": "Available"},
                    {"type": "Routed", "excused": ["NameConflict", "NotRouted", "NoService"], "optional": True},
                    {"type": "Progressing", "status": "False", "reasons": ["Complete"]},
                ],
            },
        ],
        "rules": {
            "resources": [
                {"apiGroups": ["krypton.ai"], "resources": ["models"], "verbs": ["get", "list", "watch", "patch"]},
                {"apiGroups": ["krypton.ai"], "resources": ["models/status"], "verbs": ["patch"]},
                {"apiGroups": ["krypton.ai"], "resources": ["models/finalizers"], "verbs": ["update"]},
            ],
            "work": [],
            "cluster": [],
            "own": [],
            "wake": [],
        },
        "scrape": {
            "name": "slipway-engines-krypton",
            "job": "slipway-engines",
            "ports": ["http"],
            "labels": {"model": {"from": "krypton.ai/model"}, "runtime": {"value": "llamacpp"}},
            "expressions": [{"key": "krypton.ai/model", "operator": "Exists"}],
        },
    },
    "kubeai": {
        "definitions": ["models.kubeai.org"],
        "models": {"definition": "models.kubeai.org", "version": "kubeai.org/v1"},
        "pod_labels": [],
        "resources": [
            {
                "group": "kubeai.org",
                "version": "v1",
                "kind": "Model",
                "plural": "models",
                "namespaced": True,
                "module": "model",
                "phase": "",
                "url": "",
                "pods": [
                    "app=model,model={name}",
                    "batch.kubernetes.io/job-name=load-cache-{name}",
                    "batch.kubernetes.io/job-name=evict-cache-{name}",
                ],
                "wakes": True,
                "ready": {
                    "all": [
                        {"type": "Accepted"},
                        {"type": "Available", "excused": ["ScaledToZero"]},
                        {"type": "Progressing", "status": "False", "reasons": ["Complete"]},
                        {"type": "CacheLoaded", "optional": True},
                        {"type": "AdaptersLoaded", "excused": ["ScaledToZero"], "optional": True},
                        {"type": "Routed", "excused": ["NameConflict", "NotRouted", "NoService"], "optional": True},
                    ],
                },
                "failed": {
                    "any": [
                        {"type": "Routed", "status": "False", "reasons": ["NoId"]},
                        {"type": "Accepted", "status": "False"},
                        {"type": "Progressing", "status": "False", "other_than": ["Complete"]},
                        {"type": "CacheLoaded", "status": "False", "other_than": ["LoadingCache"]},
                        {"type": "AdaptersLoaded", "status": "False", "reasons": ["AdapterFailed"]},
                    ],
                },
                "telling": [
                    {"type": "Accepted"},
                    {"type": "CacheLoaded", "optional": True},
                    {"type": "Available", "excused": ["ScaledToZero"]},
                    {"type": "Routed", "excused": ["NameConflict", "NotRouted", "NoService"], "optional": True},
                    {"type": "AdaptersLoaded", "excused": ["ScaledToZero"], "optional": True},
                    {"type": "Progressing", "status": "False", "reasons": ["Complete"]},
                ],
            },
        ],
        "rules": {
            "resources": [
                {"apiGroups": ["kubeai.org"], "resources": ["models"], "verbs": ["get", "list", "watch", "patch"]},
                {"apiGroups": ["kubeai.org"], "resources": ["models/status"], "verbs": ["patch"]},
                {"apiGroups": ["kubeai.org"], "resources": ["models/finalizers"], "verbs": ["update"]},
            ],
            "work": [
                {"apiGroups": ["kubeai.org"], "resources": ["models/scale"], "verbs": ["patch"]},
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch", "delete"]},
                {
                    "apiGroups": ["batch"],
                    "resources": ["jobs"],
                    "verbs": ["get", "list", "watch", "create", "patch", "delete"],
                },
                {
                    "apiGroups": [""],
                    "resources": ["persistentvolumeclaims"],
                    "verbs": ["get", "list", "watch", "create", "patch"],
                },
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]},
            ],
            "cluster": [],
            "own": [
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create", "patch"]},
            ],
            "wake": [{"apiGroups": ["kubeai.org"], "resources": ["models/scale"], "verbs": ["get", "update"]}],
        },
        "scrape": {
            "name": "slipway-engines-kubeai",
            "job": "slipway-engines",
            "ports": ["http"],
            "labels": {"model": {"from": "model", "prefix": "model-"}, "runtime": {"from": "app.kubernetes.io/name"}},
            "match": {"app": "model", "app.kubernetes.io/managed-by": "kubeai"},
            "expressions": [
                {
                    "key": "app.kubernetes.io/name",
                    "operator": "In",
                    "values": ["vllm", "infinity", "sglang", "llamacpp"],
                },
            ],
        },
        "adapter_label": "adapter.kubeai.org/",
        "original": "kubeai",
        "pod_manager": "kubeai",
        "secrets": {
            "huggingface": "kubeai-huggingface",
            "aws": "kubeai-aws",
            "gcp": "kubeai-gcp",
            "alibaba": "kubeai-alibaba",
        },
    },
    "llmkube": {
        "definitions": [
            "models.inference.llmkube.dev",
            "inferenceservices.inference.llmkube.dev",
            "modelrouters.inference.llmkube.dev",
            "loraadapters.inference.llmkube.dev",
            "gpuquotas.inference.llmkube.dev",
        ],
        "models": {
            "definition": "models.inference.llmkube.dev",
            "services": "inferenceservices.inference.llmkube.dev",
            "version": "inference.llmkube.dev/v1alpha1",
        },
        "pod_labels": ["inference.llmkube.dev/service", "inference.llmkube.dev/model"],
        "resources": [
            {
                "group": "inference.llmkube.dev",
                "version": "v1alpha1",
                "kind": "Model",
                "plural": "models",
                "namespaced": True,
                "module": "model",
                "url": "",
                "pods": ["app.kubernetes.io/name=model-loader,inference.llmkube.dev/model={name}"],
                "ready": {"path": "status.phase", "within": ["Ready"]},
                "failed": {"path": "status.phase", "within": ["Failed"]},
                "telling": [{"type": "Available"}],
            },
            {
                "group": "inference.llmkube.dev",
                "version": "v1alpha1",
                "kind": "InferenceService",
                "plural": "inferenceservices",
                "namespaced": True,
                "module": "inference_service",
                "needs": [
                    {"kind": "Model", "path": "spec.modelRef"},
                    {"kind": "Model", "path": "spec.vllmConfig.speculative.model"},
                    {"kind": "Model", "path": "spec.speculativeDecoding.draftModelRef"},
                ],
                "seen": "status.observedModels",
                "url": "status.endpoint",
                "facts": [
                    {"name": "waiting_for", "path": "status.waitingFor", "otherwise": ""},
                    {"name": "queue_position", "path": "status.queuePosition", "otherwise": 0},
                ],
                "pods": ["inference.llmkube.dev/service={name}"],
                "ready": {
                    "all": [
                        {"path": "status.phase", "within": ["Ready"]},
                        {"type": "Accepted"},
                        {"type": "Progressing", "status": "False", "reasons": ["Complete"]},
                        {"type": "Routed", "excused": ["NameConflict", "NotRouted", "NoService"], "optional": True},
                    ],
                },
                "failed": {
                    "any": [
                        {"type": "Routed", "status": "False", "reasons": ["NoId"]},
                        {"path": "status.phase", "within": ["Failed"]},
                        {"type": "Progressing", "status": "False", "other_than": ["Complete"]},
                        {"type": "Accepted", "status": "False"},
                    ],
                },
                "settled": {
                    "any": [
                        {
                            "all": [
                                {"path": "status.phase", "within": ["Stopped", "Suspended"]},
                                {"type": "Accepted"},
                                {
                                    "type": "Progressing",
                                    "status": "False",
                                    "reasons": ["Complete"],
                                    "excused": ["ModelNotReady"],
                                },
                            ],
                        },
                        {"type": "Accepted", "status": "False", "reasons": ["MetalOutOfReach"]},
                    ],
                },
                "refused": {"type": "Accepted", "status": "False"},
                "telling": [
                    {"type": "Accepted"},
                    {"type": "Available"},
                    {"type": "Routed", "excused": ["NameConflict", "NotRouted", "NoService"], "optional": True},
                    {"type": "Progressing", "status": "False", "reasons": ["Complete"]},
                ],
            },
            {
                "group": "inference.llmkube.dev",
                "version": "v1alpha1",
                "kind": "ModelRouter",
                "plural": "modelrouters",
                "namespaced": True,
                "url": "",
                "ready": {
                    "all": [
                        {"type": "Accepted"},
                        {"type": "Available"},
                        {"type": "Routed", "excused": ["NameConflict", "NotRouted", "NoService"], "optional": True},
                    ],
                },
                "failed": {
                    "any": [
                        {"type": "Routed", "status": "False", "reasons": ["NoId"]},
                        {"type": "Accepted", "status": "False"},
                    ],
                },
                "refused": {"type": "Accepted", "status": "False"},
                "telling": [
                    {"type": "Accepted"},
                    {"type": "Available"},
                    {"type": "Routed", "excused": ["NameConflict", "NotRouted", "NoService"], "optional": True},
                ],
            },
            {
                "group": "inference.llmkube.dev",
                "version": "v1alpha1",
                "kind": "LoRAAdapter",
                "plural": "loraadapters",
                "namespaced": True,
                "needs": [{"kind": "InferenceService", "path": "spec.inferenceServiceRef.name"}],
                "phase": "",
                "url": "",
                "ready": {
                    "all": [
                        {"type": "Available"},
                        {"type": "Loaded", "excused": ["ScaledToZero"]},
                        {"type": "Routed", "excused": ["NameConflict", "NotRouted", "NoService"], "optional": True},
                    ],
                },
                "failed": {"any": [{"type": "Routed", "status": "False", "reasons": ["NoId"]}, {"type": "Error"}]},
                "refused": {"type": "Available", "status": "False"},
                "telling": [
                    {"type": "Available"},
                    {"type": "Loaded", "excused": ["ScaledToZero"]},
                    {"type": "Routed", "excused": ["NameConflict", "NotRouted", "NoService"], "optional": True},
                ],
            },
            {
                "group": "inference.llmkube.dev",
                "version": "v1alpha1",
                "kind": "GPUQuota",
                "plural": "gpuquotas",
                "namespaced": True,
                "phase": "",
                "url": "",
                "ready": {"type": "Accepted"},
                "failed": {"type": "Accepted", "status": "False"},
                "refused": {"type": "Accepted", "status": "False"},
                "telling": [{"type": "Accepted"}],
            },
        ],
        "rules": {
            "resources": [
                {
                    "apiGroups": ["inference.llmkube.dev"],
                    "resources": ["models", "inferenceservices", "modelrouters", "loraadapters", "gpuquotas"],
                    "verbs": ["get", "list", "watch", "patch"],
                },
                {
                    "apiGroups": ["inference.llmkube.dev"],
                    "resources": [
                        "models/status",
                        "inferenceservices/status",
                        "modelrouters/status",
                        "loraadapters/status",
                        "gpuquotas/status",
                    ],
                    "verbs": ["patch"],
                },
                {
                    "apiGroups": ["inference.llmkube.dev"],
                    "resources": [
                        "models/finalizers",
                        "inferenceservices/finalizers",
                        "modelrouters/finalizers",
                        "loraadapters/finalizers",
                        "gpuquotas/finalizers",
                    ],
                    "verbs": ["update"],
                },
            ],
            "work": [
                {
                    "apiGroups": ["batch"],
                    "resources": ["jobs"],
                    "verbs": ["get", "list", "watch", "create", "patch", "delete"],
                },
                {
                    "apiGroups": ["autoscaling"],
                    "resources": ["horizontalpodautoscalers"],
                    "verbs": ["get", "list", "watch", "create", "patch", "delete"],
                },
                {
                    "apiGroups": ["pyrra.dev"],
                    "resources": ["servicelevelobjectives"],
                    "verbs": ["get", "list", "watch", "create", "patch", "delete"],
                },
                {
                    "apiGroups": [""],
                    "resources": ["persistentvolumeclaims"],
                    "verbs": ["get", "list", "watch", "create", "patch"],
                },
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]},
            ],
            "cluster": [
                {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]},
                {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]},
                {
                    "apiGroups": ["scheduling.k8s.io"],
                    "resources": ["priorityclasses"],
                    "verbs": ["get", "list", "watch", "create"],
                },
            ],
            "own": [],
            "wake": [],
        },
        "scrape": {
            "name": "slipway-engines-llmkube",
            "job": "slipway-engines",
            "ports": ["http"],
            "labels": {
                "model": {"from": "inference.llmkube.dev/service"},
                "runtime": {"from": "inference.llmkube.dev/runtime"},
            },
            "expressions": [
                {"key": "inference.llmkube.dev/service", "operator": "Exists"},
                {
                    "key": "inference.llmkube.dev/runtime",
                    "operator": "In",
                    "values": ["llamacpp", "vllm", "tgi", "generic", "sglang", "llamacpp-router"],
                },
            ],
        },
        "original": "llmkube",
        "secrets": {"huggingface": "llmkube-huggingface"},
    },
    "ome": {
        "definitions": [
            "basemodels.ome.io",
            "clusterbasemodels.ome.io",
            "finetunedweights.ome.io",
            "servingruntimes.ome.io",
            "clusterservingruntimes.ome.io",
            "inferenceservices.ome.io",
            "benchmarkjobs.ome.io",
        ],
        "models": {
            "definition": "basemodels.ome.io",
            "services": "inferenceservices.ome.io",
            "version": "ome.io/v1beta1",
        },
        "pod_labels": ["ome.io/inferenceservice", "ome.io/model"],
        "resources": [
            {
                "group": "ome.io",
                "version": "v1beta1",
                "kind": "BaseModel",
                "plural": "basemodels",
                "namespaced": True,
                "module": "model",
                "phase": "status.state",
                "url": "",
                "facts": [
                    {"name": "nodes_ready", "path": "status.nodesReady", "otherwise": []},
                    {"name": "nodes_failed", "path": "status.nodesFailed", "otherwise": []},
                ],
                "pods": ["ome.io/model={name}"],
                "ready": {"all": [{"path": "status.state", "within": ["Ready"]}, {"type": "Accepted"}]},
                "failed": {
                    "any": [{"path": "status.state", "within": ["Failed"]}, {"type": "Accepted", "status": "False"}],
                },
                "refused": {"type": "Accepted", "status": "False"},
                "telling": [{"type": "Accepted"}, {"type": "Available"}],
            },
            {
                "group": "ome.io",
                "version": "v1beta1",
                "kind": "ClusterBaseModel",
                "plural": "clusterbasemodels",
                "namespaced": False,
                "module": "model",
                "phase": "status.state",
                "url": "",
                "facts": [
                    {"name": "nodes_ready", "path": "status.nodesReady", "otherwise": []},
                    {"name": "nodes_failed", "path": "status.nodesFailed", "otherwise": []},
                ],
                "pods": ["ome.io/model={name}"],
                "ready": {"all": [{"path": "status.state", "within": ["Ready"]}, {"type": "Accepted"}]},
                "failed": {
                    "any": [{"path": "status.state", "within": ["Failed"]}, {"type": "Accepted", "status": "False"}],
                },
                "refused": {"type": "Accepted", "status": "False"},
                "telling": [{"type": "Accepted"}, {"type": "Available"}],
            },
            {
                "group": "ome.io",
                "version": "v1beta1",
                "kind": "FineTunedWeight",
                "plural": "finetunedweights",
                "namespaced": False,
                "module": "model",
                "phase": "status.state",
                "url": "",
                "facts": [
                    {"name": "nodes_ready", "path": "status.nodesReady", "otherwise": []},
                    {"name": "nodes_failed", "path": "status.nodesFailed", "otherwise": []},
                ],
                "pods": ["ome.io/model={name}"],
                "ready": {"all": [{"path": "status.state", "within": ["Ready"]}, {"type": "Accepted"}]},
                "failed": {
                    "any": [{"path": "status.state", "within": ["Failed"]}, {"type": "Accepted", "status": "False"}],
                },
                "refused": {"type": "Accepted", "status": "False"},
                "telling": [{"type": "Accepted"}, {"type": "Available"}],
            },
            {
                "group": "ome.io",
                "version": "v1beta1",
                "kind": "ServingRuntime",
                "plural": "servingruntimes",
                "namespaced": True,
                "phase": "",
                "url": "",
                "ready": {"type": "Accepted"},
                "failed": {"type": "Accepted", "status": "False"},
                "refused": {"type": "Accepted", "status": "False"},
                "telling": [{"type": "Accepted"}],
            },
            {
                "group": "ome.io",
                "version": "v1beta1",
                "kind": "ClusterServingRuntime",
                "plural": "clusterservingruntimes",
                "namespaced": False,
                "phase": "",
                "url": "",
                "ready": {"type": "Accepted"},
                "failed": {"type": "Accepted", "status": "False"},
                "refused": {"type": "Accepted", "status": "False"},
                "telling": [{"type": "Accepted"}],
            },
            {
                "group": "ome.io",
                "version": "v1beta1",
                "kind": "InferenceService",
                "plural": "inferenceservices",
                "namespaced": True,
                "module": "inference_service",
                "phase": "",
                "pods": [
                    "ome.io/inferenceservice={name},component=engine",
                    "ome.io/inferenceservice={name},component=decoder",
                    "ome.io/inferenceservice={name},component=router",
                ],
                "ready": {
                    "all": [
                        {"type": "Accepted"},
                        {"type": "Available", "excused": ["ScaledToZero"]},
                        {"type": "Progressing", "status": "False", "reasons": ["Complete"]},
                        {"type": "Routed", "excused": ["NameConflict", "NotRouted", "NoService"], "optional": True},
                    ],
                },
                "failed": {
                    "any": [
                        {"type": "Routed", "status": "False", "reasons": ["NoId"]},
                        {"type": "Progressing", "status": "False", "other_than": ["Complete"]},
                        {"type": "Accepted", "status": "False"},
                    ],
                },
                "refused": {"type": "Accepted", "status": "False"},
                "telling": [
                    {"type": "Accepted"},
                    {"type": "Available"},
                    {"type": "Routed", "excused": ["NameConflict", "NotRouted", "NoService"], "optional": True},
                    {"type": "Progressing", "status": "False", "reasons": ["Complete"]},
                ],
            },
            {
                "group": "ome.io",
                "version": "v1beta1",
                "kind": "BenchmarkJob",
                "plural": "benchmarkjobs",
                "namespaced": True,
                "module": "benchmark_job",
                "phase": "status.state",
                "url": "",
                "facts": [{"name": "details", "path": "status.details", "otherwise": ""}],
                "pods": ["benchmark={name}"],
                "ready": {"path": "status.state", "within": ["Completed"]},
                "failed": {
                    "any": [{"path": "status.state", "within": ["Failed"]}, {"type": "Accepted", "status": "False"}],
                },
                "refused": {"type": "Accepted", "status": "False"},
                "telling": [{"type": "Accepted"}, {"type": "Available"}],
            },
        ],
        "rules": {
            "resources": [
                {
                    "apiGroups": ["ome.io"],
                    "resources": ["basemodels", "servingruntimes", "inferenceservices", "benchmarkjobs"],
                    "verbs": ["get", "list", "watch", "patch"],
                },
                {
                    "apiGroups": ["ome.io"],
                    "resources": [
                        "basemodels/status",
                        "servingruntimes/status",
                        "inferenceservices/status",
                        "benchmarkjobs/status",
                    ],
                    "verbs": ["patch"],
                },
                {
                    "apiGroups": ["ome.io"],
                    "resources": [
                        "basemodels/finalizers",
                        "servingruntimes/finalizers",
                        "inferenceservices/finalizers",
                        "benchmarkjobs/finalizers",
                    ],
                    "verbs": ["update"],
                },
            ],
            "work": [
                {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get", "update"]},
                {
                    "apiGroups": ["leaderworkerset.x-k8s.io"],
                    "resources": ["leaderworkersets/scale"],
                    "verbs": ["get", "update"],
                },
                {
                    "apiGroups": ["batch"],
                    "resources": ["jobs"],
                    "verbs": ["get", "list", "watch", "create", "patch", "delete"],
                },
                {
                    "apiGroups": ["autoscaling"],
                    "resources": ["horizontalpodautoscalers"],
                    "verbs": ["get", "list", "watch", "create", "patch", "delete"],
                },
                {
                    "apiGroups": ["leaderworkerset.x-k8s.io"],
                    "resources": ["leaderworkersets"],
                    "verbs": ["get", "list", "watch", "create", "patch", "delete"],
                },
                {
                    "apiGroups": ["keda.sh"],
                    "resources": ["scaledobjects"],
                    "verbs": ["get", "list", "watch", "create", "patch", "delete"],
                },
                {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get", "list", "watch"]},
                {
                    "apiGroups": ["rbac.authorization.k8s.io"],
                    "resources": ["roles"],
                    "verbs": ["get", "list", "watch", "create", "patch", "delete"],
                },
                {
                    "apiGroups": ["rbac.authorization.k8s.io"],
                    "resources": ["rolebindings"],
                    "verbs": ["get", "list", "watch", "create", "patch", "delete"],
                },
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
            ],
            "cluster": [
                {
                    "apiGroups": ["ome.io"],
                    "resources": ["clusterbasemodels", "finetunedweights", "clusterservingruntimes"],
                    "verbs": ["get", "list", "watch", "patch"],
                },
                {
                    "apiGroups": ["ome.io"],
                    "resources": [
                        "clusterbasemodels/status",
                        "finetunedweights/status",
                        "clusterservingruntimes/status",
                    ],
                    "verbs": ["patch"],
                },
                {
                    "apiGroups": ["ome.io"],
                    "resources": [
                        "clusterbasemodels/finalizers",
                        "finetunedweights/finalizers",
                        "clusterservingruntimes/finalizers",
                    ],
                    "verbs": ["update"],
                },
                {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch", "patch"]},
            ],
            "own": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch"]}],
            "wake": [],
        },
        "scrape": {
            "name": "slipway-engines-ome",
            "job": "slipway-engines",
            "ports": ["http", "http1"],
            "labels": {"model": {"from": "ome.io/inferenceservice"}, "runtime": {"from": "ome.io/engine"}},
            "expressions": [
                {"key": "ome.io/inferenceservice", "operator": "Exists"},
                {
                    "key": "ome.io/engine",
                    "operator": "In",
                    "values": ["generic", "infinity", "llamacpp", "sglang", "tgi", "vllm"],
                },
            ],
        },
    },
    "deckhouse": {
        "definitions": [
            "models.ai.deckhouse.io",
            "clustermodels.ai.deckhouse.io",
            "modelcatalogsources.ai.deckhouse.io",
        ],
        "models": {"definition": "models.ai.deckhouse.io", "version": "ai.deckhouse.io/v1alpha1", "unserved": True},
        "pod_labels": [],
        "resources": [
            {
                "group": "ai.deckhouse.io",
                "version": "v1alpha1",
                "kind": "Model",
                "plural": "models",
                "namespaced": True,
                "module": "model",
                "url": "",
                "facts": [
                    {"name": "progress", "path": "status.progress", "otherwise": ""},
                    {"name": "digest", "path": "status.artifact.digest", "otherwise": ""},
                    {"name": "upload_secret", "path": "status.upload.secretName", "otherwise": ""},
                    {"name": "upload_namespace", "path": "status.upload.secretNamespace", "otherwise": ""},
                ],
                "pods": ["ai.deckhouse.io/model-name={name}"],
                "ready": {"path": "status.phase", "within": ["Ready"]},
                "failed": {"path": "status.phase", "within": ["Failed"]},
                "telling": [{"type": "Ready"}],
            },
            {
                "group": "ai.deckhouse.io",
                "version": "v1alpha1",
                "kind": "ClusterModel",
                "plural": "clustermodels",
                "namespaced": False,
                "module": "model",
                "url": "",
                "facts": [
                    {"name": "progress", "path": "status.progress", "otherwise": ""},
                    {"name": "digest", "path": "status.artifact.digest", "otherwise": ""},
                    {"name": "upload_secret", "path": "status.upload.secretName", "otherwise": ""},
                    {"name": "upload_namespace", "path": "status.upload.secretNamespace", "otherwise": ""},
                ],
                "pods": ["ai.deckhouse.io/model-name={name}"],
                "ready": {"path": "status.phase", "within": ["Ready"]},
                "failed": {"path": "status.phase", "within": ["Failed"]},
                "telling": [{"type": "Ready"}],
            },
            {
                "group": "ai.deckhouse.io",
                "version": "v1alpha1",
                "kind": "ModelCatalogSource",
                "plural": "modelcatalogsources",
                "namespaced": False,
                "phase": "",
                "url": "",
                "ready": {"type": "Ready"},
                "failed": {
                    "type": "Ready",
                    "status": "False",
                    "other_than": ["Pending", "Unreachable", "Refused", "Retrying"],
                },
                "refused": {"type": "Ready", "status": "False", "reasons": ["InvalidSpec", "InvalidRefreshInterval"]},
                "telling": [{"type": "Ready"}],
            },
        ],
        "rules": {
            "resources": [
                {"apiGroups": ["ai.deckhouse.io"], "resources": ["models"], "verbs": ["get", "list", "watch", "patch"]},
                {"apiGroups": ["ai.deckhouse.io"], "resources": ["models/status"], "verbs": ["patch"]},
                {"apiGroups": ["ai.deckhouse.io"], "resources": ["models/finalizers"], "verbs": ["update"]},
            ],
            "work": [
                {
                    "apiGroups": ["batch"],
                    "resources": ["jobs"],
                    "verbs": ["get", "list", "watch", "create", "patch", "delete"],
                },
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "update"]},
                {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list", "watch", "patch"]},
                {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": ["get", "list", "watch", "patch"]},
                {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["get", "list", "watch", "patch"]},
                {"apiGroups": ["batch"], "resources": ["cronjobs"], "verbs": ["get", "list", "watch", "patch"]},
                {
                    "apiGroups": [""],
                    "resources": ["persistentvolumeclaims"],
                    "verbs": ["get", "list", "watch", "create", "patch", "delete"],
                },
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]},
            ],
            "cluster": [
                {
                    "apiGroups": ["ai.deckhouse.io"],
                    "resources": ["clustermodels", "modelcatalogsources"],
                    "verbs": ["get", "list", "watch", "patch"],
                },
                {
                    "apiGroups": ["ai.deckhouse.io"],
                    "resources": ["clustermodels/status", "modelcatalogsources/status"],
                    "verbs": ["patch"],
                },
                {
                    "apiGroups": ["ai.deckhouse.io"],
                    "resources": ["clustermodels/finalizers", "modelcatalogsources/finalizers"],
                    "verbs": ["update"],
                },
                {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]},
                {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]},
            ],
            "own": [
                {
                    "apiGroups": ["batch"],
                    "resources": ["jobs"],
                    "verbs": ["get", "list", "watch", "create", "patch", "delete"],
                },
                {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "update"]},
            ],
            "wake": [],
        },
    },
}
