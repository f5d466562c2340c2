"""Reconciler: makes the cluster as one resource of one serving API wants it, and writes down what came of it.

Level-triggered: each call reads the whole state from the stores, so that it does not matter which events came, in which
order, or whether an earlier call was cut off between two writes.
"""

from __future__ import annotations

import time

import msgspec

from slipway.controller.observed import Observed, route_names
from slipway.kube.applier import Applied, Applier
from slipway.kube.client import Client
from slipway.kube.conditions import Condition, merge
from slipway.kube.controller import Controller, Result, owner_keys
from slipway.kube.errors import NotFound
from slipway.kube.events import Recorder
from slipway.kube.expectations import Expectations
from slipway.kube.informer import Informer
from slipway.kube.metrics import Metrics
from slipway.kube.objects import DEPLOYMENT, Key, Kind, Object, deleting, key, uid
from slipway.kube.status import StatusWriter
from slipway.serving.plan import Api, Invalid, Refusal, World
from slipway.serving.route import RoutedService
from slipway.serving.settings import Settings
from slipway.serving.workload import MANAGER

FIELD_MANAGER = "slipway-controller"
QUIET_REASONS = frozenset({"WaitingForPods", "RollingOut"})
"""Reasons that every model goes through."""


class Reconciler:
    """Reconciles the resources of one kind."""

    def __init__(
        self, api: Api, kind: Kind, client: Client, observed: Observed, settings: Settings, recorder: Recorder
    ) -> None:
        self.resources = Informer(client, kind)
        self._api, self._kind, self._client = api, kind, client
        self._observed, self._settings, self._recorder = observed, settings, recorder
        self._expectations = expectations = Expectations()
        self._applier = Applier(
            client,
            kind,
            observed.children,
            expectations,
            field_manager=FIELD_MANAGER,
            manager=MANAGER,
            replaceable=frozenset({DEPLOYMENT}),
        )
        self._status = StatusWriter(client, self.resources, expectations, field_manager=f"{FIELD_MANAGER}-status")

    def controller(self, workers: int, metrics: Metrics) -> Controller:
        """The worker loop of this kind, fed by its resources, their children and pods, and rivals for their names."""
        made = Controller(f"{self._api.name}-{self._kind.plural}", self.reconcile, workers=workers, metrics=metrics)
        made.watch(self.resources)
        for children in self._observed.children.values():
            made.watch(children, keys=owner_keys(self._kind))
        made.watch(self._observed.pods, keys=lambda pod: self._observed.owner_of_pod(self._kind, pod))
        made.watch(self._observed.routes, keys=lambda service: self._observed.owners_of_rivals(self._kind, service))
        return made

    async def reconcile(self, name: Key) -> Result:
        resource = self.resources.store.get(name)
        if resource is None:
            return Result()
        await self._expectations.met(uid(resource))
        resource = self.resources.store.get(name)
        if resource is None:
            return Result()
        if deleting(resource):
            await self._release(resource)
            return Result()
        return await self._sync(resource)

    async def _sync(self, resource: Object) -> Result:
        applied, refusal = Applied(), None
        try:
            children = self._api.plan(self._world(resource, ())).children
        except Invalid as error:
            refusal = Refusal(error.reason, error.message)
        else:
            applied = await self._applier.sync(resource, children)
            refusal = _refusal(applied)
            # The status must not be read off children as they were before.
            await self._expectations.met(uid(resource))
        routed = self._routed(resource)
        verdict = self._api.status(self._world(resource, routed), refusal)
        await self._write_status(resource, verdict.status)
        applied.raise_passing()
        rechecks = [seconds for seconds in (applied.retry_after, verdict.recheck_seconds) if seconds is not None]
        return Result(min(rechecks, default=None))

    def _world(self, resource: Object, routed: tuple[RoutedService, ...]) -> World:
        children = self._applier.children(resource)
        deployments = [child for child in children.values() if child["kind"] == DEPLOYMENT.kind]
        return World(
            resource=resource,
            children=children,
            pods=self._observed.pods_of(deployments),
            routed=routed,
            settings=self._settings,
            now=time.time(),
        )

    def _routed(self, resource: Object) -> tuple[RoutedService, ...]:
        """The Services that ask for the names of this resource's own, which are among them."""
        names = (name for child in self._applier.children(resource).values() for name in route_names(child))
        return tuple(self._observed.rivals(names))

    async def _write_status(self, resource: Object, status: Object) -> None:
        before = resource.get("status", {}).get("conditions", [])
        after = [msgspec.convert(condition, Condition) for condition in status["conditions"]]
        status = status | {"conditions": merge(before, after, time.time())}
        if await self._status.write(resource, status):
            self._tell(resource, before, after)

    def _tell(self, resource: Object, before: list[Object], after: list[Condition]) -> None:
        """One Event for each reason that is new; what was never wrong is not told at the start."""
        known = {condition["type"]: condition.get("reason") for condition in before}
        told: set[str] = set()
        for condition in after:
            good = condition.status == "True" or condition.reason == "Complete"
            quiet = condition.reason in told | QUIET_REASONS or (good and condition.type not in known)
            if condition.reason != known.get(condition.type) and not quiet:
                told.add(condition.reason)
                kind = "Normal" if good else "Warning"
                self._recorder.record(self._kind, resource, kind, condition.reason, condition.message)

    async def _release(self, resource: Object) -> None:
        """Takes the original system's finalizers off, so that what it made can go. Children go by their owner."""
        finalizers = resource["metadata"].get("finalizers", [])
        kept = [finalizer for finalizer in finalizers if finalizer not in self._api.foreign_finalizers]
        if kept == finalizers:
            return
        path = "/metadata/finalizers"
        operations = [{"op": "test", "path": path, "value": finalizers}, {"op": "replace", "path": path, "value": kept}]
        try:
            answer = await self._client.json_patch(self._kind, key(resource), operations)
        except NotFound:
            return
        self._expectations.wrote(uid(resource), self.resources, answer)


def _refusal(applied: Applied) -> Refusal | None:
    """The first child that is not as planned, what stays so until someone acts before what passes."""
    for failure in applied.failures:
        return Refusal(failure.reason, f"{failure.kind} {failure.name}: {failure.message}")
    for error in applied.errors:
        return Refusal("Retrying", f"The API server does not take the objects yet: {error}", passing=True)
    for child in applied.waiting:
        return Refusal("Retrying", f"{child} of an earlier owner has to be gone first.", passing=True)
    return None
