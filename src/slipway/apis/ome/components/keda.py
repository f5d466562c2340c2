"""KEDA: a ScaledObject that scales a workload by a Prometheus query. Pure.

KEDA is optional. If the cluster does not have KEDA, a condition of the service reports that (see ``Watch.optional``).
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import msgspec

from slipway.kube.objects import SCALED_OBJECT, Kind, Object
from slipway.serving.contract.settings import PROMETHEUS_SERVER
from slipway.serving.pods.policies import PolicySubject
from slipway.serving.pods.workload import child

INSTALLED_BY = "KEDA, https://keda.sh"
"""The product to install if the cluster has no ScaledObject kind, for messages."""
OPERATORS = ("GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual")
AUTH_MODES = ("basic", "tls", "bearer", "custom")
NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,3})?", re.ASCII)
MAX_QUOTED = 64
"""Maximum number of characters of an invalid value that a message quotes."""


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """A KEDA trigger: a Prometheus query, and the threshold for its result."""

    server: str = PROMETHEUS_SERVER
    query: str
    metric: str
    """Name under which KEDA publishes the query's result."""
    threshold: str = "10"
    operator: str = "LessThanOrEqual"
    authentication: Object | None = None
    """``name`` and ``kind`` of the TriggerAuthentication or ClusterTriggerAuthentication, if any."""
    auth_modes: str = ""
    """Authentication modes for Prometheus, separated by commas."""

    def fault(self) -> str:
        """Return the problem with the first field that KEDA would reject, or an empty string if all fields are
        valid."""
        modes = [one.strip() for one in self.auth_modes.split(",")] if self.auth_modes else []
        unknown = next((one for one in modes if one not in AUTH_MODES), None)
        if self.operator not in OPERATORS:
            return f"the operator {self.operator[:MAX_QUOTED]!r} is not one of {', '.join(OPERATORS)}"
        if not NUMBER.fullmatch(self.threshold):
            return f"the threshold {self.threshold[:MAX_QUOTED]!r} is not a number"
        if not _address(self.server):
            return f"{self.server[:MAX_QUOTED]!r} is not a Prometheus URL such as {PROMETHEUS_SERVER}"
        return (
            ""
            if unknown is None
            else f"{unknown[:MAX_QUOTED]!r} is not an authentication mode: use {', '.join(AUTH_MODES)}"
        )


def scaled_object(name: str, served: PolicySubject, kind: Kind, lowest: int, highest: int, trigger: Trigger) -> Object:
    """Build the ScaledObject ``name``, with which KEDA scales a workload of the given ``kind`` between ``lowest`` and
    ``highest`` replicas. ``served``: name, namespace and labels of the workload."""
    metadata = {
        "serverAddress": trigger.server,
        "metricName": trigger.metric,
        "query": trigger.query,
        "threshold": trigger.threshold,
        "operator": trigger.operator,
        "authModes": trigger.auth_modes,
    }
    prometheus: Object = {"type": "prometheus", "metadata": {field: text for field, text in metadata.items() if text}}
    spec = {
        "scaleTargetRef": {"apiVersion": kind.api_version, "kind": kind.kind, "name": served.name},
        "minReplicaCount": lowest,
        "maxReplicaCount": highest,
        "triggers": [prometheus | ({"authenticationRef": trigger.authentication} if trigger.authentication else {})],
    }
    return child(SCALED_OBJECT, name, served.namespace, served.labels, spec=spec)


def _address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False
