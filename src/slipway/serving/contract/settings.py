"""Settings: the operator's settings for all APIs, from the controller's settings file (YAML, camelCase)."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from slipway.kube.objects import Object

PROMETHEUS = ("monitoring", "openshift-monitoring", "openshift-user-workload-monitoring")
"""Namespaces in which Prometheus usually runs."""
PROMETHEUS_SERVER = "http://prometheus-operated.monitoring.svc.cluster.local:9090"
"""Where the Prometheus operator's Service answers in its usual namespace."""


class Sources(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which weights a spec may name, where whoever writes specs is trusted less than the operator."""

    allowed_host_path_roots: tuple[str, ...] = ()
    """Folders of the nodes below which files may be named. Empty: none may."""
    allowed_remote_hosts: tuple[str, ...] = ()
    """Hosts, ``*.domains`` and networks that may be named although their addresses are not public."""
    blocked_networks: tuple[str, ...] = ()
    """Networks and addresses that are never contacted for weights, beside those that are not public."""
    node_identity: bool = False
    """Whether a loader may read buckets as the node that it runs on, where nobody else is named. What that node may
    read every author of a spec can then read, too."""

    def options(self, *, guarded: bool, by_env: bool = False, mirror: str = "") -> tuple[str, ...]:
        """What a loader is told of them. ``guarded``: whoever wrote the spec may say where it asks; ``by_env``: by its
        environment, too, where proxies are named. ``mirror``: address of the operator's own hub, which is allowed."""
        allowed = (*self.allowed_remote_hosts, *((urlsplit(mirror).hostname or "",) if mirror else ()))
        rules = (
            *(("--guard",) if guarded else ()),
            *(("--guard-proxy",) if guarded and by_env else ()),
            *(f"--allow-host={host}" for host in allowed if guarded and host),
            *(f"--block-network={network}" for network in self.blocked_networks if guarded),
        )
        return (*rules, *(("--node-identity",) if self.node_identity else ()))


class Loader(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How loaders reach the sources of weights, whatever a spec says of them."""

    env: dict[str, str] = {}
    """Variables of every loader, such as ``HTTPS_PROXY``. Those that a spec or its Secret gives go before."""
    ca_config_map: str = ""
    """ConfigMap in the namespace of each model whose key ``ca.crt`` has the certificate authorities that loaders trust,
    and no others. Empty: the public ones."""


class Adapters(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Adapters that are loaded into running engines."""

    size: str = "20Gi"
    """What those of one pod may have together on the node's disk. Another version of one lies beside it for a while."""


class NetworkPolicies(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Who reaches the pods of models, as far as the cluster's network enforces NetworkPolicies."""

    loaders: bool = True
    """Whether the port of a loader beside an engine is closed for all but the controller, where a namespace has no
    policies of its own."""
    models: bool = False
    """Whether engines take requests from the gateway, Prometheus and ``clients`` only."""
    prometheus_namespaces: tuple[str, ...] = PROMETHEUS
    """Where Prometheus runs."""
    clients: tuple[Object, ...] = ()
    """Further clients of engines: peers, as in a NetworkPolicy."""


class Authors(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What a spec may ask of the cluster, where whoever writes specs is trusted less than the operator.

    What the operator's own configuration puts into pods is not bound by it.
    """

    service_accounts: tuple[str, ...] = ()
    """ServiceAccounts that may be named, beside the namespace's ``default``; ``*``: all."""
    image_prefixes: tuple[str, ...] = ()
    """Registries and repositories that images may be of, such as ``ghcr.io/acme``. Empty: any."""
    privileged: bool = False
    """Whether containers may be root or get more of the node than the Baseline Pod Security Standard gives."""
    any_volume: bool = False
    """Whether pods may have volumes beyond the Restricted standard, inline CSI volumes and tokens of accounts.
    Folders of nodes are always a matter of ``Sources.allowed_host_path_roots``."""
    node_ports: bool = False
    """Whether Services may be of the types NodePort and LoadBalancer, which lead past the gateway."""
    priority_classes: tuple[str, ...] = ("*",)
    """PriorityClasses that may be named; ``*``: all but those that begin with ``system-``."""
    preemption: bool = False
    """Whether the PriorityClasses that slipway makes have other pods of the cluster put off their nodes."""
    system_namespace: bool = False
    """Whether anything is served in the system namespace."""
    prometheus_servers: tuple[str, ...] = ()
    """Addresses of Prometheus that KEDA may query for a spec, in addition to the usual one; ``*``: all."""
    trigger_authentications: tuple[str, ...] = ()
    """ClusterTriggerAuthentications with which KEDA may query Prometheus for a spec; ``*``: all."""
    privileged_models: tuple[str, ...] = ()
    """Authors' models that the operator's runtimes may serve with rights that authors do not have: ``namespace/name``;
    ``namespace/*``: all of one namespace; ``*``: all. Cluster-scoped models need no entry."""


class Settings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What an API's plan may need to know of the cluster's operator. Unknown keys are refused, naming the key."""

    apis: tuple[str, ...] | dict[str, Object] = ()
    """The serving APIs to run, all by default: their names, or name -> settings that only this API has."""
    hugging_face_endpoint: str = ""
    """URL of a mirror of the Hugging Face hub; empty: the public one."""
    images: dict[str, str] = {}
    """Engine name, or with an accelerator as ``llamacpp-cuda`` -> container image, where it is not to be the engine's
    own default."""
    run_as_user: int = 65532
    """User and group of the engines' containers; not root, as the restricted Pod Security Standard asks."""
    engine_address: Literal["", "0.0.0.0", "::"] = ""  # noqa: S104 - a pod's own address is not known before it runs
    """Address that engines listen on where their API does not say it. Empty in the file: ``::`` in a cluster whose
    Services have IPv6 addresses first, ``0.0.0.0`` in others."""
    device_groups: tuple[Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)], ...] = ()
    """Groups of the nodes that may open the device files of AMD and Intel GPUs; pods with such GPUs are members."""
    assigned_ids: bool = False
    """Whether the cluster assigns users and groups of pods, as OpenShift does from the namespace's range."""
    disruption_budgets: bool = True
    """Whether servers of several pods are given budgets. False where they have others': Kubernetes evicts no pod with
    two."""
    drain_seconds: int = 600
    """How long a terminating pod may go on with its requests."""
    unschedulable_grace_seconds: int = 30
    """How long a pod may stay unschedulable, since a node may be starting, before its model is Failed."""
    node_wait_seconds: int = 300
    """How long requests wait for a model that no node takes, since a node may be starting, before they are refused."""
    loader_image: str = "slipway/slipway:0.4.0"
    """Image of the program that fetches weights, in Jobs and beside engines that load adapters."""
    system_namespace: str = ""
    """Where the configuration that resources refer to lies; empty: the namespace of the controller's Lease."""
    sources: Sources = Sources()
    """Which weights a spec may name."""
    authors: Authors = Authors()
    """What else a spec may ask for."""
    loader: Loader = Loader()
    """How loaders reach the sources of weights."""
    adapters: Adapters = Adapters()
    """Adapters that are loaded into running engines."""
    network_policies: NetworkPolicies = NetworkPolicies()
    """Who reaches the pods of models."""

    def of(self, api: str) -> Object:
        """The settings that only this API has, as they are written."""
        own: Object = self.apis.get(api, {}) if isinstance(self.apis, dict) else {}
        return own

    def user(self, user_id: int) -> int | None:
        """The user that a pod runs as; None: the cluster assigns one."""
        return None if self.assigned_ids else user_id

    def home(self) -> dict[str, str]:
        """Variables for an engine whose user the cluster assigns: images have no home folder for that user."""
        return {"HOME": "/tmp"} if self.assigned_ids else {}  # noqa: S108
