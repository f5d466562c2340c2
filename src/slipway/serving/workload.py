"""Builders: a Server, its Scale and its Route become a Deployment, a Service and a ServiceAccount. Pure.

Pods meet the restricted Pod Security Standard. Every field here is one that slipway owns; what others set stays theirs,
as the applier sends these objects by server-side apply.
"""

from __future__ import annotations

import hashlib

import msgspec

from slipway.kube.objects import DEPLOYMENT, MANAGED_BY, SERVICE, SERVICE_ACCOUNT, Kind, Object
from slipway.serving.diagnosis import TEMPLATE
from slipway.serving.route import Route, route_metadata
from slipway.serving.server import Scale, Server

MANAGER = "slipway"
"""Value of the label ``app.kubernetes.io/managed-by`` on all children and their pods."""
PORT_NAME = "http"
CACHE_VOLUME = "model-cache"
ROLLOUT_MARGIN_SECONDS = 60
"""Added to the start's time limit, so that no Deployment calls a rollout dead while a container may still start."""


def workload(server: Server, scale: Scale, route: Route) -> tuple[Object, ...]:
    """The complete children of one served model."""
    own_account = () if server.service_account else (service_account(server),)
    return (*own_account, service(server, route), deployment(server, scale))


def _object(kind: Kind, server: Server, **fields: Object | bool) -> Object:
    metadata = {"name": server.name, "namespace": server.namespace, "labels": dict(server.labels)}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}


def service_account(server: Server) -> Object:
    """An account that may do nothing and hands no token to the engine."""
    return _object(SERVICE_ACCOUNT, server, automountServiceAccountToken=False)


def service(server: Server, route: Route) -> Object:
    """The model's address in the cluster, which is also what tells the gateway of it."""
    port = {"name": PORT_NAME, "port": server.port, "targetPort": PORT_NAME, "protocol": "TCP"}
    made = _object(SERVICE, server, spec={"type": "ClusterIP", "selector": dict(server.selector), "ports": [port]})
    labels, annotations = route_metadata(route)
    made["metadata"]["labels"] |= labels
    made["metadata"]["annotations"] = dict(annotations)
    return made


def deployment(server: Server, scale: Scale) -> Object:
    pod = _pod(server)
    spec = {
        "replicas": scale.replicas,
        "selector": {"matchLabels": dict(server.selector)},
        "revisionHistoryLimit": 2,
        "progressDeadlineSeconds": server.startup_seconds + ROLLOUT_MARGIN_SECONDS,
        "template": {
            "metadata": {
                "labels": {**server.labels, **server.selector, MANAGED_BY: MANAGER},
                "annotations": {TEMPLATE: _digest(pod)},
            },
            "spec": pod,
        },
    }
    return _object(DEPLOYMENT, server, spec=spec)


def _digest(pod: Object) -> str:
    return hashlib.blake2b(msgspec.json.encode(pod, order="deterministic"), digest_size=6).hexdigest()


def _pod(server: Server) -> Object:
    user = server.run_as_user
    spec: Object = {
        "serviceAccountName": server.service_account or server.name,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": user,
            "runAsGroup": user,
            "fsGroup": user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": server.drain_seconds + 15,
        "containers": [_container(server)],
        "volumes": [{"name": CACHE_VOLUME, "emptyDir": {"sizeLimit": server.cache.size_limit}}],
    }
    if not server.service_account:
        spec["automountServiceAccountToken"] = False
    if server.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in server.image_pull_secrets]
    return spec


def _container(server: Server) -> Object:
    health = {"httpGet": {"path": server.health_path, "port": PORT_NAME}}
    container: Object = {
        "name": server.container,
        "image": server.image,
        "imagePullPolicy": server.image_pull_policy,
        "args": list(server.args),
        "ports": [{"name": PORT_NAME, "containerPort": server.port, "protocol": "TCP"}],
        "startupProbe": {**health, "periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": server.startup_seconds},
        "readinessProbe": {**health, "periodSeconds": 5, "timeoutSeconds": 3, "failureThreshold": 3},
        "livenessProbe": {**health, "periodSeconds": 20, "timeoutSeconds": 5, "failureThreshold": 6},
        "lifecycle": {"preStop": {"sleep": {"seconds": server.drain_seconds}}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        # Puts the last log lines of a container that failed into the pod's status, where the diagnosis reads them.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": CACHE_VOLUME, "mountPath": server.cache.path}],
    }
    optional = {"env": list(server.env), "envFrom": list(server.env_from), "resources": server.resources}
    return container | {field: value for field, value in optional.items() if value}
