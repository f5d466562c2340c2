"""Api: the contract between the controller and one serving API.

The flow for one resource: the controller keeps caches of the kinds that ``Api.watches`` declares, and reads a
:class:`World` from them. ``Api.resolve`` turns it into a typed view, ``Api.plan`` returns the complete set of children,
the applier creates them, and ``Api.status`` reports the result. Everything except the caches and the applier is pure.
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
"""Annotation of pods with the parts of other owners' resources that they use, such as a cache; each API defines its
format."""

View = TypeVar("View")


class Reference(msgspec.Struct, frozen=True):
    """An object that a resource depends on without owning it."""

    kind: Kind
    namespace: str
    name: str


class Listers(Protocol):
    """Read access to the caches. See :class:`slipway.kube.caches.store.Stores`."""

    def get(self, kind: Kind, name: Key) -> Object | None:
        """Returns one object, if it exists."""

    def list(self, kind: Kind, index: str = "", value: str = "") -> Sequence[Object]:
        """Returns the objects with ``value`` in the index; without an index all of the kind."""

    def count(self, kind: Kind, index: str, value: str) -> int:
        """Returns the number of objects that ``list`` would return."""

    def oldest(self, kind: Kind, index: str, value: str, most: int, skip: int = 0) -> Sequence[Object]:
        """Returns up to ``most`` of the objects that ``list`` would return, oldest first, after the first ``skip``."""

    def older(self, kind: Kind, index: str, value: str, obj: Object) -> int:
        """Returns how many of the objects that ``list`` would return are older than ``obj``."""

    def values(self, kind: Kind, index: str) -> Set[str]:
        """Returns all values in the index."""

    def pods_of(self, owner: Kind, index: str, value: str) -> Sequence[Object]:
        """Returns the pods with ``value`` in the index, if the value can be trusted: a workload of a resource of the
        kind ``owner`` created them. A terminating pod whose workload is gone counts if it was known before. If the
        controller started later, the pod counts if it mounts a node directory or a claim."""

    def pods_of_workload(self, workload: Kind, name: Key) -> Sequence[Object]:
        """Returns the pods that name a workload as their origin, even if it no longer exists. Authors can create such
        pods in their own namespaces."""


Trim = Callable[[Object], Object | None]
"""Returns the part of an object to cache; None: nothing."""
Enqueue = Callable[[Change, Listers], Iterable[Key]]
"""A map function: returns the keys of the resources, in any namespace, that a change of an object affects."""


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """A kind that an API reads, and the resources that a change of an object affects.

    The process has one informer per kind, however many APIs watch it. The informer of Pods holds the pods of all
    workloads that resources own. See :mod:`slipway.serving.contract.watches` for common watches.
    """

    kind: Kind
    enqueue: Enqueue
    owned: bool = False
    """Whether the API's resources own objects of the kind: the applier creates and deletes them, and they carry our
    label. Other objects of the kind are ignored."""
    listed: bool = True
    """Whether there is an informer. Without one, owned objects are read by name whenever their owner is reconciled; for
    kinds in which other users keep private data."""
    namespace: str | None = None
    """The only watched namespace; None: all namespaces of the controller."""
    elsewhere: str | None = None
    """A namespace, or empty for cluster-scoped kinds, in which children of resources in other namespaces may be. Only
    the operator may write there."""
    trim: Trim | None = None
    """Reduces an object before it is cached, or returns None to skip it. Without a trim, annotations longer than any of
    ours are cut."""
    indexes: Mapping[str, IndexFunction] = {}
    """Name -> function, for ``World.list``. Several APIs may declare the same function under one name."""
    optional: str = ""
    """What to install if the cluster lacks the kind, such as ``the role metrics_server``. Resources that need it then
    report MissingKind with this text, everything else continues, and the problem resolves once the kind is installed.
    Empty: the kind is required."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a plan or a status may depend on. Objects are as the API server sent them. It reads the live
    caches, so use it before the next await."""

    resource: Object
    children: Mapping[tuple[Kind, Key], Object]
    """The objects that the resource owns, as last observed, without kinds that are not listed."""
    pods: Sequence[Object]
    """The pods of the resource's workloads."""
    routed: Sequence[RoutedService]
    """The Services that request a public name of this resource, including its own."""
    settings: Settings
    controller_key: str = ""
    """The public key by which loaders recognize the controller."""
    now: float
    """Unix seconds."""
    listers: Listers
    """Reads the kinds that ``Api.watches`` declares, and the API's own."""
    agents: Mapping[str, AgentReport] = {}
    """Pod uid -> the last report of its loader."""
    catalogs: Mapping[str, Catalog] = {}
    """Name of a resource with a catalog -> the catalog's state. Catalogs that have not been read yet are missing."""
    demand: Mapping[Key, Demand] = {}
    """Service that a plan counts -> its demand, without Services that have not been sampled yet."""
    file: Callable[[str], bytes] = lambda _path: b""
    """Reads a file of the controller, such as a mounted key; empty if it does not exist."""
    has_foreign_policies: bool = False
    """Whether other owners have NetworkPolicies in the resource's namespace, or in a namespace of its children."""

    def child(self, kind: Kind, name: str) -> Object | None:
        """Returns a child in the resource's own namespace, if it exists."""
        return self.children.get((kind, Key(key(self.resource).namespace, name)))

    def get(self, reference: Reference) -> Object | None:
        """Returns another object, if it exists. Raises LookupError for a kind that is not watched."""
        return self.listers.get(reference.kind, Key(reference.namespace, reference.name))

    def list(self, kind: Kind, index: str = "", value: str = "") -> Sequence[Object]:
        """Returns the objects with ``value`` in an index of ``Watch.indexes``, ordered by key; without an index all of
        the kind, in no particular order. Raises LookupError for a kind that is not watched."""
        return self.listers.list(kind, index, value)


class MetadataPatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """Annotations and labels to set on a referenced object; None removes one."""

    reference: Reference
    annotations: Mapping[str, str | None] = {}
    labels: Mapping[str, str | None] = {}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The desired objects of a resource."""

    children: tuple[Object, ...]
    """All objects that the resource owns. Other children are deleted, except those of kinds that are not listed."""
    absent: tuple[Reference, ...] = ()
    """Children of kinds that are not listed which must be deleted if they exist."""
    pending: tuple[Object, ...] = ()
    """Children to create later, once something else is ready. The author's permission to have them is checked now."""
    shared: tuple[Object, ...] = ()
    """Objects shared by several resources: created if missing, never changed, never deleted."""
    write_only: tuple[Object, ...] = ()
    """Children that are written but never read, such as Secrets. They are written before all others, and only if they
    or their content are new to this process. They are deleted with the resource."""
    discarded: tuple[Reference, ...] = ()
    """Objects with our label to delete although other resources own them, of kinds that the API watches."""
    in_system_namespace: bool = False
    """Whether children may be in the system namespace, which is not allowed for resources: such children run only what
    the operator defines."""
    metadata_patches: tuple[MetadataPatch, ...] = ()
    self_patch: Object = {}
    """Merge patch of the resource itself, such as labels and defaulted replicas; sent only if it changes something."""
    finalizer: str = ""
    """Finalizer to set before anything is created, so that ``Api.finalize`` is called on deletion."""
    adapters: AdapterSet = AdapterSet()
    """The adapters that every ready pod should load in addition to its model."""
    catalog: CatalogAddress | None = None
    """A catalog of another cluster to read from now on."""
    counted: tuple[Key, ...] = ()
    """Services whose requests are counted from now on. The resource is reconciled when they begin or end."""
    satisfied: tuple[Key, ...] = ()
    """Counted Services whose requests already have what they need. Their requests matter only while another Service has
    some."""


class InvalidSpecError(Exception):
    """The spec cannot be served as written; the children of the last valid spec stay. Not retried."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Rejection(msgspec.Struct, frozen=True):
    """Why a resource's children differ from the plan."""

    reason: str
    message: str
    retryable: bool = False
    """Retried automatically, for example if the API server is overloaded; existing objects continue to serve."""
    of_object: bool = False
    """The plan is valid, but the API server rejected one of its objects; others may have been created."""


class StatusResult(msgspec.Struct, frozen=True):
    """A status, and when it may change without a change of any object."""

    status: Object
    recheck_seconds: float | None = None
    passed_through: frozenset[str] = frozenset()
    """Intermediate reasons of the API's own conditions, which cause no Events."""


class Api(Protocol[View]):
    """One kind of a serving API: data types and pure functions. ``View`` is the type that they share."""

    @property
    def name(self) -> str:
        """The name that settings use."""

    @property
    def resource(self) -> CustomResource:
        """The kind that the API declares."""

    @property
    def finalizers(self) -> frozenset[str]:
        """The finalizers that its plans write, and those of the original system. ``finalize`` is called when a resource
        with one of them is deleted. When it returns None, they are removed."""

    @property
    def pod_labels(self) -> frozenset[str]:
        """Labels that the API itself sets on pods, whatever the spec sets."""

    @property
    def condition_types(self) -> frozenset[str]:
        """Types of conditions that the API writes, or that the original system wrote. Conditions of other writers
        stay."""

    @property
    def readiness(self) -> Readiness | None:
        """Defines how the controller derives Ready, Reconciling and Stalled from the status, unless the status already
        has them; None: it has no conditions, or already these three."""

    def watches(self, settings: Settings) -> Sequence[Watch]:
        """Returns the kinds that the API reads in addition to the resource itself, including its children. A watch of
        its own kind adds indexes."""

    def resolve(self, world: World) -> View:
        """Returns the view that the other functions use: read, typed and validated once per world. Never raises:
        problems of the spec are part of the view, because a status is needed in any case."""

    def plan(self, view: View) -> Plan:
        """Returns the desired objects of a resource. Raises InvalidSpecError."""

    def granted(self, view: View, plan: Plan) -> frozenset[Freedom]:
        """Returns the freedoms in the children of this plan, existing or pending, that come from the operator: they
        would exist whatever the author had omitted from the spec."""

    def remedy(self, view: View, refused: frozenset[Freedom]) -> str:
        """Returns sentences for the end of the message, with the author's options if these freedoms are refused."""

    def finalize(self, view: View) -> Plan | None:
        """Returns the plan of a resource that is being deleted; None: nothing is needed, and its finalizer can be
        removed. Raises InvalidSpecError."""

    def scaling(self, view: View) -> Scaling | None:
        """Returns how the resource's replicas follow its requests; None: they do not."""

    def status(self, view: View, rejection: Rejection | None) -> StatusResult:
        """Returns the status of a resource. ``rejection``: why its plan was invalid or could not be applied."""
