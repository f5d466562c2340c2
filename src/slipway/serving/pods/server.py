"""The pods that serve one model, described independently of APIs and engines.

An API maps its spec to a ModelServer with an engine's help, and :mod:`slipway.serving.pods.workload` builds the
Kubernetes objects.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from slipway.kube.objects import Object
from slipway.serving.containers.drain import Drain
from slipway.serving.routing.route import Route


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """A check that the kubelet repeats: an HTTP request or a command in the container. Without a path or a command, the
    kubelet checks whether the port accepts connections. All times are in seconds."""

    port: int = 0
    """The port to check. 0 means the engine's port."""
    path: str = ""
    """HTTP path that returns status 200 if the container is healthy."""
    command: tuple[str, ...] = ()
    """Command that exits with 0 if the container is healthy."""
    period: int
    timeout: int
    failures: int
    """Number of consecutive failures before the kubelet acts."""
    initial_delay: int = 0

    @property
    def failure_window_seconds(self) -> int:
        """The longest time, in seconds, until the kubelet acts on the probe."""
        return self.initial_delay + max(self.timeout, self.period * self.failures)


def failure_window_seconds(probe: Object) -> int:
    """Return the longest time, in seconds, until the kubelet acts on a probe in Kubernetes' format."""
    seconds: int = probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)
    delay: int = probe.get("initialDelaySeconds", 0)
    timeout: int = probe.get("timeoutSeconds", 1)
    return delay + max(timeout, seconds)


class Probes(msgspec.Struct, frozen=True):
    """The checks that decide when a container has started, receives requests, and is restarted."""

    startup: Probe
    readiness: Probe
    liveness: Probe


class Mount(msgspec.Struct, frozen=True):
    """A volume of the pod, or a path inside the volume, that is mounted in a container."""

    volume: str
    path: str
    sub_path: str = ""
    read_only: bool = False


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """A container of the pod. Empty fields use the defaults of the image or of Kubernetes."""

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
    """Additional mounts in Kubernetes' format."""
    readiness: Probe | None = None
    """Readiness probe of a sidecar. The pod receives no requests while the probe fails. None means that the container
    is ready while it runs."""
    security: Object = {}
    """Security context of the container."""


def variables(named: Mapping[str, str]) -> tuple[Object, ...]:
    """Return environment variables, by name, in Kubernetes' format."""
    return tuple({"name": name, "value": value} for name, value in named.items())


class File(msgspec.Struct, frozen=True):
    """A text file at an absolute path in the engine's container. A ConfigMap contains the file."""

    path: str
    content: str


class ModelServer(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the pods of a model need. Unless noted, the Kubernetes objects are in ``namespace`` and called
    ``name``."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    """Labels of the pods and all other objects."""
    selector: Mapping[str, str]
    """Labels that select the pods: a subset of their labels that never changes, because a Deployment's selector is
    immutable."""
    pod_labels: Mapping[str, str] = {}
    """Labels of only the pods. They take precedence over ``labels``."""
    pod_annotations: Mapping[str, str] = {}
    engine: Container
    """The container that serves requests."""
    port: int
    """The port on which the engine listens."""
    probes: Probes
    """The engine's probes. The startup probe's failure window limits the whole start, including the download of the
    weights."""
    probe_overrides: Mapping[str, Object] = {}
    """Probes in Kubernetes' format that replace the engine's, by field name: ``startupProbe``, ``readinessProbe`` or
    ``livenessProbe``."""
    drain: Drain
    """How terminating pods finish their requests."""
    init_containers: tuple[Container, ...] = ()
    """Containers that run to completion, one after another, before the engine starts."""
    sidecars: tuple[Container, ...] = ()
    """Containers that run as long as the engine."""
    volumes: tuple[Object, ...] = ()
    """Volumes in Kubernetes' format; see :mod:`slipway.serving.containers.volumes`."""
    files: tuple[File, ...] = ()
    """Files for the engine. A change of their content replaces the pods, like any change of the spec."""
    image_pull_secrets: tuple[str, ...] = ()
    service_account: str = ""
    """Name of an existing ServiceAccount. If empty, the pods have no token, and use the ServiceAccount of
    ``own_account`` or the namespace's ``default``."""
    own_account: bool = False
    """Whether to create a ServiceAccount called ``name`` if ``service_account`` is empty."""
    device_groups: tuple[int, ...] = ()
    """IDs of the node groups that may open the device files of GPUs. Pods with such GPUs join these groups."""
    security: Object = {}
    """Security context of the pods."""
    scheduling: Object = {}
    """Fields of the pod spec that decide where pods run, such as nodeSelector, affinity, tolerations and
    priorityClassName."""
    own_patches: tuple[Object, ...] = ()
    """The author's JSON patch (RFC 6902) for the finished pod, from the spec field ``jsonPatches``."""
    patches: tuple[Object, ...] = ()
    """The operator's JSON patch for the finished pod, applied after the author's."""
    patches_field: str = "patches"
    """Name of the field with the operator's patch, for messages."""

    @property
    def startup_seconds(self) -> int:
        probe = self.probe_overrides.get("startupProbe")
        return self.probes.startup.failure_window_seconds if probe is None else failure_window_seconds(probe)


class Scale(msgspec.Struct, frozen=True):
    """The desired number of replicas, and how a rollout replaces them."""

    replicas: int | None
    """The desired number of replicas. The value is None if another writer sets the number, which the Deployment then
    keeps."""
    surge: int | None = None
    """Number of pods that a rollout creates before it deletes any. With 0, it deletes a pod first. None means
    Kubernetes' default."""
    recreate: bool = False
    """Whether a rollout deletes all pods before it creates new ones, because the cluster lacks the resources for
    both."""
    revision_history_limit: int = 2
    """Number of old ReplicaSets to keep."""


class ServiceSpec(msgspec.Struct, frozen=True):
    """A Service: an address for the pods that ``selector`` matches, and their route at the gateway."""

    name: str
    selector: Mapping[str, str]
    route: Route
    port: int = 0
    """Port of the Service, which always leads to the engine's port. 0 means the same number as the engine's port."""
    type: str = "ClusterIP"
    node_port: int | None = None
    """The port on every node, for Service types that have one. None means any free port."""
