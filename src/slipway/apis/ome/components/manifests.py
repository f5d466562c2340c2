"""Manifests: completion of pods from another author's manifest. Pure.

:mod:`slipway.serving.pods.workload` creates pods from the typed spec of an API. For an API that accepts whole pods,
this module adds the fields that a pod needs to serve, drain and report failures like other pods, with as few privileges
as possible.
"""

from __future__ import annotations

from slipway.kube.objects import Object
from slipway.serving.containers.drain import ENDED_BY, Drain, bounded
from slipway.serving.pods.workload import CONFINED, PORT_NAME, UNPRIVILEGED

FIRST_FREE_PORT = 1024
"""The lowest port on which an unprivileged process may listen."""
PROBE_SECONDS = 10
GIVES_ALL = frozenset(("SYS_ADMIN", "CAP_SYS_ADMIN", "ALL"))
"""Capabilities that contradict ``allowPrivilegeEscalation: false``. Kubernetes rejects CAP_SYS_ADMIN with it."""


def finished(pod: Object, port: int, drain: Drain) -> Object:
    """Complete the spec of a pod whose first container listens on ``port``, with defaults for security, draining and
    error messages. Fields that the spec sets are kept."""
    first, *others = pod["containers"]
    parts = {"containers": [_finished(_drained(first, drain.hook(port)), port), *map(_finished, others)]}
    if pod.get("initContainers"):
        parts["initContainers"] = [_finished(one) for one in pod["initContainers"]]
    # A manifest does not expect variables for every Service of the namespace.
    usual = {"enableServiceLinks": False, "terminationGracePeriodSeconds": drain.grace_seconds}
    return {**usual, **pod, "securityContext": {**CONFINED, **(pod.get("securityContext") or {})}, **parts}


def answering(container: Object, port: int, *, on_node: bool) -> Object:
    """Complete a container that receives requests on ``port``. If it declares no ports, declare ``port`` under
    PORT_NAME, for which Prometheus looks. If it declares ``port`` without a name, add this name, unless another port
    has it. If the container has no readiness probe, add one that connects to ``port``. ``on_node``: whether the
    container uses the node's network. Then no port is declared, because it would block that port of the node."""
    named = {"name": PORT_NAME, "containerPort": port, "protocol": "TCP"}
    declared = container.get("ports") or ([] if on_node else [named])
    free = all(one.get("name") != PORT_NAME for one in declared)
    ports = [{"name": PORT_NAME, **one} if free and one.get("containerPort") == port else one for one in declared]
    probe = {"tcpSocket": {"port": port}, "periodSeconds": PROBE_SECONDS}
    extended = {**container, "readinessProbe": container.get("readinessProbe") or probe}
    return extended | ({"ports": ports} if ports else {})


def _drained(container: Object, hook: Object) -> Object:
    lifecycle = container.get("lifecycle") or {}
    if lifecycle.get("preStop") or not hook:
        return container
    probes = bounded({field: container[field] for field in ENDED_BY if container.get(field)})
    return {**container, **probes, "lifecycle": {**lifecycle, "preStop": hook}}


def _finished(container: Object, port: int = FIRST_FREE_PORT) -> Object:
    """Complete a container with security defaults, a pull policy, and the policy that adds the last log lines of a
    failed container to the pod's status, from which the diagnosis reads them. ``port``: the port on which the container
    listens, which may require a capability."""
    usual = {"imagePullPolicy": "IfNotPresent", "terminationMessagePolicy": "FallbackToLogsOnError"}
    return {**usual, **container, "securityContext": _security(container.get("securityContext") or {}, port)}


def _security(context: Object, port: int) -> Object:
    if not context and port < FIRST_FREE_PORT:
        return {**UNPRIVILEGED, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}
    if not context:
        return UNPRIVILEGED
    added = (context.get("capabilities") or {}).get("add") or ()
    return (
        context if context.get("privileged") or GIVES_ALL & {*added} else {"allowPrivilegeEscalation": False, **context}
    )
