# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Requests to the API server: paths are computed, so there is no discovery; trouble that passes is waited out.

A server that has answered once and then goes away is taken to be restarting; one that never answered is given up soon.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from ansible_collections.slipway.inference.plugins.module_utils._apis import Kind
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError, from_answer
from ansible_collections.slipway.inference.plugins.module_utils._http import Answer, Connection, cut

Object = dict[str, Any]

FIELD_MANAGER = "slipway.inference"
PAGE = 500
ANSWER_SECONDS = 35
# How long a server that never answered is asked.
FIRST_CONTACT_SECONDS = 2.0
_TIME_IS_UP = "Increase api_timeout, if the module has this option, or pass fewer objects."
_METHODS = {"apply": "PATCH", "delete": "DELETE"}
_RBAC_VERBS = {"apply": "patch"}


@dataclass(frozen=True)
class Request:
    """``verb``: get, list, watch, apply, delete, or openapi: the schemas of the kind's group and version."""

    verb: str
    kind: Kind
    namespace: str = ""
    name: str = ""
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    subresource: str = ""

    @property
    def target(self) -> str:
        query = urlencode({key: _parameter(value) for key, value in self.query.items() if value not in (None, "")})
        path = self.kind.path(self.namespace, self.name, self.subresource)
        if self.verb == "openapi":
            path = f"/openapi/v3/apis/{self.kind.group}/{self.kind.version}"
        return f"{path}?{query}" if query else path

    @property
    def where(self) -> str:
        return "/".join(part for part in (self.namespace, self.name) if part)


class Backoff:
    """Pauses that grow from ``first`` to ``most`` seconds; each is shortened by chance, so that callers spread."""

    def __init__(self, first: float = 0.25, most: float = 10.0) -> None:
        self._first, self._most, self._next = first, most, first

    def reset(self) -> None:
        self._next = self._first

    def pause(self) -> float:
        now, self._next = self._next, min(self._next * 2, self._most)
        return now * random.uniform(0.5, 1.0)  # noqa: S311  (it protects nothing)


class Client:
    """Talks to one API server from any number of threads. ``warn`` receives the server's warnings."""

    def __init__(self, connection: Connection, warn: Callable[[str], None]) -> None:
        self._connection = connection
        self._warn = warn
        self._warned: set[str] = set()
        self._answered = threading.Event()

    def call(self, request: Request, until: float) -> Object:
        """The decoded answer. Trouble that may pass is retried until the time ``until`` of the monotonic clock."""
        body = self._retried(request, until)
        try:
            answer = json.loads(body or b"{}")
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            # Such as the login page of a proxy.
            text = body[:100].decode(errors="replace").strip()
            raise InferenceError("server_error", f"{self._connection.host} is not a Kubernetes API server: {text}")
        return answer

    def text(self, request: Request, until: float) -> str:
        """The answer as text, such as a log."""
        return self._retried(request, until).decode(errors="replace")

    def pages(self, request: Request, until: float) -> tuple[list[Object], str]:
        """All items of a list, and the resourceVersion that a watch continues from."""
        items: list[Object] = []
        more = ""
        while True:
            query = {**request.query, "limit": PAGE, "continue": more}
            page = self.call(Request("list", request.kind, request.namespace, query=query), until)
            items += page.get("items") or []
            metadata = page.get("metadata") or {}
            more = metadata.get("continue", "")
            if not more:
                return items, metadata.get("resourceVersion", "")

    def watch(self, request: Request, seconds: int) -> Iterator[Object]:
        """Events as they come, for so many seconds at most. Ends, or raises, when the stream does."""
        query = {**request.query, "watch": True, "allowWatchBookmarks": True, "timeoutSeconds": seconds}
        answer = self._send(Request("watch", request.kind, request.namespace, query=query), seconds + 10)
        try:
            yield from self._events(answer)
        finally:
            answer.close()

    def _events(self, answer: Answer) -> Iterator[Object]:
        rest = b""
        for chunk in answer.chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.strip():
                    yield _event(line)

    def _retried(self, request: Request, until: float) -> bytes:
        backoff, started = Backoff(), time.monotonic()
        while True:
            remaining = until - time.monotonic()
            if remaining <= 0:
                text = "The timeout expired before the request was sent."
                raise InferenceError("unreachable", text, advice=(_TIME_IS_UP,))
            try:
                body = self._send(request, min(ANSWER_SECONDS, remaining)).body
            except InferenceError as error:
                limit = until if self._answered.is_set() else min(until, started + FIRST_CONTACT_SECONDS)
                pause = error.retry_after if error.retry_after is not None else backoff.pause()
                if not error.transient or time.monotonic() + pause > limit:
                    raise
                time.sleep(pause)
            else:
                return body

    def _send(self, request: Request, seconds: float) -> Answer:
        """One attempt. The body of the answer has not been read when the verb is watch."""
        headers = {"Accept": "*/*" if request.subresource == "log" else "application/json"}
        if request.body is not None:
            headers["Content-Type"] = "application/apply-patch+yaml" if request.verb == "apply" else "application/json"
        answer = self._connection.request(
            _METHODS.get(request.verb, "GET"),
            request.target,
            headers,
            None if request.body is None else json.dumps(request.body).encode(),
            seconds,
            streamed=request.verb == "watch",
        )
        self._answered.set()
        self._pass_warnings(answer.warnings)
        if answer.status >= 300:
            verb = _RBAC_VERBS.get(request.verb, request.verb)
            raise from_answer(
                answer.status, answer.body, answer.retry_after, verb, request.kind.resource, request.where
            )
        return answer

    def _pass_warnings(self, headers: list[str]) -> None:
        # Warning: 299 - "text"
        for header in headers:
            text = header.partition('"')[2].rpartition('"')[0].replace('\\"', '"')
            if text and text not in self._warned:
                self._warned.add(text)
                self._warn(text)


def _parameter(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _event(line: bytes) -> Object:
    try:
        event: Object = json.loads(line)
    except ValueError as error:
        raise cut(error) from error
    return event
