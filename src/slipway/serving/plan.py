"""World, Plan and Status: what goes into an API's two pure functions and what comes out.

The flow for one resource: the controller reads a :class:`World` from its stores, ``Api.plan`` says the complete
children, the applier makes them so, ``Api.status`` says what became of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from slipway.kube.crd import CustomResource
from slipway.kube.objects import Object
from slipway.serving.route import RoutedService
from slipway.serving.settings import Settings


class World(msgspec.Struct, frozen=True, kw_only=True):
    """All that a plan or a status may depend on. Objects are as the API server sent them."""

    resource: Object
    children: Mapping[tuple[str, str], Object]
    """(kind, name) -> child object that the resource owns, as last observed."""
    pods: Sequence[Object]
    """The pods of the resource's workload."""
    routed: Sequence[RoutedService]
    """The Services that ask for a public name of this resource, its own among them."""
    settings: Settings
    now: float
    """Unix seconds."""


class Plan(msgspec.Struct, frozen=True):
    """The complete children of a resource; a child that is not in it is removed."""

    children: tuple[Object, ...]


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
    def foreign_finalizers(self) -> frozenset[str]:
        """Finalizers of the original system. They are taken off on deletion, as there is nothing left to wait for."""

    def plan(self, world: World) -> Plan:
        """The children for a resource. Raises Invalid."""

    def status(self, world: World, refusal: Refusal | None) -> Verdict:
        """The status of a resource; ``refusal`` tells that its plan was invalid or could not be applied."""
