"""Applier: makes an owner's children what a plan says, by server-side apply, and removes those that it no longer names.

It sends only what changed, never takes an object that belongs to someone else, and never deletes but with
preconditions. What one child's refusal means is told in :class:`Applied`; the other children are applied all the same.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec

from slipway.kube.client import Client
from slipway.kube.compare import digest, includes, projection
from slipway.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from slipway.kube.expectations import Expectations
from slipway.kube.informer import Informer
from slipway.kube.objects import (
    MANAGED_BY,
    SERVICE_ACCOUNT,
    Key,
    Kind,
    Object,
    controller_owner,
    deleting,
    key,
    labels,
    owner_reference,
    resource_version,
    uid,
)
from slipway.kube.store import Change

log = logging.getLogger(__name__)

OWNER = "owner"
"""Name of the index by which the informers of children find an owner's objects."""
NAME_TAKEN = "NameTaken"
_REFUSED_SECONDS = 60.0
_TAKEN_SECONDS = 30.0


def by_owner(obj: Object) -> Iterable[str]:
    """Index function for :data:`OWNER`: the uid of the object's controller, within the object's namespace and alone.

    A uid is whatever its author wrote, slashes too; a namespace has none, so the values of two namespaces never meet.
    """
    owner = controller_owner(obj)
    return (f"{key(obj).namespace}/{owner.uid}", f"/{owner.uid}") if owner else ()


def children_of(owner: Object) -> str:
    """The value under which :data:`OWNER` has the owner's children: objects of its own namespace, as Kubernetes has it.

    An object elsewhere that names the owner's uid is a stranger's. An owner without a namespace may have its children
    in any.
    """
    return f"{key(owner).namespace}/{uid(owner)}"


class Failure(msgspec.Struct, frozen=True):
    """A child that cannot be as it should, until someone changes something."""

    kind: str
    name: str
    reason: str
    """``NameTaken``, or the API server's: ``Invalid``, ``Forbidden``, ``NotFound`` ..."""
    message: str


class Applied(msgspec.Struct, frozen=True):
    """What became of the children."""

    failures: tuple[Failure, ...] = ()
    waiting: tuple[str, ...] = ()
    """Children (``kind name``) that are made when what has their name is gone; that event requeues the owner."""
    errors: tuple[ApiError, ...] = ()
    """Trouble that passes: conflicts, overload, timeouts."""

    def __add__(self, other: Applied) -> Applied:
        return Applied(self.failures + other.failures, self.waiting + other.waiting, self.errors + other.errors)

    @property
    def retry_after(self) -> float | None:
        """Seconds after which a failure is worth another try; None when there was none."""
        if not self.failures:
            return None
        taken = any(failure.reason == NAME_TAKEN for failure in self.failures)
        return _TAKEN_SECONDS if taken else _REFUSED_SECONDS

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


class _Refusal(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class _Waiting(Exception):
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
        mark: str = "",
    ) -> None:
        """``manager`` is the value of the managed-by label; ``shared`` are the informers that ``ensure`` looks at.

        ``unlisted`` are kinds of children that no informer lists, as others keep there what is none of our business:
        each is read by its name whenever its owner is synced, and ``children`` has none of them.

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
        self._unlisted = frozenset(unlisted)
        kinds: list[Kind] = [*informers, *self._shared, *self._unlisted]
        self._kinds = {(kind.api_version, kind.kind): kind for kind in kinds}
        self._sent: dict[tuple[Kind, Key], _Sent] = {}
        self._refused: dict[tuple[Kind, Key], _Refused] = {}
        for kind, informer in self._informers.items():
            informer.add_handler(partial(self._forget, kind))

    def children(self, owner: Object) -> dict[tuple[str, str], Object]:
        """The owner's children in the stores, by (kind, name). See :func:`children_of`."""
        return {(kind.kind, key(child).name): child for kind, child in self._owned(owner)}

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
        seen until all that it made is gone. Where a ServiceAccount belongs to somebody else nothing else is made: its
        pods would run in that account's name. Raises nothing but programming errors; see Applied for what a server may
        say.
        """
        if deleting(owner) and not finishing:
            return Applied()
        wanted = {(self._kind(child), key(child)): self._complete(owner, child) for child in children}
        accounts = [(kind, name) for kind, name in wanted if kind == SERVICE_ACCOUNT]
        made = await self._apply_all(owner, accounts, wanted)
        if any(isinstance(outcome, _Refusal) for outcome in made):
            return _summary(made, accounts)
        surplus = [(kind, child) for kind, child in self._owned(owner) if (kind, key(child)) not in wanted]
        others = [child for child in wanted if child not in accounts]
        steps = []
        if all(informer.synced.is_set() for informer in self._informers.values()):
            steps += [self._prune(owner, kind, child) for kind, child in surplus if not deleting(child)]
        steps += [self._remove_unlisted(owner, kind, name) for kind, name in absent]
        outcomes = await self._apply_all(owner, others, wanted, *steps)
        return _summary([*made, *outcomes], [*accounts, *others])

    async def _apply_all(
        self,
        owner: Object,
        names: Sequence[tuple[Kind, Key]],
        wanted: Mapping[tuple[Kind, Key], Object],
        *further: Coroutine[Any, Any, None],
    ) -> list[BaseException | None]:
        """Applies the named children at once, and does what else there is to do. Returns what each raised."""
        steps = [self._apply(owner, kind, wanted[kind, name]) for kind, name in names]
        return await asyncio.gather(*steps, *further, return_exceptions=True)

    async def ensure(self, owner: Object, objects: Sequence[Object]) -> Applied:
        """Makes those of ``objects`` that are missing, without an owner; what is there stays as it is."""
        wanted = {(self._kind(obj), key(obj)): obj for obj in objects}
        steps = [self._make(owner, kind, obj) for (kind, _unused), obj in wanted.items()]
        return _summary(await asyncio.gather(*steps, return_exceptions=True), list(wanted))

    async def _make(self, owner: Object, kind: Kind, obj: Object) -> None:
        name, informer = key(obj), self._shared[kind]
        if informer.store.get(name) is not None:
            return
        desired = digest(obj)
        self._refuse_again(kind, name, desired)
        try:
            answer = await self._client.create(kind, self._labelled(obj), field_manager=self._field_manager)
        except Conflict:  # another owner was faster
            return
        except (Invalid, Forbidden, NotFound) as error:
            raise self._refusal(kind, name, desired, error) from error
        self._expectations.wrote(uid(owner), informer, answer)

    def _forget(self, kind: Kind, change: Change) -> None:
        if change.new is None:
            self._sent.pop((kind, change.key), None)
            self._refused.pop((kind, change.key), None)

    def _owned(self, owner: Object) -> list[tuple[Kind, Object]]:
        return [
            (kind, child)
            for kind, informer in self._informers.items()
            for child in informer.store.by_index(OWNER, children_of(owner))
        ]

    def _kind(self, child: Object) -> Kind:
        return self._kinds[child["apiVersion"], child["kind"]]

    def _complete(self, owner: Object, child: Object) -> Object:
        """Raises ValueError for a child in another namespace than its owner's, which the garbage collector removes."""
        if key(owner).namespace not in ("", key(child).namespace):
            raise ValueError(f"{child['kind']} {key(child)} cannot be a child of {key(owner)}")
        child = self._labelled(child)
        child["metadata"]["ownerReferences"] = [owner_reference(self._owner_kind, owner)]
        return child

    def _labelled(self, obj: Object) -> Object:
        """A copy that carries our label."""
        metadata = dict(obj["metadata"])
        metadata["labels"] = {**(metadata.get("labels") or {}), MANAGED_BY: self._manager}
        return {**obj, "metadata": metadata}

    async def _apply(self, owner: Object, kind: Kind, child: Object) -> None:
        if kind in self._unlisted:
            await self._apply_unlisted(owner, kind, child)
            return
        name, informer = key(child), self._informers[kind]
        desired = digest(child)
        child = self._marked(child, desired)
        stored = informer.store.get(name)
        if stored is not None and self._unchanged(kind, stored, child, desired):
            return
        # The store shows only what carries our label: before the first write look whether the name is free.
        live = stored if stored is not None else await self._look(kind, name)
        if live is not None:
            self._refuse_foreign(owner, kind, live)
            if deleting(live):
                raise _Waiting
        self._refuse_again(kind, name, desired)
        answer = await self._send(owner, kind, child, desired, live)
        self._expectations.wrote(uid(owner), informer, answer)
        self._sent[kind, name] = _Sent(
            uid(answer), desired, resource_version(answer), digest(projection(child, answer))
        )

    async def _apply_unlisted(self, owner: Object, kind: Kind, child: Object) -> None:
        """The same where nothing tells of changes: the object itself says what was sent last."""
        name, desired = key(child), digest(child)
        child = self._marked(child, desired)
        live = await self._look(kind, name, cached=False)
        if live is not None:
            try:
                self._refuse_foreign(owner, kind, live)
            except _Waiting:  # no event tells when it is gone
                raise Conflict(f"{kind.kind} {name.name} is of an owner that is gone") from None
            if deleting(live):
                raise Conflict(f"{kind.kind} {name.name} is on its way out")
            if self._shows(live, child, desired):
                return
        self._refuse_again(kind, name, desired)
        await self._send(owner, kind, child, desired, live)

    async def _remove_unlisted(self, owner: Object, kind: Kind, name: Key) -> None:
        live = await self._look(kind, name, cached=False)
        controller = controller_owner(live) if live is not None else None
        if live is None or controller is None or controller.uid != uid(owner) or deleting(live):
            return
        if labels(live).get(MANAGED_BY) == self._manager:
            with suppress(NotFound):
                await self._client.delete(kind, name, uid=uid(live), resource_version=resource_version(live))

    async def _send(self, owner: Object, kind: Kind, child: Object, desired: bytes, live: Object | None) -> Object:
        """Applies a child. What the server refuses is not sent again for a while: every event would repeat it."""
        name = key(child)
        try:
            return await self._client.apply(kind, child, field_manager=self._field_manager)
        except (Invalid, Forbidden, NotFound) as error:
            if live is not None and kind in self._replaceable and isinstance(error, Invalid) and _immutable(error):
                log.info("%s %s is deleted and made again, a field cannot change: %s", kind.kind, name, error)
                await self._delete(owner, kind, live)
                raise _Waiting from error
            raise self._refusal(kind, name, desired, error) from error

    def _refusal(self, kind: Kind, name: Key, desired: bytes, error: ApiError) -> _Refusal:
        failure = Failure(kind.kind, name.name, error.reason, error.message)
        now = time.monotonic()
        self._refused = {child: refused for child, refused in self._refused.items() if refused.until > now}
        # One second less, so that it is over when the slow retry comes.
        self._refused[kind, name] = _Refused(desired, failure, now + _REFUSED_SECONDS - 1)
        return _Refusal(failure)

    def _refuse_again(self, kind: Kind, name: Key, desired: bytes) -> None:
        """Raises what the server said to the same intent a short while ago."""
        refused = self._refused.pop((kind, name), None)
        if refused is not None and refused.desired == desired and time.monotonic() < refused.until:
            self._refused[kind, name] = refused
            raise _Refusal(refused.failure)

    async def _look(self, kind: Kind, name: Key, *, cached: bool = True) -> Object | None:
        try:
            # A little old will do for a name: who is quicker than this look would be quicker than a newer one, too.
            return await self._client.get(kind, name, cached=cached)
        except NotFound:
            return None

    def _marked(self, child: Object, desired: bytes) -> Object:
        """A copy with the digest of itself."""
        if not self._mark:
            return child
        metadata = child["metadata"]
        annotations = {**(metadata.get("annotations") or {}), self._mark: desired.hex()}
        return {**child, "metadata": {**metadata, "annotations": annotations}}

    def _unchanged(self, kind: Kind, stored: Object, child: Object, desired: bytes) -> bool:
        """Whether the last write of the same intent still shows in the store, whatever else changed there."""
        sent = self._sent.get((kind, key(child))) or self._sent_before(kind, stored, child, desired)
        if sent is None or sent.uid != uid(stored) or sent.desired != desired or deleting(stored):
            return False
        if sent.resource_version == resource_version(stored):
            return True
        if sent.observed != digest(projection(child, stored)):
            return False
        self._sent[kind, key(child)] = sent._replace(resource_version=resource_version(stored))
        return True

    def _sent_before(self, kind: Kind, stored: Object, child: Object, desired: bytes) -> _Sent | None:
        """What the process before this one sent, where the mark says that it was this and nothing of it was changed."""
        if not self._shows(stored, child, desired):
            return None
        sent = _Sent(uid(stored), desired, resource_version(stored), digest(projection(child, stored)))
        self._sent[kind, key(child)] = sent
        return sent

    def _shows(self, stored: Object, child: Object, desired: bytes) -> bool:
        """Whether an object says that it was made of this intent, and is still as that says."""
        mark = (stored["metadata"].get("annotations") or {}).get(self._mark)
        return bool(self._mark) and mark == desired.hex() and includes(stored, child)

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
        if controller is not None and (controller.kind, controller.name) == (self._owner_kind.kind, key(owner).name):
            raise _Waiting
        holder = f"belongs to {controller.kind} {controller.name}" if controller else "was made by someone else"
        name = key(live).name
        message = f"{kind.kind} {name} exists and {holder}; delete or rename one of the two"
        raise _Refusal(Failure(kind.kind, name, NAME_TAKEN, message))

    async def _prune(self, owner: Object, kind: Kind, child: Object) -> None:
        if labels(child).get(MANAGED_BY) == self._manager:
            await self._delete(owner, kind, child)

    async def _delete(self, owner: Object, kind: Kind, child: Object) -> None:
        self._sent.pop((kind, key(child)), None)
        name, version = key(child), resource_version(child)
        propagation = "Foreground" if deleting(owner) else "Background"
        try:
            await self._client.delete(kind, name, uid=uid(child), resource_version=version, propagation=propagation)
        except NotFound:
            return
        self._expectations.deleted(uid(owner), self._informers[kind], child)


def _summary(outcomes: Sequence[BaseException | None], wanted: Sequence[tuple[Kind, Key]]) -> Applied:
    """Sorts what the steps raised; the first ones are those of ``wanted``, in its order."""
    failures: list[Failure] = []
    waiting: list[str] = []
    errors: list[ApiError] = []
    for position, outcome in enumerate(outcomes):
        kind, name = wanted[position] if position < len(wanted) else (None, None)
        if outcome is None:
            continue
        if isinstance(outcome, _Refusal):
            failures.append(outcome.failure)
        elif isinstance(outcome, _Waiting) and kind and name:
            waiting.append(f"{kind.kind} {name.name}")
        elif isinstance(outcome, ApiError):
            errors.append(outcome)
        else:
            raise outcome
    return Applied(tuple(failures), tuple(waiting), tuple(errors))


def _immutable(error: Invalid) -> bool:
    return any("immutable" in message for _unused, message in error.causes) or "immutable" in error.message
