"""Observed: the informers that every API shares, and how what they see leads back to a resource."""

from __future__ import annotations

from collections.abc import Iterable

from slipway.kube.applier import OWNER, by_owner
from slipway.kube.client import Client
from slipway.kube.informer import Informer
from slipway.kube.objects import (
    DEPLOYMENT,
    MANAGED_BY,
    POD,
    SERVICE,
    SERVICE_ACCOUNT,
    Key,
    Kind,
    Object,
    controller_owner,
    key,
    labels,
)
from slipway.serving.route import ROUTE, InvalidRoute, RoutedService, routed_service
from slipway.serving.workload import MANAGER

CHILD_KINDS = (SERVICE_ACCOUNT, SERVICE, DEPLOYMENT)
WORKLOAD = "workload"
"""Index of pods: ``namespace/name`` of their Deployment."""
NAMES = "names"
"""Index of routed Services: the public model names that they ask for."""


class Observed:
    """Stores of children, pods and routed Services; one list and watch a kind, whatever number of APIs read them."""

    def __init__(self, client: Client) -> None:
        mine = f"{MANAGED_BY}={MANAGER}"
        self.children = {kind: Informer(client, kind, labels=mine, indexes={OWNER: by_owner}) for kind in CHILD_KINDS}
        self.pods = Informer(client, POD, labels=mine, indexes={WORKLOAD: _workloads}, trim=_without_spec)
        self.routes = Informer(client, SERVICE, labels=f"{ROUTE}=true", indexes={NAMES: route_names})

    @property
    def informers(self) -> list[Informer]:
        return [*self.children.values(), self.pods, self.routes]

    def pods_of(self, deployments: Iterable[Object]) -> list[Object]:
        """The pods of these Deployments."""
        return [pod for deployment in deployments for pod in self.pods.store.by_index(WORKLOAD, str(key(deployment)))]

    def rivals(self, names: Iterable[str]) -> list[RoutedService]:
        """The Services that ask for any of these public names."""
        found = {key(service): service for name in names for service in self.routes.store.by_index(NAMES, name)}
        return [routed_service(service) for service in found.values()]

    def owner_of_pod(self, kind: Kind, pod: Object) -> list[Key]:
        """The resource of ``kind`` whose Deployment made the pod."""
        deployments = (self.children[DEPLOYMENT].store.get(_key(name)) for name in _workloads(pod))
        return [owner for deployment in deployments if deployment for owner in _owners(kind, deployment)]

    def owners_of_rivals(self, kind: Kind, service: Object) -> list[Key]:
        """The resources of ``kind`` that a change of this routed Service may give a name or take it from."""
        services = (rival for name in route_names(service) for rival in self.routes.store.by_index(NAMES, name))
        return [owner for rival in services for owner in _owners(kind, rival)]


def _owners(kind: Kind, child: Object) -> list[Key]:
    owner = controller_owner(child)
    if owner is None or (owner.api_version, owner.kind) != (kind.api_version, kind.kind):
        return []
    return [Key(key(child).namespace, owner.name)]


def _key(text: str) -> Key:
    return Key(*text.split("/", 1))


def _workloads(pod: Object) -> Iterable[str]:
    """A Deployment's ReplicaSets are named after it and their template's hash, which their pods carry as a label."""
    owner, template = controller_owner(pod), labels(pod).get("pod-template-hash", "")
    if owner is None or owner.kind != "ReplicaSet" or not template:
        return []
    return [f"{pod['metadata']['namespace']}/{owner.name.removesuffix(f'-{template}')}"]


def route_names(child: Object) -> Iterable[str]:
    """The public model names that a Service asks for; none where it does not take part or its route cannot be read."""
    if ROUTE not in labels(child):
        return []
    try:
        return routed_service(child).route.models
    except InvalidRoute:
        return []


def _without_spec(pod: Object) -> Object:
    return {field: value for field, value in pod.items() if field != "spec"}
