"""World, Plan and Status: what goes into an API's two pure functions and what comes out.

The flow for one resource: the controller reads a :class:`World` from its stores, ``Api.plan`` says the complete
children, the applier makes them so, ``Api.status`` says what became of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from slipway.kube.crd import CustomResource
from slipway.kube.objects import Kind, Object
from slipway.serving.agent import Adapter, AgentReport
from slipway.serving.freedoms import Freedom
from slipway.serving.route import RoutedService
from slipway.serving.scaling import Scaling
from slipway.serving.settings import Settings

USES = "slipway.inference/uses"
"""Annotation of pods with what they use of resources that do not own them, such as a cache; the API says how."""


class Reference(msgspec.Struct, frozen=True):
    """An object that a resource depends on without owning it."""

    kind: Kind
    namespace: str
    name: str


class World(msgspec.Struct, frozen=True, kw_only=True):
    """All that a plan or a status may depend on. Objects are as the API server sent them."""

    resource: Object
    children: Mapping[tuple[str, str], Object]
    """(kind, name) -> child object that the resource owns, as last observed; no ConfigMaps, which nobody lists."""
    pods: Sequence[Object]
    """The pods of the resource's workload."""
    routed: Sequence[RoutedService]
    """The Services that ask for a public name of this resource, its own among them."""
    settings: Settings
    controller_key: str = ""
    """The public key by which loaders know the controller."""
    now: float
    """Unix seconds."""
    referenced: Mapping[Reference, Object] = {}
    """Those of ``Api.references`` that exist."""
    agents: Mapping[str, AgentReport] = {}
    """uid of a pod -> what the loader in it told last."""
    kin: Sequence[Object] = ()
    """All resources of this one's kind in the cluster, itself among them."""
    users: Sequence[Object] = ()
    """Who may use resources of this one's kind in its namespace: the objects of ``Api.user_kinds``, and where there are
    such kinds their pods with the annotation ``USES``."""
    policed: bool = False
    """Whether the resource's namespace has NetworkPolicies that are not ours."""
    extended_resources: Collection[str] = ()
    """Names of the extended resources, such as ``nvidia.com/gpu``, that some node has; of APIs that look at nodes."""


class Note(msgspec.Struct, frozen=True):
    """Annotations that a referenced object shall carry; None removes one."""

    reference: Reference
    annotations: Mapping[str, str | None]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a resource wants of the cluster."""

    children: tuple[Object, ...]
    """All that it owns; a child that is not named is removed, but for ConfigMaps."""
    absent: tuple[Reference, ...] = ()
    """ConfigMaps that it may own from before and wants no more. They are read by name only, never listed: what others
    keep in theirs is none of our business."""
    awaited: tuple[Object, ...] = ()
    """Children that are made once something else is ready. Whether the author may have them is judged now."""
    shared: tuple[Object, ...] = ()
    """Objects that several resources use: made where they are missing, never changed, never removed."""
    notes: tuple[Note, ...] = ()
    own: Object = {}
    """Merge patch of the resource itself, such as labels and defaulted replicas; sent where it would change it."""
    finalizer: str = ""
    """Kept on the resource before anything is made, so that ``Api.finish`` is asked on deletion."""
    adapters: tuple[Adapter, ...] = ()
    """What every ready pod shall have loaded beside its model."""


class Invalid(Exception):
    """The spec cannot be served as it is written; the children of the last good spec stay. Not retried."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Refusal(msgspec.Struct, frozen=True):
    """Why a resource's children are not as planned."""

    reason: str
    message: str
    passing: bool = False
    """Tried again by itself, such as when the API server is overloaded; what is there already serves on."""


class Verdict(msgspec.Struct, frozen=True):
    """A status, and when it may change without any object changing."""

    status: Object
    recheck_seconds: float | None = None


class Api(Protocol):
    """One serving API: data types and two pure functions."""

    @property
    def name(self) -> str:
        """The name that settings use: ``krypton``."""

    @property
    def resources(self) -> tuple[CustomResource, ...]:
        """The kinds that it declares."""

    @property
    def child_kinds(self) -> tuple[Kind, ...]:
        """The kinds of all objects that its plans may own."""

    @property
    def shared_kinds(self) -> tuple[Kind, ...]:
        """The kinds that its references, notes and shared objects may have, ConfigMap of the controller's namespace
        only; those of ``user_kinds``; Node, which it sees by its extended resources only."""

    @property
    def user_kinds(self) -> tuple[Kind, ...]:
        """Kinds whose objects use its resources by their names; ``concerned`` says which ones."""

    @property
    def foreign_finalizers(self) -> frozenset[str]:
        """Finalizers of the original system, that of its plans among them. They are taken off on deletion when
        ``finish`` wants nothing more."""

    @property
    def pod_labels(self) -> frozenset[str]:
        """Labels that it gives to pods itself, whatever a spec says of them."""

    def references(self, resource: Object, settings: Settings) -> tuple[Reference, ...]:
        """The objects that ``plan`` and ``status`` look at beside the resource's own; a change leads back to it."""

    def concerned(self, old: Object | None, new: Object | None) -> Collection[str] | None:
        """Names of the resources that this change of a shared object may concern, all in its namespace; it is new or
        gone where one of the two is None. None: all that refer to it. Many share one, so that a change that each makes
        would else bring each back for each."""

    def plan(self, world: World) -> Plan:
        """What a resource wants. Raises Invalid."""

    def granted(self, world: World, plan: Plan) -> frozenset[Freedom]:
        """What needs trust in the children of this plan of the resource, made or awaited, and is the operator's own: it
        would be there whatever the author had left out of the spec."""

    def finish(self, world: World) -> Plan | None:
        """What a resource that is being deleted still wants; None: nothing, its finalizer can go."""

    def scaling(self, world: World) -> Scaling | None:
        """How the resource's replicas follow its requests; None: they do not."""

    def status(self, world: World, refusal: Refusal | None) -> Verdict:
        """The status of a resource; ``refusal`` tells that its plan was invalid or could not be applied."""
