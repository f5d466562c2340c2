"""Secrets that are written and never read, because the permission to list Secrets exposes all of them.

No event reports that such an object was deleted or changed, so it is written again at intervals.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from slipway.kube.api.client import Client
from slipway.kube.api.errors import ConflictError, ForbiddenError, InvalidObjectError, NotFoundError
from slipway.kube.objects import SECRET, Key, Kind, Object, key, uid
from slipway.kube.values.compare import digest
from slipway.kube.writes.intents import Intent, IntentBuilder
from slipway.kube.writes.outcomes import Applied, run_all, summarize
from slipway.kube.writes.refusals import Refusals, is_immutable, name_taken

REWRITE_SECONDS = 300.0
"""Minimum number of seconds after which an unchanged object is written again."""
REWRITES_PER_SECOND = 5.0
"""Maximum rate at which objects are written again. With many owners, the interval is longer."""
_KINDS = {(SECRET.api_version, SECRET.kind): SECRET}
OF_STRANGER, OF_VANISHED_OWNER = "was made by someone else", "is of an owner that is gone"
"""Messages with which the admission policy of the role ``controller`` refuses to replace a write-only object. One is
for an object of another owner, and one for an object whose owner is gone."""


class _Write(NamedTuple):
    """The last write of an object."""

    desired: bytes
    """Digest of the object that was written."""
    at: float
    """Monotonic time of the write in seconds."""


class WriteOnlyObjects:
    """A writer of the write-only children of owners of one kind."""

    def __init__(self, client: Client, builder: IntentBuilder, refusals: Refusals, *, field_manager: str) -> None:
        self._client, self._builder, self._refusals, self._field_manager = client, builder, refusals, field_manager
        self._writes: dict[str, dict[tuple[Kind, Key], _Write]] = {}
        """Map of an owner's UID to the last write of each of its children."""

    async def apply(self, owner: Object, objects: Sequence[Object]) -> Applied:
        """Write each object when it changes, and again after :data:`REWRITE_SECONDS` or more.

        Call this again after :meth:`due_after` seconds. An existing object of another owner stays unchanged and is
        reported as a failure, or as a transient error if that owner is gone. The garbage collector deletes the objects
        together with their owner.
        """
        now, interval = time.monotonic(), self._interval(uid(owner))
        previous = self._writes.pop(uid(owner), {})
        self._drop_vanished()
        if not objects:
            return Applied()
        intents = []
        for obj in objects:
            child = self._builder.add_owner(owner, obj)
            intents.append(Intent(_KINDS[obj["apiVersion"], obj["kind"]], key(child), child, digest(child)))
        current = {
            (one.kind, one.name): write
            for one in intents
            if (write := previous.get((one.kind, one.name)))
            and write.desired == one.desired
            and now - write.at < interval
        }
        changed = [one for one in intents if (one.kind, one.name) not in current]
        outcomes = await run_all([self._write(one, exists=(one.kind, one.name) in previous) for one in changed])
        for intent, outcome in zip(changed, outcomes, strict=True):
            if outcome is None:
                current[intent.kind, intent.name] = _Write(intent.desired, now)
        self._writes[uid(owner)] = current
        return summarize(outcomes, changed)

    def due_after(self, owner: Object) -> float | None:
        """Return the seconds until the objects of the last :meth:`apply` must be written again, or None if there are
        none."""
        times = [write.at for write in self._writes.get(uid(owner), {}).values()]
        return max(min(times) + self._interval(uid(owner)) - time.monotonic(), 0.0) if times else None

    def _interval(self, owner: str) -> float:
        """Return the seconds between two writes of the same content. The interval differs by up to a quarter between
        owners, because all objects are written at the same time after a restart."""
        interval = max(REWRITE_SECONDS, len(self._writes) / REWRITES_PER_SECOND)
        return interval * (1 + zlib.crc32(owner.encode()) / 2**34)

    def _drop_vanished(self) -> None:
        """Forget owners whose objects were not rewritten in time, because the owners are gone. The owners are in the
        order of their last reconciliation."""
        oldest = time.monotonic() - 2 * max(REWRITE_SECONDS, len(self._writes) / REWRITES_PER_SECOND)
        while self._writes:
            owner = next(iter(self._writes))
            if any(write.at > oldest for write in self._writes[owner].values()):
                return
            del self._writes[owner]

    async def _write(self, intent: Intent, *, exists: bool) -> None:
        """Create the object, or replace it if it exists. ``exists`` is whether this process has written the object
        before."""
        self._refusals.raise_recent(intent)
        try:
            if exists and await self._replace(intent):
                return
            await self._client.create(intent.kind, intent.object, field_manager=self._field_manager)
        except ConflictError:
            if not await self._replace(intent):
                raise
        except (InvalidObjectError, ForbiddenError, NotFoundError) as error:
            raise self._refusals.record(intent, error) from error

    async def _replace(self, intent: Intent) -> bool:
        """Replace the object with the child's name if it belongs to the same owner, which the API server's policy
        checks. Return False if it does not exist.

        A patch would also work, but the error response to an invalid patch contains the whole object.
        """
        kind, name = intent.kind, intent.name
        try:
            await self._client.replace(kind, intent.object, field_manager=self._field_manager)
        except NotFoundError:
            return False
        except ForbiddenError as error:
            if OF_VANISHED_OWNER in error.message:  # no event reports when it is gone
                raise ConflictError(f"{kind.kind} {name.name} {OF_VANISHED_OWNER}") from error
            refused = name_taken(intent) if OF_STRANGER in error.message else self._refusals.record(intent, error)
            raise refused from error
        except InvalidObjectError as error:  # the server compares the types before the policy
            raise (name_taken(intent) if is_immutable(error) else self._refusals.record(intent, error)) from error
        return True
