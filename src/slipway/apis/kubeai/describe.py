"""Description of KubeAI for installers and clients: resources, permissions and metrics."""

from __future__ import annotations

from slipway.apis.description import (
    BY_NAME,
    MANAGE,
    SHARE,
    Description,
    Grant,
    Grants,
    Resource,
    Scrape,
)
from slipway.apis.kubeai import names, settings
from slipway.apis.kubeai.engines import ENGINES
from slipway.apis.kubeai.readiness import READINESS
from slipway.apis.kubeai.types import KIND
from slipway.kube.objects import CONFIG_MAP, JOB, PERSISTENT_VOLUME_CLAIM, POD

MEASURED = tuple(engine.name for engine in ENGINES.values() if engine.metrics)
"""Names of the engines that have metrics. They are values of the pod label ``app.kubernetes.io/name``."""

DESCRIPTION = Description(
    name="kubeai",
    resources=(
        Resource(
            kind=KIND,
            module="model",
            readiness=READINESS,
            phase="",
            url="",
            pods=(
                "app=model,model={name}",
                "batch.kubernetes.io/job-name=load-cache-{name}",
                "batch.kubernetes.io/job-name=evict-cache-{name}",
            ),
            wakes=True,
        ),
    ),
    grants=Grants(
        work=(
            Grant(CONFIG_MAP, BY_NAME),  # the files of Models
            Grant(JOB, MANAGE),  # fill and empty caches
            Grant(PERSISTENT_VOLUME_CLAIM, SHARE),  # caches
            Grant(POD, ("patch",)),  # labels show the adapters that a pod serves
        ),
        own=(Grant(CONFIG_MAP, SHARE),),  # the system configuration, and the autoscaler's averages
    ),
    scrape=Scrape(
        match={"app": "model", "app.kubernetes.io/managed-by": "kubeai"},
        expressions=({"key": "app.kubernetes.io/name", "operator": "In", "values": MEASURED},),
        labels={"model": {"from": "model", "prefix": "model-"}, "runtime": {"from": "app.kubernetes.io/name"}},
    ),
    pod_manager="kubeai",
    adapter_label=names.ADAPTER_LABEL,
    secrets={
        "huggingface": "kubeai-huggingface",
        "aws": "kubeai-aws",
        "gcp": "kubeai-gcp",
        "alibaba": "kubeai-alibaba",
    },
    original="kubeai",
    documents={"kubeai_config": settings.schema()},
)
