"""The applier, which creates, changes and deletes an owner's children according to a plan, with server-side apply.

It sends only changes, never takes over an object that belongs to another owner, and always deletes with preconditions.
:class:`Applied` reports each child that the API server rejects; the others are still applied.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from slipway.kube.api.client import Client
from slipway.kube.api.errors import ConflictError, ForbiddenError, InvalidObjectError, NotFoundError
from slipway.kube.caches.expectations import Expectations
from slipway.kube.caches.informer import Informer
from slipway.kube.caches.store import Change
from slipway.kube.objects import (
    MANAGED_BY,
    ROLE,
    SERVICE_ACCOUNT,
    Key,
    Kind,
    Object,
    OwnerReference,
    controller_owner,
    deleting,
    key,
    labels,
    resource_version,
    uid,
)
from slipway.kube.values.compare import digest, projection
from slipway.kube.writes.intents import Intent, IntentBuilder
from slipway.kube.writes.outcomes import (
    NAME_TAKEN,
    Applied,
    Failure,
    NameTakenError,
    RefusedError,
    run_all,
    summarize,
)
from slipway.kube.writes.owners import ORIGIN, OWNER, children_of, origin_of
from slipway.kube.writes.refusals import Refusals, is_immutable, require_kind
from slipway.kube.writes.write_only import WriteOnlyObjects

log = logging.getLogger(__name__)

APPLIED_FIRST = frozenset({SERVICE_ACCOUNT, ROLE})
"""Kinds that other children need: pods refer to a ServiceAccount, and a RoleBinding refers to a Role."""


class _LastWrite(NamedTuple):
    """The last write of one child by this process, or by the previous process if the child's mark shows it."""

    uid: str
    desired: bytes
    """Digest of the object that was sent to the API server."""
    resource_version: str
    observed: bytes
    """Digest of the sent fields as the API server returned them, with its defaults and conversions."""


class Applier:
    """The applier of the children of owners of one kind.

    It writes nothing if nothing changed, and creates nothing for an owner that is being deleted, unless requested.
    Except for :meth:`discard` and :meth:`collect`, it neither changes nor deletes an object of another controller.
    Deletions have the UID and version on which the decision was based as preconditions. The informers must contain all
    objects with our ``managed-by`` label and have the index OWNER.
    """

    def __init__(
        self,
        client: Client,
        owner_kind: Kind,
        informers: Mapping[Kind, Informer],
        expectations: Expectations,
        *,
        field_manager: str,
        manager: str,
        replaceable: frozenset[Kind] = frozenset(),
        shared: Mapping[Kind, Informer] | None = None,
        unlisted: Iterable[Kind] = (),
        elsewhere: Iterable[Kind] = (),
        mark: str = "",
    ) -> None:
        """Create an applier.

        ``manager`` is the value of the managed-by label. ``shared`` are the informers that ``ensure`` reads.
        ``unlisted`` are kinds of children that no informer lists, because such objects may contain other users' private
        data. Each such child is read by name whenever its owner is synced, and ``children`` returns none of them.
        ``elsewhere`` are kinds of children that may be in another namespace than their owner, or cluster-scoped.
        ``mark`` is the annotation with the digest of the object last sent, so that unchanged objects are not sent again
        after a restart; empty means no annotation. ``replaceable`` are kinds of objects that are deleted and recreated
        if an immutable field changes.
        """
        self._client = client
        self._owner_kind = owner_kind
        self._informers = dict(informers)
        self._expectations = expectations
        self._field_manager = field_manager
        self._manager = manager
        self._replaceable = replaceable
        self._shared = dict(shared or {})
        self._unlisted, self._elsewhere = frozenset(unlisted), frozenset(elsewhere)
        kinds: list[Kind] = [*informers, *self._shared, *self._unlisted]
        self._builder = IntentBuilder(owner_kind, kinds, manager=manager, elsewhere=self._elsewhere, mark=mark)
        self._last_writes: dict[tuple[Kind, Key], _LastWrite] = {}
        self._refusals = Refusals()
        self.write_only = WriteOnlyObjects(client, self._builder, self._refusals, field_manager=field_manager)
        for kind, informer in self._informers.items():
            informer.add_handler(partial(self._forget, kind))

    def children(self, owner: Object) -> dict[tuple[Kind, Key], Object]:
        """Return the owner's children in the stores, by kind and key. See :func:`children_of`."""
        return {(kind, key(child)): child for kind, child in self._owned(owner)}

    async def sync(
        self,
        owner: Object,
        children: Sequence[Object],
        *,
        absent: Iterable[tuple[Kind, Key]] = (),
        finishing: bool = False,
    ) -> Applied:
        """Create, change and delete objects until the owner's children are ``children``, which have no owner reference
        yet.

        ``absent`` are children to delete, of kinds that no informer lists. With ``finishing``, an owner that is being
        deleted is also synced. Its children are then deleted in the foreground, so each stays visible until its
        dependents are gone.

        Other objects are created only once ServiceAccounts and Roles are ours: pods would otherwise run with the
        permissions of another account, and the API server rejects a RoleBinding without its Role. The result contains
        the API server's errors; only programming errors are raised.
        """
        if deleting(owner) and not finishing:
            return Applied()
        built = (self._builder.build(owner, child) for child in children)
        intents = {(intent.kind, intent.name): intent for intent in built}
        changed = [intent for intent in intents.values() if not self._is_up_to_date(intent)]
        first = [intent for intent in changed if intent.kind in APPLIED_FIRST]
        others = [intent for intent in changed if intent.kind not in APPLIED_FIRST]
        outcomes = await run_all([self._apply(owner, intent) for intent in first])
        if any(outcome is not None for outcome in outcomes):
            return summarize(outcomes, first)
        steps = [self._apply(owner, intent) for intent in others]
        surplus = [(kind, child) for kind, child in self._owned(owner) if (kind, key(child)) not in intents]
        if surplus and all(informer.ready.is_set() for informer in self._informers.values()):
            steps += [self._prune(owner, kind, child) for kind, child in surplus if not deleting(child)]
        steps += [self._remove_unlisted(owner, kind, name) for kind, name in absent]
        return summarize([*outcomes, *await run_all(steps)], [*first, *others])

    async def discard(self, objects: Iterable[tuple[Kind, Key]]) -> Applied:
        """Delete objects that have our label but belong to other owners, such as the PVCs of a deleted model. Objects
        that are not in the stores of ``shared``, or lack our label, are ignored."""
        stored = ((kind, self._shared[kind].store.get(name)) for kind, name in objects)
        going = [(kind, one) for kind, one in stored if one and not deleting(one)]
        ours = [(kind, one) for kind, one in going if labels(one).get(MANAGED_BY) == self._manager]
        return summarize(await run_all([self._delete_exactly(kind, one) for kind, one in ours]), ())

    async def collect(self, owner: Key, owner_uid: str) -> None:
        """Delete children in other namespaces whose owner of this name is gone. Kubernetes' garbage collector does not
        delete them.

        ``owner_uid`` is the UID of the owner in the cache, or empty if it is not cached. The cache may lack an existing
        owner, so the API server is queried first.
        """
        strays = [
            (kind, child)
            for kind in self._elsewhere
            for child in self._informers[kind].store.by_index(ORIGIN, origin_of(self._owner_kind, owner))
            if (controller := controller_owner(child)) and controller.uid != owner_uid and not deleting(child)
        ]
        if not strays:
            return
        try:
            live_uid = uid(await self._client.get(self._owner_kind, owner, cached=False))
        except ForbiddenError:  # not one of our namespaces, so the owner is unknown
            return
        except NotFoundError as error:
            if error.name != owner.name:  # the whole type is missing, for example while its CRD is replaced
                return
            live_uid = ""
        for kind, child in strays:
            controller = controller_owner(child)
            if controller and controller.uid != live_uid:
                with suppress(ForbiddenError, ConflictError):  # the next reconciliation retries
                    await self._delete_exactly(kind, child)

    async def _delete_exactly(self, kind: Kind, obj: Object) -> None:
        """Delete an object if it still has the cached version. An object that no longer exists is ignored."""
        with suppress(NotFoundError):
            await self._client.delete(kind, key(obj), uid=uid(obj), resource_version=resource_version(obj))

    async def ensure(self, owner: Object, objects: Sequence[Object]) -> Applied:
        """Create missing objects of the kinds in ``shared``, without an owner reference. Existing objects stay
        unchanged."""
        desired = {(self._builder.kind_of(obj), key(obj)): obj for obj in objects}
        missing = [
            self._builder.build_shared(obj)
            for (kind, name), obj in desired.items()
            if self._shared[kind].store.get(name) is None
        ]
        return summarize(await run_all([self._create(owner, intent) for intent in missing]), missing)

    async def _create(self, owner: Object, intent: Intent) -> None:
        kind, name = intent.kind, intent.name
        informer = self._shared[kind]
        require_kind(informer, name)
        self._refusals.raise_recent(intent)
        try:
            answer = await self._client.create(kind, intent.object, field_manager=self._field_manager)
        except ConflictError:  # another owner created it first
            return
        except (InvalidObjectError, ForbiddenError, NotFoundError) as error:
            raise self._refusals.record(intent, error) from error
        self._expectations.wrote(uid(owner), informer, answer)

    def _forget(self, kind: Kind, change: Change) -> None:
        if change.new is None:
            self._last_writes.pop((kind, change.key), None)
            self._refusals.forget(kind, change.key)

    def _owned(self, owner: Object) -> list[tuple[Kind, Object]]:
        value = children_of(owner)
        return [
            (kind, child)
            for kind, informer in self._informers.items()
            for child in informer.store.by_index(OWNER, value)
        ]

    def _stored(self, kind: Kind, name: Key) -> Object | None:
        stored = self._informers[kind].store.get(name)
        return stored if stored is not None and labels(stored).get(MANAGED_BY) == self._manager else None

    def _is_up_to_date(self, intent: Intent) -> bool:
        """Whether the store shows that the intent is already applied."""
        stored = None if intent.kind in self._unlisted else self._stored(intent.kind, intent.name)
        return stored is not None and self._unchanged(intent, stored)

    async def _apply(self, owner: Object, intent: Intent) -> None:
        kind, name = intent.kind, intent.name
        if kind in self._unlisted:
            await self._apply_unlisted(owner, intent)
            return
        informer, stored = self._informers[kind], self._stored(kind, name)
        require_kind(informer, name)
        # Objects without our label may be missing from the store, so check that the name is free before the first
        # write.
        live = stored if stored is not None else await self._get(kind, name)
        if live is not None:
            self._refuse_foreign(owner, kind, live)
            if deleting(live):
                raise NameTakenError
        self._refusals.raise_recent(intent)
        answer = await self._send(owner, intent, live)
        self._expectations.wrote(uid(owner), informer, answer)
        observed = digest(projection(intent.object, answer))
        self._last_writes[kind, name] = _LastWrite(uid(answer), intent.desired, resource_version(answer), observed)

    async def _apply_unlisted(self, owner: Object, intent: Intent) -> None:
        """Apply a child of a kind that no informer lists. The object's own mark shows the object last sent."""
        kind, name = intent.kind, intent.name
        live = await self._get(kind, name, cached=False)
        if live is not None:
            try:
                self._refuse_foreign(owner, kind, live)
            except NameTakenError:  # no event reports when it is gone
                raise ConflictError(f"{kind.kind} {name.name} is of an owner that is gone") from None
            if deleting(live):
                raise ConflictError(f"{kind.kind} {name.name} is being deleted")
            if self._builder.matches_mark(live, intent):
                return
        self._refusals.raise_recent(intent)
        await self._send(owner, intent, live)

    async def _remove_unlisted(self, owner: Object, kind: Kind, name: Key) -> None:
        live = await self._get(kind, name, cached=False)
        controller = controller_owner(live) if live is not None else None
        if live is None or controller is None or controller.uid != uid(owner) or deleting(live):
            return
        if labels(live).get(MANAGED_BY) == self._manager:
            with suppress(NotFoundError):
                await self._client.delete(kind, name, uid=uid(live), resource_version=resource_version(live))

    async def _send(self, owner: Object, intent: Intent, live: Object | None) -> Object:
        """Apply a child and return it as the API server stores it. Raise RefusedError if the API server rejects it, and
        NameTakenError if it must be recreated."""
        kind, name = intent.kind, intent.name
        try:
            return await self._client.apply(kind, intent.object, field_manager=self._field_manager)
        except (InvalidObjectError, ForbiddenError, NotFoundError) as error:
            if (
                live is not None
                and kind in self._replaceable
                and isinstance(error, InvalidObjectError)
                and is_immutable(error)
            ):
                # The message quotes the whole value, which includes the environment of an author's containers.
                fields = ", ".join(field for field, _unused in error.causes) or "not named by the API server"
                log.info("Recreating %s %s, because an immutable field changed: %s", kind.kind, name, fields)
                await self._delete(owner, kind, live)
                raise NameTakenError from error
            raise self._refusals.record(intent, error) from error

    async def _get(self, kind: Kind, name: Key, *, cached: bool = True) -> Object | None:
        try:
            # A slightly old response is good enough for a name: a concurrent writer could also overtake a fresh read.
            return await self._client.get(kind, name, cached=cached)
        except NotFoundError:
            return None

    def _unchanged(self, intent: Intent, stored: Object) -> bool:
        """Whether the store still contains the result of the last write of the same intent. Fields that the intent does
        not set are ignored."""
        child = intent.kind, intent.name
        last = self._last_writes.get(child) or self._predecessor_write(intent, stored)
        if last is None or last.uid != uid(stored) or last.desired != intent.desired or deleting(stored):
            return False
        if last.resource_version == resource_version(stored):
            return True
        if last.observed != digest(projection(intent.object, stored)):
            return False
        self._last_writes[child] = last._replace(resource_version=resource_version(stored))
        return True

    def _predecessor_write(self, intent: Intent, stored: Object) -> _LastWrite | None:
        """Return the previous process's last write of this intent, or None unless the mark shows that the object is
        unchanged since."""
        if not self._builder.matches_mark(stored, intent):
            return None
        observed = digest(projection(intent.object, stored))
        write = self._last_writes[intent.kind, intent.name] = _LastWrite(
            uid(stored), intent.desired, resource_version(stored), observed
        )
        return write

    def _refuse_foreign(self, owner: Object, kind: Kind, live: Object) -> None:
        """Raise if the object is not ours: it has another controller, or neither a controller nor our label.

        Raise NameTakenError for an object whose owner has the same name but another UID. Such an object belongs to the
        owner's predecessor and is soon garbage collected. An object with our label but no controller was orphaned when
        its owner was deleted, so it is adopted again. Raise RefusedError for every other object.
        """
        controller = controller_owner(live)
        if controller is not None and controller.uid == uid(owner):
            return
        if controller is None and labels(live).get(MANAGED_BY) == self._manager:
            return
        if controller is not None and self._is_namesake(controller, owner):
            raise NameTakenError
        holder = f"belongs to {controller.kind} {controller.name}" if controller else "was not created by Slipway"
        name = key(live).name
        message = f"{kind.kind} {name} exists and {holder}; delete or rename one of the two"
        raise RefusedError(Failure(kind.kind, name, NAME_TAKEN, message))

    def _is_namesake(self, controller: OwnerReference, owner: Object) -> bool:
        """Whether a reference names an owner of this kind and name, with any UID."""
        named = (controller.api_version.rpartition("/")[0], controller.kind, controller.name)
        elsewhere = controller.namespace not in ("", key(owner).namespace)
        return named == (self._owner_kind.group, self._owner_kind.kind, key(owner).name) and not elsewhere

    async def _prune(self, owner: Object, kind: Kind, child: Object) -> None:
        if labels(child).get(MANAGED_BY) == self._manager:
            await self._delete(owner, kind, child)

    async def _delete(self, owner: Object, kind: Kind, child: Object) -> None:
        self._last_writes.pop((kind, key(child)), None)
        name, version = key(child), resource_version(child)
        propagation = "Foreground" if deleting(owner) else "Background"
        try:
            await self._client.delete(kind, name, uid=uid(child), resource_version=version, propagation=propagation)
        except NotFoundError:
            return
        self._expectations.deleted(uid(owner), self._informers[kind], child)
