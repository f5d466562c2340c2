"""Jobs: one container that runs to its end, tried again within bounds. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from slipway.kube.objects import JOB, Object
from slipway.serving.server import Container
from slipway.serving.times import unix_time
from slipway.serving.workload import child, container_spec

NEVER = 3
"""Exit status of a program that will not succeed before somebody has changed something."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What a Job's pod is made of."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    """On the Job and its pods; none that a Service's selector may find."""
    container: Container
    volumes: tuple[Object, ...]
    retries: int
    image_pull_secrets: tuple[str, ...] = ()
    service_account: str = ""
    security: Object = {}
    tolerations: tuple[Object, ...] = ()


def job(task: Task) -> Object:
    """Its pods are kept when they failed, as their last words say why; a node that is drained counts for nothing."""
    pod: Object = {
        "serviceAccountName": task.service_account,
        "securityContext": task.security,
        "restartPolicy": "Never",
        "containers": [container_spec(task.container, task.container.mounts)],
        "volumes": list(task.volumes),
        "tolerations": list(task.tolerations),
        "imagePullSecrets": [{"name": name} for name in task.image_pull_secrets],
    }
    spec = {
        "backoffLimit": task.retries,
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


def ended(made: Object | None, how: str) -> float | None:
    """Unix seconds at which the Job became ``Complete`` or ``Failed``; None: it has not."""
    conditions: Sequence[Object] = (made or {}).get("status", {}).get("conditions") or []
    for condition in conditions:
        if condition["type"] == how and condition["status"] == "True":
            return unix_time(condition["lastTransitionTime"])
    return None
