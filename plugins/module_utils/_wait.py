# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""The wait engine, which watches all objects until all are done, one has failed, or the time limit ends.

One thread for each kind and namespace follows its objects: it lists and watches, and lists again if the server no
longer has the version. It reports each object to a ``Board``, at which the caller waits. Broken streams, restarts of
the API server and requests to slow down are waited out. If watching is forbidden, the thread polls.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.slipway.inference.plugins.module_utils._apis import Kind
from ansible_collections.slipway.inference.plugins.module_utils._apply import key_of
from ansible_collections.slipway.inference.plugins.module_utils._client import Backoff, Client, Object, Request
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError
from ansible_collections.slipway.inference.plugins.module_utils._manifest import Key, Place
from ansible_collections.slipway.inference.plugins.module_utils._readiness import (
    DONE,
    FAILED,
    READY,
    WAITING,
    Verdict,
    judge,
    tell,
)
from ansible_collections.slipway.inference.plugins.module_utils._rules import Rule, holds, value_at

WATCH_SECONDS = 60
POLL_SECONDS = 2.0
# Seconds for which rejected requests are retried. Right after a restart, the API server may reject valid requests.
REFUSAL_SECONDS = 15.0
IN_USE = "InUse"
DELETED = Verdict(FAILED, "Deleted", "It was deleted during the wait.")


@dataclass
class Watched:
    """An object to wait for, as last seen, and the meaning of its status. ``resource`` is None once it is gone."""

    resource: Object | None
    uid: str
    generation: int
    # The meaning of the object's status, and the verdict that also considers the other objects.
    told: Verdict = field(default_factory=lambda: Verdict(WAITING))
    verdict: Verdict = field(default_factory=lambda: Verdict(WAITING))
    waited: float = 0.0


class Board:
    """The state of all objects, shared by the threads that follow them and the caller that waits."""

    def __init__(self, wait_for: Mapping[Kind, Rule], *, gone: bool = False) -> None:
        self._wait_for, self._gone = wait_for, gone
        self._changed = threading.Condition()
        self._started = time.monotonic()
        self.items: dict[Key, Watched] = {}
        self.error: InferenceError | None = None
        # The last error of the API server. Empty while it responds.
        self.trouble = ""

    def add(self, key: Key, resource: Object) -> None:
        """Start waiting for this object, in this generation or a newer one."""
        metadata = resource["metadata"]
        self.items[key] = Watched(resource, metadata["uid"], metadata.get("generation", 0))
        self.saw(key, resource)

    def saw(self, key: Key, resource: Object) -> None:
        """Record the current state of an object. Events from before this task's change are ignored."""
        with self._changed:
            item = self.items.get(key)
            metadata = resource["metadata"]
            if item is None:
                return
            if metadata["uid"] != item.uid:
                if self._gone:
                    self._conclude(key, item, None)  # Another one has its name: the one that was to go has gone.
            elif metadata.get("generation", 0) >= item.generation:
                self._conclude(key, item, resource)

    def lost(self, key: Key, uid: str) -> None:
        """Record that the object with this UID is gone."""
        with self._changed:
            item = self.items.get(key)
            if item is not None and uid == item.uid:
                self._conclude(key, item, None)

    def only(self, place: Place, resources: list[Object]) -> None:
        """Record the complete list of objects of a kind and namespace. Objects that are missing in it are gone."""
        there = {key_of(place.kind, resource): resource for resource in resources}
        for key in self.at(place):
            item, resource = self.items[key], there.get(key)
            if resource is not None and resource["metadata"]["uid"] == item.uid:
                self.saw(key, resource)
            else:
                self.lost(key, item.uid)

    def give_up(self, error: InferenceError) -> None:
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()

    def at(self, place: Place) -> list[Key]:
        return [key for key in self.items if (key.kind, key.namespace) == place]

    def pending(self, place: Place) -> bool:
        """Whether the caller still waits for an object of this kind and namespace."""
        with self._changed:
            return any(self.items[key].verdict.state == WAITING for key in self.at(place))

    def wait(self, until: float) -> bool:
        """Whether all objects were done in time. Return early if one has failed or an error makes waiting useless."""
        with self._changed:
            while not self._decided() and (remaining := until - time.monotonic()) > 0:
                self._changed.wait(min(remaining, 1.0))
                self._judge_doubted()
            return all(item.verdict.state in DONE for item in self.items.values())

    def _decided(self) -> bool:
        states = [item.verdict.state for item in self.items.values()]
        return self.error is not None or FAILED in states or WAITING not in states

    def _conclude(self, key: Key, item: Watched, resource: Object | None) -> None:
        item.told, item.resource = self._judge(key, resource), resource or item.resource
        self._weigh(key, item)

    def _judge(self, key: Key, resource: Object | None) -> Verdict:
        if self._gone:
            return Verdict(READY) if resource is None else _leaving(key.kind, resource)
        if resource is None:
            return DELETED
        return judge(key.kind, resource, self._wait_for.get(key.kind))

    def _weigh(self, key: Key, item: Watched) -> None:
        """Set the verdict on an object from its own status and from the objects that it needs."""
        before, item.verdict = item.verdict.state, item.told
        certain = self._gone or item.told is DELETED or item.told.state == WAITING
        if not certain and (needed := self._in_doubt_for(key, item)):
            text = f"The {needed.kind.kind} {needed.name} is not ready, or its change has not been reconciled yet."
            item.verdict = Verdict(WAITING, f"{needed.kind.kind}NotReady", f"{text} {item.told.text}".rstrip())
        if item.verdict.state != before:
            item.waited = time.monotonic() - self._started
        self._changed.notify_all()

    def _in_doubt_for(self, key: Key, item: Watched) -> Key | None:
        """Return the object that makes this object's status doubtful, or None.

        The status may be from before this task changed an object that it needs, because the events of different watches
        have no order. The status itself lists the needed objects that its controller has seen.
        """
        refused = key.kind.refused is not None and holds(key.kind.refused, item.resource or {})
        for need in key.kind.needs:
            namespace = key.namespace if need.kind.namespaced else ""
            name = Key(need.kind, namespace, str(value_at(item.resource, need.path)))
            needed = self.items.get(name)
            if needed is None:
                continue
            seen = _seen(key.kind, item.resource, name.name, needed)
            ready = bool(seen and seen.get("ready")) and needed.verdict.state in DONE
            if seen is None or not (ready or refused):
                return name
        return None

    def _judge_doubted(self) -> None:
        """Update objects whose doubts may have been resolved by changes of other objects."""
        for key, item in self.items.items():
            if item.verdict.state == WAITING != item.told.state:
                self._weigh(key, item)


def _seen(kind: Kind, resource: Object | None, name: str, needed: Watched) -> Object | None:
    """Return the entry in a status about a needed object. The result is None if there is none, or it is from before the
    object was changed."""
    observed = value_at(resource, kind.seen)
    entries = observed if isinstance(observed, list) else []
    for entry in entries:
        if (entry.get("name"), entry.get("uid")) == (name, needed.uid) and entry["generation"] >= needed.generation:
            return dict(entry)
    return None


def _leaving(kind: Kind, resource: Object) -> Verdict:
    """Return why a deleted object still exists: the reason in its status, or else its finalizers."""
    reason, message = tell(kind, resource)
    return Verdict(WAITING, *((reason, message) if reason == IN_USE else ("Deleting", _held_by(resource))))


def _held_by(resource: Mapping[str, Any]) -> str:
    finalizers = resource["metadata"].get("finalizers") or []
    if finalizers == ["foregroundDeletion"]:
        return "Its dependents are still being deleted."
    return f"It is blocked by finalizers: {', '.join(finalizers)}." if finalizers else "It still exists."


def follow(client: Client, board: Board, versions: Mapping[Place, str], until: float) -> None:
    """Start threads that follow the objects on the board. ``versions`` has the resource version from which each watch
    continues."""
    for place in {Place(key.kind, key.namespace) for key in board.items}:
        if board.pending(place):
            follower = _Follower(client, board, place, versions.get(place, ""), until)
            # A daemon thread, because a watch may be blocked in a read when the module ends.
            threading.Thread(target=follower.run, name=f"watch-{place.namespace}", daemon=True).start()


class _Follower:
    """A thread's work: it follows the objects of one kind in one namespace."""

    def __init__(self, client: Client, board: Board, place: Place, version: str, until: float) -> None:
        self._client, self._board, self._place = client, board, place
        self._version, self._until = version, until
        names = [key.name for key in board.at(place)]
        self._query = {"fieldSelector": f"metadata.name={names[0]}"} if len(names) == 1 else {}
        self._polling = False

    def run(self) -> None:
        """Follow until no object is pending. Any error is reported to the board, so that the caller does not wait for a
        dead thread."""
        try:
            self._follow()
        except InferenceError as error:
            self._board.give_up(error)
        except Exception as error:  # noqa: BLE001  (whatever it is, the wait has to end with it)
            kind, namespace = self._place
            where = f" in {namespace}" if namespace else ""
            text = f"The watch of {kind.resource}{where} ended: {type(error).__name__}: {error}."
            self._board.give_up(InferenceError("internal_error", text))

    def _follow(self) -> None:
        backoff, refused_since = Backoff(), 0.0
        while self._board.pending(self._place) and time.monotonic() < self._until:
            began = time.monotonic()
            try:
                self._learn()
            except InferenceError as error:
                self._board.trouble = error.text
                if not error.transient:
                    refused_since = refused_since or began
                    if time.monotonic() - refused_since > REFUSAL_SECONDS:
                        raise
                pause = backoff.pause() if error.retry_after is None else error.retry_after
                time.sleep(max(0.0, min(pause, self._until - time.monotonic())))
            else:
                self._board.trouble, refused_since = "", 0.0
                if time.monotonic() - began < 1:
                    time.sleep(backoff.pause())  # A server or proxy may end every watch immediately.
                else:
                    backoff.reset()

    def _learn(self) -> None:
        if not self._version or self._polling:
            self._list()
        if self._polling:
            time.sleep(POLL_SECONDS)
            return
        try:
            self._stream()
        except InferenceError as error:
            if error.status == 410:
                self._version = ""  # The server no longer has the version, so list again.
            elif error.status == 403:
                self._polling = True
            else:
                raise

    def _list(self) -> None:
        request = Request("list", *self._place, query=self._query)
        resources, self._version = self._client.pages(request, self._until)
        self._board.only(self._place, resources)

    def _stream(self) -> None:
        seconds = max(1, min(WATCH_SECONDS, int(self._until - time.monotonic()) + 1))
        query = {**self._query, "resourceVersion": self._version}
        for event in self._client.watch(Request("watch", *self._place, query=query), seconds):
            self._take(event["type"], event["object"])
            if not self._board.pending(self._place):
                return

    def _take(self, change: str, resource: Object) -> None:
        if change == "ERROR":
            status = int(resource.get("code") or 0)
            message = str(resource.get("message") or "the watch ended with an error")
            raise InferenceError("server_error", message, status, transient=status != 410)
        self._version = resource["metadata"].get("resourceVersion") or self._version
        if change == "DELETED":
            self._board.lost(key_of(self._place.kind, resource), resource["metadata"]["uid"])
        elif change in ("ADDED", "MODIFIED"):
            self._board.saw(key_of(self._place.kind, resource), resource)
