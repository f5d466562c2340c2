"""The contract between the controller and one serving API.

The controller caches the kinds that ``Api.watches`` declares and reads a :class:`World` for each resource from the
caches. ``Api.resolve`` turns the world into a typed view, ``Api.plan`` returns the children that should exist now, the
applier creates them, and ``Api.status`` reports the result. Everything except the caches and the applier is pure.
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
"""Pod annotation with the parts of other owners' resources that the pod uses, such as a cache. Each API defines the
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
        """Return one object, or None if it does not exist."""

    def list(self, kind: Kind, index: str = "", value: str = "") -> Sequence[Object]:
        """Return the objects with ``value`` in the index, ordered by key. Without an index, return all objects of the
        kind in no particular order."""

    def count(self, kind: Kind, index: str, value: str) -> int:
        """Return the number of objects that ``list`` would return."""

    def oldest(self, kind: Kind, index: str, value: str, most: int, skip: int = 0) -> Sequence[Object]:
        """Return up to ``most`` of the objects that ``list`` would return, oldest first, after the first ``skip``."""

    def older(self, kind: Kind, index: str, value: str, obj: Object) -> int:
        """Return how many of the objects that ``list`` would return are older than ``obj``, or equally old with a
        smaller key."""

    def values(self, kind: Kind, index: str) -> Set[str]:
        """Return all values in the index."""

    def pods_of(self, owner: Kind, index: str, value: str) -> Sequence[Object]:
        """Return the pods with ``value`` in the index that a workload of a resource of the kind ``owner`` created.

        This check makes the value trustworthy, because authors can create pods with any value. A terminating pod whose
        workload is gone counts if the controller saw the deletion of the workload, and the workload's owner was of the
        kind ``owner``. If the controller started later, the pod counts if it mounts a node directory or a claim.
        """

    def pods_of_workload(self, workload: Kind, name: Key) -> Sequence[Object]:
        """Return the pods that name a workload as their origin, even if the workload no longer exists. Do not trust
        them: authors can create such pods in their own namespaces."""


Trim = Callable[[Object], Object | None]
"""A function that returns the part of an object to cache, or None to skip the object."""
Enqueue = Callable[[Change, Listers], Iterable[Key]]
"""A function that returns the keys of the resources, in any namespace, that a change of an object affects."""


class Watch(msgspec.Struct, frozen=True, kw_only=True):
    """A kind that an API reads, and the resources that a change of an object of this kind affects.

    The process has one informer per kind, regardless of how many APIs watch the kind. The informer for Pods caches the
    pods of all workloads that resources own. See :mod:`slipway.serving.contract.watches` for common watches.
    """

    kind: Kind
    enqueue: Enqueue
    owned: bool = False
    """Whether the API's resources own objects of the kind. The applier creates and deletes the owned objects, which
    have our label. Other objects of the kind are ignored."""
    listed: bool = True
    """Whether the process has an informer for the kind. Without one, owned objects are read by name whenever their
    owner is reconciled. Use False for kinds in which other users keep private data."""
    namespace: str | None = None
    """The only watched namespace. None means all namespaces that the controller watches."""
    elsewhere: str | None = None
    """Namespace, or empty for cluster-scoped kinds, that may contain children of resources in other namespaces. Only
    the operator may write there. The value is None if the children of a namespaced resource are always in its
    namespace."""
    trim: Trim | None = None
    """Function that reduces an object before it is cached. With None, only annotations that are longer than any of ours
    are replaced by a placeholder. The function has no effect for owned kinds, which are cached whole, and for Pods."""
    indexes: Mapping[str, IndexFunction] = {}
    """Map of an index name to its function, for ``World.list``. Several APIs may declare the same function under one
    name."""
    optional: str = ""
    """What to install if the cluster lacks the kind, such as ``the role metrics_server``. The value is empty if the
    kind is required.

    While an optional kind is missing, the resources that need it report MissingKind with this text. Everything else
    continues. The problem resolves once the kind is installed.
    """


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a plan or a status of a resource may depend on. Objects are as the API server sent them, except
    for fields that the caches remove. A world reads the live caches, so do not use it after an ``await``."""

    resource: Object
    children: Mapping[tuple[Kind, Key], Object]
    """The objects that the resource owns, as last observed. Objects of kinds without an informer are missing (see
    ``Watch.listed``)."""
    pods: Sequence[Object]
    """The pods of the resource's workloads."""
    routed: Sequence[RoutedService]
    """The resource's own Services that request model IDs, and for each of these IDs the oldest other Service that
    requests it."""
    settings: Settings
    controller_key: str = ""
    """The public key by which loaders recognize the controller."""
    now: float
    """The current time in Unix seconds."""
    listers: Listers
    """Read access to the resource's own kind and the kinds that ``Api.watches`` declares."""
    agents: Mapping[str, AgentReport] = {}
    """Map of a pod UID to the last report of the pod's loader."""
    catalogs: Mapping[str, Catalog] = {}
    """Map of the name of a resource with a catalog to the state of the catalog. A catalog that has not been read yet is
    missing."""
    demand: Mapping[Key, Demand] = {}
    """Map of a Service in ``Plan.counted`` to its demand. A Service is missing until its demand is known."""
    file: Callable[[str], bytes] = lambda _path: b""
    """Function that returns the content of a file in the controller's container, such as a mounted key. It returns
    empty bytes if the file is missing or cannot be read."""
    has_foreign_policies: bool = False
    """Whether the resource's namespace has NetworkPolicies of other owners. For a cluster-scoped resource, whether a
    namespace of its children has some."""

    def child(self, kind: Kind, name: str) -> Object | None:
        """Return a child in the resource's own namespace, or None if it does not exist."""
        return self.children.get((kind, Key(key(self.resource).namespace, name)))

    def get(self, reference: Reference) -> Object | None:
        """Return any cached object, or None if it does not exist. Raise LookupError for a kind that is not watched."""
        return self.listers.get(reference.kind, Key(reference.namespace, reference.name))

    def list(self, kind: Kind, index: str = "", value: str = "") -> Sequence[Object]:
        """Return the objects with ``value`` in an index of ``Watch.indexes``, ordered by key. Without an index, return
        all objects of the kind in no particular order. Raise LookupError for an unknown index or a kind that is not
        watched."""
        return self.listers.list(kind, index, value)


class MetadataPatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """Annotations and labels to set on a referenced object. The value None removes a key."""

    reference: Reference
    annotations: Mapping[str, str | None] = {}
    labels: Mapping[str, str | None] = {}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The desired objects of a resource, and the other changes that the controller makes for it."""

    children: tuple[Object, ...]
    """All objects that the resource should own now. Its other children are deleted, except children of kinds without an
    informer (see ``Watch.listed``)."""
    absent: tuple[Reference, ...] = ()
    """Children to delete if they exist. Their kinds have no informer (see ``Watch.listed``)."""
    pending: tuple[Object, ...] = ()
    """Children to create later, once another object is ready. The controller already checks whether the author may have
    them."""
    shared: tuple[Object, ...] = ()
    """Objects that several resources share. The controller creates missing ones, and never changes or deletes them."""
    write_only: tuple[Object, ...] = ()
    """Children that are written but never read, such as Secrets. They are written before all others: at once if their
    content changes, and otherwise at intervals. They are deleted together with the resource."""
    discarded: tuple[Reference, ...] = ()
    """Objects to delete although other resources own them. They have our label, and the API watches their kinds without
    owning objects of these kinds."""
    in_system_namespace: bool = False
    """Whether a cluster-scoped resource may have children in the system namespace even if ``Authors.system_namespace``
    is false. Such children must run only what the operator defines."""
    metadata_patches: tuple[MetadataPatch, ...] = ()
    self_patch: Object = {}
    """Merge patch of the resource itself, such as labels and defaulted replicas. The controller sends it only if it
    changes the resource."""
    finalizer: str = ""
    """Finalizer to set before anything is created, so that ``Api.finalize`` is called on deletion. Empty means none."""
    adapters: AdapterSet = AdapterSet()
    """The adapters that every ready pod should load in addition to its model."""
    catalog: CatalogAddress | None = None
    """A catalog of another cluster that the controller reads from now on, or None."""
    counted: tuple[Key, ...] = ()
    """Services whose requests the controller counts from now on. The resource is reconciled when their requests begin
    or end."""
    satisfied: tuple[Key, ...] = ()
    """Services in ``counted`` whose requests already have the model that they need. Changes of their requests matter
    only while a Service that is only in ``counted`` has requests."""


class InvalidSpecError(Exception):
    """The spec cannot be served as written. The children of the last valid spec stay, and the controller does not
    retry."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Rejection(msgspec.Struct, frozen=True):
    """Why a resource has no plan, or why its children differ from its plan."""

    reason: str
    message: str
    retryable: bool = False
    """Whether the controller retries automatically, such as for an overloaded API server. Existing objects continue to
    serve."""
    of_object: bool = False
    """Whether the plan is valid, but one of its objects cannot be applied. The other objects may have been created."""


class StatusResult(msgspec.Struct, frozen=True):
    """A status, and the seconds after which it may change even if no object changes, or None."""

    status: Object
    recheck_seconds: float | None = None
    passed_through: frozenset[str] = frozenset()
    """Intermediate reasons of the API's own conditions that cause no Events."""


class Api(Protocol[View]):
    """One kind of a serving API: data types and pure functions. ``View`` is the type that the functions share."""

    @property
    def name(self) -> str:
        """The API's name in the settings."""

    @property
    def resource(self) -> CustomResource:
        """The custom resource that the API declares."""

    @property
    def finalizers(self) -> frozenset[str]:
        """The finalizers that the API's plans or the original system write.

        When a resource with one of them is deleted, the controller calls ``finalize`` until it returns None or the
        namespace is being deleted, and then removes the finalizers.
        """

    @property
    def pod_labels(self) -> frozenset[str]:
        """Names of the labels that the API itself sets on pods, regardless of the spec."""

    @property
    def condition_types(self) -> frozenset[str]:
        """Types of conditions that the API or the original system writes. Conditions of other writers stay."""

    @property
    def readiness(self) -> Readiness | None:
        """The rules by which the controller derives Ready, Reconciling and Stalled from the status, unless the status
        already has them. The value is None if the kind has no conditions, or already has these three."""

    def watches(self, settings: Settings) -> Sequence[Watch]:
        """Return the kinds that the API reads in addition to the resource itself, including the kinds of its children.
        A watch of the resource's own kind only adds indexes."""

    def resolve(self, world: World) -> View:
        """Return the typed and validated view that the other functions use. The controller calls this function once per
        world.

        This function never raises an error: problems of the spec are part of the view, because every resource needs a
        status.
        """

    def plan(self, view: View) -> Plan:
        """Return the plan for the next step only: the objects that the resource should have now. The controller calls
        this function again whenever the state changes. Raise InvalidSpecError if the spec cannot be served."""

    def granted(self, view: View, plan: Plan) -> frozenset[Freedom]:
        """Return the freedoms in this plan's children, existing or pending, that the operator's configuration grants.
        They would exist even with a minimal spec."""

    def remedy(self, view: View, refused: frozenset[Freedom]) -> str:
        """Return sentences with the author's options for the end of the message that reports refused freedoms."""

    def finalize(self, view: View) -> Plan | None:
        """Return the plan for the next step of a resource that is being deleted, or None if its finalizer can be
        removed. Raise InvalidSpecError if the spec cannot be served."""

    def scaling(self, view: View) -> Scaling | None:
        """Return how the number of replicas follows the number of requests, or None if the resource does not scale."""

    def status(self, view: View, rejection: Rejection | None) -> StatusResult:
        """Return the status of a resource. ``rejection`` explains why its plan was invalid or could not be applied, or
        is None."""
