"""ModelServer: the pods that serve one model, described independently of APIs and engines.

With an engine's help, an API maps its spec to a ModelServer, and :mod:`slipway.serving.pods.workload` creates the
objects.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from slipway.kube.objects import Object
from slipway.serving.containers.drain import Drain
from slipway.serving.routing.route import Route


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """A check that the kubelet repeats: an HTTP path, a command in the container or, without either, whether the port
    accepts connections. All times are in seconds."""

    port: int = 0
    """0: the engine's port."""
    path: str = ""
    """Returns status 200 if all is well."""
    command: tuple[str, ...] = ()
    """Exits with 0 if all is well."""
    period: int
    timeout: int
    failures: int
    """Consecutive failures before the kubelet acts."""
    initial_delay: int = 0

    @property
    def failure_window_seconds(self) -> int:
        """The longest time until the kubelet gives up, in seconds."""
        return self.initial_delay + max(self.timeout, self.period * self.failures)


def failure_window_seconds(probe: Object) -> int:
    """Returns the same value for a probe in Kubernetes' format."""
    seconds: int = probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)
    delay: int = probe.get("initialDelaySeconds", 0)
    timeout: int = probe.get("timeoutSeconds", 1)
    return delay + max(timeout, seconds)


class Probes(msgspec.Struct, frozen=True):
    """The checks that decide when a container has started, gets requests, and is restarted."""

    startup: Probe
    readiness: Probe
    liveness: Probe


class Mount(msgspec.Struct, frozen=True):
    """A volume of the pod, or a path inside it, mounted in a container."""

    volume: str
    path: str
    sub_path: str = ""
    read_only: bool = False


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the pod. Empty fields use the defaults of the image or of Kubernetes."""

    name: str
    image: str
    image_pull_policy: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Object, ...] = ()
    env_from: tuple[Object, ...] = ()
    resources: Object = {}
    mounts: tuple[Mount, ...] = ()
    further_mounts: tuple[Object, ...] = ()
    """Mounts in Kubernetes' format."""
    readiness: Probe | None = None
    """Readiness of a container next to the engine; the pod gets no requests while it fails. None: ready while it
    runs."""
    security: Object = {}
    """Security context."""


def variables(named: Mapping[str, str]) -> tuple[Object, ...]:
    """Returns environment variables in Kubernetes' format."""
    return tuple({"name": name, "value": value} for name, value in named.items())


class File(msgspec.Struct, frozen=True):
    """A text file at an absolute path in the engine's container. Stored in a ConfigMap."""

    path: str
    content: str


class ModelServer(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the pods of a model need. Unless noted, its objects are in ``namespace`` and called ``name``."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    """Labels of every object and of the pods."""
    selector: Mapping[str, str]
    """Selects the pods: a subset of their labels that never changes, because a Deployment's selector is immutable."""
    pod_labels: Mapping[str, str] = {}
    """Labels of only the pods, which take precedence over ``labels``."""
    pod_annotations: Mapping[str, str] = {}
    engine: Container
    """The container that answers requests."""
    port: int
    """The engine's port."""
    probes: Probes
    """The engine's probes. The startup probe's failure window limits the whole start, including the download of the
    weights."""
    probe_overrides: Mapping[str, Object] = {}
    """``startupProbe``, ``readinessProbe`` or ``livenessProbe`` -> a replacement in Kubernetes' format."""
    drain: Drain
    """How its pods finish their requests."""
    init_containers: tuple[Container, ...] = ()
    """Containers that run to completion, one after another, before the engine starts."""
    sidecars: tuple[Container, ...] = ()
    """Containers that run as long as the engine."""
    volumes: tuple[Object, ...] = ()
    """Volumes in Kubernetes' format; see :mod:`slipway.serving.containers.volumes`."""
    files: tuple[File, ...] = ()
    """Files of the engine. A change of their content replaces the pods, like any change of the spec."""
    image_pull_secrets: tuple[str, ...] = ()
    service_account: str = ""
    """An existing ServiceAccount. Empty: an account without permissions, and no token in the pods."""
    own_account: bool = False
    """Whether to create a ServiceAccount called ``name`` if none is given."""
    device_groups: tuple[int, ...] = ()
    """Groups that may open the device files of GPUs; pods with such GPUs are members."""
    security: Object = {}
    """Security context of the pods."""
    scheduling: Object = {}
    """Fields of the pod spec that decide where pods run: nodeSelector, affinity, tolerations, priorityClassName ..."""
    own_patches: tuple[Object, ...] = ()
    """The author's JSON patch (RFC 6902) of the finished pod, from the spec's field ``jsonPatches``."""
    patches: tuple[Object, ...] = ()
    """The operator's JSON patch, which is applied last."""
    patches_field: str = "patches"
    """Field of the operator's patch, for messages."""

    @property
    def startup_seconds(self) -> int:
        probe = self.probe_overrides.get("startupProbe")
        return self.probes.startup.failure_window_seconds if probe is None else failure_window_seconds(probe)


class Scale(msgspec.Struct, frozen=True):
    """The desired replicas, and how they are replaced."""

    replicas: int | None
    """None: another writer sets it, and the Deployment keeps its number."""
    surge: int | None = None
    """Pods that a rollout creates before it deletes any; 0: it deletes first. None: Kubernetes' default."""
    recreate: bool = False
    """Whether a rollout deletes all pods before it creates new ones, because there are not enough resources for
    both."""
    revision_history_limit: int = 2
    """Number of old ReplicaSets to keep."""


class ServiceSpec(msgspec.Struct, frozen=True):
    """A Service: an address for the pods that ``selector`` matches, and its route at the gateway."""

    name: str
    selector: Mapping[str, str]
    route: Route
    port: int = 0
    """0: the engine's port. Any value leads to the engine's port."""
    type: str = "ClusterIP"
    node_port: int | None = None
    """The port on every node, for types that have one; None: any free port."""
