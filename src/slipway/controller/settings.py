"""The controller's settings file, with the operator's settings for the APIs and for the process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from slipway.apis import APIS, DESCRIPTIONS
from slipway.artifacts.locations import address_policy
from slipway.engines import ENGINES
from slipway.kube.objects import Object
from slipway.kube.values.quantity import amount
from slipway.serving.containers import genai_bench
from slipway.serving.contract.api import Api
from slipway.serving.contract.settings import Settings
from slipway.serving.pods.network import PEER_FIELDS
from slipway.serving.routing import claims

IMAGE_PREFIX = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._:@/]*")
ACCELERATORS = ("cuda", "rocm", "vulkan", "intel")
"""Suffixes of image names that select an accelerator."""

NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class LeaderElection(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Namespace and name of the Lease for leader election."""

    namespace: str = "slipway-system"
    name: str = "slipway-controller"


class ControllerSettings(Settings, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The settings of the controller. See :class:`slipway.serving.contract.settings.Settings` for the settings that the
    APIs read."""

    apis: tuple[str, ...] | dict[str, Object] = tuple(api.name for api in DESCRIPTIONS)
    namespaces: tuple[str, ...] = ()
    """The only namespaces to watch. Empty means the whole cluster."""
    leader_election: LeaderElection = LeaderElection()
    listen: str = ":8081"
    """Address ``HOST:PORT`` for health and metrics."""
    workers: int = 8
    """Maximum number of resources of one kind that are reconciled concurrently."""
    gateways: tuple[str, ...] = ()
    """``HOST:PORT`` of each gateway's metrics. Empty means the gateway pods in the system namespace."""

    routed_namespaces: str = ""
    """Label selector of the namespaces whose Services the gateway serves, as in the gateway's settings. Empty means
    all."""
    id_owners: dict[str, str] = msgspec.field(default_factory=dict)
    """Map of a model ID to the only namespace whose Services may have it, as in the gateway's settings."""
    hub_organizations: tuple[str, ...] = ()
    """First parts of model IDs, such as ``meta-llama``, that name an organization of a hub instead of a namespace. The
    roles give controller and gateways the same value."""

    def rules(self) -> claims.Rules:
        """Return the rules for which Service may have which model ID, without the namespaces that the gateway
        serves."""
        return claims.Rules(self.id_owners, frozenset(self.hub_organizations))

    def chosen(self) -> tuple[Api[Any], ...]:
        """Return the APIs to run. An API with several kinds has one object for each. Raise ValueError for an unknown
        name."""
        names = dict.fromkeys(api.name for api in APIS)
        unknown = sorted(set(self.apis) - set(names))
        if unknown:
            raise ValueError(f"apis: unknown API {', '.join(unknown)}. Use {', '.join(names)}")
        return tuple(api for api in APIS if api.name in self.apis)

    def pod_managers(self) -> tuple[str, ...]:
        """Return the values that the pod label ``app.kubernetes.io/managed-by`` may have besides our own name. Some
        APIs keep the original system's value, because users and dashboards select by it."""
        return tuple(api.pod_manager for api in DESCRIPTIONS if api.name in self.apis and api.pod_manager)

    def check(self) -> None:
        """Raise ValueError for a value that has the right type but is invalid."""
        self.chosen()
        for api in DESCRIPTIONS:
            try:
                msgspec.convert(self.of(api.name), api.settings)
            except msgspec.ValidationError as error:
                raise ValueError(f"apis.{api.name}: {error}") from error
        unnamed = next((name for name in self.namespaces if not NAMESPACE.fullmatch(name)), None)
        if unnamed is not None:
            raise ValueError(f"namespaces: {unnamed!r} is not a namespace name")
        wrong = address_policy.faults(self.sources.allowed_remote_hosts)
        if wrong:
            raise ValueError(f"sources.allowedRemoteHosts: {wrong[0]!r} is not a host, *.domain or network")
        for fault in claims.faults(self.id_owners, self.hub_organizations, self.routed_namespaces):
            raise ValueError(fault)
        wrong = address_policy.network_faults(self.sources.blocked_networks)
        if wrong:
            text = f"{wrong[0]!r} is neither a network such as 10.1.0.0/16 nor an address"
            raise ValueError(f"sources.blockedNetworks: {text}")
        roots = self.sources.allowed_host_path_roots
        invalid_root = next((root for root in roots if not root.startswith("/") or ".." in root.split("/")), None)
        if invalid_root is not None:
            raise ValueError(f"sources.allowedHostPathRoots: {invalid_root!r} is not the absolute path of a directory")
        vague = next((one for one in self.authors.image_prefixes if not IMAGE_PREFIX.fullmatch(one)), None)
        if vague is not None:
            raise ValueError(
                f"authors.imagePrefixes: {vague!r} is not a registry or repository. Leave the list empty to allow all"
            )
        odd = next((peer for peer in self.network_policies.clients if not peer or not peer.keys() <= PEER_FIELDS), None)
        if odd is not None:
            raise ValueError(f"networkPolicies.clients: {odd} is not a peer. Use {', '.join(sorted(PEER_FIELDS))}")
        try:
            amount(self.adapters.size)
        except ValueError as error:
            raise ValueError(f"adapters.size: {error}") from error
        image_names = {name for engine in ENGINES for name in (engine, *(f"{engine}-{one}" for one in ACCELERATORS))}
        unknown_name = next((name for name in self.images if name not in {*image_names, genai_bench.COMMAND}), None)
        if unknown_name is not None:
            text = f"Use {', '.join(ENGINES)}, each also with -{', -'.join(ACCELERATORS)}"
            text = f"{text}, or {genai_bench.COMMAND}"
            raise ValueError(f"images: {unknown_name!r} is not an engine. {text}")


def read_settings(path: Path) -> ControllerSettings:
    """Read the settings file. If it names no system namespace, use the namespace of the Lease. Raise ValueError with
    file and key if it is invalid, and OSError if it cannot be read."""
    try:
        settings = msgspec.yaml.decode(path.read_bytes() or b"{}", type=ControllerSettings)
        settings.check()
    except (msgspec.MsgspecError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
    if settings.system_namespace:
        return settings
    return msgspec.structs.replace(settings, system_namespace=settings.leader_election.namespace)
