"""Explanations, with a fix, of why a workload is not ready. Pure.

This module reads what Kubernetes reports about the Deployment and its pods: scheduling, image pulls, exits, restarts
and probes. The pod status contains the last log lines (``terminationMessagePolicy``), which the engine's code
interprets.
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
"""A function that returns the failure that an engine's last log lines show, or None if no line helps."""

TEMPLATE = "slipway.inference/template"
"""Annotation of a pod template and its pods. The value is a digest of the template, which distinguishes pods of the
current spec from older pods."""
LOG_LINES = 8
LOG_LINE_LENGTH = 300
PULL_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable"}
)
CONFIG_REASONS = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
NOT_SYNCED = re.compile(r"failed to sync (secret|configmap) cache: ")
"""Pattern of the message of a busy kubelet that has not yet received a pod's Secrets and ConfigMaps. The kubelet
retries automatically."""
RECHECK_SECONDS = 30.0
REJECTED_GRACE_SECONDS = 5
"""Seconds before a rejected pod counts as a failure. The API server may reject the first pod because its caches do not
contain the new ServiceAccount yet."""
PATIENCE_RESTARTS = 3
"""Number of restarts allowed for transient failures. With the kubelet's back-off, they take about half a minute."""
STOPPED = frozenset({0, 137, 143})
"""Exit codes of a container that the kubelet stopped: 0 if it exited on request, and 137 or 143 if SIGKILL or SIGTERM
killed it."""
STOP_SECONDS = FAILED_SECONDS + 45
"""The longest time, in seconds, that the kubelet needs to stop a container after a failed startup probe. A container
that ran longer than its startup limit plus this time had started, so something else stopped it."""
MISSING_GRACE_SECONDS = 30
"""Seconds before a missing object counts as a failure. A tool that applies a directory or a chart may create a claim
after the model."""
LONGEST_GRACE_SECONDS = 3600
"""Longest termination grace period, in seconds, that the controller honors before a terminating pod counts as lost."""
LOST_AFTER_SECONDS = 300
"""Seconds after the end of a pod's termination grace period during which the pod may still use its volumes. After that,
its node counts as lost."""
ILLEGAL_INSTRUCTION = 132
"""Exit code of a process that executed an instruction unknown to the CPU."""
UNTOLD = frozenset({"ContainerStatusUnknown"})
"""Termination reasons that the kubelet reports if it only knows that a container ended. They do not describe the
engine's failure."""


class Missing(NamedTuple):
    """How Kubernetes reports a missing object that a pod refers to: the message pattern, our reason, and the kind's
    name."""

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
"""The API server's own message for a missing RuntimeClass. Other messages are ignored, because a webhook may name
objects that are not in the spec."""
MISSING = (
    Missing(re.compile(r'persistentvolumeclaim "([^"]+)" not found'), "PVCNotFound", "PersistentVolumeClaim"),
    Missing(re.compile(r'secret "([^"]+)" not found'), "SecretNotFound", "Secret"),
    Missing(re.compile(r'configmap "([^"]+)" not found'), "ConfigMapNotFound", "ConfigMap"),
    RUNTIME_CLASS,
)
NO_NODE_HAS = re.compile(r"^0/(\d+) nodes are available: \1 Insufficient ([\w.-]+/[\w.-]+)\.")
NOT_HELPFUL = re.compile(r"preemption: 0/(\d+) nodes are available: \1 Preemption is not helpful")
"""Pattern of the scheduler's message for a resource that no node has, even if the scheduler evicted other pods."""
NO_NODE = frozenset({"Unschedulable", "ResourceNotFound"})
"""Failure reasons of pods that fit no node. A new node may resolve them."""
WAITING = NO_NODE | {"PVCNotFound"}
"""Failure reasons that disappear once an object or a node is added to the cluster. Requests wait until then."""


class Failure(msgspec.Struct, frozen=True):
    """A reason why a workload is not ready: a CamelCase word that is stable across releases, and a message for
    users."""

    reason: str
    message: str
    log: str = ""
    """The part of the engine's log that shows the failure, if the engine recognizes it."""
    passing: bool = False
    """Whether the failure probably resolves itself, such as an overloaded hub. It counts only after several
    repetitions."""


class Diagnosis(msgspec.Struct, frozen=True):
    """The first failure of a workload, or None while everything is normal, and the seconds after which the result may
    change without an event, or None."""

    failure: Failure | None = None
    recheck_seconds: float | None = None


class Limits(msgspec.Struct, frozen=True):
    """Time limits for the pods of a workload, and the name of the engine's container."""

    startup_seconds: int
    unschedulable_grace_seconds: int
    container: str
    """Name of the engine's container. Other containers have no startup limit, and the engine's code cannot interpret
    their logs."""


def diagnose(
    deployment: Object | None, pods: Sequence[Object], limits: Limits, now: float, explain: Explain
) -> Diagnosis:
    """Return the first problem that keeps a pod of the latest spec from becoming ready, starting with the newest pod.
    If no existing pod has a problem, return the reason why the API server rejects new pods, if any.

    ``deployment`` is None if it does not exist yet. ``explain`` interprets the engine's last log lines. The function
    ignores ready pods, terminating pods, pods of an older spec, and failed pods that have been replaced. A restarted
    container keeps its failure until it is ready, so that a crash loop does not flicker between Failed and Pending.
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
    """Return the pods of the latest spec that are not ready, newest first. Failed pods are included only if no other
    pod exists."""
    digest = template_digest(deployment["spec"].get("template", {})) if deployment else None
    current = [pod for pod in pods if not deleting(pod) and template_digest(pod) == digest]
    alive = [pod for pod in current if pod.get("status", {}).get("phase") != "Failed"]
    unready = [pod for pod in alive or current if not is_ready(pod)]
    return sorted(unready, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)


def template_digest(templated: Object) -> str | None:
    """Return the digest in the annotation :data:`TEMPLATE` of a pod or a pod template, or None if it has no such
    annotation."""
    mark: str | None = templated.get("metadata", {}).get("annotations", {}).get(TEMPLATE)
    return mark


def sentence(text: str) -> str:
    """Return a program's message, with a period added if it has no final punctuation."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def ended(pod: Object) -> bool:
    """Whether all containers of a pod have terminated permanently."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def may_use_volumes(pod: Object, now: float) -> bool:
    """Whether a pod may still use its volumes. A terminating pod may do so during its termination grace period, of
    which at most ``LONGEST_GRACE_SECONDS`` count, and for ``LOST_AFTER_SECONDS`` after that. A pod that has ended may
    not."""
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
    """Diagnose pods that the API server rejects, such as for a quota, a limit range or the namespace's pod security
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
    """Return a failure for the missing object that a message about a pod names, or None if the message names no such
    object."""
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
    """Diagnose one container from its status. ``explain`` is None for containers other than the engine's."""
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
