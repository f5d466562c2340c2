"""Applier: creates, changes and deletes an owner's children as a plan says, by server-side apply.

It sends only what changed, never takes over an object that belongs to someone else, and deletes with preconditions
only. :class:`Applied` reports each child that the API server refuses; the others are applied all the same.
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
"""Kinds of children that others name, and get rights by: pods by an account, a RoleBinding by a Role."""


class _Sent(NamedTuple):
    """The last write of one child."""

    uid: str
    desired: bytes
    """Digest of what was sent."""
    resource_version: str
    observed: bytes
    """Digest of the same fields as the API server then had them, its defaults and conversions included."""


class Applier:
    """Applies children of owners of one kind.

    Guarantees: nothing is written when nothing changed; nothing is created for an owner that is being deleted, unless
    requested; an object of another controller is neither changed nor deleted; deletions carry the uid and the version
    that the decision was based on. Assumes: the informers select by the ``managed-by`` label and have the index OWNER.
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
        """``manager``: the value of the managed-by label. ``shared``: the informers that ``ensure`` reads.

        ``unlisted``: kinds of children that no informer lists, because others keep private data in them. Each child is
        read by its name whenever its owner is synced, and ``children`` returns none of them.

        ``elsewhere``: kinds of children that may be in other namespaces than their owner, or in none.

        ``mark``: the annotation of children that holds the digest of what was sent last, so that after a restart
        nothing is sent again that has not changed; empty: there is none.
        ``replaceable``: kinds of objects that are deleted and recreated when an immutable field changes.
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
        self._sent: dict[tuple[Kind, Key], _Sent] = {}
        self._refusals = Refusals()
        self.write_only = WriteOnlyObjects(client, self._builder, self._refusals, field_manager=field_manager)
        for kind, informer in self._informers.items():
            informer.add_handler(partial(self._forget, kind))

    def children(self, owner: Object) -> dict[tuple[Kind, Key], Object]:
        """The owner's children in the stores. See :func:`children_of`."""
        return {(kind, key(child)): child for kind, child in self._owned(owner)}

    async def sync(
        self,
        owner: Object,
        children: Sequence[Object],
        *,
        absent: Iterable[tuple[Kind, Key]] = (),
        finishing: bool = False,
    ) -> Applied:
        """Creates, changes and deletes objects until the owner's children are ``children``, given without owner
        reference.

        ``absent``: children to delete, of kinds that no informer lists. ``finishing``: also for an owner that is being
        deleted. Its children are then deleted in the foreground, so that each is visible until its dependents are gone.
        Nothing else is created until ServiceAccounts and Roles are ours: pods would run with the rights of someone
        else's account, and the API server rejects a RoleBinding without its Role. Raises programming errors only;
        Applied holds what the API server reports.
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
        if surplus and all(informer.settled.is_set() for informer in self._informers.values()):
            steps += [self._prune(owner, kind, child) for kind, child in surplus if not deleting(child)]
        steps += [self._remove_unlisted(owner, kind, name) for kind, name in absent]
        return summarize([*outcomes, *await run_all(steps)], [*first, *others])

    async def discard(self, objects: Iterable[tuple[Kind, Key]]) -> Applied:
        """Deletes objects that carry our label and belong to other owners, such as the PVCs of a deleted model."""
        stored = ((kind, self._shared[kind].store.get(name)) for kind, name in objects)
        going = [(kind, one) for kind, one in stored if one and not deleting(one)]
        ours = [(kind, one) for kind, one in going if labels(one).get(MANAGED_BY) == self._manager]
        return summarize(await run_all([self._delete_exactly(kind, one) for kind, one in ours]), ())

    async def collect(self, owner: Key, owner_uid: str) -> None:
        """Deletes children in other namespaces whose owner of this name is gone, which the garbage collector does not
        do. ``owner_uid``: of the owner in the cache; empty: there is none. The cache may lack an owner that exists, so
        this asks the API server first."""
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
        except ForbiddenError:  # not a namespace of ours, so that we do not know
            return
        except NotFoundError as error:
            if error.name != owner.name:  # the whole type is missing, as while its definition is replaced
                return
            live_uid = ""
        for kind, child in strays:
            controller = controller_owner(child)
            if controller and controller.uid != live_uid:
                with suppress(ForbiddenError, ConflictError):  # the next reconciliation tries again
                    await self._delete_exactly(kind, child)

    async def _delete_exactly(self, kind: Kind, obj: Object) -> None:
        """Deletes an object in the version that the cache shows."""
        with suppress(NotFoundError):
            await self._client.delete(kind, key(obj), uid=uid(obj), resource_version=resource_version(obj))

    async def ensure(self, owner: Object, objects: Sequence[Object]) -> Applied:
        """Creates missing objects, without an owner. Existing ones are left unchanged."""
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
        except ConflictError:  # another owner was faster
            return
        except (InvalidObjectError, ForbiddenError, NotFoundError) as error:
            raise self._refusals.record(intent, error) from error
        self._expectations.wrote(uid(owner), informer, answer)

    def _forget(self, kind: Kind, change: Change) -> None:
        if change.new is None:
            self._sent.pop((kind, change.key), None)
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
        """Whether the store shows that there is nothing to do."""
        stored = None if intent.kind in self._unlisted else self._stored(intent.kind, intent.name)
        return stored is not None and self._unchanged(intent, stored)

    async def _apply(self, owner: Object, intent: Intent) -> None:
        kind, name = intent.kind, intent.name
        if kind in self._unlisted:
            await self._apply_unlisted(owner, intent)
            return
        informer, stored = self._informers[kind], self._stored(kind, name)
        require_kind(informer, name)
        # The store need not show what lacks our label: before the first write look whether the name is free.
        live = stored if stored is not None else await self._get(kind, name)
        if live is not None:
            self._refuse_foreign(owner, kind, live)
            if deleting(live):
                raise NameTakenError
        self._refusals.raise_recent(intent)
        answer = await self._send(owner, intent, live)
        self._expectations.wrote(uid(owner), informer, answer)
        observed = digest(projection(intent.object, answer))
        self._sent[kind, name] = _Sent(uid(answer), intent.desired, resource_version(answer), observed)

    async def _apply_unlisted(self, owner: Object, intent: Intent) -> None:
        """Applies a child of a kind that no informer lists: the object's own mark says what was sent last."""
        kind, name = intent.kind, intent.name
        live = await self._get(kind, name, cached=False)
        if live is not None:
            try:
                self._refuse_foreign(owner, kind, live)
            except NameTakenError:  # no event tells when it is gone
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
        """Applies a child, and returns it as the API server stores it."""
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
                # The message quotes the whole value, which holds the environment of an author's containers.
                fields = ", ".join(field for field, _unused in error.causes) or "not named by the API server"
                log.info("Recreating %s %s, because an immutable field changed: %s", kind.kind, name, fields)
                await self._delete(owner, kind, live)
                raise NameTakenError from error
            raise self._refusals.record(intent, error) from error

    async def _get(self, kind: Kind, name: Key, *, cached: bool = True) -> Object | None:
        try:
            # A slightly old answer will do for a name: a writer faster than this read would be faster than a fresh one.
            return await self._client.get(kind, name, cached=cached)
        except NotFoundError:
            return None

    def _unchanged(self, intent: Intent, stored: Object) -> bool:
        """Whether the store still holds what the last write of the same intent set, whatever else changed there."""
        child = intent.kind, intent.name
        sent = self._sent.get(child) or self._sent_by_predecessor(intent, stored)
        if sent is None or sent.uid != uid(stored) or sent.desired != intent.desired or deleting(stored):
            return False
        if sent.resource_version == resource_version(stored):
            return True
        if sent.observed != digest(projection(intent.object, stored)):
            return False
        self._sent[child] = sent._replace(resource_version=resource_version(stored))
        return True

    def _sent_by_predecessor(self, intent: Intent, stored: Object) -> _Sent | None:
        """Returns what the previous process sent, if the mark shows that it was this intent, unchanged since."""
        if not self._builder.matches_mark(stored, intent):
            return None
        observed = digest(projection(intent.object, stored))
        sent = self._sent[intent.kind, intent.name] = _Sent(
            uid(stored), intent.desired, resource_version(stored), observed
        )
        return sent

    def _refuse_foreign(self, owner: Object, kind: Kind, live: Object) -> None:
        """Raises if the object is not ours: it has another controller, or neither a controller nor our label.

        An object with our label and no controller was orphaned when its owner was deleted, and is adopted again. One
        of an owner with the same name but another uid belongs to its predecessor, and is collected soon.
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
        """Whether a reference is to an owner of this kind and name, with any uid."""
        named = (controller.api_version.rpartition("/")[0], controller.kind, controller.name)
        elsewhere = controller.namespace not in ("", key(owner).namespace)
        return named == (self._owner_kind.group, self._owner_kind.kind, key(owner).name) and not elsewhere

    async def _prune(self, owner: Object, kind: Kind, child: Object) -> None:
        if labels(child).get(MANAGED_BY) == self._manager:
            await self._delete(owner, kind, child)

    async def _delete(self, owner: Object, kind: Kind, child: Object) -> None:
        self._sent.pop((kind, key(child)), None)
        name, version = key(child), resource_version(child)
        propagation = "Foreground" if deleting(owner) else "Background"
        try:
            await self._client.delete(kind, name, uid=uid(child), resource_version=version, propagation=propagation)
        except NotFoundError:
            return
        self._expectations.deleted(uid(owner), self._informers[kind], child)
