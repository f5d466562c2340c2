"""Plan and status of a BenchmarkJob: a Job that runs genai-bench, with a sidecar that reads the results. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from slipway.apis.ome import names
from slipway.apis.ome.benchmarks.resolve import (
    MODEL_VOLUME,
    RESULTS,
    RESULTS_VOLUME,
    SPEC,
    TOKEN_KEY,
    BenchmarkJob,
    BenchmarkView,
    spec_digest,
)
from slipway.apis.ome.models import volumes as model_volumes
from slipway.apis.ome.models.storage import use_of
from slipway.artifacts.documents import benchmark as results
from slipway.artifacts.documents.benchmark import Summary
from slipway.kube.objects import JOB, MANAGED_BY, Object, created_unix, generation, key
from slipway.kube.schemas.conditions import Condition
from slipway.kube.schemas.merge import merged
from slipway.kube.values.names import label_value
from slipway.serving.containers import genai_bench, volumes
from slipway.serving.containers.diagnosis import Diagnosis, Failure, Limits, diagnose, sentence
from slipway.serving.containers.freedoms import Freedom, freedoms
from slipway.serving.contract.api import USES, InvalidSpecError, Plan, Rejection, StatusResult, World
from slipway.serving.pods.job import Task, ended, job, last_error, without_pods
from slipway.serving.pods.server import Container, Mount, variables
from slipway.serving.pods.workload import MANAGER, UNPRIVILEGED, container_spec, restricted
from slipway.serving.status.builder import build_status, permanent, verdict
from slipway.serving.status.report import Pending
from slipway.weights import nodes
from slipway.weights.sources.credentials import Access, mounted

CONTAINER, SIDECAR = "genai-bench", "summary"
SCRATCH, SCRATCH_VOLUME = "/tmp", "scratch"  # noqa: S108 - a volume of the pod
RESOURCES: Object = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "4Gi"}}
SIDECAR_RESOURCES: Object = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "1Gi"}}
TOLERATION: Object = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
OF_CONTAINER: dict[str, type] = {"image": str, "env": list, "envFrom": list, "volumeMounts": list, "resources": dict}
OF_POD: dict[str, type] = {"tolerations": list, "nodeSelector": dict, "affinity": dict, "volumes": list}
GRACE_SECONDS = 60
"""Seconds that the sidecar may take to read the results of a long run."""
SUMMARY_SECONDS = 60
"""Seconds to wait for the pod's termination message after a Job has ended."""
SIDECAR_READY: Object = {
    "exec": {"command": ["test", "-s", "/dev/termination-log"]},
    "periodSeconds": 1,
    "failureThreshold": 300,
}
"""Startup probe of the sidecar. It succeeds when the sidecar has written to its termination log, and genai-bench only
starts then."""
CONDITIONS = frozenset({"Accepted", "Available", "Progressing"})
PASSED_THROUGH = frozenset({"WaitingForService", "WaitingForPod", "Running"})
"""Reasons of conditions that are transient states of a benchmark, not errors."""
OWN_LABELS = frozenset({names.BENCHMARK_LABEL})


class BenchmarkState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a benchmark. A failure means that the benchmark has ended, or cannot start without a change."""

    state: str = "Pending"
    pending: Pending | None = None
    failure: Failure | None = None
    summary: Summary | None = None
    recheck_seconds: float | None = None


def plan(view: BenchmarkView) -> Plan:
    """Return the plan with the benchmark's Job. A Job is created once for a spec and not changed; a new spec replaces
    the Job. The plan is empty while the Job of an earlier spec exists, or the benchmark waits for its service. Raise
    InvalidSpecError if the benchmark cannot run."""
    if view.fault:
        raise view.fault
    if view.is_current and view.existing_job:
        return Plan(children=(_keep_job(view.existing_job),))
    if view.existing_job or view.pending:
        return Plan(children=())
    claims = _build_claims(view)
    model_volumes.check_free(view.world, claims)
    return Plan(children=(_build_job(view, view.world.resource["spec"].get("podOverride") or {}),), shared=claims)


def granted_freedoms(view: BenchmarkView, planned: Plan) -> frozenset[Freedom]:
    """Return the freedoms that the author may use without permission: those of the new Job without podOverride, or all
    freedoms of an existing Job. Raise InvalidSpecError if the benchmark cannot run."""
    return freedoms([_build_job(view, {})] if view.job else planned.children)


def _keep_job(observed: Object) -> Object:
    """Return an existing Job with the fields that the controller sets, unchanged, because Kubernetes does not allow
    changes."""
    metadata = {field: observed["metadata"].get(field) or {} for field in ("name", "namespace", "labels")}
    metadata["annotations"] = {SPEC: observed["metadata"]["annotations"][SPEC]}
    return {"apiVersion": JOB.api_version, "kind": JOB.kind, "metadata": metadata, "spec": observed["spec"]}


def _build_claims(view: BenchmarkView) -> tuple[Object, ...]:
    """Build the claims with which the Job reads a model's files on nodes. Empty if the Job reads none."""
    volumes = view.job.access.volumes if view.job else ()
    mark, namespace = nodes.mark(view.job.node_label if view.job else ""), key(view.world.resource).namespace
    return tuple(
        model_volumes.build_claim(name, namespace, mark) for name in model_volumes.names_in([{"volumes": volumes}])
    )


def _build_job(view: BenchmarkView, override: Object) -> Object:
    """Build the Job that runs genai-bench against the service or endpoint. ``override``: podOverride as written by the
    author. Raise InvalidSpecError if the benchmark cannot run or podOverride is invalid."""
    desired, world = view.job, view.world
    if desired is None:
        raise view.fault or InvalidSpecError("InvalidSpec", "it cannot be read")
    (namespace, name), settings = key(world.resource), world.settings
    scratch = mounted(volumes.scratch(SCRATCH_VOLUME), SCRATCH)
    home = {"HOME": SCRATCH, "HF_HOME": f"{SCRATCH}/huggingface", "MPLCONFIGDIR": SCRATCH, "ENABLE_UI": "false"}
    access = Access(env=variables(home)) + scratch + desired.access
    task = Task(
        name=name,
        namespace=namespace,
        labels={names.BENCHMARK_LABEL: label_value(name), MANAGED_BY: MANAGER},
        container=Container(
            name=CONTAINER,
            image=settings.images.get(CONTAINER, genai_bench.IMAGE),
            args=(*genai_bench.arguments(desired.benchmark), "--log-dir", SCRATCH),
            env=access.env,
            mounts=access.mounts,
            resources=RESOURCES,
            security=UNPRIVILEGED,
        ),
        volumes=access.volumes,
        retries=0,
        security=restricted(settings.user(settings.run_as_user)),
        tolerations=(TOLERATION,),
    )
    manifest = job(task)
    manifest["metadata"]["annotations"] = {SPEC: spec_digest(world)}
    template = manifest["spec"]["template"]
    template["metadata"]["annotations"] = {"logging-forward": "true", **_uses(desired)}
    node = {"nodeSelector": {desired.node_label: names.READY}} if desired.node_label else {}
    template["spec"] |= {
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        **node,
        "initContainers": [_sidecar(view, access)],
    }
    template["spec"] = _apply_override(template["spec"], override)
    return manifest


def _uses(desired: BenchmarkJob) -> Object:
    """Return the annotation that lists the node directories that the pod reads, so that models do not remove these
    files. Empty if the pod reads none."""
    paths = [mount.path for mount in desired.access.mounts if mount.volume == MODEL_VOLUME]
    return {USES: " ".join(map(use_of, paths))} if desired.node_label and paths else {}


def _sidecar(view: BenchmarkView, access: Access) -> Object:
    """Build the sidecar that reads the results. It is ready before genai-bench starts, and is stopped after genai-bench
    has ended with any result."""
    where = next(mount for mount in access.mounts if mount.volume == RESULTS_VOLUME)
    reader = Container(
        name=SIDECAR,
        image=view.world.settings.loader_image,
        args=("loader", "summary", RESULTS),
        mounts=(Mount(where.volume, where.path, sub_path=where.sub_path, read_only=True),),
        resources=SIDECAR_RESOURCES,
        security=UNPRIVILEGED,
    )
    return container_spec(reader, reader.mounts) | {"restartPolicy": "Always", "startupProbe": SIDECAR_READY}


def _apply_override(pod: Object, override: Object) -> Object:
    """Return the pod spec with podOverride merged over it. The command of genai-bench is replaced by one that keeps the
    pod's secrets out of its output. Raise InvalidSpecError for invalid fields."""
    container, patch = _select_fields(override, OF_CONTAINER), _select_fields(override, OF_POD)
    if container:
        patch["containers"] = [{"name": CONTAINER, **container}]
    merged_pod = merged(pod, patch, "PodSpec")
    (tool,) = merged_pod["containers"]
    return {**merged_pod, "containers": [{**tool, "command": list(genai_bench.command(_secrets(tool)))}]}


def _select_fields(override: Object, fields: Mapping[str, type]) -> Object:
    """Return the ``fields`` that podOverride sets. Raise InvalidSpecError if a field has the wrong type. ``fields``:
    field -> type."""
    selected = {field: override[field] for field in fields if override.get(field)}
    for field, value in selected.items():
        items = value if isinstance(value, list) else ()
        if not isinstance(value, fields[field]) or not all(isinstance(item, dict) for item in items):
            raise InvalidSpecError("InvalidSpec", f"spec.podOverride.{field} is not valid in a pod.")
    return selected


def _secrets(container: Object) -> list[str]:
    """Return the names of environment variables that may contain secrets, which genai-bench would print. If a container
    imports a whole Secret, the names of its variables are unknown, and TOKEN_KEY stands for them."""
    env = [(str(one.get("name")), one) for one in container.get("env", [])]
    named = [name for name, one in env if one.get("valueFrom")]
    names = [name for name, one in env if one.get("value") and name in genai_bench.CREDENTIAL_VARIABLES]
    whole = [TOKEN_KEY for one in container.get("envFrom", []) if "secretRef" in one]
    return [*named, *names, *whole]


def status(view: BenchmarkView, rejection: Rejection | None) -> StatusResult:
    """Return the status of a benchmark. Once a benchmark has ended, its status does not change while its Job and its
    spec stay the same, unless the plan is rejected."""
    resource, manifest = view.world.resource, view.existing_job or {}
    before = resource.get("status") or {}
    over = before.get("state") in ("Completed", "Failed") and before.get("observedGeneration") == generation(resource)
    refused = permanent(rejection)
    if over and view.is_current and not refused and before.get("completionTime"):
        own = [one for one in before.get("conditions") or () if one.get("type") in CONDITIONS]
        return StatusResult({**before, "conditions": own})
    outcome = _rejected_state(refused) if refused else _determine_state(view)
    observed = manifest.get("status") or {}
    failed: Object = next((one for one in observed.get("conditions") or () if one["type"] == "Failed"), {})
    times = {"startTime": observed.get("startTime")}
    if outcome.state in ("Completed", "Failed"):
        times["completionTime"] = observed.get("completionTime") or failed.get("lastTransitionTime")
    times["lastReconcileTime"] = times.get("completionTime") or times["startTime"]
    fields = {
        "state": outcome.state,
        **{name: value for name, value in times.items() if value and view.is_current},
        **({"failureMessage": outcome.failure.message} if outcome.failure else {}),
        **({"details": results.details(outcome.summary)} if outcome.summary else {}),
    }
    return build_status(
        resource,
        fields,
        _conditions(outcome, rejection),
        rechecks=(outcome.recheck_seconds,),
        passed_through=PASSED_THROUGH,
    )


def _rejected_state(rejection: Rejection) -> BenchmarkState:
    failure = Failure(rejection.reason, rejection.message)
    return BenchmarkState(state="Failed", failure=failure)


def _determine_state(view: BenchmarkView) -> BenchmarkState:
    if view.pending:
        return BenchmarkState(pending=view.pending)
    if not view.is_current:
        return BenchmarkState(pending=Pending("WaitingForPod", "The benchmark's Job is being created."))
    over = ended(view.existing_job, "Complete"), ended(view.existing_job, "Failed")
    if any(over):
        return _outcome(view, max(time for time in over if time is not None), failed=over[1] is not None)
    diagnosis = (
        diagnose(None, view.pods, _limits(view.world), view.world.now, lambda _log: None) if view.pods else Diagnosis()
    )
    diagnosis = diagnosis if view.pods else without_pods(view.existing_job, "measures the service", view.world.now)
    running = any(pod.get("status", {}).get("phase") == "Running" for pod in view.pods)
    waiting = (
        Pending("Running", "Requests are being sent.") if running else Pending("WaitingForPod", "Its pod is starting.")
    )
    return BenchmarkState(
        state="Running" if running else "Pending",
        pending=waiting,
        failure=diagnosis.failure,
        recheck_seconds=diagnosis.recheck_seconds,
    )


def _outcome(view: BenchmarkView, at: float, *, failed: bool) -> BenchmarkState:
    """Return the state of a benchmark whose Job ended at ``at``, in Unix seconds. While its results are not known, the
    benchmark still counts as running for SUMMARY_SECONDS."""
    summary, remaining = _summary(view), at + SUMMARY_SECONDS - view.world.now
    if summary is None and remaining > 0:
        waiting = Pending("Running", "The benchmark has ended, and its results are being read.")
        return BenchmarkState(state="Running", pending=waiting, recheck_seconds=remaining)
    failure = _failure(view, summary, failed=failed)
    return BenchmarkState(state="Failed" if failure else "Completed", failure=failure, summary=summary)


def _failure(view: BenchmarkView, summary: Summary | None, *, failed: bool) -> Failure | None:
    last = sentence(last_error(view.pods) or "no reason is given")
    if summary and summary.failed:
        text = f"{summary.failed} of {summary.requests} requests failed, the first with {summary.error or 'no reason'}"
        return Failure("RequestsFailed", sentence(text))
    if not view.pods:
        # genai-bench exits with 0 when it is stopped, so the Job of a preempted pod is Complete.
        text = "The pod was removed before its results were read: it was evicted, preempted or deleted."
        return Failure("PodRemoved", f"{text} Delete the BenchmarkJob and create it again.")
    if failed:
        return Failure("BenchmarkFailed", f"genai-bench ended early: {last}")
    if summary is None:
        return Failure("NoResults", "genai-bench succeeded, but its results could not be read.")
    if not summary.requests:
        text = "No request was answered during a run. Raise maxTimePerIteration, or request fewer tokens."
        return Failure("NoRequests", text)
    return None


def _summary(view: BenchmarkView) -> Summary | None:
    """Return the summary of the results from the newest pod whose sidecar has reported one. Return None if no sidecar
    has, or its report is invalid."""
    for pod in sorted(view.pods, key=created_unix, reverse=True):
        for container in (pod.get("status") or {}).get("initContainerStatuses") or ():
            message = ((container.get("state") or {}).get("terminated") or {}).get("message")
            if container.get("name") == SIDECAR and message:
                return results.parse_summary(message)
    return None


def _limits(world: World) -> Limits:
    """Return the limits for the diagnosis of the pod. No startup limit applies, because no container of the pod is an
    engine."""
    grace = world.settings.unschedulable_grace_seconds
    return Limits(startup_seconds=0, unschedulable_grace_seconds=grace, container="")


def _conditions(outcome: BenchmarkState, rejection: Rejection | None) -> tuple[Condition, ...]:
    if outcome.failure:
        available = ("Available", "False", outcome.failure.reason, outcome.failure.message)
        progressing = ("Progressing", "False", outcome.failure.reason, "See the condition Available.")
    elif outcome.pending:
        available = ("Available", "False", outcome.pending.reason, outcome.pending.message)
        progressing = ("Progressing", "True", outcome.pending.reason, outcome.pending.message)
    else:
        count = outcome.summary.requests if outcome.summary else 0
        available = ("Available", "True", "Completed", f"{count} requests were answered, and none failed.")
        progressing = ("Progressing", "False", "Complete", "The benchmark is complete.")
    return verdict(rejection, "The spec is valid."), Condition(*available), Condition(*progressing)
