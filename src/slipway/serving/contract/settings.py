"""Settings: the operator's settings for all APIs, from the controller's settings file (YAML, camelCase)."""

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
    """Which weights a spec may name, if authors of specs are trusted less than the operator."""

    allowed_host_path_roots: tuple[str, ...] = ()
    """Node directories below which files may be named. Empty: none."""
    allowed_remote_hosts: tuple[str, ...] = ()
    """Hosts, ``*.domains`` and networks that may be named although their addresses are not public."""
    blocked_networks: tuple[str, ...] = ()
    """Networks and addresses that are never contacted for weights, in addition to those that are not public."""
    node_identity: bool = False
    """Whether a loader may read buckets with its node's identity if no other credentials are given. Every author of a
    spec can then read whatever the node can."""

    def options(self, *, guarded: bool, by_env: bool = False, mirror: str = "") -> tuple[str, ...]:
        """Returns the loader's arguments for these settings. ``guarded``: the author of the spec chooses the address;
        ``by_env``: the author also sets the environment, which may name proxies. ``mirror``: address of the operator's
        own hub, which is allowed."""
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
    """Environment variables of every loader, such as ``HTTPS_PROXY``. Those from a spec or its Secret take
    precedence."""
    ca_config_map: str = ""
    """ConfigMap in each model's namespace whose key ``ca.crt`` has the only certificate authorities that loaders trust.
    Empty: the public ones."""


class Adapters(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Adapters that are loaded into running engines."""

    size: str = "20Gi"
    """Disk space on the node for all adapters of one pod. During an update, two versions of an adapter use it."""


class NetworkPolicies(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which clients can reach the pods of models, if the cluster's network enforces NetworkPolicies."""

    loaders: bool = True
    """Whether only the controller can reach the port of a loader next to an engine, unless a namespace has its own
    policies."""
    models: bool = False
    """Whether engines accept requests only from the gateway, Prometheus and ``clients``."""
    prometheus_namespaces: tuple[str, ...] = PROMETHEUS
    """Namespaces in which Prometheus runs."""
    clients: tuple[Object, ...] = ()
    """Further clients of engines, as NetworkPolicy peers."""


class Authors(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What a spec may request from the cluster, if authors of specs are trusted less than the operator.

    These limits do not apply to the operator's own configuration of pods.
    """

    service_accounts: tuple[str, ...] = ()
    """ServiceAccounts that may be named, in addition to the namespace's ``default``; ``*``: all."""
    image_prefixes: tuple[str, ...] = ()
    """Registries and repositories from which images may come, such as ``ghcr.io/acme``. Empty: any."""
    privileged: bool = False
    """Whether containers may run as root or exceed the Baseline Pod Security Standard."""
    any_volume: bool = False
    """Whether pods may have volumes beyond the Restricted standard, inline CSI volumes and account tokens. Node
    directories always depend on ``Sources.allowed_host_path_roots``."""
    node_ports: bool = False
    """Whether Services may have the types NodePort and LoadBalancer, which bypass the gateway."""
    priority_classes: tuple[str, ...] = ("*",)
    """PriorityClasses that may be named; ``*``: all that do not begin with ``system-``."""
    preemption: bool = False
    """Whether the PriorityClasses created by Slipway may preempt other pods of the cluster."""
    system_namespace: bool = False
    """Whether resources in the system namespace are served."""
    prometheus_servers: tuple[str, ...] = ()
    """Addresses of Prometheus that KEDA may query for a spec, in addition to the usual one; ``*``: all."""
    trigger_authentications: tuple[str, ...] = ()
    """ClusterTriggerAuthentications with which KEDA may query Prometheus for a spec; ``*``: all."""
    privileged_models: tuple[str, ...] = ()
    """Models of authors that the operator's runtimes may serve with permissions that authors lack: ``namespace/name``;
    ``namespace/*``: all of one namespace; ``*``: all. Cluster-scoped models need no entry."""


class Settings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The operator's settings that an API's plan may need. Unknown keys are rejected by name."""

    apis: tuple[str, ...] | dict[str, Object] = ()
    """The serving APIs to run (default: all): their names, or name -> settings of only this API."""
    hugging_face_endpoint: str = ""
    """URL of a mirror of the Hugging Face Hub; empty: the public Hub."""
    images: dict[str, str] = {}
    """Engine name, optionally with an accelerator as in ``llamacpp-cuda`` -> container image, to replace the engine's
    default."""
    run_as_user: int = 65532
    """User and group of the engines' containers; not root, as the Restricted Pod Security Standard requires."""
    engine_address: Literal["", "0.0.0.0", "::"] = ""  # noqa: S104 - a pod's own address is not known before it runs
    """Address on which engines listen unless their API sets it. Empty in the file: ``::`` in a cluster whose Services
    primarily use IPv6, otherwise ``0.0.0.0``."""
    device_groups: tuple[Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)], ...] = ()
    """Node groups that may open the device files of AMD and Intel GPUs; pods with such GPUs are members."""
    assigned_ids: bool = False
    """Whether the cluster assigns the users and groups of pods, as OpenShift does from the namespace's range."""
    disruption_budgets: bool = True
    """Whether servers with several pods get disruption budgets. Disable this if other budgets exist: Kubernetes evicts
    no pod that has two."""
    drain_seconds: int = 600
    """How long a terminating pod may continue its requests."""
    unschedulable_grace_seconds: int = 30
    """How long a pod may be unschedulable before its model is Failed, because a node may be starting."""
    node_wait_seconds: int = 300
    """How long requests wait for a model that fits no node before they are rejected, because a node may be starting."""
    loader_image: str = "slipway/slipway:0.4.0"
    """Image of the program that downloads weights, in Jobs and next to engines that load adapters."""
    system_namespace: str = ""
    """Namespace of the configuration that resources refer to; empty: the namespace of the controller's Lease."""
    sources: Sources = Sources()
    """Which weights a spec may name."""
    authors: Authors = Authors()
    """What else a spec may request."""
    loader: Loader = Loader()
    """How loaders reach the sources of weights."""
    adapters: Adapters = Adapters()
    """Adapters that are loaded into running engines."""
    network_policies: NetworkPolicies = NetworkPolicies()
    """Which clients can reach the pods of models."""

    def of(self, api: str) -> Object:
        """Returns the raw settings of only this API."""
        own: Object = self.apis.get(api, {}) if isinstance(self.apis, dict) else {}
        return own

    def user(self, user_id: int) -> int | None:
        """Returns the user of a pod; None: the cluster assigns one."""
        return None if self.assigned_ids else user_id

    def home(self) -> dict[str, str]:
        """Returns variables for an engine whose user the cluster assigns, because images have no home directory for
        that user."""
        return {"HOME": "/tmp"} if self.assigned_ids else {}  # noqa: S108
