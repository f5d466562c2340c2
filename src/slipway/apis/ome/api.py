"""The OME kinds, each with the functions that turn a resource into child objects and a status."""

from __future__ import annotations

from slipway.apis.ome import names, readiness
from slipway.apis.ome.benchmarks import job as benchmark_job
from slipway.apis.ome.benchmarks import resolve as benchmark
from slipway.apis.ome.models.table import MODELS
from slipway.apis.ome.runtimes import status as runtime_status
from slipway.apis.ome.services.table import SERVICES
from slipway.apis.ome.types.benchmark import BENCHMARK_JOB
from slipway.apis.ome.types.runtime import CLUSTER_SERVING_RUNTIME, SERVING_RUNTIME
from slipway.kube.schemas.crd import CustomResource
from slipway.serving.contract.api import Plan, World
from slipway.serving.contract.table import Table


def _runtimes(resource: CustomResource) -> Table[World]:
    """Return the functions for a kind of runtime. Runtimes have no child objects."""
    return Table(
        name="ome",
        resource=resource,
        condition_types=frozenset({"Accepted"}),
        readiness=readiness.RUNTIME,
        watches=lambda _settings: (runtime_status.watch(resource.kind),),
        resolve=lambda world: world,
        plan=lambda _view: Plan(children=()),
        status=lambda view, rejection: runtime_status.status(view, rejection, resource.kind),
    )


BENCHMARKS = Table(
    name="ome",
    resource=BENCHMARK_JOB,
    finalizers=frozenset({names.BENCHMARK_FINALIZER}),
    condition_types=benchmark_job.CONDITIONS,
    pod_labels=benchmark_job.OWN_LABELS,
    readiness=readiness.BENCHMARK_JOB,
    watches=benchmark.watches,
    resolve=benchmark.resolve,
    plan=benchmark_job.plan,
    granted=benchmark_job.granted_freedoms,
    status=benchmark_job.status,
)
APIS = (*MODELS, _runtimes(SERVING_RUNTIME), _runtimes(CLUSTER_SERVING_RUNTIME), SERVICES, BENCHMARKS)
