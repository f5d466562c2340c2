"""Caches: exactly one informer for each kind, shared by all APIs, and the resources that a change affects.

An informer keeps the union of what its readers need: whole objects if an API watches them, or the fields that the API's
trim keeps, children with our label, and a few fields of routed Services and of other owners' NetworkPolicies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from functools import partial, reduce
from typing import Any

import msgspec

from slipway.controller.inputs.pods import WORKLOADS, Orphans, by_workload, text_of, trim_pod, workload_of
from slipway.kube.api.client import Client
from slipway.kube.caches.informer import Informer
from slipway.kube.caches.namespaces import ChosenNamespaces
from slipway.kube.caches.store import Change, IndexFunction, Stores
from slipway.kube.objects import (
    MANAGED_BY,
    NAMESPACE,
    NETWORK_POLICY,
    POD,
    SERVICE,
    Key,
    Kind,
    Object,
    annotations_of,
    controller_owner,
    deleting,
    key,
    labels,
)
from slipway.kube.runtime.controller import owner_keys
from slipway.kube.writes.owners import ORIGIN, OWNER, by_origin, by_owner, with_owner
from slipway.serving.contract import watches
from slipway.serving.contract.api import Api, Trim, Watch
from slipway.serving.contract.settings import Settings
from slipway.serving.pods.workload import MANAGER
from slipway.serving.routing.claims import DEFAULT, Rules, age, only_name
from slipway.serving.routing.route import MOST_BYTES, ROUTE, InvalidRouteError, RoutedService, Routes, bounded

WORKLOAD = "workload"
"""Name of the index of pods by the Deployment, LeaderWorkerSet or Job that created them."""
NAMES = "names"
"""Name of the index of routed Services by the public model IDs that they request and may have."""
QUALIFIED = "qualified"
"""Name of the index of routed Services by their qualified ID ``namespace/name``."""
FOREIGN = "foreign"
"""Name of the index of NetworkPolicies of other owners by namespace."""
OURS = f"{MANAGED_BY}={MANAGER}"


class _Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of one kind, and their fields, that a reader needs."""

    kind: Kind
    labels: str = ""
    namespace: str | None = None
    trim: Trim
    """Function that returns the needed fields of an object, or None for an object outside the selection."""
    indexes: Mapping[str, IndexFunction] = {}
    optional: str = ""
    """What to install if the cluster lacks the kind. The value is empty if the kind is required."""


class Caches(Stores):
    """The informers of all kinds that the controllers of the given APIs read."""

    def __init__(
        self,
        client: Client,
        apis: Iterable[Api[Any]],
        settings: Settings,
        rules: Rules = DEFAULT,
        routed_namespaces: str = "",
        *,
        namespaces: Collection[str] = (),
        pod_managers: Collection[str] = (),
    ) -> None:
        """Create the informers, without starting them.

        ``namespaces`` are the watched namespaces; empty means all. ``pod_managers`` are values that the pod label
        ``app.kubernetes.io/managed-by`` may have besides our own name. ``rules`` and ``routed_namespaces`` (a label
        selector; empty means all) are the gateway's, so that a status matches its routing. Raise ValueError if two APIs
        need conflicting selections of one kind.
        """
        self._client, self._namespaces = client, tuple(dict.fromkeys(namespaces))
        self._rules, self._read = rules, Routes(rules.apply)
        selections: dict[Kind, list[_Selection]] = {}
        pods = f"{MANAGED_BY} in ({','.join(dict.fromkeys((MANAGER, *pod_managers)))})"
        for one in (*_selections(tuple(apis), settings, pods), *self._own_selections(pods)):
            selections.setdefault(one.kind, []).append(one)
        self._informers = {kind: self._informer(kind, group) for kind, group in selections.items()}
        if routed_namespaces:
            self._informers[NAMESPACE] = Informer(client, NAMESPACE, labels=routed_namespaces, trim=only_name)
        super().__init__({kind: informer.store for kind, informer in self._informers.items()})
        self.informer(SERVICE).add_handler(self._forget)
        self._orphans = Orphans()
        self.informer(POD).add_handler(self._orphans.forget)
        for kind in WORKLOADS & self._informers.keys():
            self.informer(kind).add_handler(partial(self._note_orphans, kind))

    def informer(self, kind: Kind) -> Informer:
        """Return the informer of a kind. Raise LookupError for a kind that is not watched."""
        try:
            return self._informers[kind]
        except KeyError:
            raise LookupError(f"{kind.plural} of {kind.api_version} are not watched") from None

    @property
    def informers(self) -> list[Informer]:
        return list(self._informers.values())

    @property
    def namespaces(self) -> Informer | None:
        """The informer of the namespaces that the gateway serves. The value is None if it serves all namespaces."""
        return self._informers.get(NAMESPACE)

    # Pods

    def pods_of_children(self, children: Iterable[tuple[Kind, Key]]) -> list[Object]:
        """Return the pods that the workloads among ``children`` created."""
        return [pod for child in children for pod in self.list(POD, WORKLOAD, text_of(*child))]

    def pods_of(self, owner: Kind, index: str, value: str) -> list[Object]:
        """Return the pods with ``value`` in the index whose workload a resource of the kind ``owner`` owns or owned.
        Ownership is checked, because any author can annotate a pod. See
        :class:`slipway.serving.contract.api.Listers`."""
        candidates = self.list(POD, index, value)
        return [pod for pod in candidates if self.owner_of_pod(owner, pod) or self._outlives(owner, pod)]

    def pods_of_workload(self, workload: Kind, name: Key) -> list[Object]:
        """Return the pods that name a workload as their origin. See :class:`slipway.serving.contract.api.Listers`."""
        return self.pods_of_children([(workload, name)])

    def _outlives(self, owner: Kind, pod: Object) -> bool:
        return deleting(pod) and self._orphans.is_of(owner, pod)

    def _note_orphans(self, kind: Kind, change: Change) -> None:
        if change.new is None and change.old is not None:
            self._orphans.note(self.list(POD, WORKLOAD, text_of(kind, key(change.old))), change.old)

    def owner_of_pod(self, kind: Kind, pod: Object) -> list[Key]:
        """Return the key of the resource of ``kind`` whose workload created the pod. The result is empty if there is
        none or its workload no longer exists."""
        reference = workload_of(pod)
        workload = self.get(*reference) if reference and reference[0] in self._informers else None
        return list(owner_keys(kind)(workload)) if workload else []

    # NetworkPolicies of other owners

    def has_foreign_policies(self, namespace: str) -> bool:
        """Whether the namespace has NetworkPolicies that Slipway did not create."""
        return self.count(NETWORK_POLICY, FOREIGN, namespace) > 0

    def foreign_policies_changed(self, change: Change) -> bool:
        """Whether this change adds the first NetworkPolicy of another owner in its namespace, or removes the last
        one."""
        return watches.first_or_last(change, self, NETWORK_POLICY, FOREIGN, _foreign_namespace)

    # Services that request public names

    def contenders(self, services: Iterable[Object]) -> list[RoutedService]:
        """Return the Services among ``services`` that request model IDs, and for each of these IDs the oldest other
        Service that requests it. Younger Services do not affect them. Other Services in namespaces that the gateway
        does not serve are skipped."""
        claimants = {key(service): routed for service in services if (routed := self._routed(service))}
        if not claimants:
            return []
        rules = self._current_rules()
        read = {name: routed for name, routed in claimants.items() if routed.route.models}
        others: set[Key] = set()
        for routed in read.values():
            for asking in self._find_claimants(routed):
                others |= self._first(asking - claimants.keys(), rules)
        read |= {name: routed for name in others if (routed := self._stored(name))}
        return [rules.apply(routed) for routed in read.values()]

    def owners_of_contenders(self, kind: Kind, service: Object) -> list[Key]:
        """Return the keys of the resources of ``kind`` whose Services request an ID that this Service requests, so that
        a change of the Service may affect their IDs. The result is empty if the Service has no valid route."""
        routed = self._routed(service)
        contenders = set().union(*self._find_claimants(routed)) if routed else set[Key]()
        services = (self.get(SERVICE, name) for name in contenders)
        return list({owner for one in services if one for owner in owner_keys(kind)(one)})

    def owners_of_change(self, kind: Kind, change: Change) -> list[Key]:
        """Return the keys of the resources of ``kind`` that may gain or lose an ID by this change of a Service. The
        result is empty if the Service requests the same IDs and has the same age before and after."""
        states = [state for state in (change.old, change.new) if state is not None]
        if len(states) == 2 and len({_claims(self._routed(state)) for state in states}) == 1:
            return []
        return list({owner for state in states for owner in self.owners_of_contenders(kind, state)})

    def owners_in_namespace(self, kind: Kind, namespace: Key) -> list[Key]:
        """Return the keys of the resources of ``kind`` that are affected if the gateway starts or stops serving this
        namespace. The name in the key ``namespace`` is the namespace's."""
        services = self.list(SERVICE, watches.NAMESPACE, namespace.name)
        return list({owner for service in services for owner in self.owners_of_contenders(kind, service)})

    def _current_rules(self) -> Rules:
        if self.namespaces is None:
            return self._rules
        return self._rules._replace(namespaces=frozenset(name.name for name in map(key, self.list(NAMESPACE))))

    def _find_claimants(self, routed: RoutedService) -> list[Set[Key]]:
        """Return, for each ID of the Service, the keys of the Services that request it."""
        store = self.store(SERVICE)
        return [*(store.keys(NAMES, name) for name in routed.ids), store.keys(QUALIFIED, routed.qualified)]

    def _first(self, names: Iterable[Key], rules: Rules) -> set[Key]:
        """Return the key of the oldest Service in ``names`` whose namespace the gateway serves. The result is empty if
        there is none."""
        served = (self._stored(name) for name in names if rules.serves(name.namespace))
        first = min((routed for routed in served if routed), key=age, default=None)
        return {Key(first.namespace, first.name)} if first else set()

    def _stored(self, name: Key) -> RoutedService | None:
        service = self.get(SERVICE, name)
        return self._routed(service) if service else None

    def _routed(self, service: Object) -> RoutedService | None:
        """Return a Service with its route, in which IDs that its namespace may never have are refused. The result is
        None if the Service has no valid route."""
        if ROUTE not in labels(service):
            return None
        try:
            return self._read.read(service)
        except InvalidRouteError:
            return None

    def _names(self, service: Object) -> Iterable[str]:
        routed = self._routed(service)
        return routed.ids if routed else ()

    def _qualified(self, service: Object) -> Iterable[str]:
        routed = self._routed(service)
        return (routed.qualified,) if routed and routed.qualified else ()

    def _forget(self, change: Change) -> None:
        if change.new is None and change.old is not None:
            self._read.forget(change.old)

    # Informers

    def _own_selections(self, pods: str) -> Iterable[_Selection]:
        """Yield the selections of the gateway and of the controller itself. They must come after those of the APIs,
        because selections that keep most of an object come first. ``pods`` is the label selector of pods."""
        indexes = {NAMES: self._names, QUALIFIED: self._qualified, watches.NAMESPACE: watches.by_namespace}
        yield _Selection(kind=POD, labels=pods, trim=trim_pod, indexes={WORKLOAD: by_workload})
        yield _Selection(kind=NETWORK_POLICY, trim=_existence, indexes={FOREIGN: _foreign_namespace})
        yield _Selection(kind=SERVICE, labels=f"{ROUTE}=true", trim=_route, indexes=indexes)

    def _informer(self, kind: Kind, selections: Sequence[_Selection]) -> Informer:
        selectors, namespaces = {one.labels for one in selections}, {one.namespace for one in selections}
        if len(namespaces) > 1:
            raise ValueError(f"{kind.plural} are watched in one namespace and in others")
        namespace, selector = namespaces.pop(), selectors.pop() if len(selectors) == 1 else ""
        if namespace == "":
            raise ValueError(f"{kind.plural} are watched in a namespace without a name")
        indexes: dict[str, IndexFunction] = {}
        for name, function in (item for one in selections for item in one.indexes.items()):
            if indexes.setdefault(name, function) != function:
                raise ValueError(f"{kind.plural} have two indexes {name}")
        optional = selections[0].optional if all(one.optional for one in selections) else ""
        trim = partial(_trim_first, tuple(dict.fromkeys(one.trim for one in selections)))
        if self._namespaces and kind.namespaced and namespace is None:
            return ChosenNamespaces(
                self._client,
                kind,
                self._namespaces,
                labels=selector,
                indexes=indexes,
                trim=trim,
                optional=optional,
            )
        return Informer(
            self._client,
            kind,
            namespace=namespace or "",
            labels=selector,
            indexes=indexes,
            trim=trim,
            optional=optional,
        )


def _selections(apis: Sequence[Api[Any]], settings: Settings, pods: str) -> Iterable[_Selection]:
    """Yield the selections of the APIs: children, the APIs' own kinds, and the other objects that they watch. Children
    come first, because they are kept whole."""
    resources = [api.resource.kind for api in apis]
    listed = [watch for api in apis for watch in api.watches(settings) if watch.listed]
    child = partial(_child, frozenset((kind.group, kind.kind) for kind in resources))
    for watch in listed:
        if watch.owned and watch.elsewhere is None:
            yield _of(watch, child, OURS, {OWNER: _by_owner, **watch.indexes})
        elif watch.owned:
            indexes = {OWNER: _by_owner, ORIGIN: by_origin, **watch.indexes}
            yield _of(watch, partial(_child_elsewhere, watch.elsewhere, child), OURS, indexes)
    read = [watch for watch in listed if not watch.owned]
    trims: dict[Kind, dict[Trim, None]] = {kind: {with_annotations_bounded: None} for kind in resources}
    for watch in read:
        trim = trim_pod if watch.kind == POD else watch.trim or with_annotations_bounded
        trims.setdefault(watch.kind, {})[trim] = None
    sums = {kind: _sum(tuple(several)) for kind, several in trims.items()}
    for watch in read:
        yield _of(watch, sums[watch.kind], pods if watch.kind == POD else "", watch.indexes)
    for kind in resources:
        yield _Selection(kind=kind, trim=with_annotations_bounded)


def _of(watch: Watch, trim: Trim, selector: str, indexes: Mapping[str, IndexFunction]) -> _Selection:
    return _Selection(
        kind=watch.kind,
        labels=selector,
        namespace=watch.namespace,
        trim=trim,
        indexes=indexes,
        optional=watch.optional,
    )


def _sum(trims: tuple[Trim, ...]) -> Trim:
    """Return a trim that keeps every field that at least one of ``trims`` keeps."""
    return trims[0] if len(trims) == 1 else partial(_merge_trimmed, trims)


def _merge_trimmed(trims: Sequence[Trim], obj: Object) -> Object | None:
    parts = [part for trim in trims if (part := trim(obj)) is not None]
    return reduce(_merge_parts, parts) if parts else None


def _merge_parts(one: Object, other: Object) -> Object:
    """Merge two parts of one object. If both contain a field that is not an object, both copies are complete."""
    united = {**one, **other}
    for field in one.keys() & other.keys():
        if isinstance(one[field], dict) and isinstance(other[field], dict):
            united[field] = _merge_parts(one[field], other[field])
    return united


def _trim_first(trims: Sequence[Trim], obj: Object) -> Object | None:
    """Return the part of an object that the first matching selection keeps, or None if no selection matches."""
    for trim in trims:
        part = trim(obj)
        if part is not None:
            return part
    return None


def _claims(routed: RoutedService | None) -> tuple[object, ...]:
    """Return the fields of a Service that decide which Service gets which ID, and that the statuses of other Services
    report."""
    return (routed.ids, routed.qualified, routed.since) if routed else ()


def _by_owner(obj: Object) -> Iterable[str]:
    """Return the index values of a child by owner. Other objects have none, because other owners' Services and
    NetworkPolicies may also name an owner."""
    return by_owner(obj) if _is_ours(obj) else ()


def _is_ours(obj: Object) -> bool:
    return labels(obj).get(MANAGED_BY) == MANAGER


def _existence(policy: Object) -> Object | None:
    """Return another owner's NetworkPolicy reduced to its identity, because such policies may be large. Return None for
    our own policies."""
    if _is_ours(policy):
        return None
    fields = ("name", "namespace", "uid", "resourceVersion")
    return {"kind": NETWORK_POLICY.kind, "metadata": {field: policy["metadata"].get(field, "") for field in fields}}


def _foreign_namespace(policy: Object) -> Iterable[str]:
    return [] if _is_ours(policy) else [key(policy).namespace]


def _child(served: Collection[tuple[str, str]], obj: Object) -> Object | None:
    """Return the object if it has our label and its owner's group and kind are in ``served`` (empty means any), and
    None otherwise. Our label alone proves nothing, because any author can set it."""
    owner = controller_owner(obj) if _is_ours(obj) else None
    if owner is None or (served and (owner.api_version.partition("/")[0], owner.kind) not in served):
        return None
    return with_annotations_bounded(obj)


def _child_elsewhere(namespace: str | None, child: Trim, obj: Object) -> Object | None:
    """Return the object as ``_child`` does, but accept owners in other namespaces for objects in ``namespace``."""
    return child(with_owner(obj) if key(obj).namespace == namespace else obj)


def _route(service: Object) -> Object | None:
    """Return the routing fields of a Service of any owner, or None if it has no route."""
    if ROUTE not in labels(service):
        return None
    metadata, fields = service["metadata"], {}
    for field in ("namespace", "name", "uid", "resourceVersion", "creationTimestamp", "ownerReferences"):
        if field in metadata:
            fields[field] = metadata[field]
    annotations = metadata.get("annotations") or {}
    fields["labels"] = {ROUTE: labels(service)[ROUTE]}
    fields["annotations"] = {ROUTE: bounded(annotations[ROUTE])} if ROUTE in annotations else {}
    ports = [{"name": port.get("name", "")} for port in service["spec"].get("ports") or ()]
    return {"kind": SERVICE.kind, "metadata": fields, "spec": {"ports": ports}}


def with_annotations_bounded(obj: Object) -> Object:
    """Return the object with each annotation of more than ``MOST_BYTES`` characters replaced by ``OVERSIZED``, a string
    that all objects share."""
    annotations = annotations_of(obj)
    if all(len(text) <= MOST_BYTES for text in annotations.values()):
        return obj
    bounded_annotations = {name: bounded(text) for name, text in annotations.items()}
    return {**obj, "metadata": {**obj["metadata"], "annotations": bounded_annotations}}
