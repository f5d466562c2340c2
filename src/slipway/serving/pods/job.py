"""Jobs that run one container to completion, with a limited number of retries. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from slipway.kube.objects import JOB, Object, OwnerReference, controller_owner, created_unix, deleting
from slipway.kube.values.times import unix_time
from slipway.serving.containers.diagnosis import Diagnosis, Failure
from slipway.serving.pods.server import Container
from slipway.serving.pods.workload import child, container_spec

NEVER = 3
"""Exit code of a program that cannot succeed until a person changes something. The Job fails without a retry."""
PODLESS_SECONDS = 20
"""Seconds after its creation for which a Job may have no pod before this counts as a failure."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a Job and its pod."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    """Labels of the Job and its pods. No Service's selector may match them."""
    container: Container
    volumes: tuple[Object, ...]
    retries: int
    image_pull_secrets: tuple[str, ...] = ()
    service_account: str = ""
    """ServiceAccount whose token the pods have. Empty means the namespace's default ServiceAccount, without a token."""
    security: Object = {}
    tolerations: tuple[Object, ...] = ()
    affinity: Object = {}
    init: tuple[Container, ...] = ()
    """Containers that run to completion before ``container`` starts."""
    deadline_seconds: int = 0
    """Seconds after which the Job fails, regardless of the state of its pods. 0 means no limit."""


def job(task: Task) -> Object:
    """Build a Job. Failed pods are kept, because their last log lines explain the failure. A pod that a node drain
    evicts does not count as a failure."""
    pod: Object = {
        "serviceAccountName": task.service_account,
        "securityContext": task.security,
        "restartPolicy": "Never",
        "initContainers": [container_spec(one, one.mounts) for one in task.init],
        "containers": [container_spec(task.container, task.container.mounts)],
        "volumes": list(task.volumes),
        "tolerations": list(task.tolerations),
        "affinity": task.affinity,
        "imagePullSecrets": [{"name": name} for name in task.image_pull_secrets],
    }
    deadline = {"activeDeadlineSeconds": task.deadline_seconds} if task.deadline_seconds else {}
    spec = {
        "backoffLimit": task.retries,
        **deadline,
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": task.container.name, "operator": "In", "values": [NEVER]},
                },
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]
        },
        "template": {
            "metadata": {"labels": dict(task.labels)},
            "spec": {field: value for field, value in pod.items() if value}
            | {"automountServiceAccountToken": bool(task.service_account), "enableServiceLinks": False},
        },
    }
    return child(JOB, task.name, task.namespace, task.labels, spec=spec)


def ended(job: Object | None, how: str) -> float | None:
    """Return the Unix time at which the Job got the condition ``how``, ``Complete`` or ``Failed``. The result is None
    if it has no such condition or there is no Job."""
    conditions: Sequence[Object] = (job or {}).get("status", {}).get("conditions") or []
    for condition in conditions:
        if condition["type"] == how and condition["status"] == "True":
            return unix_time(condition["lastTransitionTime"])
    return None


def exceeded(job: Object | None) -> int | None:
    """Return the deadline in seconds that a Job has exceeded, or None if it has not exceeded one or there is no Job."""
    conditions: Sequence[Object] = (job or {}).get("status", {}).get("conditions") or []
    late = any(one["type"] == "Failed" and one.get("reason") == "DeadlineExceeded" for one in conditions)
    return (job or {})["spec"].get("activeDeadlineSeconds") if late else None


def job_of(pod: Object) -> OwnerReference | None:
    """Return the reference to the Job that created a pod, or None if no Job created it."""
    owner = controller_owner(pod)
    of_a_job = owner is not None and (owner.api_version.partition("/")[0], owner.kind) == (JOB.group, JOB.kind)
    return owner if of_a_job else None


def pods_of(job: Object | None, pods: Sequence[Object]) -> list[Object]:
    """Return the pods that the Job created, newest first. Pods of an earlier Job with the same name are excluded. The
    result is empty if there is no Job."""
    if job is None:
        return []
    mine = [pod for pod in pods if (maker := job_of(pod)) and maker.uid == job["metadata"].get("uid")]
    return sorted(mine, key=created_unix, reverse=True)


def is_active(job: Object, now: float) -> bool:
    """Whether a Job is running, between two attempts, or about to start. A Job whose pods the cluster rejects is not
    active."""
    if any(ended(job, how) is not None for how in ("Complete", "Failed")):
        return False
    had_pods = any(job.get("status", {}).get(count) for count in ("active", "failed"))
    return had_pods or now - created_unix(job) < PODLESS_SECONDS


def without_pods(job: Object | None, does: str, now: float) -> Diagnosis:
    """Diagnose a Job without a pod. Only the Job's events show why the cluster rejects its pods. There is no failure if
    the Job does not exist, is being deleted, has ended, or is new. ``does`` is the pods' purpose for the message, such
    as ``loads the weights``."""
    if job is None or deleting(job) or any(ended(job, how) is not None for how in ("Complete", "Failed")):
        return Diagnosis()
    remaining = created_unix(job) + PODLESS_SECONDS - now
    if remaining > 0:
        return Diagnosis(recheck_seconds=remaining)
    name = job["metadata"]["name"]
    text = f"No pod was created for the Job {name}, which {does}. See its events"
    return Diagnosis(Failure("PodsRejected", f"{text}: kubectl describe job {name}."))


def last_error(pods: Sequence[Object]) -> str:
    """Return the last line of the newest failed pod's termination message, or the exit code or the pod's status if
    there is no message. The result is empty if no pod failed."""
    for pod in sorted(pods, key=created_unix, reverse=True):
        status = pod.get("status", {})
        for container in status.get("containerStatuses", []):
            over = container.get("state", {}).get("terminated", {})
            if over.get("exitCode"):
                lines = [line for line in over.get("message", "").splitlines() if line.strip()]
                return lines[-1].strip() if lines else f"it ended with exit code {over['exitCode']}"
        if status.get("phase") == "Failed":
            return status.get("message") or status.get("reason") or ""
    return ""


def termination_message(pods: Sequence[Object]) -> str:
    """Return the termination message of the newest successful pod, or an empty string if there is none."""
    for pod in sorted(pods, key=created_unix, reverse=True):
        if pod.get("status", {}).get("phase") == "Succeeded":
            for container in pod["status"].get("containerStatuses", []):
                message: str = container.get("state", {}).get("terminated", {}).get("message", "")
                return message
    return ""
