"""LLMKube's description for installers and clients."""

from __future__ import annotations

from slipway.apis.description import (
    MANAGE,
    SHARE,
    Description,
    Fact,
    Grant,
    Grants,
    Need,
    Resource,
    Scrape,
)
from slipway.apis.llmkube import readiness
from slipway.apis.llmkube.rules.engines import ENGINES
from slipway.apis.llmkube.services.operation import OBJECTIVE
from slipway.apis.llmkube.settings import LLMKubeSettings
from slipway.apis.llmkube.types.lora import KIND as LORA_ADAPTER
from slipway.apis.llmkube.types.model import KIND as MODEL
from slipway.apis.llmkube.types.pool import KIND as MODEL_POOL
from slipway.apis.llmkube.types.quota import KIND as GPU_QUOTA
from slipway.apis.llmkube.types.router import KIND as MODEL_ROUTER
from slipway.apis.llmkube.types.service import KIND as INFERENCE_SERVICE
from slipway.kube.objects import (
    HORIZONTAL_POD_AUTOSCALER,
    JOB,
    NAMESPACE,
    NODE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    PRIORITY_CLASS,
)

MEASURED = tuple(runtime for runtime, engine in ENGINES.items() if engine.metrics)
"""Names of the runtimes with metrics."""

MODELS = Resource(
    kind=MODEL,
    module="model",
    readiness=readiness.MODEL,
    url="",
    pods=("app.kubernetes.io/name=model-loader,inference.llmkube.dev/model={name}",),
)

SERVICES = Resource(
    kind=INFERENCE_SERVICE,
    module="inference_service",
    readiness=readiness.INFERENCE_SERVICE,
    needs=(
        Need(MODEL.kind, "spec.modelRef"),
        Need(MODEL.kind, "spec.vllmConfig.speculative.model"),
        Need(MODEL.kind, "spec.speculativeDecoding.draftModelRef"),
    ),
    seen="status.observedModels",
    url="status.endpoint",
    facts=(Fact("waiting_for", "status.waitingFor", ""), Fact("queue_position", "status.queuePosition", 0)),
    pods=("inference.llmkube.dev/service={name}",),
)

ROUTERS = Resource(kind=MODEL_ROUTER, readiness=readiness.MODEL_ROUTER, url="")
ADAPTERS = Resource(
    kind=LORA_ADAPTER,
    readiness=readiness.LORA_ADAPTER,
    needs=(Need(INFERENCE_SERVICE.kind, "spec.inferenceServiceRef.name"),),
    phase="",
    url="",
)

QUOTAS = Resource(kind=GPU_QUOTA, readiness=readiness.GPU_QUOTA, phase="", url="", authored=False)
POOLS = Resource(kind=MODEL_POOL, readiness=readiness.MODEL_POOL, url="")

DESCRIPTION = Description(
    name="llmkube",
    resources=(MODELS, SERVICES, ROUTERS, ADAPTERS, QUOTAS, POOLS),
    grants=Grants(
        work=(
            Grant(JOB, MANAGE),  # load, check and remove weights
            Grant(HORIZONTAL_POD_AUTOSCALER, MANAGE),
            Grant(OBJECTIVE, MANAGE),
            Grant(PERSISTENT_VOLUME_CLAIM, SHARE),  # caches
            Grant(POD, ("patch",)),  # labels show the adapters that a pod serves
        ),
        cluster=(
            Grant(NODE, ("list", "watch")),  # to find the available accelerators
            Grant(NAMESPACE, ("list", "watch")),  # labels by which GPUQuotas select
            Grant(PRIORITY_CLASS, ("get", "list", "watch", "create")),
        ),
    ),
    scrape=Scrape(
        expressions=(
            {"key": "inference.llmkube.dev/service", "operator": "Exists"},
            {"key": "inference.llmkube.dev/runtime", "operator": "In", "values": MEASURED},
        ),
        labels={
            "model": {"from": "inference.llmkube.dev/service"},
            "runtime": {"from": "inference.llmkube.dev/runtime"},
        },
    ),
    pod_labels=("inference.llmkube.dev/service", "inference.llmkube.dev/model"),
    secrets={"huggingface": "llmkube-huggingface"},
    original="llmkube",
    settings=LLMKubeSettings,
)
