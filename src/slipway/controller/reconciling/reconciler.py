"""A reconciler, which creates, changes and deletes the objects of one resource of a serving API and reports its status.

It is level-triggered: each call reads the whole state from the stores, so neither the order of events nor an
interrupted earlier call matters. One call writes, in this order: the finalizer and the resource's own fields,
write-only objects, shared objects, children, discarded objects, metadata of other objects, the orders for the loaders,
the status, and the annotations of the resource's Services.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from slipway.controller.inputs.caches import Caches
from slipway.controller.inputs.catalogs import Catalogs
from slipway.controller.inputs.demands import Demands
from slipway.controller.inputs.files import content
from slipway.controller.inputs.pods import WORKLOADS
from slipway.controller.loaders.agents import LoaderClients
from slipway.controller.reconciling.metadata import MetadataPatcher
from slipway.controller.reconciling.news import select_events
from slipway.controller.reconciling.own_fields import FIELD_MANAGER, OwnFields
from slipway.controller.reconciling.rollouts import RolloutEvents
from slipway.controller.scaling.scaled import Scaled, ScaledResources, Subject
from slipway.kube.api.client import Client
from slipway.kube.caches.expectations import Expectations
from slipway.kube.caches.store import Change
from slipway.kube.metrics import Metrics
from slipway.kube.objects import (
    NETWORK_POLICY,
    POD,
    SERVICE,
    Key,
    Kind,
    Object,
    deleting,
    generation,
    key,
    labels,
    uid,
)
from slipway.kube.runtime.controller import Controller, Result
from slipway.kube.schemas.conditions import SUMMARY, Condition, merge
from slipway.kube.writes.applier import Applier
from slipway.kube.writes.events import Recorder
from slipway.kube.writes.outcomes import Applied, RefusedError
from slipway.kube.writes.status import StatusWriter
from slipway.serving.containers.freedoms import Labels
from slipway.serving.contract.api import (
    Api,
    InvalidSpecError,
    MetadataPatch,
    Plan,
    Reference,
    Rejection,
    StatusResult,
    Watch,
    World,
)
from slipway.serving.contract.authors import build_allowed_plan
from slipway.serving.contract.readiness import RETRYING, ROUTED, summarize
from slipway.serving.contract.settings import Settings
from slipway.serving.pods.workload import MANAGER
from slipway.serving.routing.route import ROUTE
from slipway.serving.routing.scaling import Scaling
from slipway.serving.status.report import PASSED_THROUGH, newest_answers
from slipway.serving.status.unready import UNREADY, Unready, annotation, explain, stand_in

log = logging.getLogger(__name__)

MARK = "slipway.inference/applied"
"""Annotation of children with the digest of the object last applied."""
TERMINATING = "because it is being terminated"
"""Part of the API server's message if an object is created in a namespace that is being deleted."""


class _Snapshot(NamedTuple):
    """A resource with everything that its API reads, and the view that the API resolved from it. Do not use a snapshot
    after an ``await``."""

    world: World
    view: Any


class Reconciler:
    """The reconciler of the resources of one kind of an API."""

    def __init__(
        self,
        api: Api[Any],
        client: Client,
        caches: Caches,
        settings: Settings,
        recorder: Recorder,
        agents: LoaderClients,
        scaled: ScaledResources,
        reserved: Labels,
        catalogs: Catalogs | None = None,
        demands: Demands | None = None,
    ) -> None:
        """Create a reconciler. ``reserved`` contains the labels that authors must not set on pods. ``catalogs`` reads
        the catalogs of other clusters, and ``demands`` counts requests; None disables either."""
        self.kind = kind = api.resource.kind
        self.resources = caches.informer(kind)
        self._api, self._client = api, client
        self._caches, self._settings, self._recorder = caches, settings, recorder
        self._agents, self._scaled, self._reserved, self._catalogs = agents, scaled, reserved, catalogs
        self._demands = demands
        self._expectations = expectations = Expectations()
        self._rollouts = RolloutEvents(kind, recorder, MARK)
        self._watches = api.watches(settings)
        listed = {watch.kind: watch for watch in self._watches if watch.listed}
        self._applier = Applier(
            client,
            kind,
            {child: caches.informer(child) for child, watch in listed.items() if watch.owned},
            expectations,
            field_manager=FIELD_MANAGER,
            manager=MANAGER,
            replaceable=WORKLOADS,
            mark=MARK,
            unlisted=[watch.kind for watch in self._watches if watch.owned and not watch.listed],
            elsewhere=[watch.kind for watch in self._watches if watch.elsewhere is not None],
            shared={other: caches.informer(other) for other, watch in listed.items() if not watch.owned},
        )
        self._metadata = MetadataPatcher(client, caches, expectations)
        self._own_fields = OwnFields(client, self.resources, expectations, self._api.finalizers)
        self._status = StatusWriter(client, self.resources, expectations, field_manager=f"{FIELD_MANAGER}-status")

    def controller(self, workers: int, metrics: Metrics) -> Controller:
        """Return the controller of this kind.

        Changes of the resources, of objects that their API watches, of their pods and loaders, and of Services that
        request their model IDs trigger it.
        """
        controller = Controller(
            f"{self._api.name}-{self.kind.plural}", self.reconcile, workers=workers, metrics=metrics
        )
        controller.watch(self.resources)
        for watch in self._watches:
            if watch.listed:
                controller.watch_changes(self._caches.informer(watch.kind), partial(self._enqueued, watch))
        caches = self._caches
        controller.watch(caches.informer(POD), keys=lambda pod: caches.owner_of_pod(self.kind, pod))
        controller.watch_changes(caches.informer(NETWORK_POLICY), self._enqueue_policy_change)
        controller.watch_changes(caches.informer(SERVICE), lambda change: caches.owners_of_change(self.kind, change))
        if caches.namespaces is not None:
            controller.watch(caches.namespaces, keys=lambda obj: caches.owners_in_namespace(self.kind, key(obj)))
        self._agents.on_change(self.kind, controller.queue.add)
        if self._catalogs is not None:
            self._catalogs.on_change(self.kind, controller.queue.add)
        if self._demands is not None:
            self._demands.on_change(self.kind, controller.queue.add)
        return controller

    def _enqueued(self, watch: Watch, change: Change) -> Iterable[Key]:
        return watch.enqueue(change, self._caches)

    async def reconcile(self, name: Key) -> Result:
        resource = self.resources.store.get(name)
        await self._applier.collect(name, uid(resource) if resource else "")
        if resource is None:
            return self._forget(name)
        await self._expectations.wait_until_observed(uid(resource))
        resource = self.resources.store.get(name)
        if resource is None:
            return self._forget(name)
        if deleting(resource):
            return await self._finalize(resource)
        return await self._sync(resource)

    def _forget(self, name: Key) -> Result:
        self._own_fields.forget(name)
        self._rollouts.forget(name)
        self._scaled.drop(Subject(self.kind, name))
        self._agents.forget(self.kind, name)
        if self._catalogs is not None:
            self._catalogs.follow(self.kind, name, None)
        if self._demands is not None:
            self._demands.follow(self.kind, name, ())
        return Result()

    async def _sync(self, resource: Object) -> Result:
        snapshot = self._take_snapshot(resource)
        try:
            plan = self._plan(snapshot)
            changed = await self._own_fields.apply(resource, plan)
            if changed is not None:
                # The store's indexes must include the patch: a plan may look up its own resource there.
                await self._expectations.wait_until_observed(uid(changed))
                resource = self._latest(changed)
                snapshot = self._take_snapshot(resource)
                plan = self._plan(snapshot)
        except (InvalidSpecError, RefusedError) as error:
            snapshot = self._take_snapshot(resource)
            self._agents.set_pods(self.kind, key(resource), snapshot.world.pods)
            if isinstance(error, InvalidSpecError):
                rejection = Rejection(error.reason, error.message)
                return await self._report(snapshot, Applied(), rejection, planned=False)
            refused = Applied((error.failure,))
            return await self._report(snapshot, refused, _rejection(refused))
        before = snapshot.world.children
        applied = await self._apply(resource, plan)
        if not (applied.failures or applied.errors or applied.waiting):
            self._rollouts.record_rollouts(resource, before, plan.children)
        latest = self._latest(resource)
        if applied.waited or latest is not resource:
            snapshot = self._take_snapshot(latest)
        self._rollouts.record_resets(resource, before, snapshot.world.children, plan.children)
        self._agents.follow(self.kind, key(latest), snapshot.world.pods, plan.adapters)
        if self._catalogs is not None:
            self._catalogs.follow(self.kind, key(latest), plan.catalog)
        if self._demands is not None:
            self._demands.follow(self.kind, key(latest), plan.counted, plan.satisfied)
        self._follow(snapshot.world, self._api.scaling(snapshot.view))
        self._rollouts.record_draining(snapshot.world)
        return await self._report(snapshot, applied, _rejection(applied))

    def _follow(self, world: World, scaling: Scaling | None) -> None:
        """Register the resource with the autoscaler, or remove it if ``scaling`` is None."""
        subject, target = Subject(self.kind, key(world.resource)), world.resource
        if scaling is None:
            self._scaled.drop(subject)
            return
        scaled = subject
        if scaling.target is not None:
            namespace = scaling.target.namespace or subject.name.namespace
            scaled = Subject(scaling.target.kind, Key(namespace, scaling.target.name))
            target = world.children.get((scaled.kind, scaled.name), {"metadata": {}})
        services = [name for kind, name in world.children if kind == SERVICE]
        counting = [name for name in services if scaling.services is None or name.name in scaling.services]
        scaled_resource = Scaled(scaling=scaling, target=scaled, generation=generation(target), services=counting)
        self._scaled.put(subject, scaled_resource)

    def _plan(self, snapshot: _Snapshot) -> Plan:
        """Return the API's plan for the resource in a snapshot. Raise InvalidSpecError if the spec cannot be served."""
        return build_allowed_plan(self._api, snapshot.world, snapshot.view, self._reserved)

    async def _finalize(self, resource: Object) -> Result:
        """Apply the plan of a resource that is being deleted, or remove its finalizers if there is no plan. Children
        that are not in the plan are deleted. The garbage collector deletes the remaining children after the
        resource."""
        self._forget(key(resource))
        if not self._api.finalizers.intersection(resource["metadata"].get("finalizers", [])):
            return Result()
        try:
            plan = self._api.finalize(self._take_snapshot(resource).view)
        except InvalidSpecError as error:
            return await self._report(self._take_snapshot(resource), Applied(), Rejection(error.reason, error.message))
        if plan is None:
            await self._own_fields.release_finalizers(resource)
            return Result()
        applied = await self._apply(resource, plan, finishing=True)
        resource = self._latest(resource)
        if self.kind.namespaced and any(TERMINATING in failure.message for failure in applied.failures):
            await self._own_fields.release_finalizers(resource)  # its namespace no longer accepts new objects
            return Result()
        return await self._report(self._take_snapshot(resource), applied, _rejection(applied))

    async def _apply(self, resource: Object, plan: Plan, *, finishing: bool = False) -> Applied:
        write_only = await self._applier.write_only.apply(resource, plan.write_only)
        shared = await self._applier.ensure(resource, plan.shared)
        absent = [(obsolete.kind, Key(obsolete.namespace, obsolete.name)) for obsolete in plan.absent]
        applied = await self._applier.sync(resource, plan.children, absent=absent, finishing=finishing)
        applied += await self._applier.discard((one.kind, Key(one.namespace, one.name)) for one in plan.discarded)
        refused = await self._metadata.patch_all(resource, plan.metadata_patches)
        # The status must not be computed from the children before these writes.
        wrote = await self._expectations.wait_until_observed(uid(resource))
        mine = Applied(refused, waited=wrote or bool(refused), again_after=self._applier.write_only.due_after(resource))
        return write_only + shared + applied + mine

    def _latest(self, resource: Object) -> Object:
        """Return the resource as the store has it after our writes. If its spec has changed, return ``resource``
        instead: it is reconciled again, and the status to write belongs to the older spec. Also return ``resource`` if
        it no longer exists."""
        latest = self.resources.store.get(key(resource))
        same = latest is not None and uid(latest) == uid(resource) and generation(latest) == generation(resource)
        return latest if latest is not None and same else resource

    async def _report(
        self, snapshot: _Snapshot, applied: Applied, rejection: Rejection | None, *, planned: bool = True
    ) -> Result:
        """Write the status of a snapshot and the annotations of the resource's Services, and return when to reconcile
        again. Raise the transient errors in ``applied``. ``planned`` is whether the resource has a plan."""
        result = self._api.status(snapshot.view, rejection)
        resource = snapshot.world.resource
        conditions = await self._write_status(snapshot.world, result)
        explanation = explain(conditions, snapshot.world.pods, snapshot.world.now, self._settings.node_wait_seconds)
        if ROUTED in self._api.condition_types and not deleting(resource):
            applied += await self._annotate_services(snapshot.world, explanation.unready, planned=planned)
        applied.raise_transient()
        rechecks = (applied.retry_after, result.recheck_seconds, explanation.recheck_seconds)
        return Result(min((seconds for seconds in rechecks if seconds is not None), default=None))

    async def _annotate_services(self, world: World, unready: Unready | None, *, planned: bool) -> Applied:
        """Annotate the resource's Services with the reason why no pod serves requests. If a resource never had a plan
        and waiting is useless, it gets a Service for the annotation, which its first plan removes."""
        resource, children = world.resource, world.children
        routes = {name: child for (kind, name), child in children.items() if kind == SERVICE and ROUTE in labels(child)}
        standing_in = [child for child in routes.values() if "selector" not in child["spec"]]
        if not planned and len(standing_in) == len(children):
            if key(resource).namespace == self._settings.system_namespace:
                return Applied()
            services = [stand_in(self._api.name, resource, unready)] if unready and unready.final else []
            return await self._applier.sync(resource, services) if services or standing_in else Applied()
        marks = {UNREADY: annotation(unready)}
        patches = (MetadataPatch(Reference(SERVICE, name.namespace, name.name), marks) for name in routes)
        return Applied(await self._metadata.patch_all(resource, patches))

    def _take_snapshot(self, resource: Object) -> _Snapshot:
        """Read the resource's world from the caches, and resolve the view."""
        children = self._applier.children(resource)
        pods = self._caches.pods_of_children(children)
        services = [child for (kind, _name), child in children.items() if kind == SERVICE]
        world = World(
            resource=resource,
            children=children,
            pods=pods,
            routed=tuple(self._caches.contenders(services)),
            settings=self._settings,
            controller_key=self._agents.public_key,
            now=time.time(),
            listers=self._caches,
            agents=self._agents.reports(pods),
            catalogs=self._catalogs.latest if self._catalogs is not None else {},
            demand=self._demands.latest if self._demands is not None else {},
            file=content,
            has_foreign_policies=any(map(self._caches.has_foreign_policies, _namespaces(resource, children))),
        )
        return _Snapshot(world, self._api.resolve(world))

    def _enqueue_policy_change(self, change: Change) -> list[Key]:
        """Return the resources that are affected if a namespace gets its first NetworkPolicy of another owner, or loses
        its last one. The result is empty for any other change."""
        if not self._caches.foreign_policies_changed(change):
            return []
        namespaces = ("", change.key.namespace)
        return [name for name in map(key, self.resources.store.all()) if name.namespace in namespaces]

    async def _write_status(self, world: World, result: StatusResult) -> Sequence[Object]:
        """Write the status with its summary conditions, and record Events. Return the conditions as written."""
        resource, status = world.resource, result.status
        before: list[Object] = (resource.get("status") or {}).get("conditions") or []
        own = [msgspec.convert(condition, Condition) for condition in status.get("conditions", ())]
        readiness, types = self._api.readiness, self._api.condition_types
        newest = newest_answers(world.children)
        summed = summarize(status, readiness, generation(resource), newest_answers=newest) if readiness else ()
        summary = [one for one in summed if one.type not in {condition.type for condition in own}]
        ours = types | SUMMARY if readiness else types
        merged = merge(before, (*own, *summary), time.time(), ours)
        if merged or "conditions" in status:
            status = status | {"conditions": merged}
        if await self._status.write(resource, status):
            for kind, condition in select_events(before, own, PASSED_THROUGH | result.passed_through):
                self._recorder.record(self.kind, resource, kind, condition.reason, condition.message)
        return merged


def _namespaces(resource: Object, children: Iterable[tuple[Kind, Key]]) -> set[str]:
    """Return the namespaces of a resource's pods: its own namespace, or those of its children if it is
    cluster-scoped."""
    own = key(resource).namespace
    return {own} if own else {name.namespace for _kind, name in children}


def _rejection(applied: Applied) -> Rejection | None:
    """Return why children differ from the plan: a permanent failure, or else a transient error, or else a child that
    waits for a deletion. The result is None if no child differs."""
    for failure in applied.failures:
        return Rejection(failure.reason, f"{failure.kind} {failure.name}: {failure.message}", of_object=True)
    for error in applied.errors:
        return Rejection(RETRYING, f"The API server rejected a request; retrying: {error}", retryable=True)
    for child in applied.waiting:
        return Rejection(RETRYING, f"{child} is being deleted and will be recreated.", retryable=True)
    return None
