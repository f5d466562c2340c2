"""Api: the contract between the controller and one serving API.

The flow for one resource: the controller keeps caches of what ``Api.watches`` declares, reads a :class:`World` from
them, and ``Api.resolve`` makes a typed view of it. ``Api.plan`` says the complete children, the applier makes them so,
``Api.status`` says what became of them. All but the caches and the applier is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Protocol, TypeVar

import msgspec

from slipway.kube.caches.store import Change, IndexFunction
from slipway.kube.objects import Key, Kind, Object, key
from slipway.kube.schemas.crd import CustomResource
from slipway.serving.containers.freedoms import Freedom
from slipway.serving.contract.readiness import Readiness
from slipway.serving.contract.settings import Settings
from slipway.serving.routing.demand import Demand
from slipway.serving.routing.route import RoutedService
from slipway.serving.routing.scaling import Scaling
from slipway.serving.wire.agent import AdapterSet, AgentReport
from slipway.serving.wire.catalogs import Catalog, CatalogAddress

USES = "slipway.inference/uses"
"""Annotation of pods with what they use of resources that do not own them, such as a cache; the API says how."""

View = TypeVar("View")


class Reference(msgspec.Struct, frozen=True):
    """An object that a resource depends on without owning it."""

    kind: Kind
    namespace: str
    name: str


class Listers(Protocol):
    """Read access to the caches. See :class:`slipway.kube.caches.store.Stores`."""

    def get(self, kind: Kind, name: Key) -> Object | None:
        """One object, if it is there."""

    def list(self, kind: Kind, index: str = "", value: str = "") -> Sequence[Object]:
        """The objects for which an index function gave a value; without an index all of the kind."""

    def count(self, kind: Kind, index: str, value: str) -> int:
        """How many objects ``list`` would give."""

    def oldest(self, kind: Kind, index: str, value: str, most: int, skip: int = 0) -> Sequence[Object]:
        """At most so many of the objects that ``list`` would give, the oldest first, behind those that are skipped."""

    def older(self, kind: Kind, index: str, value: str, obj: Object) -> int:
        """How many of the objects that ``list`` would give are older than this one."""

    def values(self, kind: Kind, index: str) -> Set[str]:
        """The values that an index function gave for any object."""

    def pods_of(self, owner: Kind, index: str, value: str) -> Sequence[Object]:
        """Returns the pods for which an index function gave a value, if the value can be trusted: a workload of a
        resource of the kind ``owner`` created them. A terminating pod whose workload is gone counts if it was known
        before. If the controller started later, the pod counts if it mounts a folder of its node or a claim."""

    def pods_of_workload(self, workload: Kind, name: Key) -> Sequence[Object]:
        """Returns the pods that name a workload as their origin, even if it is gone. Authors can create such pods in
        their own namespaces."""


Trim = Callable[[Object], Object | None]
"""What of an object is kept; None: nothing."""
Enqueue = Callable[[Change, Listers], Iterable[Key]]
"""A map function: which resources of the API a change of an object concerns. Keys of any namespace."""


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """A kind that an API reads, and the resources that a change of an object affects.

    Whatever number of APIs watch a kind, the process has one informer of it. Of Pods it has those of workloads that
    resources own, whichever API watches them. See :mod:`slipway.serving.contract.watches` for the usual ones.
    """

    kind: Kind
    enqueue: Enqueue
    owned: bool = False
    """Whether the API's resources own these objects: the applier makes and removes them, and they carry our label.
    Others of the kind are not seen."""
    listed: bool = True
    """Whether there is an informer. Without it owned objects are read by their names, each whenever its owner is
    reconciled: for kinds in which others keep what is none of our business."""
    namespace: str | None = None
    """The only namespace whose objects are seen; None: all that the controller looks at."""
    elsewhere: str | None = None
    """A namespace, or the empty one of kinds that have none, where owned objects may be children of resources in other
    namespaces. None but the operator may write there."""
    trim: Trim | None = None
    """Drops what nobody reads before an object is cached, or by None all of it. None: annotations are cut that are
    longer than any of ours."""
    indexes: Mapping[str, IndexFunction] = {}
    """Name -> function, for ``World.list``. Several APIs may declare the same function under one name."""
    optional: str = ""
    """What to install where the cluster does not have the kind, such as ``the role metrics_server``. Who needs it then
    says MissingKind with these words, all else goes on, and it heals by itself. Empty: the kind has to be there."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a plan or a status may depend on. Objects are as the API server sent them. The caches are read
    now, so use a world before the next await."""

    resource: Object
    children: Mapping[tuple[Kind, Key], Object]
    """The objects that the resource owns, as last observed; none of kinds that are not listed."""
    pods: Sequence[Object]
    """The pods of the resource's workloads."""
    routed: Sequence[RoutedService]
    """The Services that ask for a public name of this resource, its own among them."""
    settings: Settings
    controller_key: str = ""
    """The public key by which loaders know the controller."""
    now: float
    """Unix seconds."""
    listers: Listers
    """The kinds that ``Api.watches`` declares, and the API's own."""
    agents: Mapping[str, AgentReport] = {}
    """uid of a pod -> what the loader in it told last."""
    catalogs: Mapping[str, Catalog] = {}
    """Name of a resource whose plan has a catalog read -> what is known of it. Those not asked yet are missing."""
    demand: Mapping[Key, Demand] = {}
    """Service that a plan counts -> whether it has requests, without those that were not looked at yet."""
    file: Callable[[str], bytes] = lambda _path: b""
    """Content of a file of the controller's own, such as a key that is mounted; empty where there is none."""
    has_foreign_policies: bool = False
    """Whether the resource's namespace, or one that its children are in, has NetworkPolicies that are not ours."""

    def child(self, kind: Kind, name: str) -> Object | None:
        """A child in the resource's own namespace."""
        return self.children.get((kind, Key(key(self.resource).namespace, name)))

    def get(self, reference: Reference) -> Object | None:
        """Returns another object, if it exists. Raises LookupError for a kind that is not watched."""
        return self.listers.get(reference.kind, Key(reference.namespace, reference.name))

    def list(self, kind: Kind, index: str = "", value: str = "") -> Sequence[Object]:
        """Returns the objects for which an index function of ``Watch.indexes`` gave a value, ordered by key; without an
        index all of the kind, in no particular order. Raises LookupError for a kind that is not watched."""
        return self.listers.list(kind, index, value)


class MetadataPatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """Annotations and labels to set on a referenced object; None removes one."""

    reference: Reference
    annotations: Mapping[str, str | None] = {}
    labels: Mapping[str, str | None] = {}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The desired objects of a resource."""

    children: tuple[Object, ...]
    """All that it owns; a child that is not named is removed, but for those of kinds that are not listed."""
    absent: tuple[Reference, ...] = ()
    """Children of kinds that are not listed that it may own from before and wants no more."""
    pending: tuple[Object, ...] = ()
    """Children that are made once something else is ready. Whether the author may have them is judged now."""
    shared: tuple[Object, ...] = ()
    """Objects that several resources use: made where they are missing, never changed, never removed."""
    blind: tuple[Object, ...] = ()
    """Children that are written and never looked at, such as Secrets: before all others, and only if they are new to
    this process or their content is. They go with the resource."""
    discarded: tuple[Reference, ...] = ()
    """Objects with our label that belong to other resources and are to go, of kinds that the API watches."""
    in_system_namespace: bool = False
    """Whether children may lie in the system namespace, where resources may not: what they run is the operator's."""
    metadata_patches: tuple[MetadataPatch, ...] = ()
    self_patch: Object = {}
    """Merge patch of the resource itself, such as labels and defaulted replicas; sent where it would change it."""
    finalizer: str = ""
    """Kept on the resource before anything is made, so that ``Api.finalize`` is asked on deletion."""
    adapters: AdapterSet = AdapterSet()
    """What every ready pod shall have loaded beside its model."""
    catalog: CatalogAddress | None = None
    """A catalog of another cluster that is to be read from now on."""
    counted: tuple[Key, ...] = ()
    """Services whose requests are counted from now on. The resource is reconciled when they begin or end."""
    satisfied: tuple[Key, ...] = ()
    """Counted Services that have what their requests need. Their requests matter only while another one has some."""


class InvalidSpecError(Exception):
    """The spec cannot be served as it is written; the children of the last good spec stay. Not retried."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Rejection(msgspec.Struct, frozen=True):
    """Why a resource's children are not as planned."""

    reason: str
    message: str
    retryable: bool = False
    """Tried again by itself, such as when the API server is overloaded; what is there already serves on."""
    of_object: bool = False
    """The plan stands, and the API server refuses one of its objects; others may be made."""


class StatusResult(msgspec.Struct, frozen=True):
    """A status, and when it may change without any object changing."""

    status: Object
    recheck_seconds: float | None = None
    passed_through: frozenset[str] = frozenset()
    """Reasons of the API's own conditions that resources go through on their way: no Event tells of them."""


class Api(Protocol[View]):
    """One kind of a serving API: data types and pure functions. ``View`` is the type that they share."""

    @property
    def name(self) -> str:
        """The name that settings use."""

    @property
    def resource(self) -> CustomResource:
        """The kind that it declares."""

    @property
    def finalizers(self) -> frozenset[str]:
        """The finalizers that its plans write, and those of the original system. ``finalize`` is called when a resource
        with one of them is deleted. When it returns None, they are removed."""

    @property
    def pod_labels(self) -> frozenset[str]:
        """Labels that the API itself sets on pods, whatever a spec sets."""

    @property
    def condition_types(self) -> frozenset[str]:
        """Types of conditions that it writes, or that the original system wrote. Those of other writers stay."""

    @property
    def readiness(self) -> Readiness | None:
        """The meaning of its status, from which the controller adds Ready, Reconciling and Stalled to the conditions,
        unless the status has them; None: it has no conditions, or these three already."""

    def watches(self, settings: Settings) -> Sequence[Watch]:
        """Returns what it reads in addition to the resource itself, including its children. A watch of its own kind
        adds indexes."""

    def resolve(self, world: World) -> View:
        """Returns the view that the other functions use: read, typed and checked once for each world. Raises nothing:
        problems of the spec are part of the view, because a status needs one in any case."""

    def plan(self, view: View) -> Plan:
        """Returns the desired objects of a resource. Raises InvalidSpecError."""

    def granted(self, view: View, plan: Plan) -> frozenset[Freedom]:
        """Returns the freedoms in the children of this plan, existing or pending, that are the operator's own: they
        would be there whatever the author had omitted from the spec."""

    def remedy(self, view: View, refused: frozenset[Freedom]) -> str:
        """Returns what the author can do if these freedoms are refused: sentences that end the message."""

    def finalize(self, view: View) -> Plan | None:
        """Returns what a resource that is being deleted still needs; None: nothing, and its finalizer can be removed.
        Raises InvalidSpecError."""

    def scaling(self, view: View) -> Scaling | None:
        """Returns how the resource's replicas follow its requests; None: they do not."""

    def status(self, view: View, rejection: Rejection | None) -> StatusResult:
        """Returns the status of a resource. ``rejection``: its plan was invalid or could not be applied."""
