"""The operator's settings for all APIs, as in the controller's settings file (YAML, camelCase)."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from slipway.kube.objects import Object

PROMETHEUS = ("monitoring", "openshift-monitoring", "openshift-user-workload-monitoring")
"""Namespaces in which Prometheus usually runs."""
PROMETHEUS_SERVER = "http://prometheus-operated.monitoring.svc.cluster.local:9090"
"""Address of the Prometheus operator's Service in its usual namespace."""


class Sources(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which sources of weights a spec may name. These settings matter if the operator does not fully trust the authors
    of specs."""

    allowed_host_path_roots: tuple[str, ...] = ()
    """Node directories that a spec may mount, with their subdirectories, for reading only. If empty, a spec may mount
    no node directory."""
    allowed_remote_hosts: tuple[str, ...] = ()
    """Hosts, ``*.domains`` and networks from which loaders may download although their addresses are not public."""
    blocked_networks: tuple[str, ...] = ()
    """Networks and addresses that loaders never contact, in addition to those that are not public."""
    node_identity: bool = False
    """Whether a loader may read buckets with its node's identity if it has no other credentials. Every author of a spec
    can then read whatever the node can."""

    def options(self, *, guarded: bool, by_env: bool = False, mirror: str = "") -> tuple[str, ...]:
        """Return the loader's command-line arguments for these settings.

        ``guarded`` means that the author of the spec chooses the address. ``by_env`` means that the author also sets
        the environment, which may name proxies. ``mirror`` is the URL of the operator's own hub, which is always
        allowed; empty means none. If ``guarded`` is false, addresses are not restricted.
        """
        allowed = (*self.allowed_remote_hosts, *((urlsplit(mirror).hostname or "",) if mirror else ()))
        rules = (
            *(("--guard",) if guarded else ()),
            *(("--guard-proxy",) if guarded and by_env else ()),
            *(f"--allow-host={host}" for host in allowed if guarded and host),
            *(f"--block-network={network}" for network in self.blocked_networks if guarded),
        )
        return (*rules, *(("--node-identity",) if self.node_identity else ()))


class Loader(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How loaders reach the sources of weights, regardless of the spec."""

    env: dict[str, str] = {}
    """Environment variables of every loader, such as ``HTTPS_PROXY``. Environment variables from a spec or its Secret
    take precedence."""
    ca_config_map: str = ""
    """Name of the ConfigMap, in each model's namespace, whose key ``ca.crt`` has the only certificate authorities that
    loaders trust. Empty means the public certificate authorities."""


class Adapters(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Settings for adapters that are loaded into running engines."""

    size: str = "20Gi"
    """Disk space on the node for all adapters of one pod. While an adapter is updated, both of its versions use it."""


class NetworkPolicies(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which clients can reach the pods of models, if the cluster's network enforces NetworkPolicies."""

    loaders: bool = True
    """Whether only the controller can reach the port of the loader next to an engine. A namespace with its own policies
    is exempt."""
    models: bool = False
    """Whether engines accept requests only from the gateway, Prometheus and ``clients``."""
    prometheus_namespaces: tuple[str, ...] = PROMETHEUS
    """Namespaces in which Prometheus runs."""
    clients: tuple[Object, ...] = ()
    """Additional clients of engines, as NetworkPolicy peers."""


class Authors(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What a spec may request from the cluster. These settings matter if the operator does not fully trust the authors
    of specs.

    The limits do not apply to the operator's own configuration of pods.
    """

    service_accounts: tuple[str, ...] = ()
    """ServiceAccounts that a spec may name, in addition to the namespace's ``default``. ``*`` allows all."""
    image_prefixes: tuple[str, ...] = ()
    """Registries and repositories from which images may come, such as ``ghcr.io/acme``. If empty, images may come from
    anywhere."""
    privileged: bool = False
    """Whether containers may run as root, escalate their privileges, add capabilities, or exceed the Baseline Pod
    Security Standard."""
    any_volume: bool = False
    """Whether pods may have inline CSI volumes, account tokens and volumes that the Restricted standard forbids. Node
    directories always depend on ``Sources.allowed_host_path_roots``."""
    node_ports: bool = False
    """Whether Services may have the types NodePort and LoadBalancer, which bypass the gateway."""
    priority_classes: tuple[str, ...] = ("*",)
    """PriorityClasses that a spec may name. ``*`` allows all that do not begin with ``system-``."""
    preemption: bool = False
    """Whether pods with PriorityClasses created by Slipway may preempt other pods of the cluster."""
    system_namespace: bool = False
    """Whether the controller serves resources in the system namespace."""
    prometheus_servers: tuple[str, ...] = ()
    """Prometheus addresses that KEDA may query for a spec, in addition to the usual address. ``*`` allows all."""
    trigger_authentications: tuple[str, ...] = ()
    """ClusterTriggerAuthentications with which KEDA may query Prometheus for a spec. ``*`` allows all."""
    privileged_models: tuple[str, ...] = ()
    """Authors' models that the operator's runtimes may serve with permissions that authors lack. An entry is
    ``namespace/name``, ``namespace/*`` for all models of a namespace, or ``*`` for all models. Cluster-scoped models
    need no entry."""


class Settings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The operator's settings that an API's plan may need. Parsing rejects unknown keys."""

    apis: tuple[str, ...] | dict[str, Object] = ()
    """The serving APIs to run: their names, or a map of a name to the settings of only that API. If the settings file
    does not have this key, all APIs run. If the value is empty, none does."""
    hugging_face_endpoint: str = ""
    """URL of a mirror of the Hugging Face Hub. Empty means the public Hub."""
    images: dict[str, str] = {}
    """Container images that replace an engine's default. The key is the engine name, optionally with an accelerator,
    such as ``llamacpp-cuda``, or ``genai-bench``."""
    run_as_user: int = 65532
    """User and group ID of the engines' containers. It must not be root's, because of the Restricted Pod Security
    Standard."""
    engine_address: Literal["", "0.0.0.0", "::"] = ""  # noqa: S104 - a pod's own address is not known before it runs
    """Address on which engines listen unless their API sets one. If the settings file has none, the controller uses
    ``::`` in a cluster whose Services primarily use IPv6, and ``0.0.0.0`` otherwise."""
    device_groups: tuple[Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)], ...] = ()
    """IDs of the node groups that may open the device files of AMD and Intel GPUs. Pods with such GPUs join these
    groups."""
    assigned_ids: bool = False
    """Whether the cluster assigns the user and group IDs of pods, as OpenShift does from the namespace's range."""
    disruption_budgets: bool = True
    """Whether servers with several pods get a PodDisruptionBudget. Disable it if you create your own: Kubernetes does
    not evict a pod that has two budgets."""
    drain_seconds: int = 600
    """Seconds that a terminating pod may continue its requests."""
    unschedulable_grace_seconds: int = 30
    """Seconds that a pod may be unschedulable before its model is Failed. A new node may be starting."""
    node_wait_seconds: int = 300
    """Seconds that requests wait for a model that fits no node before the gateway rejects them. A new node may be
    starting."""
    loader_image: str = "slipway/slipway:0.4.0"
    """Image of the program that downloads weights, in Jobs and next to engines that load adapters."""
    system_namespace: str = ""
    """Namespace of Slipway's own components and of the configuration that resources refer to. Empty means the namespace
    of the controller's Lease."""
    sources: Sources = Sources()
    """Which sources of weights a spec may name."""
    authors: Authors = Authors()
    """What else a spec may request from the cluster."""
    loader: Loader = Loader()
    """How loaders reach the sources of weights."""
    adapters: Adapters = Adapters()
    """Settings for adapters that are loaded into running engines."""
    network_policies: NetworkPolicies = NetworkPolicies()
    """Which clients can reach the pods of models."""

    def of(self, api: str) -> Object:
        """Return the raw settings of only the API called ``api``. The result is empty if it has none."""
        own: Object = self.apis.get(api, {}) if isinstance(self.apis, dict) else {}
        return own

    def user(self, user_id: int) -> int | None:
        """Return ``user_id``, or None if the cluster assigns the user IDs of pods."""
        return None if self.assigned_ids else user_id

    def home(self) -> dict[str, str]:
        """Return the environment variable ``HOME`` for an engine whose user ID the cluster assigns, because the image
        has no home directory for that user. The result is empty if the cluster does not assign user IDs."""
        return {"HOME": "/tmp"} if self.assigned_ids else {}  # noqa: S108
