"""Observed: the informers that every API shares, and how what they see leads back to a resource."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from functools import partial

from slipway.kube.applier import OWNER, by_owner
from slipway.kube.client import Client
from slipway.kube.informer import Informer
from slipway.kube.namespaces import ChosenNamespaces
from slipway.kube.objects import (
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    MANAGED_BY,
    NAMESPACE,
    NETWORK_POLICY,
    NODE,
    POD,
    SERVICE,
    Key,
    Kind,
    Object,
    controller_owner,
    deleting,
    key,
    labels,
)
from slipway.kube.store import Change, IndexFunction
from slipway.serving.claims import DEFAULT, Rules, only_name
from slipway.serving.diagnosis import TEMPLATE
from slipway.serving.plan import USES, Api, Reference
from slipway.serving.route import MOST_BYTES, ROUTE, InvalidRoute, RoutedService, Routes, age, bounded, routed_service
from slipway.serving.workload import MANAGER

WORKLOAD = "workload"
"""Index of pods: kind, namespace and name of the Deployment or Job that made them."""
NAMES = "names"
"""Index of routed Services: the public model names that they ask for."""
QUALIFIED = "qualified"
"""Index of routed Services: the id that always reaches them."""
NAMESPACED = "namespace"
"""Index of what uses resources: its namespace."""
FOREIGN = "foreign"
"""Index of NetworkPolicies that are not ours: their namespace."""
EXTENDED = "extended"
"""Index of nodes: the extended resources that they have."""
WORKLOADS = frozenset({DEPLOYMENT.kind, JOB.kind})
UNLISTED = frozenset({CONFIG_MAP})
"""Kinds of children that are read by their names only, as others keep so much of theirs there."""
PODS = f"{MANAGED_BY} in ({MANAGER},kubeai)"
"""Pods of KubeAI's models keep the original's label, which people and dashboards select by."""


class Observed:
    """Stores of children, pods, routed Services and shared objects; one list and watch a kind, whatever number of APIs
    read them."""

    def __init__(
        self,
        client: Client,
        apis: Iterable[Api],
        namespace: str,
        rules: Rules = DEFAULT,
        routed_namespaces: str = "",
        *,
        namespaces: Collection[str] = (),
    ) -> None:
        """``namespace`` is the controller's, the only one whose ConfigMaps are looked at; ``namespaces`` are those in
        which anything else is seen, all where there are none.

        ``rules`` and ``routed_namespaces`` (a label selector; empty: all) are the gateway's, so that a status says what
        it does.
        """
        apis, mine = tuple(apis), f"{MANAGED_BY}={MANAGER}"
        self._client, self._namespaces = client, tuple(dict.fromkeys(namespaces))
        kinds = dict.fromkeys(kind for api in apis for kind in api.child_kinds if kind not in UNLISTED)
        served = frozenset((resource.kind.group, resource.kind.kind) for api in apis for resource in api.resources)
        self.children = {
            kind: self.informer(kind, labels=mine, indexes={OWNER: by_owner}, trim=partial(_child, served))
            for kind in kinds
        }
        self.shared = {
            kind: self._shared(kind, namespace)
            for kind in dict.fromkeys(kind for api in apis for kind in api.shared_kinds)
        }
        indexes = {WORKLOAD: _workloads, NAMESPACED: _namespace_of_users}
        self.pods = self.informer(POD, labels=PODS, indexes=indexes, trim=_pod)
        self.policies = self.informer(
            NETWORK_POLICY, indexes={FOREIGN: _foreign_namespace}, trim=_existence, metadata_only=True
        )
        self._rules, self._read = rules, Routes(rules.apply)
        asked = {NAMES: self._names, QUALIFIED: self._qualified, NAMESPACED: lambda obj: [key(obj).namespace]}
        self.routes = self.informer(SERVICE, labels=f"{ROUTE}=true", indexes=asked, trim=_route)
        self.routes.add_handler(self._forget)
        self.namespaces = (
            Informer(client, NAMESPACE, labels=routed_namespaces, trim=only_name) if routed_namespaces else None
        )

    def informer(
        self,
        kind: Kind,
        *,
        labels: str = "",
        indexes: Mapping[str, IndexFunction] | None = None,
        trim: Callable[[Object], Object | None] = lambda obj: obj,
        metadata_only: bool = False,
    ) -> Informer:
        """An informer of a kind wherever the controller looks."""
        if self._namespaces and kind.namespaced:
            return ChosenNamespaces(
                self._client,
                kind,
                self._namespaces,
                labels=labels,
                indexes=indexes,
                trim=trim,
                metadata_only=metadata_only,
            )
        return Informer(self._client, kind, labels=labels, indexes=indexes, trim=trim, metadata_only=metadata_only)

    @property
    def informers(self) -> list[Informer]:
        found = [*self.children.values(), *self.shared.values(), self.pods, self.policies, self.routes]
        return [*found, *([self.namespaces] if self.namespaces else [])]

    def shared_object(self, reference: Reference) -> Object | None:
        """The object that a reference means, if it is there."""
        informer = self.shared.get(reference.kind)
        return informer.store.get(Key(reference.namespace, reference.name)) if informer else None

    def pods_of(self, children: Iterable[Object]) -> list[Object]:
        """The pods of the Deployments and Jobs among these objects."""
        workloads = (f"{child['kind']} {key(child)}" for child in children if child["kind"] in WORKLOADS)
        return [pod for workload in workloads for pod in self.pods.store.by_index(WORKLOAD, workload)]

    def users(self, kinds: Iterable[Kind], namespace: str) -> list[Object]:
        """The objects of these kinds in a namespace, and their pods that use what resources share; none without kinds.

        What a pod says of itself counts only where it is theirs: anybody may annotate a pod.
        """
        kinds = tuple(kinds)
        pods = self.pods.store.by_index(NAMESPACED, namespace) if kinds else ()
        found = [obj for kind in kinds for obj in self.shared[kind].store.by_index(NAMESPACED, namespace)]
        return [*found, *(pod for pod in pods if self._made_for(kinds, pod))]

    def _made_for(self, kinds: Iterable[Kind], pod: Object) -> bool:
        """Whether a resource of these kinds has the Deployment or Job that made the pod. That may be gone before its
        pods are, so one that ends counts as well, until its time is over."""
        return deleting(pod) or any(self.owner_of_pod(kind, pod) for kind in kinds)

    def policed(self, namespace: str) -> bool:
        """Whether others have NetworkPolicies in the namespace."""
        return self.policies.store.count(FOREIGN, namespace) > 0

    def polices(self, change: Change) -> bool:
        """Whether this change of a policy is the first of others in its namespace, or the last one that goes."""
        before, after = (set(_foreign_namespace(policy)) if policy else set() for policy in (change.old, change.new))
        counts = {namespace: self.policies.store.count(FOREIGN, namespace) for namespace in before ^ after}
        return any(count == (namespace in after) for namespace, count in counts.items())

    def extended_resources(self) -> frozenset[str]:
        """Those that any node has; none where no API looks at nodes."""
        return self.shared[NODE].store.values(EXTENDED) if NODE in self.shared else frozenset()

    def equips(self, change: Change) -> bool:
        """Whether this change of a node is the first that some extended resource is there, or the last that it was."""
        before, after = (set(_extended(node)) if node else set() for node in (change.old, change.new))
        with_it = {name: self.shared[NODE].store.count(EXTENDED, name) for name in before ^ after}
        return any(count == (name in after) for name, count in with_it.items())

    def rivals(self, services: Iterable[Object]) -> list[RoutedService]:
        """These Services, and whoever else is the first to ask for one of their ids: others change nothing for them."""
        rules = self._current_rules()
        # Their own store may know more than the routes' yet.
        own = {key(service): service for service in services}
        read = {name: routed for name, service in own.items() if (routed := self._routed(service))}
        others: set[Key] = set()
        for routed in read.values():
            for asking in self._asking(routed):
                others |= self._first(asking - own.keys(), rules)
        read |= {name: routed for name in others if (routed := self._stored(name))}
        return [rules.apply(routed) for routed in read.values()]

    def owner_of_pod(self, kind: Kind, pod: Object) -> list[Key]:
        """The resource of ``kind`` whose Deployment or Job made the pod."""
        workloads = (self._workload(name) for name in _workloads(pod))
        return [owner for workload in workloads if workload for owner in _owners(kind, workload)]

    def owners_of_rivals(self, kind: Kind, service: Object) -> list[Key]:
        """The resources of ``kind`` that a change of this routed Service may give a name or take it from."""
        routed = self._routed(service)
        rivals = set().union(*self._asking(routed)) if routed else set[Key]()
        found = (self.routes.store.get(name) for name in rivals)
        return list({owner for rival in found if rival for owner in _owners(kind, rival)})

    def owners_of_change(self, kind: Kind, change: Change) -> list[Key]:
        """The same of the old and the new state; none but its own where it asks for the same ids as before."""
        states = [state for state in (change.old, change.new) if state is not None]
        asked = {_claims(self._routed(state)) for state in states}
        own = {owner for state in states for owner in _owners(kind, state)}
        if len(states) == 2 and len(asked) == 1:
            return list(own)
        return list(own.union(*(self.owners_of_rivals(kind, state) for state in states)))

    def owners_in_namespace(self, kind: Kind, namespace: Key) -> list[Key]:
        """The resources that it concerns whether this namespace is served."""
        services = self.routes.store.by_index(NAMESPACED, namespace.name)
        return list({owner for service in services for owner in self.owners_of_rivals(kind, service)})

    def _current_rules(self) -> Rules:
        if self.namespaces is None:
            return self._rules
        return self._rules._replace(namespaces=frozenset(name.name for name in map(key, self.namespaces.store.all())))

    def _asking(self, routed: RoutedService) -> list[Set[Key]]:
        """Who asks for each of its ids."""
        store = self.routes.store
        return [*(store.keys(NAMES, name) for name in routed.ids), store.keys(QUALIFIED, routed.qualified)]

    def _first(self, names: Iterable[Key], rules: Rules) -> set[Key]:
        """The oldest of these Services whose namespace is served."""
        served = (self._stored(name) for name in names if rules.serves(name.namespace))
        first = min((routed for routed in served if routed), key=age, default=None)
        return {Key(first.namespace, first.name)} if first else set()

    def _stored(self, name: Key) -> RoutedService | None:
        service = self.routes.store.get(name)
        return self._routed(service) if service else None

    def _routed(self, service: Object) -> RoutedService | None:
        """A Service as it asks, but for ids that its namespace may never have; None where it takes no part."""
        if ROUTE not in labels(service):
            return None
        try:
            return self._read.read(service)
        except InvalidRoute:
            return None

    def _names(self, service: Object) -> Iterable[str]:
        routed = self._routed(service)
        return routed.ids if routed else ()

    def _qualified(self, service: Object) -> Iterable[str]:
        routed = self._routed(service)
        return (routed.qualified,) if routed else ()

    def _forget(self, change: Change) -> None:
        if change.new is None and change.old is not None:
            self._read.forget(change.old)

    def _shared(self, kind: Kind, namespace: str) -> Informer:
        if kind == NODE:
            return self.informer(kind, indexes={EXTENDED: _extended}, trim=_equipment)
        indexes = {NAMESPACED: lambda obj: [key(obj).namespace]}
        if kind == CONFIG_MAP:
            return Informer(self._client, kind, namespace=namespace, indexes=indexes, trim=_with_annotations_bounded)
        return self.informer(kind, indexes=indexes, trim=_with_annotations_bounded)

    def _workload(self, name: str) -> Object | None:
        kind, _unused, child = name.partition(" ")
        informer = next((found for found in self.children if found.kind == kind), None)
        return self.children[informer].store.get(Key(*child.split("/", 1))) if informer else None


def _claims(routed: RoutedService | None) -> tuple[object, ...]:
    """What of a Service decides who has which id, and what others are told of it."""
    return (routed.ids, routed.qualified, routed.since) if routed else ()


def _owners(kind: Kind, child: Object) -> list[Key]:
    owner = controller_owner(child)
    if owner is None or (owner.api_version, owner.kind) != (kind.api_version, kind.kind):
        return []
    return [Key(key(child).namespace, owner.name)]


def _workloads(pod: Object) -> Iterable[str]:
    """A Deployment's ReplicaSets are named after it and their template's hash, which their pods carry as a label."""
    owner, template = controller_owner(pod), labels(pod).get("pod-template-hash", "")
    namespace = pod["metadata"]["namespace"]
    if owner is None:
        return []
    if owner.kind == JOB.kind:
        return [f"{JOB.kind} {namespace}/{owner.name}"]
    if owner.kind != "ReplicaSet" or not template:
        return []
    return [f"{DEPLOYMENT.kind} {namespace}/{owner.name.removesuffix(f'-{template}')}"]


def route_names(child: Object) -> Iterable[str]:
    """The public model names that a Service asks for; none where it does not take part or its route cannot be read."""
    if ROUTE not in labels(child):
        return []
    try:
        return routed_service(child).route.models
    except InvalidRoute:
        return []


def _equipment(node: Object) -> Object:
    """A node with nothing but its name and what is asked about it: a thousand of them are held in memory."""
    allocatable: dict[str, str] = node.get("status", {}).get("allocatable") or {}
    names = sorted(name for name, amount in allocatable.items() if "/" in name and amount != "0")
    kept = {field: node["metadata"].get(field, "") for field in ("name", "uid", "resourceVersion")}
    return {"kind": NODE.kind, "metadata": kept, "extended": names}


def _extended(node: Object) -> Iterable[str]:
    names: list[str] = node["extended"]
    return names


def _namespace_of_users(pod: Object) -> Iterable[str]:
    return [key(pod).namespace] if USES in (pod["metadata"].get("annotations") or {}) else []


def _existence(policy: Object) -> Object:
    """A policy without all but what tells whose it is: anybody may write large ones."""
    fields = ("name", "namespace", "uid", "resourceVersion")
    kept: Object = {field: policy["metadata"].get(field, "") for field in fields}
    ours = labels(policy).get(MANAGED_BY) == MANAGER
    return {"kind": NETWORK_POLICY.kind, "metadata": kept, "ours": ours}


def _foreign_namespace(policy: Object) -> Iterable[str]:
    return [] if policy["ours"] else [key(policy).namespace]


def _child(served: Collection[tuple[str, str]], obj: Object) -> Object | None:
    """An object with our label, which anybody may give to anything: nothing of one that is owned by nothing of these
    groups and kinds, or where there are none by nothing at all."""
    owner = controller_owner(obj)
    if owner is None or (served and (owner.api_version.partition("/")[0], owner.kind) not in served):
        return None
    return _with_annotations_bounded(obj)


def _pod(pod: Object) -> Object | None:
    """A pod without its spec and annotations of others; nothing of one that belongs to no Deployment or Job and uses
    nothing."""
    annotations = pod["metadata"].get("annotations") or {}
    kept = {name: bounded(annotations[name]) for name in (TEMPLATE, USES) if name in annotations}
    if USES not in kept and not _workloads(pod):
        return None
    metadata = {**pod["metadata"], "annotations": kept}
    return {**{field: value for field, value in pod.items() if field != "spec"}, "metadata": metadata}


def _route(service: Object) -> Object:
    """What is read of a Service that takes part in routing and need not be ours."""
    metadata, kept = service["metadata"], {}
    for field in ("namespace", "name", "uid", "resourceVersion", "creationTimestamp", "ownerReferences"):
        if field in metadata:
            kept[field] = metadata[field]
    annotations = metadata.get("annotations") or {}
    kept["labels"] = {ROUTE: labels(service)[ROUTE]} if ROUTE in labels(service) else {}
    kept["annotations"] = {ROUTE: bounded(annotations[ROUTE])} if ROUTE in annotations else {}
    ports = [{"name": port.get("name", "")} for port in service["spec"].get("ports") or ()]
    return {"kind": SERVICE.kind, "metadata": kept, "spec": {"ports": ports}}


def _with_annotations_bounded(obj: Object) -> Object:
    """The object, but for annotations that are longer than any of ours."""
    annotations: dict[str, str] = obj["metadata"].get("annotations") or {}
    if all(len(text) <= MOST_BYTES for text in annotations.values()):
        return obj
    kept = {name: bounded(text) for name, text in annotations.items()}
    return {**obj, "metadata": {**obj["metadata"], "annotations": kept}}
