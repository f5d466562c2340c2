"""Diagnosis: explains why a workload is not ready, so that a person can act. Pure.

Reads what Kubernetes reports about the Deployment and its pods: scheduling, image pulls, exits, restarts, probes. The
pod's status contains the last log lines (``terminationMessagePolicy``), which the engine interprets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from slipway.kube.objects import Object, deleting
from slipway.kube.values.times import unix_time
from slipway.serving.containers.drain import FAILED_SECONDS

Explain = Callable[[str], "Failure | None"]
"""Explains an engine's last log lines; returns None if nothing in them helps."""

TEMPLATE = "slipway.inference/template"
"""Annotation of a pod template and its pods: a digest of the template, which distinguishes them from pods of an older
spec."""
LOG_LINES = 8
LOG_LINE_LENGTH = 300
PULL_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
)
CONFIG_REASONS = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
NOT_SYNCED = re.compile(r"failed to sync (secret|configmap) cache: ")
"""The message of a busy kubelet that has not yet seen a pod's Secrets and ConfigMaps; it retries automatically."""
RECHECK_SECONDS = 30.0
REJECTED_GRACE_SECONDS = 5
"""The API server may reject the first pod because its caches do not show the new ServiceAccount yet."""
PATIENCE_RESTARTS = 3
"""Number of restarts allowed for transient failures; with the kubelet's back-off, about half a minute."""
STOPPED = frozenset({0, 137, 143})
"""Exit codes of a container that the kubelet stopped: it obeyed, or was killed by SIGKILL or SIGTERM."""
STOP_SECONDS = FAILED_SECONDS + 45
"""The longest time that the kubelet needs to stop a container after a failed startup probe. A container that ran longer
than its startup limit plus this had started, and was stopped for another reason."""
MISSING_GRACE_SECONDS = 30
"""Tools that apply a directory or a chart may create a claim after the model."""
LONGEST_GRACE_SECONDS = 3600
"""How long a terminating pod is waited for, at most, before it counts as lost."""
LOST_AFTER_SECONDS = 300
"""How long after its deletion a pod that does not disappear still counts; after that, its node is lost."""
ILLEGAL_INSTRUCTION = 132
"""Exit code of a process that executed an instruction unknown to the CPU."""
UNTOLD = frozenset({"ContainerStatusUnknown"})
"""Reasons given if the kubelet only knows that a container ended. They say nothing about the engine."""


class Missing(NamedTuple):
    """How Kubernetes reports an object that a pod refers to but that does not exist."""

    pattern: re.Pattern[str]
    reason: str
    noun: str
    namespaced: bool = True


RUNTIME_CLASS = Missing(
    re.compile(r'is forbidden: pod rejected: RuntimeClass "([^"]+)" not found'),
    "RuntimeClassNotFound",
    "RuntimeClass",
    namespaced=False,
)
"""Matches the API server's own message only: a webhook may name objects that are not in the spec."""
MISSING = (
    Missing(re.compile(r'persistentvolumeclaim "([^"]+)" not found'), "PVCNotFound", "PersistentVolumeClaim"),
    Missing(re.compile(r'secret "([^"]+)" not found'), "SecretNotFound", "Secret"),
    Missing(re.compile(r'configmap "([^"]+)" not found'), "ConfigMapNotFound", "ConfigMap"),
    RUNTIME_CLASS,
)
NO_NODE_HAS = re.compile(r"^0/(\d+) nodes are available: \1 Insufficient ([\w.-]+/[\w.-]+)\.")
NOT_HELPFUL = re.compile(r"preemption: 0/(\d+) nodes are available: \1 Preemption is not helpful")
"""The scheduler's message for resources that no node has, whether in use or not."""
NO_NODE = frozenset({"Unschedulable", "ResourceNotFound"})
"""Reasons of pods that fit no node; adding a node may resolve them."""
WAITING = NO_NODE | {"PVCNotFound"}
"""Reasons of pods that can be scheduled once something is added to the cluster; requests wait until then."""


class Failure(msgspec.Struct, frozen=True):
    """A reason (a CamelCase word that is stable across releases) and a message for users."""

    reason: str
    message: str
    log: str = ""
    """The part of the engine's log that shows the failure, if the engine recognizes it."""
    passing: bool = False
    """Likely to resolve itself, such as an overloaded hub: it counts as a failure only after several repetitions."""


class Diagnosis(msgspec.Struct, frozen=True):
    """``failure`` is None while everything is normal. ``recheck_seconds``: when the diagnosis may change without an
    event."""

    failure: Failure | None = None
    recheck_seconds: float | None = None


class Limits(msgspec.Struct, frozen=True):
    """Time limits, and the engine's container."""

    startup_seconds: int
    unschedulable_grace_seconds: int
    container: str
    """Name of the engine's container. Other containers have no startup limit, and the engine cannot interpret their
    logs."""


def diagnose(
    deployment: Object | None, pods: Sequence[Object], limits: Limits, now: float, explain: Explain
) -> Diagnosis:
    """Returns the first problem that keeps a pod of the latest spec from becoming ready, starting with the newest pod.

    Ignores pods that are ready, terminating or of an older spec, and ended pods that have been replaced. A container
    that failed and was restarted keeps its failure until it is ready, so that a crash loop does not flicker between
    Failed and Pending.
    """
    recheck: list[float] = []
    for pod in _of_the_newest_spec(deployment, pods):
        diagnosis = _pod(pod, limits, now, explain)
        if diagnosis.failure:
            return diagnosis
        if diagnosis.recheck_seconds is not None:
            recheck.append(diagnosis.recheck_seconds)
    rejected = _rejected(deployment, now)
    if rejected.recheck_seconds is not None:
        recheck.append(rejected.recheck_seconds)
    return Diagnosis(rejected.failure, min(recheck, default=None))


def _of_the_newest_spec(deployment: Object | None, pods: Sequence[Object]) -> list[Object]:
    """Returns the pods that may explain the state, newest first."""
    digest = template_digest(deployment["spec"].get("template", {})) if deployment else None
    current = [pod for pod in pods if not deleting(pod) and template_digest(pod) == digest]
    alive = [pod for pod in current if pod.get("status", {}).get("phase") != "Failed"]
    unready = [pod for pod in alive or current if not is_ready(pod)]
    return sorted(unready, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)


def template_digest(templated: Object) -> str | None:
    """Returns the digest of the template that a pod was created from (see :mod:`slipway.serving.pods.workload`); None
    if it has none."""
    mark: str | None = templated.get("metadata", {}).get("annotations", {}).get(TEMPLATE)
    return mark


def sentence(text: str) -> str:
    """Returns a program's message with a period."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def ended(pod: Object) -> bool:
    """Whether all containers of a pod have terminated permanently."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def may_use_volumes(pod: Object, now: float) -> bool:
    """Whether a pod may still use its volumes. Its author chooses the termination grace period, which counts up to a
    limit."""
    if ended(pod):
        return False
    if not deleting(pod):
        return True
    metadata = pod["metadata"]
    excess = max(int(metadata.get("deletionGracePeriodSeconds") or 0) - LONGEST_GRACE_SECONDS, 0)
    return now - (unix_time(metadata["deletionTimestamp"]) - excess) < LOST_AFTER_SECONDS


def is_ready(pod: Object) -> bool:
    return _condition(pod, "Ready").get("status") == "True"


def _condition(item: Object, kind: str) -> Object:
    conditions: list[Object] = item.get("status", {}).get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == kind), {})


def _rejected(deployment: Object | None, now: float) -> Diagnosis:
    """Diagnoses pods that the API server rejects because of a quota, a limit range or the namespace's pod security
    level."""
    condition = _condition(deployment or {}, "ReplicaFailure")
    if condition.get("status") != "True":
        return Diagnosis()
    message = str(condition.get("message", ""))
    if missing := _missing(message, "", (RUNTIME_CLASS,)):
        return Diagnosis(missing)
    remaining = unix_time(condition["lastTransitionTime"]) + REJECTED_GRACE_SECONDS - now
    if remaining > 0:
        return Diagnosis(recheck_seconds=remaining)
    return Diagnosis(Failure("PodsRejected", f"The cluster rejected the model's pods: {message}"))


def _missing(message: str, namespace: str, rows: Sequence[Missing] = MISSING) -> Failure | None:
    """Returns a failure for the missing object that the message about a pod names; None if it names none."""
    for row in rows:
        if match := row.pattern.search(message):
            place = f" in the namespace {namespace}" if row.namespaced else ""
            text = f"There is no {row.noun} {match[1]!r}{place}. Create it, or fix its name in the spec."
            return Failure(row.reason, text)
    return None


def _pod(pod: Object, limits: Limits, now: float, explain: Explain) -> Diagnosis:
    status = pod.get("status", {})
    scheduled = _condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return _unscheduled(scheduled, limits, pod["metadata"]["namespace"], now)
    if status.get("phase") == "Failed":
        text = status.get("message") or status.get("reason") or "no reason given"
        return Diagnosis(Failure(status.get("reason") or "PodFailed", f"Pod {pod['metadata']['name']} failed: {text}"))
    for container in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        own = container["name"] == limits.container
        diagnosis = _container(pod["metadata"]["namespace"], container, limits, now, explain if own else None)
        if diagnosis.failure or diagnosis.recheck_seconds is not None:
            return diagnosis
    return Diagnosis()


def _unscheduled(condition: Object, limits: Limits, namespace: str, now: float) -> Diagnosis:
    message = str(condition.get("message", ""))
    failure = _missing(message, namespace)
    grace = MISSING_GRACE_SECONDS if failure else limits.unschedulable_grace_seconds
    remaining = unix_time(condition["lastTransitionTime"]) + grace - now
    if remaining > 0:
        return Diagnosis(recheck_seconds=remaining)
    return Diagnosis(failure or _no_node(message))


def _no_node(message: str) -> Failure:
    lacking = NO_NODE_HAS.search(message)
    if lacking and NOT_HELPFUL.search(message):
        text = f"No node has as much {lacking[2]} as the pod requests."
        remedy = "Install the device plugin, request less, or wait for the node that the autoscaler adds."
        return Failure("ResourceNotFound", f"{text} {remedy}")
    return Failure("Unschedulable", f"No node can run the model's pod: {message}")


def _container(namespace: str, status: Object, limits: Limits, now: float, explain: Explain | None) -> Diagnosis:
    """Diagnoses a container. ``explain`` is None if it is not the engine's."""
    state = status.get("state", {})
    waiting = state.get("waiting", {})
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    if reason in PULL_REASONS:
        text = sentence(f"image: {status['image']!r} cannot be pulled: {message}")
        return Diagnosis(Failure("ImagePullBackOff", f"{text} Check the name, the tag and imagePullSecrets."))
    if reason in CONFIG_REASONS and not NOT_SYNCED.match(message):
        return Diagnosis(
            _missing(message, namespace)
            or Failure("CreateContainerConfigError", f"The container cannot be created: {message}")
        )
    ended = state.get("terminated") or status.get("lastState", {}).get("terminated")
    if ended:
        failure = _exit(ended, status, limits, explain)
        if failure:
            return Diagnosis(failure)
    running = state.get("running")
    if running and explain and not status.get("started"):
        # The kubelet enforces the limit; this recheck is for the case that its event is lost.
        remaining = unix_time(running["startedAt"]) + limits.startup_seconds + 5 - now
        return Diagnosis(recheck_seconds=remaining if remaining > 0 else RECHECK_SECONDS)
    return Diagnosis()


def _exit(ended: Object, status: Object, limits: Limits, explain: Explain | None) -> Failure | None:
    log, code = ended.get("message", ""), ended.get("exitCode", 0)
    who = "The engine" if explain else f"Container {status['name']}"
    if ended.get("reason") == "OOMKilled":
        text = f"{who} used more memory than its limit. Raise the limit, or use a smaller model or context."
        return Failure("OOMKilled", text)
    latest = limits.startup_seconds + STOP_SECONDS
    if explain and code in STOPPED and limits.startup_seconds <= _seconds(ended) <= latest:
        text = f"The engine did not answer within the {limits.startup_seconds} s that are allowed for startup"
        return Failure("StartupTimeout", f"{text}.{_format_log(_lines(log)[-LOG_LINES:])}")
    if ended.get("reason") in UNTOLD:
        return None
    if code == ILLEGAL_INSTRUCTION:
        text = f"The image does not support the node's CPU. {who} ended with exit code {code}."
        return Failure("IllegalInstruction", f"{text}{_format_log(_lines(log)[-LOG_LINES:])}")
    explanation = explain(log) if explain else None
    # The log may explain the end even if the exit code is 0.
    if code == 0 and not explanation and "running" in status.get("state", {}):
        return None
    if explanation and explanation.passing and status["restartCount"] < PATIENCE_RESTARTS:
        return None
    if explanation:
        return Failure(
            explanation.reason, f"{sentence(explanation.message)}{_format_log(_lines(explanation.log)[:LOG_LINES])}"
        )
    if status["restartCount"] < 2 and status.get("state", {}).get("waiting", {}).get("reason") != "CrashLoopBackOff":
        return None
    text = f"{who} ended with exit code {code}"
    return Failure("CrashLoopBackOff", f"{text}.{_format_log(_lines(log)[-LOG_LINES:])}")


def _seconds(ended: Object) -> float:
    if not ended.get("finishedAt") or not ended.get("startedAt"):
        return 0.0
    return unix_time(ended["finishedAt"]) - unix_time(ended["startedAt"])


def _lines(log: str) -> list[str]:
    return [line.strip()[:LOG_LINE_LENGTH] for line in log.splitlines() if line.strip()]


def _format_log(lines: Sequence[str]) -> str:
    return "\n".join([" Last log lines:", *lines]) if lines else ""
