"""Description of OME for installers and clients: resources, permissions and metrics."""

from __future__ import annotations

from slipway.apis.description import MANAGE, Description, Fact, Grant, Grants, Resource, Scrape
from slipway.apis.ome import names, readiness
from slipway.apis.ome.settings import OMESettings
from slipway.engines import ENGINES
from slipway.kube.objects import (
    CONFIG_MAP,
    DEPLOYMENT,
    HORIZONTAL_POD_AUTOSCALER,
    JOB,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    ROLE,
    ROLE_BINDING,
    SCALED_OBJECT,
)
from slipway.serving.pods.groups import LEADER_WORKER_SET

MEASURED = tuple(sorted(engine.name for engine in ENGINES.values() if engine.metrics))
"""Names of the engines that have metrics. They are values of the pod label ENGINE_LABEL."""
COMPONENT_PODS = tuple(f"{names.SERVICE_LABEL}={{name}},component={part}" for part in ("engine", "decoder", "router"))

MODELS = tuple(
    Resource(
        kind=kind,
        module="model",
        readiness=readiness.MODEL,
        phase="status.state",
        url="",
        pods=(f"{names.MODEL_LABEL}={{name}}",),
        facts=(Fact("nodes_ready", "status.nodesReady", ()), Fact("nodes_failed", "status.nodesFailed", ())),
    )
    for kind in (names.BASE_MODEL, names.CLUSTER_BASE_MODEL, names.FINE_TUNED_WEIGHT)
)
RUNTIMES = tuple(
    Resource(kind=kind, readiness=readiness.RUNTIME, phase="", url="")
    for kind in (names.SERVING_RUNTIME, names.CLUSTER_SERVING_RUNTIME)
)
SERVICES = Resource(
    kind=names.INFERENCE_SERVICE,
    module="inference_service",
    readiness=readiness.INFERENCE_SERVICE,
    phase="",
    pods=COMPONENT_PODS,
    scaled=(DEPLOYMENT, LEADER_WORKER_SET),
)
BENCHMARKS = Resource(
    kind=names.BENCHMARK_JOB,
    module="benchmark_job",
    facts=(Fact("details", "status.details", ""),),
    readiness=readiness.BENCHMARK_JOB,
    phase="status.state",
    url="",
    pods=(f"{names.BENCHMARK_LABEL}={{name}}",),
)

DESCRIPTION = Description(
    name="ome",
    resources=(*MODELS, *RUNTIMES, SERVICES, BENCHMARKS),
    grants=Grants(
        work=(
            Grant(JOB, MANAGE),  # load, check and remove weights; benchmarks
            Grant(HORIZONTAL_POD_AUTOSCALER, MANAGE),
            Grant(LEADER_WORKER_SET, MANAGE),
            Grant(SCALED_OBJECT, MANAGE),
            Grant(PERSISTENT_VOLUME_CLAIM, MANAGE),  # through which pods read models on nodes
            Grant(ROLE, MANAGE),  # for routers, which list pods; RBAC only lets it grant its own rights
            Grant(ROLE_BINDING, MANAGE),
            Grant(POD, ("get",)),
        ),
        cluster=(
            Grant(NODE, ("list", "watch", "patch")),  # labels and records of each node's weights
            Grant(PERSISTENT_VOLUME, MANAGE),  # the nodes' folders, one for each claim
        ),
        own=(Grant(CONFIG_MAP, ("get", "create", "patch")),),  # the autoscaler's averages
    ),
    scrape=Scrape(
        expressions=(
            {"key": names.SERVICE_LABEL, "operator": "Exists"},
            {"key": names.ENGINE_LABEL, "operator": "In", "values": MEASURED},
        ),
        labels={"model": {"from": names.SERVICE_LABEL}, "runtime": {"from": names.ENGINE_LABEL}},
        ports=("http", "http1"),  # the port names in OME's own runtimes
    ),
    pod_labels=(names.SERVICE_LABEL, names.MODEL_LABEL),
    settings=OMESettings,
)
