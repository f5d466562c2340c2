"""Delivery of an API's models to workloads of other owners.

The controller only watches the metadata of workloads, and only of workloads that request or have models. After a
relevant change, it reads the whole workload and applies the result of the API's pure function: first the prerequisites
of the pods, then the workload itself, then the removal of leftovers. Each call starts from the current state, so it
also completes an interrupted earlier call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from slipway.controller.inputs.caches import Caches
from slipway.controller.inputs.files import content
from slipway.kube.api.client import Client
from slipway.kube.api.errors import ApiError, ForbiddenError, InvalidObjectError, NotFoundError
from slipway.kube.caches.backoff import Backoff
from slipway.kube.caches.expectations import Expectations
from slipway.kube.caches.informer import Informer
from slipway.kube.caches.namespaces import ChosenNamespaces
from slipway.kube.caches.store import Change
from slipway.kube.metrics import Metrics
from slipway.kube.objects import (
    CRON_JOB,
    DEPLOYMENT,
    JOB,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    Key,
    Kind,
    Object,
    annotations_of,
    controller_owner,
    deleting,
    key,
    metadata_of,
    resource_version,
    uid,
)
from slipway.kube.runtime.controller import Controller, Result
from slipway.kube.writes.applier import Applier
from slipway.kube.writes.events import Recorder
from slipway.serving.contract.delivery import (
    WORKLOADS,
    Blocked,
    Delivery,
    DeliveryWorld,
    Outcome,
    is_rolled_out,
    operations,
    owned_by,
    owners,
    sharers,
    template_of,
)
from slipway.serving.contract.settings import Settings
from slipway.serving.contract.watches import NAMESPACE, by_namespace
from slipway.serving.pods.workload import MANAGER

FIELD_MANAGER = "slipway-delivery"
REFUSED_SECONDS = 60.0
"""Seconds before a write that the API server rejected is retried."""
GATED_SECONDS, GATED_JOB_SECONDS = 5.0, 60.0
"""Seconds between checks for objects that were created with the gate in the meantime: for a workload during its
rollout, and for a CronJob. The status of a workload is not watched. A rollout that does not end, as with the strategy
OnDelete, is checked less and less often, down to the interval of a CronJob."""
MESSAGE_LENGTH = 1024


class Deliveries:
    """The deliveries of one API to workloads of all kinds."""

    def __init__(
        self,
        delivery: Delivery,
        client: Client,
        caches: Caches,
        settings: Settings,
        recorder: Recorder,
        namespaces: Sequence[str] = (),
    ) -> None:
        """Create the informers and deliverers, without starting them. ``namespaces`` are the watched namespaces; empty
        means all."""
        selector = f"{delivery.label}=true"
        self._claims, self._jobs = (
            ChosenNamespaces(client, kind, namespaces, labels=selector, indexes={NAMESPACE: by_namespace})
            if namespaces
            else Informer(client, kind, labels=selector, indexes={NAMESPACE: by_namespace})
            for kind in (PERSISTENT_VOLUME_CLAIM, JOB)
        )
        self._deliverers = [
            Deliverer(delivery, kind, client, caches, settings, recorder, self._claims, self._jobs)
            for kind in WORKLOADS
        ]

    @property
    def informers(self) -> tuple[Informer, ...]:
        """The informers that the deliveries need in addition to those of the APIs."""
        return self._claims, self._jobs

    def controllers(self, workers: int, metrics: Metrics) -> list[Controller]:
        """Return a controller for each kind of workload."""
        return [one.controller(workers, metrics) for one in self._deliverers]


class Deliverer:
    """The deliveries of one API to the workloads of one kind."""

    def __init__(
        self,
        delivery: Delivery,
        kind: Kind,
        client: Client,
        caches: Caches,
        settings: Settings,
        recorder: Recorder,
        claims: Informer,
        jobs: Informer,
    ) -> None:
        self.kind = kind
        self._delivery, self._client, self._caches = delivery, client, caches
        self._settings, self._recorder = settings, recorder
        self._claims, self._jobs = claims, jobs
        self._workloads = caches.informer(metadata_of(kind))
        self._pauses: dict[Key, Backoff] = {}
        """Delays between the checks of workloads during their rollout."""
        applier = Applier(client, kind, {}, Expectations(), field_manager=FIELD_MANAGER, manager=MANAGER)
        self._secrets = applier.write_only

    def controller(self, workers: int, metrics: Metrics) -> Controller:
        """Return the controller that delivers models to workloads of this kind. Changes of the workloads, of the models
        that they name, and of the objects created for them trigger it."""
        controller = Controller(
            f"{self._delivery.name}-delivery-{self.kind.plural}", self.reconcile, workers=workers, metrics=metrics
        )
        controller.watch_changes(self._workloads, self._changed)
        for model in self._delivery.models:
            controller.watch_changes(self._caches.informer(model), self._reading)
        controller.watch_changes(self._claims, partial(self._sharing, lambda claim: claim))
        controller.watch_changes(self._jobs, partial(self._sharing, self._claim_of))
        return controller

    async def reconcile(self, name: Key) -> Result:
        try:
            workload = await self._client.get(self.kind, name)
        except NotFoundError:  # its models were deleted with it
            self._pauses.pop(name, None)
            return Result()
        outcome = self._delivery.deliver(self._world(workload))
        try:
            delivered = await self._deliver(workload, outcome)
        except (InvalidObjectError, ForbiddenError) as error:
            await self._report_refusal(workload, error)
            return Result(REFUSED_SECONDS)
        await self._release(workload, outcome.claims)
        again = [outcome.recheck_seconds, self._secrets.due_after(workload)]
        if outcome.blocked is None and self.kind != DEPLOYMENT:
            again.append(await self._drop_gated(delivered))
        return Result(min((seconds for seconds in again if seconds is not None), default=None))

    # Events that affect a workload

    def _changed(self, change: Change) -> Iterable[Key]:
        """Return the workload's key if relevant metadata has changed, and nothing otherwise.

        If only the resource version differs, only the status has changed. Our own message is ignored: messages of some
        webhooks differ each time, and must not trigger the next attempt.
        """
        annotation = self._delivery.blocked[1]
        states = [
            {**state["metadata"], "resourceVersion": "", "annotations": {**annotations_of(state), annotation: ""}}
            for state in change[:2]
            if state is not None
        ]
        return [] if len(states) == 2 and states[0] == states[1] else [change.key]

    def _reading(self, change: Change) -> Iterable[Key]:
        """Return the keys of the workloads of this kind that request a new, deleted or changed model. The result is
        empty if the change does not affect them."""
        offered = [self._delivery.offered(state) for state in change[:2] if state is not None]
        if len(offered) == 2 and offered[0] == offered[1]:
            return []
        store = self._workloads.store
        return store.keys(self._delivery.users, f"{change.key.namespace}/{change.key.name}")

    def _sharing(self, claim_of: Callable[[Object], Object | None], change: Change) -> Iterable[Key]:
        """Return the keys of the workloads of this kind that share a claim. ``claim_of`` returns the claim of the
        changed object: the object itself, or the claim that a Job fills."""
        claims = [claim_of(state) for state in change[:2] if state is not None]
        return {name for claim in claims if claim for name in sharers(claim, self.kind)}

    def _claim_of(self, job: Object) -> Object | None:
        """Return the claim that a Job fills, or None if it does not exist."""
        maker = controller_owner(job)
        return self._claims.store.get(Key(key(job).namespace, maker.name)) if maker else None

    # Reads

    def _world(self, workload: Object) -> DeliveryWorld:
        namespace = key(workload).namespace

        def here(informer: Informer) -> dict[str, Object]:
            return {key(one).name: one for one in informer.store.by_index(NAMESPACE, namespace)}

        return DeliveryWorld(
            kind=self.kind,
            workload=workload,
            claims=here(self._claims),
            jobs=here(self._jobs),
            pods=lambda job: self._caches.pods_of_children([(JOB, Key(namespace, job))]),
            listers=self._caches,
            settings=self._settings,
            now=time.time(),
            file=content,
        )

    # Writes

    async def _deliver(self, workload: Object, outcome: Outcome) -> Object:
        """Create the prerequisites of the pods, then write the workload. Return the current workload."""
        writes = await self._secrets.apply(workload, outcome.secrets)
        writes.raise_transient()
        for failure in writes.failures:
            raise ForbiddenError(failure.message, reason=failure.reason)
        for claim in outcome.claims:
            await self._keep_claim(claim)
        for job in outcome.finished_jobs:
            await self._delete(JOB, job)
        for job in outcome.jobs:
            if self._jobs.store.get(key(job)) is None:
                await self._client.create(JOB, job, field_manager=FIELD_MANAGER)
        patch = operations(self.kind, workload, outcome.workload)
        if not patch:
            return workload
        answer = await self._client.json_patch(self.kind, key(workload), patch, field_manager=FIELD_MANAGER)
        self._pauses.pop(key(workload), None)
        self._record_event(workload, outcome)
        return answer

    async def _keep_claim(self, claim: Object) -> None:
        """Create a claim, or update its annotations and owners. Raise ConflictError if it has changed in the
        meantime."""
        stored = self._claims.store.get(key(claim))
        if stored is None:
            await self._client.create(PERSISTENT_VOLUME_CLAIM, claim, field_manager=FIELD_MANAGER)
            return
        desired = {field: claim["metadata"].get(field) for field in ("annotations", "ownerReferences")}
        changed = {field: value for field, value in desired.items() if value != stored["metadata"].get(field)}
        if changed:
            await self._patch_claim(stored, changed)

    async def _patch_claim(self, claim: Object, fields: Object) -> None:
        version = {"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version(claim)}
        patch = [
            version,
            *({"op": "add", "path": f"/metadata/{name}", "value": value} for name, value in fields.items()),
        ]
        await self._client.json_patch(PERSISTENT_VOLUME_CLAIM, key(claim), patch, field_manager=FIELD_MANAGER)

    async def _release(self, workload: Object, retained: Collection[Object]) -> None:
        """Remove the workload from the owners of claims that it no longer reads, and delete claims that have no other
        owners."""
        names = {key(claim) for claim in retained}
        for claim in self._claims.store.by_index(NAMESPACE, key(workload).namespace):
            if key(claim) in names or deleting(claim) or not owned_by(claim, workload):
                continue
            others = [one for one in owners(claim) if one.get("uid") != uid(workload)]
            if others:
                await self._patch_claim(claim, {"ownerReferences": others})
            else:
                await self._delete(PERSISTENT_VOLUME_CLAIM, claim)

    async def _drop_gated(self, workload: Object) -> float | None:
        """Delete objects that were created from a template with the gate, because they would keep the gate. Return the
        seconds until the next check, or None if no check is needed."""
        gate = self._delivery.gate
        if _is_gated(template_of(self.kind, workload)["spec"], gate):
            return None
        kind = JOB if self.kind == CRON_JOB else POD
        selector = {} if kind == JOB else (workload["spec"].get("selector") or {}).get("matchLabels") or {}
        labels = ",".join(f"{name}={value}" for name, value in selector.items())
        stale: list[Object] = []
        async for page in self._client.pages(kind, namespace=key(workload).namespace, labels=labels):
            for obj in page.items:
                owner = controller_owner(obj)
                spec = template_of(JOB, obj)["spec"] if kind == JOB else obj["spec"]
                if owner is not None and owner.uid == uid(workload) and _is_gated(spec, gate) and not deleting(obj):
                    stale.append(obj)
        for obj in stale:
            await self._delete(kind, obj)
        if stale or is_rolled_out(self.kind, workload):
            self._pauses.pop(key(workload), None)
        if not stale and is_rolled_out(self.kind, workload):
            return None
        if kind == JOB:
            return GATED_JOB_SECONDS
        return self._pauses.setdefault(key(workload), Backoff(GATED_SECONDS, GATED_JOB_SECONDS)).next()

    async def _delete(self, kind: Kind, obj: Object) -> None:
        try:
            await self._client.delete(kind, key(obj), uid=uid(obj), resource_version=resource_version(obj))
        except NotFoundError:
            return

    # Reports

    def _record_event(self, workload: Object, outcome: Outcome) -> None:
        """Record one Event if the outcome differs from the state of the workload."""
        before = template_of(self.kind, workload)
        if outcome.blocked is not None:
            if not self._is_reported(workload, outcome.blocked):
                event_type = "Normal" if outcome.blocked.waiting else "Warning"
                self._recorder.record(self.kind, workload, event_type, outcome.blocked.reason, outcome.blocked.message)
        elif before != template_of(self.kind, outcome.workload):
            self._recorder.record(
                self.kind, workload, "Normal", "ModelsDelivered", "The pods have the requested models."
            )

    def _is_reported(self, workload: Object, blocked: Blocked) -> bool:
        """Whether the workload's annotation already has this reason."""
        return annotations_of(workload).get(self._delivery.blocked[0]) == blocked.reason

    async def _report_refusal(self, workload: Object, error: ApiError) -> None:
        """Write the API server's rejection to the workload's annotations, and record an Event if the reason is new."""
        refused = Blocked(error.reason, error.message[:MESSAGE_LENGTH])
        annotations = dict(zip(self._delivery.blocked, refused[:2], strict=True))
        if annotations.items() <= annotations_of(workload).items():
            return
        metadata = {"uid": uid(workload), "annotations": annotations}
        await self._client.merge_patch(self.kind, key(workload), {"metadata": metadata}, field_manager=FIELD_MANAGER)
        if not self._is_reported(workload, refused):
            self._recorder.record(self.kind, workload, "Warning", refused.reason, refused.message)


def _is_gated(pod: Object, gate: str) -> bool:
    return any(one.get("name") == gate for one in pod.get("schedulingGates") or ())
