"""ModelServer: the pods that serve one model, described independently of APIs and engines.

An API maps its spec to a ModelServer with the help of an engine, and :mod:`slipway.serving.pods.workload` creates the
objects.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from slipway.kube.objects import Object
from slipway.serving.containers.drain import Drain
from slipway.serving.routing.route import Route


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """A check that the kubelet repeats: an HTTP path of the container's port, a command in it, or otherwise whether the
    port accepts connections. All times are seconds."""

    port: int = 0
    """0: the engine's."""
    path: str = ""
    """Answers 200 when all is well."""
    command: tuple[str, ...] = ()
    """Ends with 0 when all is well."""
    period: int
    timeout: int
    failures: int
    """In a row, until the kubelet acts."""
    initial_delay: int = 0

    @property
    def failure_window_seconds(self) -> int:
        """After how many seconds at most the kubelet has given up."""
        return self.initial_delay + max(self.timeout, self.period * self.failures)


def failure_window_seconds(probe: Object) -> int:
    """The same of a probe as Kubernetes writes it."""
    seconds: int = probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)
    delay: int = probe.get("initialDelaySeconds", 0)
    timeout: int = probe.get("timeoutSeconds", 1)
    return delay + max(timeout, seconds)


class Probes(msgspec.Struct, frozen=True):
    """When a container has started, when it gets requests, and when it is restarted."""

    startup: Probe
    readiness: Probe
    liveness: Probe


class Mount(msgspec.Struct, frozen=True):
    """A volume of the pod, or one path inside it, as a container sees it."""

    volume: str
    path: str
    sub_path: str = ""
    read_only: bool = False


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the pod. Empty fields are left to the image, or to Kubernetes."""

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
    """As Kubernetes writes them."""
    readiness: Probe | None = None
    """Of a container beside the engine; the pod gets no requests while it fails. None: ready as long as it runs."""
    security: Object = {}
    """Security context."""


def variables(named: Mapping[str, str]) -> tuple[Object, ...]:
    """Environment variables as a container has them."""
    return tuple({"name": name, "value": value} for name, value in named.items())


class File(msgspec.Struct, frozen=True):
    """A text that the engine finds at an absolute path. Kept in a ConfigMap."""

    path: str
    content: str


class ModelServer(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the pods of a model need. Its objects are in ``namespace`` and have the name ``name`` unless
    noted."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    """On every object and on the pods."""
    selector: Mapping[str, str]
    """Finds the pods; a subset of the pods' labels that never changes, since a Deployment's selector cannot."""
    pod_labels: Mapping[str, str] = {}
    """On the pods alone, whatever the labels above say."""
    pod_annotations: Mapping[str, str] = {}
    engine: Container
    """The container that answers requests."""
    port: int
    """Of the engine."""
    probes: Probes
    """Of the engine. The startup probe's failure window is what a start may take, the download of the weights
    included."""
    probe_overrides: Mapping[str, Object] = {}
    """``startupProbe``, ``readinessProbe`` or ``livenessProbe`` -> one as Kubernetes writes it, in place of that."""
    drain: Drain
    """How its pods finish what they have begun."""
    init_containers: tuple[Container, ...] = ()
    """Run one after another, to their ends, before the engine starts."""
    sidecars: tuple[Container, ...] = ()
    """Run as long as the engine does."""
    volumes: tuple[Object, ...] = ()
    """As in a pod; see :mod:`slipway.serving.containers.volumes`."""
    files: tuple[File, ...] = ()
    """Of the engine. Other contents are another spec, so that they replace the pods."""
    image_pull_secrets: tuple[str, ...] = ()
    service_account: str = ""
    """An existing ServiceAccount. Empty: one without permissions, and no token in the pods."""
    own_account: bool = False
    """Whether a ServiceAccount called ``name`` is made, where none is given."""
    device_groups: tuple[int, ...] = ()
    """Groups that may open the device files of GPUs; pods with such GPUs are members."""
    security: Object = {}
    """Security context of the pods."""
    scheduling: Object = {}
    """Fields of the pods' spec that say where they run: nodeSelector, affinity, tolerations, priorityClassName ..."""
    own_patches: tuple[Object, ...] = ()
    """JSON patch (RFC 6902) of the pod that all this makes, the author's, in the spec's field ``jsonPatches``."""
    patches: tuple[Object, ...] = ()
    """The same of the operator, whose word is the last."""
    patches_field: str = "patches"
    """Where the operator wrote it, for messages."""

    @property
    def startup_seconds(self) -> int:
        given = self.probe_overrides.get("startupProbe")
        return self.probes.startup.failure_window_seconds if given is None else failure_window_seconds(given)


class Scale(msgspec.Struct, frozen=True):
    """The desired replicas, and how they are replaced."""

    replicas: int | None
    """None: somebody else says it, and the Deployment keeps what it has."""
    surge: int | None = None
    """Pods that a rollout makes before it takes one away; 0: it takes away first. None: Kubernetes' default."""
    recreate: bool = False
    """Whether a rollout takes all pods away before it makes new ones, as there is not enough of something for both."""
    revision_history_limit: int = 2
    """Former ReplicaSets that are kept."""


class ServiceSpec(msgspec.Struct, frozen=True):
    """A Service: a name for the pods that ``selector`` finds, and its route at the gateway."""

    name: str
    selector: Mapping[str, str]
    route: Route
    port: int = 0
    """0: the engine's. Whatever it is, it leads to that."""
    type: str = "ClusterIP"
    node_port: int | None = None
    """Of every node, for types that have one; None: one that is free."""
