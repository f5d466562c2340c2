"""Reconciler: makes the cluster as one resource of one serving API wants it, and writes down what came of it.

Level-triggered: each call reads the whole state from the stores, so that it does not matter which events came, in which
order, or whether an earlier call was cut off between two writes. One call does, in this order: the finalizer and the
resource's own fields, shared objects, children, notes, the wish for the loaders, the status.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

import msgspec

from slipway.apis.labels import RESERVED
from slipway.controller.agents import Agents
from slipway.controller.observed import UNLISTED, Observed, route_names
from slipway.controller.patches import difference, own_patch
from slipway.kube import errors
from slipway.kube.applier import OWNER, Applied, Applier, Failure, children_of
from slipway.kube.client import Client
from slipway.kube.conditions import Condition, merge
from slipway.kube.controller import Controller, Result, owner_keys
from slipway.kube.errors import Conflict, NotFound
from slipway.kube.events import Recorder
from slipway.kube.expectations import Expectations
from slipway.kube.metrics import Metrics
from slipway.kube.objects import (
    DEPLOYMENT,
    JOB,
    NODE,
    SERVICE,
    Key,
    Kind,
    Object,
    deleting,
    generation,
    key,
    resource_version,
    uid,
)
from slipway.kube.status import StatusWriter
from slipway.kube.store import Change
from slipway.serving.authors import planned
from slipway.serving.plan import Api, Invalid, Note, Plan, Reference, Refusal, World
from slipway.serving.report import PASSED_THROUGH, SETTLED
from slipway.serving.route import RoutedService
from slipway.serving.scaling import Scaling
from slipway.serving.settings import Settings
from slipway.serving.workload import MANAGER

log = logging.getLogger(__name__)

FIELD_MANAGER = "slipway-controller"
MARK = "slipway.inference/applied"
"""Annotation of children with the digest of what was applied last."""
REFERENCES = "references"
"""Index of resources: kind, namespace and name of each object that they refer to."""
TERMINATING = "because it is being terminated"
"""What the API server says when something is to be made in a namespace that is being deleted."""


class Scaled(msgspec.Struct, frozen=True):
    """How a resource scales, and the generation of its spec that says so."""

    scaling: Scaling
    generation: int


class Reconciler:
    """Reconciles the resources of one kind."""

    def __init__(
        self,
        api: Api,
        kind: Kind,
        client: Client,
        observed: Observed,
        settings: Settings,
        recorder: Recorder,
        agents: Agents,
    ) -> None:
        self.kind = kind
        self.resources = observed.informer(kind, indexes={REFERENCES: self._references})
        self.scaled: dict[Key, Scaled] = {}
        """The resources whose replicas follow their requests, as of their last reconciliation."""
        self._api, self._client = api, client
        self._observed, self._settings, self._recorder = observed, settings, recorder
        self._agents = agents
        self._expectations = expectations = Expectations()
        self._applier = Applier(
            client,
            kind,
            {child: observed.children[child] for child in api.child_kinds if child not in UNLISTED},
            expectations,
            field_manager=FIELD_MANAGER,
            manager=MANAGER,
            replaceable=frozenset({DEPLOYMENT, JOB}),
            mark=MARK,
            unlisted=UNLISTED.intersection(api.child_kinds),
            shared={shared: observed.shared[shared] for shared in api.shared_kinds},
        )
        self._status = StatusWriter(client, self.resources, expectations, field_manager=f"{FIELD_MANAGER}-status")

    def controller(self, workers: int, metrics: Metrics) -> Controller:
        """The worker loop of this kind, fed by its resources, their children, pods, references and loaders, and rivals
        for their names."""
        made = Controller(f"{self._api.name}-{self.kind.plural}", self.reconcile, workers=workers, metrics=metrics)
        made.watch(self.resources)
        for child in self._api.child_kinds:
            if child not in UNLISTED:
                made.watch(self._observed.children[child], keys=owner_keys(self.kind))
        for shared in self._api.shared_kinds:
            keys = self._equipped if shared == NODE else self._referring
            made.watch_changes(self._observed.shared[shared], keys)
        made.watch(self._observed.pods, keys=lambda pod: self._observed.owner_of_pod(self.kind, pod))
        made.watch_changes(self._observed.policies, self._policed)
        made.watch_changes(self._observed.routes, lambda change: self._observed.owners_of_change(self.kind, change))
        if self._observed.namespaces is not None:
            served = self._observed.namespaces
            made.watch(served, keys=lambda obj: self._observed.owners_in_namespace(self.kind, key(obj)))
        self._agents.on_change(self.kind, made.queue.add)
        return made

    def services(self, name: Key) -> list[Key]:
        """The Services of a resource, those of its adapters too."""
        resource = self.resources.store.get(name)
        found = self._observed.children[SERVICE].store.by_index(OWNER, children_of(resource)) if resource else []
        return [key(service) for service in found]

    async def reconcile(self, name: Key) -> Result:
        resource = self.resources.store.get(name)
        if resource is None:
            return self._forget(name)
        await self._expectations.met(uid(resource))
        resource = self.resources.store.get(name)
        if resource is None:
            return self._forget(name)
        if deleting(resource):
            return await self._finish(resource)
        return await self._sync(resource)

    def _forget(self, name: Key) -> Result:
        self.scaled.pop(name, None)
        self._agents.forget(self.kind, name)
        return Result()

    async def _sync(self, resource: Object) -> Result:
        try:
            plan = planned(self._api, self._world(resource), RESERVED)
            changed = await self._own(resource, plan)
            if changed is not None:
                resource = changed
                plan = planned(self._api, self._world(resource), RESERVED)
        except Invalid as error:
            self._agents.keep(self.kind, key(resource), self._world(resource).pods)
            return await self._report(resource, Applied(), Refusal(error.reason, error.message))
        applied = await self._apply(resource, plan)
        world = self._world(resource)
        self._agents.follow(self.kind, key(resource), world.pods, plan.adapters)
        scaling = self._api.scaling(world)
        if scaling is not None:
            self.scaled[key(resource)] = Scaled(scaling, generation(resource))
        else:
            self.scaled.pop(key(resource), None)
        return await self._report(resource, applied, _refusal(applied))

    async def _finish(self, resource: Object) -> Result:
        """Does what is left to do before the resource may go. Children that are no longer named go by their owner."""
        self._forget(key(resource))
        if not self._api.foreign_finalizers.intersection(resource["metadata"].get("finalizers", [])):
            return Result()
        try:
            plan = self._api.finish(self._world(resource))
        except Invalid as error:
            return await self._report(resource, Applied(), Refusal(error.reason, error.message))
        if plan is None:
            await self._release(resource)
            return Result()
        applied = await self._apply(resource, plan, finishing=True)
        if any(TERMINATING in failure.message for failure in applied.failures):
            await self._release(resource)  # nothing can be made in its namespace any more
            return Result()
        return await self._report(resource, applied, _refusal(applied))

    async def _own(self, resource: Object, plan: Plan) -> Object | None:
        """Writes the plan's finalizer and own fields into the resource, in one patch. None: there was nothing to do."""
        patch = own_patch(resource, plan)
        if not patch:
            return None
        patch.setdefault("metadata", {})["resourceVersion"] = resource_version(resource)
        try:
            answer = await self._client.merge_patch(self.kind, key(resource), patch, field_manager=FIELD_MANAGER)
        except NotFound as error:
            raise Conflict("gone meanwhile") from error
        self._expectations.wrote(uid(resource), self.resources, answer)
        answer["metadata"].pop("managedFields", None)
        return answer

    async def _apply(self, resource: Object, plan: Plan, *, finishing: bool = False) -> Applied:
        shared = await self._applier.ensure(resource, plan.shared)
        absent = [(gone.kind, Key(gone.namespace, gone.name)) for gone in plan.absent]
        applied = await self._applier.sync(resource, plan.children, absent=absent, finishing=finishing)
        noted = [await self._note(resource, note) for note in plan.notes]
        # The status must not be read off children as they were before.
        await self._expectations.met(uid(resource))
        return shared + applied + Applied(tuple(failure for failure in noted if failure))

    async def _note(self, resource: Object, note: Note) -> Failure | None:
        """Writes annotations of an object that is not ours, if it is there and they differ. What the server refuses is
        told, such as more than an object may have."""
        noted = self._observed.shared_object(note.reference)
        changes = difference(noted["metadata"].get("annotations") or {}, note.annotations) if noted else {}
        if noted is None or not changes:
            return None
        patch = {"metadata": {"uid": uid(noted), "annotations": changes}}
        kind = note.reference.kind
        try:
            answer = await self._client.merge_patch(kind, key(noted), patch, field_manager=FIELD_MANAGER)
        except NotFound:
            return None
        except (errors.Invalid, errors.Forbidden) as error:
            return Failure(kind.kind, note.reference.name, error.reason, error.message)
        self._expectations.wrote(uid(resource), self._observed.shared[kind], answer)
        return None

    async def _report(self, resource: Object, applied: Applied, refusal: Refusal | None) -> Result:
        """Writes the status that follows from what the stores show now."""
        verdict = self._api.status(self._world(resource, self._routed(resource)), refusal)
        await self._write_status(resource, verdict.status)
        applied.raise_passing()
        rechecks = [seconds for seconds in (applied.retry_after, verdict.recheck_seconds) if seconds is not None]
        return Result(min(rechecks, default=None))

    def _world(self, resource: Object, routed: tuple[RoutedService, ...] = ()) -> World:
        children = self._applier.children(resource)
        pods = self._observed.pods_of(children.values())
        references = self._api.references(resource, self._settings)
        found = ((reference, self._observed.shared_object(reference)) for reference in references)
        return World(
            resource=resource,
            children=children,
            pods=pods,
            routed=routed,
            settings=self._settings,
            controller_key=self._agents.public_key,
            now=time.time(),
            referenced={reference: obj for reference, obj in found if obj is not None},
            agents=self._agents.reports(pods),
            kin=self.resources.store.all(),
            users=self._observed.users(self._api.user_kinds, key(resource).namespace),
            policed=self._observed.policed(key(resource).namespace),
            extended_resources=self._observed.extended_resources() if NODE in self._api.shared_kinds else (),
        )

    def _references(self, resource: Object) -> Iterable[str]:
        try:
            return [_reference(one) for one in self._api.references(resource, self._settings)]
        except Exception:  # a bug must stop this resource only, which its plan then meets too
            log.exception("references of %s %s", self.kind.kind, key(resource))
            return ()

    def _referring(self, change: Change) -> list[Key]:
        """The resources that refer to an object, or those of them that its change may concern."""
        obj = change.new or change.old or {}
        concerned = self._api.concerned(change.old, change.new)
        if concerned is not None:
            return [Key(change.key.namespace, name) for name in concerned]
        kind = next(kind for kind in self._api.shared_kinds if kind.kind == obj["kind"])
        reference = Reference(kind, *key(obj))
        return [key(resource) for resource in self.resources.store.by_index(REFERENCES, _reference(reference))]

    def _policed(self, change: Change) -> list[Key]:
        """The resources of a namespace that gets network policies of others, or has none of them any more."""
        if not self._observed.polices(change):
            return []
        return [name for name in map(key, self.resources.store.all()) if name.namespace == change.key.namespace]

    def _equipped(self, change: Change) -> list[Key]:
        """All resources where the cluster gets an extended resource that it had not, or has none of it any more."""
        if not self._observed.equips(change):
            return []
        return [key(resource) for resource in self.resources.store.all()]

    def _routed(self, resource: Object) -> tuple[RoutedService, ...]:
        """The Services that ask for the names of this resource's own, which are among them."""
        own = [child for child in self._applier.children(resource).values() if route_names(child)]
        return tuple(self._observed.rivals(own))

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
            good = condition.status == "True" or condition.reason in SETTLED
            quiet = condition.reason in told | PASSED_THROUGH or (good and condition.type not in known)
            if condition.reason != known.get(condition.type) and not quiet:
                told.add(condition.reason)
                kind = "Normal" if good else "Warning"
                self._recorder.record(self.kind, resource, kind, condition.reason, condition.message)

    async def _release(self, resource: Object) -> None:
        """Takes the original system's finalizers off, so that what it made can go. Children go by their owner."""
        finalizers = resource["metadata"].get("finalizers", [])
        kept = [finalizer for finalizer in finalizers if finalizer not in self._api.foreign_finalizers]
        if kept == finalizers:
            return
        path = "/metadata/finalizers"
        operations = [{"op": "test", "path": path, "value": finalizers}, {"op": "replace", "path": path, "value": kept}]
        try:
            answer = await self._client.json_patch(self.kind, key(resource), operations)
        except NotFound:
            return
        self._expectations.wrote(uid(resource), self.resources, answer)


def _reference(reference: Reference) -> str:
    return f"{reference.kind.kind} {reference.namespace}/{reference.name}"


def _refusal(applied: Applied) -> Refusal | None:
    """The first child that is not as planned, what stays so until someone acts before what passes."""
    for failure in applied.failures:
        return Refusal(failure.reason, f"{failure.kind} {failure.name}: {failure.message}")
    for error in applied.errors:
        return Refusal("Retrying", f"The API server does not take the objects yet: {error}", passing=True)
    for child in applied.waiting:
        return Refusal("Retrying", f"{child} is on its way out, and is made anew when it is gone.", passing=True)
    return None
