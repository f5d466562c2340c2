# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Requests to the API server, with retries of transient errors. Paths are computed, so there is no discovery.

A server that has responded once and then becomes unreachable is assumed to be restarting. For a server that has never
responded, the client soon gives up.
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
from ansible_collections.slipway.inference.plugins.module_utils._settings import hide_credentials

Object = dict[str, Any]

FIELD_MANAGER = "slipway.inference"
PAGE = 500
ANSWER_SECONDS = 35
# Seconds for which requests to a server that has never responded are retried.
FIRST_CONTACT_SECONDS = 2.0
_TIME_IS_UP = "Increase api_timeout, if the module has this option, or pass fewer objects."
_METHODS = {"apply": "PATCH", "delete": "DELETE"}
_RBAC_VERBS = {"apply": "patch"}


@dataclass(frozen=True)
class Request:
    """A request to the API server. ``verb`` is get, list, watch, apply, delete, or openapi for the schemas of the
    kind's group and version."""

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
    """Pauses that double from ``first`` to at most ``most`` seconds. A random reduction prevents clients from retrying
    at the same time."""

    def __init__(self, first: float = 0.25, most: float = 10.0) -> None:
        self._first, self._most, self._next = first, most, first

    def reset(self) -> None:
        self._next = self._first

    def pause(self) -> float:
        now, self._next = self._next, min(self._next * 2, self._most)
        return now * random.uniform(0.5, 1.0)  # noqa: S311  (it protects nothing)


class Client:
    """A client of one API server for any number of threads. ``warn`` is called with each warning of the server, once
    per text."""

    def __init__(self, connection: Connection, warn: Callable[[str], None]) -> None:
        self._connection = connection
        self._warn = warn
        self._warned: set[str] = set()
        self._answered = threading.Event()

    def call(self, request: Request, until: float) -> Object:
        """Return the decoded response. Transient errors are retried until ``until`` on the monotonic clock. Raise
        InferenceError if the request fails."""
        body = self._retried(request, until)
        try:
            answer = json.loads(body or b"{}")
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            # Such as the login page of a proxy.
            text = body[:100].decode(errors="replace").strip()
            host = hide_credentials(self._connection.host)
            raise InferenceError("server_error", f"{host} is not a Kubernetes API server: {text}")
        return answer

    def text(self, request: Request, until: float) -> str:
        """Return the response as text, such as a log. Raise InferenceError if the request fails."""
        return self._retried(request, until).decode(errors="replace")

    def pages(self, request: Request, until: float) -> tuple[list[Object], str]:
        """Return all items of a list, and the resourceVersion from which a watch continues. Raise InferenceError if a
        request fails."""
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
        """Yield events as they arrive, for at most ``seconds``. Raise InferenceError if the stream breaks."""
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
        """Send a request once. For the verb watch, the response body is still unread. Raise InferenceError for an error
        response."""
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
