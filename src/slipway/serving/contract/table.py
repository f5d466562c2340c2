"""An implementation of the Api protocol from functions of modules. Omitted functions have defaults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic

import msgspec

from slipway.kube.schemas.crd import CustomResource
from slipway.serving.containers.freedoms import Freedom, freedoms
from slipway.serving.contract.api import Plan, Rejection, StatusResult, View, Watch, World
from slipway.serving.contract.readiness import Readiness
from slipway.serving.contract.settings import Settings
from slipway.serving.routing.scaling import Scaling

TAKE_OUT = "Remove it from the spec."


class Table(msgspec.Struct, Generic[View], frozen=True, kw_only=True):
    """The functions of an API. :class:`slipway.serving.contract.api.Api` documents each function."""

    name: str
    resource: CustomResource
    watches: Callable[[Settings], Sequence[Watch]]
    resolve: Callable[[World], View]
    plan: Callable[[View], Plan]
    status: Callable[[View, Rejection | None], StatusResult]
    condition_types: frozenset[str]
    readiness: Readiness | None
    granted: Callable[[View, Plan], frozenset[Freedom]] = lambda _view, _plan: frozenset()
    remedy: Callable[[View, frozenset[Freedom]], str] = lambda _view, _refused: TAKE_OUT
    finalize: Callable[[View], Plan | None] = lambda _view: None
    scaling: Callable[[View], Scaling | None] = lambda _view: None
    finalizers: frozenset[str] = frozenset()
    pod_labels: frozenset[str] = frozenset()


def all_granted(_view: object, plan: Plan) -> frozenset[Freedom]:
    """Return all freedoms in a plan's children, but none in its pending children. Use this function as ``granted`` for
    kinds whose spec only names models to load or publish, and cannot configure the pods that do it."""
    return freedoms(plan.children)
