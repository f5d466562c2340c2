# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""The wait engine: all objects together, by watch, until all are done, one has failed for good, or the time is up.

One thread a kind and namespace follows its objects (list, watch, list again when the server has forgotten the version)
and tells a `Board` what it sees; the caller waits at the board. Cut streams, restarts of the API server and requests to
slow down are waited out; where watching is not permitted, it polls.
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
# Right after a restart the API server may refuse what it allows a moment later.
REFUSAL_SECONDS = 15.0
IN_USE = "InUse"
DELETED = Verdict(FAILED, "Deleted", "It was deleted during the wait.")


@dataclass
class Watched:
    """An object that is waited for: as last seen, and what that means. ``resource`` is None when it is gone."""

    resource: Object | None
    uid: str
    generation: int
    # What its own status says, and what that means beside all others.
    told: Verdict = field(default_factory=lambda: Verdict(WAITING))
    verdict: Verdict = field(default_factory=lambda: Verdict(WAITING))
    waited: float = 0.0


class Board:
    """What is known of all objects, shared by the threads that follow them and the caller that waits."""

    def __init__(self, wait_for: Mapping[Kind, Rule], *, gone: bool = False) -> None:
        self._wait_for, self._gone = wait_for, gone
        self._changed = threading.Condition()
        self._started = time.monotonic()
        self.items: dict[Key, Watched] = {}
        self.error: InferenceError | None = None
        # The last trouble with the API server, empty while it answers.
        self.trouble = ""

    def add(self, key: Key, resource: Object) -> None:
        """Waits for this object, in this generation or a newer one."""
        metadata = resource["metadata"]
        self.items[key] = Watched(resource, metadata["uid"], metadata.get("generation", 0))
        self.saw(key, resource)

    def saw(self, key: Key, resource: Object) -> None:
        """Takes note of an object as it is now. What a watch tells of the time before the change is ignored."""
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
        """Takes note that an object is gone."""
        with self._changed:
            item = self.items.get(key)
            if item is not None and uid == item.uid:
                self._conclude(key, item, None)

    def only(self, place: Place, resources: list[Object]) -> None:
        """Takes note of all objects of a place: those that are missing are gone."""
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
        """Whether something there is still waited for."""
        with self._changed:
            return any(self.items[key].verdict.state == WAITING for key in self.at(place))

    def wait(self, until: float) -> bool:
        """Whether all were done in time. Returns at once when one has failed or nothing can be learnt any more."""
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
        """Makes of what an object says of itself what it means beside those that it needs."""
        before, item.verdict = item.verdict.state, item.told
        certain = self._gone or item.told is DELETED or item.told.state == WAITING
        if not certain and (needed := self._in_doubt_for(key, item)):
            text = f"The {needed.kind.kind} {needed.name} is not ready, or its change has not been reconciled yet."
            item.verdict = Verdict(WAITING, f"{needed.kind.kind}NotReady", f"{text} {item.told.text}".rstrip())
        if item.verdict.state != before:
            item.waited = time.monotonic() - self._started
        self._changed.notify_all()

    def _in_doubt_for(self, key: Key, item: Watched) -> Key | None:
        """What the object needs, if what it says of itself may be of the time before that was changed by this task.

        Watches keep no order among each other; but its status tells what it has seen.
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
        """What becomes of others ends doubts."""
        for key, item in self.items.items():
            if item.verdict.state == WAITING != item.told.state:
                self._weigh(key, item)


def _seen(kind: Kind, resource: Object | None, name: str, needed: Watched) -> Object | None:
    """What a status tells of an object that is needed; None: nothing, or of the time before it was changed."""
    observed = value_at(resource, kind.seen)
    entries = observed if isinstance(observed, list) else []
    for entry in entries:
        if (entry.get("name"), entry.get("uid")) == (name, needed.uid) and entry["generation"] >= needed.generation:
            return dict(entry)
    return None


def _leaving(kind: Kind, resource: Object) -> Verdict:
    """Why something that is deleted is still there: its status may know who needs it."""
    reason, message = tell(kind, resource)
    return Verdict(WAITING, *((reason, message) if reason == IN_USE else ("Deleting", _held_by(resource))))


def _held_by(resource: Mapping[str, Any]) -> str:
    finalizers = resource["metadata"].get("finalizers") or []
    if finalizers == ["foregroundDeletion"]:
        return "Its dependents are still being deleted."
    return f"It is blocked by finalizers: {', '.join(finalizers)}." if finalizers else "It still exists."


def follow(client: Client, board: Board, versions: Mapping[Place, str], until: float) -> None:
    """Starts to follow the objects on the board. ``versions``: where the watch of each place continues."""
    for place in {Place(key.kind, key.namespace) for key in board.items}:
        if board.pending(place):
            follower = _Follower(client, board, place, versions.get(place, ""), until)
            # A watch may be blocked in a read when the module ends.
            threading.Thread(target=follower.run, name=f"watch-{place.namespace}", daemon=True).start()


class _Follower:
    """Follows the objects of one kind in one namespace."""

    def __init__(self, client: Client, board: Board, place: Place, version: str, until: float) -> None:
        self._client, self._board, self._place = client, board, place
        self._version, self._until = version, until
        names = [key.name for key in board.at(place)]
        self._query = {"fieldSelector": f"metadata.name={names[0]}"} if len(names) == 1 else {}
        self._polling = False

    def run(self) -> None:
        """Follows until there is nothing left to learn. However it ends, the caller does not wait for a dead thread."""
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
                    time.sleep(backoff.pause())  # A server or proxy that ends every watch at once.
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
                self._version = ""  # The server has forgotten it: list again.
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
