# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes of models and inference services as events for Event-Driven Ansible.

One thread per kind watches the objects, and queues an event when one becomes ready, fails or changes its reason. The
host needs the collection and ansible-core, because this uses the client and rules of the modules.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

# ansible-rulebook runs this file by its path, without Ansible's finder of collections.
for _folder in Path(__file__).absolute().parents:
    if _folder.name == "ansible_collections" and str(_folder.parent) not in sys.path:
        sys.path.append(str(_folder.parent))

from ansible_collections.slipway.inference.plugins.module_utils import _auth, _readiness  # noqa: E402
from ansible_collections.slipway.inference.plugins.module_utils._apis import MODELS, SERVICES, Kind  # noqa: E402
from ansible_collections.slipway.inference.plugins.module_utils._client import (  # noqa: E402
    Backoff,
    Client,
    Object,
    Request,
)
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError  # noqa: E402
from ansible_collections.slipway.inference.plugins.module_utils._secrets import mask  # noqa: E402

DOCUMENTATION = r"""
short_description: Report when models and inference services become ready, fail, change their reason or are deleted
description:
  - Sends an event when a model or inference service becomes ready, fails permanently, changes its reason or message, or
    is deleted. At the start, it sends one for each existing object, with C(initial) true.
  - Temporary errors are retried. Rejected credentials and missing permissions end the source. The account needs the
    verbs C(list) and C(watch).
options:
  api:
    description: Serving API, or a list of several. By default all.
    type: list
    elements: str
  namespace:
    description: Only objects in this namespace. By default, objects in all namespaces and cluster-scoped objects.
    type: str
  label_selectors:
    description: Only objects that match all of these label selectors.
    type: list
    elements: str
  kubeconfig:
    description:
      - As in the modules of this collection. So are the other connection options, such as C(context), C(host),
        C(api_key), C(ca_cert) and C(validate_certs).
      - The default is C(K8S_AUTH_*), the pod's ServiceAccount, or C(~/.kube/config).
    type: path
"""

EXAMPLES = r"""
- name: Watch the models of a namespace
  hosts: localhost
  sources:
    - slipway.inference.models:
        namespace: models
  rules:
    - name: Report failed models
      condition: event.state == "failed"
      action:
        debug:
          msg: "{{ event.namespace }}/{{ event.name }}: {{ event.reason }}"
"""

log = logging.getLogger(__name__)

WATCH_SECONDS = 60
LIST_SECONDS = 60.0
# How often it is looked for a kind that the cluster does not know.
MISSING_SECONDS = 60.0
DELETED = "deleted"

Event = dict[str, Any]
Emit = Callable[[Event], None]


async def main(queue: asyncio.Queue[Event], args: Mapping[str, Any]) -> None:
    """Puts events into the queue until it is cancelled. Raises InferenceError where it cannot go on."""
    kinds = list(_kinds(args.get("api")))
    client = Client(_auth.connect(args), log.warning)
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def emit(event: Event) -> None:
        if ended.done() or loop.is_closed():
            raise SystemExit  # Ends the thread, and nothing else.
        # The thread waits until there is room.
        asyncio.run_coroutine_threadsafe(queue.put(event), loop).result()

    def end(error: Exception) -> None:
        if not ended.done():
            ended.set_exception(error)

    def follow(api: str, kind: Kind) -> None:
        try:
            _Follower(client, api, kind, args, emit).run()
        except Exception as error:  # noqa: BLE001  (whatever it is, the source ends with it)
            if not loop.is_closed():
                loop.call_soon_threadsafe(end, error)

    for api, kind in kinds:
        # A watch may be blocked in a read when the source ends.
        threading.Thread(target=follow, args=(api, kind), name=f"watch-{kind.resource}", daemon=True).start()
    await ended


def _kinds(apis: Any) -> Iterator[tuple[str, Kind]]:
    """The kinds of these APIs, each with the name of its API."""
    named = [apis] if isinstance(apis, str) else list(apis or MODELS)
    unknown = [api for api in named if api not in MODELS]
    if unknown:
        text = f"There is no API {', '.join(map(str, unknown))}, but {', '.join(MODELS)}."
        raise InferenceError("invalid_input", text)
    for api in named:
        for kind in filter(None, (MODELS[api], SERVICES.get(api))):
            yield from ((api, one) for one in kind.all)


class Seen:
    """What was last told of each object of a kind. Pure but for that."""

    def __init__(self, api: str, kind: Kind) -> None:
        self._api, self._kind = api, kind
        self._told: dict[str, Event] = {}

    def listed(self, resources: list[Object], *, initial: bool) -> Iterator[Event]:
        """Events for all there is; what is missing was deleted meanwhile."""
        gone = set(self._told) - {resource["metadata"]["uid"] for resource in resources}
        for uid in gone:
            yield self._gone(uid)
        for resource in resources:
            yield from self.changed(resource, initial=initial)

    def changed(self, resource: Object, *, initial: bool = False) -> Iterator[Event]:
        """An event where it says something new of itself."""
        uid = resource["metadata"]["uid"]
        before = self._told.get(uid, {})
        event = _told(self._api, self._kind, resource)
        self._told[uid] = event
        if event != before:
            yield {**event, "before": before.get("state", ""), "initial": initial}

    def deleted(self, resource: Object) -> Iterator[Event]:
        if resource["metadata"]["uid"] in self._told:
            yield self._gone(resource["metadata"]["uid"])

    def _gone(self, uid: str) -> Event:
        event = self._told.pop(uid)
        return {**event, "state": DELETED, "ready": False, "before": event["state"], "initial": False}


def _told(api: str, kind: Kind, resource: Object) -> Event:
    """What an event tells of an object, apart from what was before. Dates of conditions are no news."""
    summary = mask(_readiness.summary(kind, resource))
    conditions = [
        {key: condition.get(key, "") for key in ("type", "status", "reason", "message")}
        for condition in summary["conditions"]
    ]
    told = {key: summary[key] for key in ("kind", "name", "namespace", "ready", "phase", "reason", "message", "url")}
    labels = dict(resource["metadata"].get("labels") or {})
    state = _readiness.judge(kind, resource).state
    return {"api": api, **told, "labels": labels, "state": state, "conditions": conditions}


class _Follower:
    """Follows all objects of a kind, for as long as the process lives."""

    def __init__(self, client: Client, api: str, kind: Kind, args: Mapping[str, Any], emit: Emit) -> None:
        self._client, self._kind, self._emit = client, kind, emit
        self._seen = Seen(api, kind)
        self._namespace = str(args.get("namespace") or "")
        self._query = {"labelSelector": ",".join(args.get("label_selectors") or ())}
        self._version = ""
        self._initial = True

    def run(self) -> None:
        if self._namespace and not self._kind.namespaced:
            return  # What is of the whole cluster is in no namespace.
        backoff = Backoff()
        while True:
            began = time.monotonic()
            try:
                self._learn()
            except InferenceError as error:
                if error.status == 410:
                    self._version = ""  # The server has forgotten it: list again.
                elif error.code == "definition_missing":
                    time.sleep(MISSING_SECONDS)
                elif not error.transient:
                    raise
            if time.monotonic() - began < 1:
                time.sleep(backoff.pause())
            else:
                backoff.reset()

    def _learn(self) -> None:
        if not self._version:
            request = Request("list", self._kind, self._namespace, query=self._query)
            resources, self._version = self._client.pages(request, time.monotonic() + LIST_SECONDS)
            self._tell(self._seen.listed(resources, initial=self._initial))
            self._initial = False
        query = {**self._query, "resourceVersion": self._version}
        for event in self._client.watch(Request("watch", self._kind, self._namespace, query=query), WATCH_SECONDS):
            self._take(event["type"], event["object"])

    def _take(self, change: str, resource: Object) -> None:
        if change == "ERROR":
            status = int(resource.get("code") or 0)
            raise InferenceError("server_error", str(resource.get("message")), status, transient=status != 410)
        self._version = resource["metadata"].get("resourceVersion") or self._version
        if change == "DELETED":
            self._tell(self._seen.deleted(resource))
        elif change in ("ADDED", "MODIFIED"):
            self._tell(self._seen.changed(resource))

    def _tell(self, events: Iterator[Event]) -> None:
        for event in events:
            self._emit(event)
