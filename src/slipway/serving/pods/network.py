"""Network: restricts the clients that can reach the pods of a server, with a NetworkPolicy. Pure.

Policies are additive: a selected pod accepts whatever any of them allows. The policy that closes a loader's port must
allow all other ports, which would open ports that a namespace's own policies close. It is therefore omitted if the
namespace has policies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slipway.kube.objects import NETWORK_POLICY, Object
from slipway.serving.contract.settings import Settings
from slipway.serving.pods.server import ModelServer
from slipway.serving.pods.workload import child
from slipway.serving.wire import agent

CONTROLLER, GATEWAY = "slipway-controller", "slipway-gateway"
PEER_FIELDS = frozenset({"namespaceSelector", "podSelector", "ipBlock"})
LAST_PORT = 65535


def ingress(server: ModelServer, settings: Settings, *, policed: bool) -> tuple[Object, ...]:
    """Returns the policy for the server's pods, if they need one. ``policed``: whether their namespace has policies of
    other owners."""
    loader = any(container.name == agent.CONTAINER for container in server.sidecars)
    chosen = settings.network_policies
    if chosen.models:
        rules = [*_orders(settings, loader=loader), _clients(server.port, settings)]
    elif loader and chosen.loaders and not policed:
        rules = [*_orders(settings, loader=True), _all_but_orders(server)]
    else:
        return ()
    spec = {"podSelector": {"matchLabels": dict(server.selector)}, "policyTypes": ["Ingress"], "ingress": rules}
    return (child(NETWORK_POLICY, f"{server.name}-ingress", server.namespace, server.labels, spec=spec),)


def among(name: str, namespace: str, selector: Mapping[str, str], port: int, settings: Settings) -> tuple[Object, ...]:
    """Returns the policy for several workloads that answer together, if they need one: their pods reach each other at
    any port, and clients reach this one. ``selector``: labels of all their pods."""
    if not settings.network_policies.models:
        return ()
    rules = [{"from": [{"podSelector": {"matchLabels": dict(selector)}}]}, _clients(port, settings)]
    spec = {"podSelector": {"matchLabels": dict(selector)}, "policyTypes": ["Ingress"], "ingress": rules}
    return (child(NETWORK_POLICY, f"{name}-ingress", namespace, selector, spec=spec),)


def namespaces(names: Sequence[str]) -> list[Object]:
    """Returns peers that select all pods of these namespaces. Without names there is no peer, because an empty selector
    would match every namespace."""
    if not names:
        return []
    named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(names)}
    return [{"namespaceSelector": {"matchExpressions": [named]}}]


def _orders(settings: Settings, *, loader: bool) -> list[Object]:
    peers = [_part(CONTROLLER, settings)]
    return [{"from": peers, "ports": [_port(agent.PORT)]}] if loader else []


def _clients(port: int, settings: Settings) -> Object:
    chosen = settings.network_policies
    peers = [_part(GATEWAY, settings), *namespaces(chosen.prometheus_namespaces), *chosen.clients]
    return {"from": peers, "ports": [_port(port)]}


def _all_but_orders(server: ModelServer) -> Object:
    """Returns a rule for all ports except the loader's, from anywhere. It also lists the engine's port separately, for
    networks that do not support port ranges."""
    tcp = [_port(server.port), _port(1, agent.PORT - 1), _port(agent.PORT + 1, LAST_PORT)]
    others = [_port(1, LAST_PORT, protocol) for protocol in ("UDP", "SCTP")]
    return {"ports": [*tcp, *others]}


def _part(name: str, settings: Settings) -> Object:
    """Returns a peer for the pods of one of Slipway's components. It is limited to the controller's namespace, because
    the label proves nothing elsewhere."""
    (here,) = namespaces([settings.system_namespace])
    return {**here, "podSelector": {"matchLabels": {"app.kubernetes.io/name": name}}}


def _port(first: int, last: int | None = None, protocol: str = "TCP") -> Object:
    return {"protocol": protocol, "port": first} | ({} if last is None else {"endPort": last})
