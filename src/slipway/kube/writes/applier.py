"""Applier: makes an owner's children what a plan says, by server-side apply, and removes those that it no longer names.

It sends only what changed, never takes an object that belongs to someone else, and never deletes but with
preconditions. What one child's refusal means is told in :class:`Applied`; the other children are applied all the same.
"""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec

from slipway.kube.api.client import Client
from slipway.kube.api.errors import ApiError, ConflictError, ForbiddenError, InvalidObjectError, NotFoundError
from slipway.kube.caches.expectations import Expectations
from slipway.kube.caches.informer import Informer
from slipway.kube.caches.store import Change
from slipway.kube.objects import (
    MANAGED_BY,
    ROLE,
    SECRET,
    SERVICE_ACCOUNT,
    Key,
    Kind,
    Object,
    OwnerReference,
    annotations_of,
    controller_owner,
    deleting,
    key,
    labels,
    owner_reference,
    resource_version,
    uid,
)
from slipway.kube.values.compare import digest, includes, projection
from slipway.kube.writes.owners import ORIGIN, OWNER_ELSEWHERE, origin_of, owner_text

log = logging.getLogger(__name__)

OWNER = "owner"
"""Name of the index by which the informers of children find an owner's objects."""
NAMED = frozenset({SERVICE_ACCOUNT, ROLE})
"""Kinds of children that others name, and get rights by: pods by an account, a RoleBinding by a Role."""
NAME_TAKEN = "NameTaken"
MISSING_KIND = "MissingKind"
BLIND_SECONDS = 300.0
"""After which an object that is never read is written again, as no event tells that it was deleted or changed."""
BLIND_PER_SECOND = 5.0
"""Most of these writes per second: with many owners, each one waits longer."""
_REFUSED_SECONDS = 60.0
_TAKEN_SECONDS = 30.0
_MISSING_SECONDS = 10.0
_BLIND = {(SECRET.api_version, SECRET.kind): SECRET}
OF_STRANGER, OF_VANISHED_OWNER = "was made by someone else", "is of an owner that is gone"
"""How the admission policy of the role ``controller`` refuses to replace what is written blindly."""


def by_owner(obj: Object) -> Iterable[str]:
    """Index function for :data:`OWNER`: the uid of the object's controller, within that one's namespace and alone.

    A uid is whatever its author wrote, slashes too; a namespace has none, so the values of two namespaces never meet.
    """
    owner = controller_owner(obj)
    return (f"{owner.namespace}/{owner.uid}", f"/{owner.uid}") if owner else ()


def children_of(owner: Object) -> str:
    """The value under which :data:`OWNER` has the owner's children: objects of its own namespace, as Kubernetes has it.

    An object elsewhere that names the owner's uid is a stranger's, unless it is in a place of the operator's: see
    :mod:`slipway.kube.writes.owners`. An owner without a namespace may have its children in any.
    """
    return f"{key(owner).namespace}/{uid(owner)}"


class Failure(msgspec.Struct, frozen=True):
    """A child that cannot be as it should, until someone changes something."""

    kind: str
    name: str
    reason: str
    """``NameTaken``, ``MissingKind``, or the API server's: ``Invalid``, ``Forbidden``, ``NotFound`` ..."""
    message: str


class Applied(msgspec.Struct, frozen=True):
    """What became of the children."""

    failures: tuple[Failure, ...] = ()
    waiting: tuple[str, ...] = ()
    """Children (``kind name``) that are made when what has their name is gone; that event requeues the owner."""
    errors: tuple[ApiError, ...] = ()
    """Trouble that passes: conflicts, overload, timeouts."""
    waited: bool = False
    """Whether there was something to do, so that what the stores show may have changed meanwhile."""
    again_after: float | None = None
    """Seconds until something must be written again although nothing changed."""

    def __add__(self, other: Applied) -> Applied:
        return Applied(
            self.failures + other.failures,
            self.waiting + other.waiting,
            self.errors + other.errors,
            self.waited or other.waited,
            min((one.again_after for one in (self, other) if one.again_after is not None), default=None),
        )

    @property
    def retry_after(self) -> float | None:
        """Seconds after which a failure is worth another try, or something must be written again; None: never."""
        waits = {NAME_TAKEN: _TAKEN_SECONDS, MISSING_KIND: _MISSING_SECONDS}
        retries = [waits.get(failure.reason, _REFUSED_SECONDS) for failure in self.failures]
        return min([*retries, *([] if self.again_after is None else [self.again_after])], default=None)

    def raise_passing(self) -> None:
        """Raises one of the passing errors, the one that asks for the longest wait, so that the owner backs off."""
        if self.errors:
            raise max(self.errors, key=lambda error: error.retry_after or 0.0)


class _Sent(NamedTuple):
    """What is known of the last write of one child."""

    uid: str
    desired: bytes
    """Digest of what was sent."""
    resource_version: str
    observed: bytes
    """Digest of the same fields as the API server then had them, its defaults and conversions included."""


class _Refused(NamedTuple):
    """What the API server last refused, and until when it is not asked again."""

    desired: bytes
    failure: Failure
    until: float


class _Written(NamedTuple):
    """The last write of an object that is never read."""

    desired: bytes
    """Digest of the object."""
    at: float
    """In monotonic seconds."""


class _Intent(NamedTuple):
    """One object as it is to be sent."""

    kind: Kind
    name: Key
    object: Object
    desired: bytes
    """Digest of it, without the mark that says so."""


class _RefusedError(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class _NameTakenError(Exception):
    """What has the child's name must be gone first."""


class Applier:
    """Applies children of owners of one kind.

    Guarantees: nothing is written when nothing changed; nothing is made for an owner that is being deleted unless that
    is asked for; an object whose controller is another one is neither changed nor deleted; deletions name the uid and
    the version that the decision was based on. Assumes: the informers select by the ``managed-by`` label and have the
    index OWNER.
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
        """``manager`` is the value of the managed-by label; ``shared`` are the informers that ``ensure`` looks at.

        ``unlisted`` are kinds of children that no informer lists, as others keep there what is none of our business:
        each is read by its name whenever its owner is synced, and ``children`` has none of them.

        ``elsewhere`` are kinds of children that may be in other namespaces than their owner, or in none.

        ``mark`` names the annotation of children that keeps the digest of what was sent last, so that a restart sends
        nothing again that is there as it should be; empty: there is none.
        ``replaceable`` are the kinds of which an object is deleted and made again when an immutable field changes.
        """
        self._client = client
        self._owner_kind = owner_kind
        self._informers = dict(informers)
        self._expectations = expectations
        self._field_manager = field_manager
        self._manager = manager
        self._replaceable = replaceable
        self._mark = mark
        self._shared = dict(shared or {})
        self._unlisted, self._elsewhere = frozenset(unlisted), frozenset(elsewhere)
        kinds: list[Kind] = [*informers, *self._shared, *self._unlisted]
        self._kinds = {(kind.api_version, kind.kind): kind for kind in kinds}
        self._sent: dict[tuple[Kind, Key], _Sent] = {}
        self._refused: dict[tuple[Kind, Key], _Refused] = {}
        self._blind: dict[str, dict[tuple[Kind, Key], _Written]] = {}
        """uid of an owner -> child -> its last write."""
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
        """Makes the owner's children exactly ``children`` (complete intents without owner reference).

        ``absent``: of kinds that no informer lists, children that there may have been and that are to be gone.
        ``finishing``: also for an owner that is being deleted; what goes then goes in the foreground, so that it is
        seen until all that it made is gone. Until ServiceAccounts and Roles are known to be ours nothing else is made:
        where an account belongs to somebody else, the pods would run in its name; and a RoleBinding is refused while
        its Role is not there. Raises nothing but programming errors; see Applied for what a server may say.
        """
        if deleting(owner) and not finishing:
            return Applied()
        intents = {(intent.kind, intent.name): intent for intent in (self._intent(owner, child) for child in children)}
        changed = [intent for intent in intents.values() if not self._stands(intent)]
        named = [intent for intent in changed if intent.kind in NAMED]
        others = [intent for intent in changed if intent.kind not in NAMED]
        outcomes = await _all([self._apply(owner, intent) for intent in named])
        if any(outcome is not None for outcome in outcomes):
            return _summary(outcomes, named)
        steps = [self._apply(owner, intent) for intent in others]
        surplus = [(kind, child) for kind, child in self._owned(owner) if (kind, key(child)) not in intents]
        if surplus and all(informer.settled.is_set() for informer in self._informers.values()):
            steps += [self._prune(owner, kind, child) for kind, child in surplus if not deleting(child)]
        steps += [self._remove_unlisted(owner, kind, name) for kind, name in absent]
        return _summary([*outcomes, *await _all(steps)], [*named, *others])

    async def discard(self, objects: Iterable[tuple[Kind, Key]]) -> Applied:
        """Deletes objects that carry our label and belong to other owners, such as claims of a model that goes."""
        stored = ((kind, self._shared[kind].store.get(name)) for kind, name in objects)
        going = [(kind, one) for kind, one in stored if one and not deleting(one)]
        ours = [(kind, one) for kind, one in going if labels(one).get(MANAGED_BY) == self._manager]
        return _summary(await _all([self._delete_exactly(kind, one) for kind, one in ours]), ())

    async def collect(self, owner: Key, owner_uid: str) -> None:
        """Deletes children elsewhere of owners of this name that are gone, which the garbage collector does not see.
        ``owner_uid``: of the owner in the cache; empty: there is none. A cache need not show all owners that exist, so
        the API server is asked first."""
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
                with suppress(ForbiddenError, ConflictError):  # a later look tries again, and the owner waits for none
                    await self._delete_exactly(kind, child)

    async def _delete_exactly(self, kind: Kind, obj: Object) -> None:
        """Deletes an object in the version that the cache shows."""
        with suppress(NotFoundError):
            await self._client.delete(kind, key(obj), uid=uid(obj), resource_version=resource_version(obj))

    async def ensure(self, owner: Object, objects: Sequence[Object]) -> Applied:
        """Makes those of ``objects`` that are missing, without an owner; what is there stays as it is."""
        desired = {(self._kind(obj), key(obj)): obj for obj in objects}
        missing = [
            _Intent(kind, name, self._labelled(obj), digest(obj))
            for (kind, name), obj in desired.items()
            if self._shared[kind].store.get(name) is None
        ]
        return _summary(await _all([self._make(owner, intent) for intent in missing]), missing)

    async def write(self, owner: Object, objects: Sequence[Object]) -> Applied:
        """Writes these children, which are Secrets, and never reads them: the right to list Secrets would be
        the right to read them all. Each is written when it changes, and again after :data:`BLIND_SECONDS` or more.
        Call it after :meth:`write_after` seconds. An existing object of another owner is left unchanged. The garbage
        collector removes them."""
        now, interval = time.monotonic(), self._blind_interval(uid(owner))
        previous = self._blind.pop(uid(owner), {})
        self._drop_vanished()
        if not objects:
            return Applied()
        intents = []
        for obj in objects:
            child = self._complete(owner, obj)
            intents.append(_Intent(_BLIND[obj["apiVersion"], obj["kind"]], key(child), child, digest(child)))
        current = {
            (one.kind, one.name): written
            for one in intents
            if (written := previous.get((one.kind, one.name)))
            and written.desired == one.desired
            and now - written.at < interval
        }
        changed = [one for one in intents if (one.kind, one.name) not in current]
        outcomes = await _all([self._write(one, exists=(one.kind, one.name) in previous) for one in changed])
        for intent, outcome in zip(changed, outcomes, strict=True):
            if outcome is None:
                current[intent.kind, intent.name] = _Written(intent.desired, now)
        self._blind[uid(owner)] = current
        return _summary(outcomes, changed)

    def write_after(self, owner: Object) -> float | None:
        """Seconds until the objects of the last :meth:`write` must be written again; None: there are none."""
        times = [written.at for written in self._blind.get(uid(owner), {}).values()]
        return max(min(times) + self._blind_interval(uid(owner)) - time.monotonic(), 0.0) if times else None

    def _blind_interval(self, owner: str) -> float:
        """Seconds between two writes of the same content. They differ by up to a quarter between owners: after a
        restart all owners are written at once."""
        interval = max(BLIND_SECONDS, len(self._blind) / BLIND_PER_SECOND)
        return interval * (1 + zlib.crc32(owner.encode()) / 2**34)

    def _drop_vanished(self) -> None:
        """Forgets owners whose objects were not written again in time, because the owners are gone. The owners are in
        the order of their last reconciliation."""
        oldest = time.monotonic() - 2 * max(BLIND_SECONDS, len(self._blind) / BLIND_PER_SECOND)
        while self._blind:
            owner = next(iter(self._blind))
            if any(written.at > oldest for written in self._blind[owner].values()):
                return
            del self._blind[owner]

    async def _write(self, intent: _Intent, *, exists: bool) -> None:
        """``exists``: whether it was there when it was written last."""
        self._refuse_again(intent)
        try:
            if exists and await self._overwrite(intent):
                return
            await self._client.create(intent.kind, intent.object, field_manager=self._field_manager)
        except ConflictError:
            if not await self._overwrite(intent):
                raise
        except (InvalidObjectError, ForbiddenError, NotFoundError) as error:
            raise self._refusal(intent, error) from error

    async def _overwrite(self, intent: _Intent) -> bool:
        """Replaces the object with a child's name, if it is its owner's: the API server's policy checks that. A patch
        could do so, too, but the answer to a faulty one shows the whole object. Returns False if there is no object."""
        kind, name = intent.kind, intent.name
        try:
            await self._client.replace(kind, intent.object, field_manager=self._field_manager)
        except NotFoundError:
            return False
        except ForbiddenError as error:
            if OF_VANISHED_OWNER in error.message:  # no event tells when it is gone
                raise ConflictError(f"{kind.kind} {name.name} {OF_VANISHED_OWNER}") from error
            raise (_taken(intent) if OF_STRANGER in error.message else self._refusal(intent, error)) from error
        except InvalidObjectError as error:  # before the policy, the server compares the types
            raise (_taken(intent) if _immutable(error) else self._refusal(intent, error)) from error
        return True

    async def _make(self, owner: Object, intent: _Intent) -> None:
        kind, name = intent.kind, intent.name
        informer = self._shared[kind]
        _refuse_missing(informer, name)
        self._refuse_again(intent)
        try:
            answer = await self._client.create(kind, intent.object, field_manager=self._field_manager)
        except ConflictError:  # another owner was faster
            return
        except (InvalidObjectError, ForbiddenError, NotFoundError) as error:
            raise self._refusal(intent, error) from error
        self._expectations.wrote(uid(owner), informer, answer)

    def _forget(self, kind: Kind, change: Change) -> None:
        if change.new is None:
            self._sent.pop((kind, change.key), None)
            self._refused.pop((kind, change.key), None)

    def _owned(self, owner: Object) -> list[tuple[Kind, Object]]:
        value = children_of(owner)
        return [
            (kind, child)
            for kind, informer in self._informers.items()
            for child in informer.store.by_index(OWNER, value)
        ]

    def _kind(self, child: Object) -> Kind:
        return self._kinds[child["apiVersion"], child["kind"]]

    def _complete(self, owner: Object, child: Object) -> Object:
        """Raises ValueError for a child in another namespace than its owner's, which the garbage collector removes, but
        for kinds whose children may be elsewhere."""
        child = self._labelled(child)
        if key(owner).namespace not in ("", key(child).namespace):
            if self._kind(child) not in self._elsewhere:
                raise ValueError(f"{child['kind']} {key(child)} cannot be a child of {key(owner)}")
            written = {**annotations_of(child), OWNER_ELSEWHERE: owner_text(self._owner_kind, owner)}
            child["metadata"]["annotations"] = written
            return child
        child["metadata"]["ownerReferences"] = [owner_reference(self._owner_kind, owner)]
        return child

    def _labelled(self, obj: Object) -> Object:
        """A copy that carries our label."""
        metadata = dict(obj["metadata"])
        metadata["labels"] = {**(metadata.get("labels") or {}), MANAGED_BY: self._manager}
        return {**obj, "metadata": metadata}

    def _intent(self, owner: Object, child: Object) -> _Intent:
        child = self._complete(owner, child)
        desired = digest(child)
        return _Intent(self._kind(child), key(child), self._marked(child, desired), desired)

    def _stored(self, kind: Kind, name: Key) -> Object | None:
        stored = self._informers[kind].store.get(name)
        return stored if stored is not None and labels(stored).get(MANAGED_BY) == self._manager else None

    def _stands(self, intent: _Intent) -> bool:
        """Whether the store shows that there is nothing to do."""
        stored = None if intent.kind in self._unlisted else self._stored(intent.kind, intent.name)
        return stored is not None and self._unchanged(intent, stored)

    async def _apply(self, owner: Object, intent: _Intent) -> None:
        kind, name = intent.kind, intent.name
        if kind in self._unlisted:
            await self._apply_unlisted(owner, intent)
            return
        informer, stored = self._informers[kind], self._stored(kind, name)
        _refuse_missing(informer, name)
        # The store need not show what lacks our label: before the first write look whether the name is free.
        live = stored if stored is not None else await self._look(kind, name)
        if live is not None:
            self._refuse_foreign(owner, kind, live)
            if deleting(live):
                raise _NameTakenError
        self._refuse_again(intent)
        answer = await self._send(owner, intent, live)
        self._expectations.wrote(uid(owner), informer, answer)
        observed = digest(projection(intent.object, answer))
        self._sent[kind, name] = _Sent(uid(answer), intent.desired, resource_version(answer), observed)

    async def _apply_unlisted(self, owner: Object, intent: _Intent) -> None:
        """The same where nothing tells of changes: the object itself says what was sent last."""
        kind, name = intent.kind, intent.name
        live = await self._look(kind, name, cached=False)
        if live is not None:
            try:
                self._refuse_foreign(owner, kind, live)
            except _NameTakenError:  # no event tells when it is gone
                raise ConflictError(f"{kind.kind} {name.name} is of an owner that is gone") from None
            if deleting(live):
                raise ConflictError(f"{kind.kind} {name.name} is being deleted")
            if self._shows(live, intent):
                return
        self._refuse_again(intent)
        await self._send(owner, intent, live)

    async def _remove_unlisted(self, owner: Object, kind: Kind, name: Key) -> None:
        live = await self._look(kind, name, cached=False)
        controller = controller_owner(live) if live is not None else None
        if live is None or controller is None or controller.uid != uid(owner) or deleting(live):
            return
        if labels(live).get(MANAGED_BY) == self._manager:
            with suppress(NotFoundError):
                await self._client.delete(kind, name, uid=uid(live), resource_version=resource_version(live))

    async def _send(self, owner: Object, intent: _Intent, live: Object | None) -> Object:
        """Applies a child. What the server refuses is not sent again for a while: every event would repeat it."""
        kind, name = intent.kind, intent.name
        try:
            return await self._client.apply(kind, intent.object, field_manager=self._field_manager)
        except (InvalidObjectError, ForbiddenError, NotFoundError) as error:
            if (
                live is not None
                and kind in self._replaceable
                and isinstance(error, InvalidObjectError)
                and _immutable(error)
            ):
                # The message quotes the whole value, which holds the environment of an author's containers.
                fields = ", ".join(field for field, _unused in error.causes) or "not named by the API server"
                log.info("Recreating %s %s, because an immutable field changed: %s", kind.kind, name, fields)
                await self._delete(owner, kind, live)
                raise _NameTakenError from error
            raise self._refusal(intent, error) from error

    def _refusal(self, intent: _Intent, error: ApiError) -> _RefusedError:
        kind, name = intent.kind, intent.name
        failure = Failure(kind.kind, name.name, error.reason, error.message)
        now = time.monotonic()
        self._refused = {child: refused for child, refused in self._refused.items() if refused.until > now}
        # One second less, so that it is over when the slow retry comes.
        self._refused[kind, name] = _Refused(intent.desired, failure, now + _REFUSED_SECONDS - 1)
        return _RefusedError(failure)

    def _refuse_again(self, intent: _Intent) -> None:
        """Raises what the server said to the same intent a short while ago."""
        child = intent.kind, intent.name
        refused = self._refused.pop(child, None)
        if refused is not None and refused.desired == intent.desired and time.monotonic() < refused.until:
            self._refused[child] = refused
            raise _RefusedError(refused.failure)

    async def _look(self, kind: Kind, name: Key, *, cached: bool = True) -> Object | None:
        try:
            # A little old will do for a name: who is quicker than this look would be quicker than a newer one, too.
            return await self._client.get(kind, name, cached=cached)
        except NotFoundError:
            return None

    def _marked(self, child: Object, desired: bytes) -> Object:
        """A copy with the digest of itself."""
        if not self._mark:
            return child
        metadata = child["metadata"]
        annotations = {**(metadata.get("annotations") or {}), self._mark: desired.hex()}
        return {**child, "metadata": {**metadata, "annotations": annotations}}

    def _unchanged(self, intent: _Intent, stored: Object) -> bool:
        """Whether the last write of the same intent still shows in the store, whatever else changed there."""
        child = intent.kind, intent.name
        sent = self._sent.get(child) or self._sent_before(intent, stored)
        if sent is None or sent.uid != uid(stored) or sent.desired != intent.desired or deleting(stored):
            return False
        if sent.resource_version == resource_version(stored):
            return True
        if sent.observed != digest(projection(intent.object, stored)):
            return False
        self._sent[child] = sent._replace(resource_version=resource_version(stored))
        return True

    def _sent_before(self, intent: _Intent, stored: Object) -> _Sent | None:
        """What the process before this one sent, where the mark says that it was this and nothing of it was changed."""
        if not self._shows(stored, intent):
            return None
        observed = digest(projection(intent.object, stored))
        sent = self._sent[intent.kind, intent.name] = _Sent(
            uid(stored), intent.desired, resource_version(stored), observed
        )
        return sent

    def _shows(self, stored: Object, intent: _Intent) -> bool:
        """Whether an object says that it was made of this intent, and is still as that says."""
        mark = annotations_of(stored).get(self._mark)
        return bool(self._mark) and mark == intent.desired.hex() and includes(stored, intent.object)

    def _refuse_foreign(self, owner: Object, kind: Kind, live: Object) -> None:
        """Raises when the object is not ours: it has another controller, or none and not our label either.

        An object with our label and no controller was orphaned when its owner was deleted, and is taken up again. One
        of an owner with this owner's name but another uid is left over from that, and is collected soon.
        """
        controller = controller_owner(live)
        if controller is not None and controller.uid == uid(owner):
            return
        if controller is None and labels(live).get(MANAGED_BY) == self._manager:
            return
        if controller is not None and self._is_namesake(controller, owner):
            raise _NameTakenError
        holder = f"belongs to {controller.kind} {controller.name}" if controller else "was not created by Slipway"
        name = key(live).name
        message = f"{kind.kind} {name} exists and {holder}; delete or rename one of the two"
        raise _RefusedError(Failure(kind.kind, name, NAME_TAKEN, message))

    def _is_namesake(self, controller: OwnerReference, owner: Object) -> bool:
        """Whether a reference means an owner of this kind and name, whichever uid it had."""
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


async def _all(steps: Sequence[Coroutine[Any, Any, None]]) -> list[BaseException | None]:
    """Does these at once. Returns what each raised."""
    return await asyncio.gather(*steps, return_exceptions=True) if steps else []


def _taken(intent: _Intent) -> _RefusedError:
    kind, name = intent.kind.kind, intent.name.name
    return _RefusedError(
        Failure(
            kind,
            name,
            NAME_TAKEN,
            f"{kind} {name} exists and was not created by Slipway; delete or rename one of the two",
        )
    )


def _refuse_missing(informer: Informer, name: Key) -> None:
    """Raises where the cluster lacks an optional kind. Anybody else's attempt would end in the same 404."""
    if informer.missing and informer.optional:
        kind = informer.kind
        text = f"The cluster has no {kind.plural} of {kind.api_version}; install {informer.optional}"
        raise _RefusedError(Failure(kind.kind, name.name, MISSING_KIND, text))


def _summary(outcomes: Sequence[BaseException | None], sent: Sequence[_Intent]) -> Applied:
    """Sorts what the steps raised; the first ones are those of ``sent``, in its order."""
    failures: list[Failure] = []
    waiting: list[str] = []
    errors: list[ApiError] = []
    for position, outcome in enumerate(outcomes):
        intent = sent[position] if position < len(sent) else None
        if outcome is None:
            continue
        if isinstance(outcome, _RefusedError):
            failures.append(outcome.failure)
        elif isinstance(outcome, _NameTakenError) and intent:
            waiting.append(f"{intent.kind.kind} {intent.name.name}")
        elif isinstance(outcome, ApiError):
            errors.append(outcome)
        else:
            raise outcome
    return Applied(tuple(failures), tuple(waiting), tuple(errors), waited=bool(outcomes))


def _immutable(error: InvalidObjectError) -> bool:
    return any("immutable" in message for _unused, message in error.causes) or "immutable" in error.message
