"""NetworkPolicies that restrict which clients can reach the pods of a server. Pure.

NetworkPolicies are additive: a selected pod accepts whatever at least one of them allows. The policy that closes a
loader's port must allow all other ports, and would thus open ports that a namespace's own policies close. It is
therefore omitted if the namespace has policies of other owners.
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
    """Return the NetworkPolicy for the server's pods, or nothing if they need none. ``policed`` is whether their
    namespace has policies of other owners."""
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
    """Return the NetworkPolicy for several workloads that serve a model together, or nothing if they need none.

    Their pods can reach each other at any port, and clients can reach ``port``. ``selector`` contains labels that all
    their pods have.
    """
    if not settings.network_policies.models:
        return ()
    rules = [{"from": [{"podSelector": {"matchLabels": dict(selector)}}]}, _clients(port, settings)]
    spec = {"podSelector": {"matchLabels": dict(selector)}, "policyTypes": ["Ingress"], "ingress": rules}
    return (child(NETWORK_POLICY, f"{name}-ingress", namespace, selector, spec=spec),)


def namespaces(names: Sequence[str]) -> list[Object]:
    """Return policy peers that select all pods of the namespaces in ``names``. If ``names`` is empty, return no peer,
    because an empty selector would match every namespace."""
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
    """Return a rule that allows all ports except the loader's, from any address. The rule also lists the engine's port
    separately, for networks that do not support port ranges."""
    tcp = [_port(server.port), _port(1, agent.PORT - 1), _port(agent.PORT + 1, LAST_PORT)]
    others = [_port(1, LAST_PORT, protocol) for protocol in ("UDP", "SCTP")]
    return {"ports": [*tcp, *others]}


def _part(name: str, settings: Settings) -> Object:
    """Return a policy peer for the pods of one of Slipway's components. The peer is limited to the controller's
    namespace, because anyone can set the label elsewhere."""
    (here,) = namespaces([settings.system_namespace])
    return {**here, "podSelector": {"matchLabels": {"app.kubernetes.io/name": name}}}


def _port(first: int, last: int | None = None, protocol: str = "TCP") -> Object:
    return {"protocol": protocol, "port": first} | ({} if last is None else {"endPort": last})
