# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""What else is known about an object that is not ready: its events, its pods' events, the end of their log.

Best effort: what the account may not read, or what takes too long, is left out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.slipway.inference.plugins.module_utils._apis import EVENT, POD, Kind
from ansible_collections.slipway.inference.plugins.module_utils._client import Client, Object, Request
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError

EVENTS = 10
LOG_LINES = 20
LABEL_LENGTH = 63


def diagnose(client: Client, kind: Kind, resource: Mapping[str, Any], until: float) -> dict[str, Any]:
    """``events``: the newest last, each with type, reason, message, count and object, without those that repeat a
    condition; ``log``: lines, or empty."""
    metadata = resource["metadata"]
    pod = _culprit(client, kind, metadata, until)
    events = _events(client, metadata, kind.kind, until)
    if pod is not None:
        events += _events(client, pod["metadata"], POD.kind, until)
    events.sort(key=_last_seen)
    conditions = (resource.get("status") or {}).get("conditions") or []
    messages = {condition.get("message") for condition in conditions}
    return {
        "events": [_event(event) for event in events if event.get("message") not in messages][-EVENTS:],
        "log": _log(client, pod, until) if pod is not None else [],
    }


def _culprit(client: Client, kind: Kind, metadata: Mapping[str, Any], until: float) -> Object | None:
    """The newest pod that should be ready and is not."""
    for selector in kind.pods:
        for pod in _pods(client, selector.format(name=label_value(metadata["name"])), metadata, until):
            if not _is_ready(pod) and (pod.get("status") or {}).get("phase") != "Succeeded":
                return pod
    return None


def label_value(name: str) -> str:
    """A resource's name as the value of its pods' labels, as the controller writes it: a long one ends in a digest."""
    if len(name) <= LABEL_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    plain = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
    return f"{plain[: LABEL_LENGTH - len(digest) - 1].rstrip('-')}-{digest}"


def _pods(client: Client, selector: str, metadata: Mapping[str, Any], until: float) -> list[Object]:
    query = {"labelSelector": selector}
    try:
        # Pods of an object of the whole cluster may be in any namespace.
        pods, _version = client.pages(Request("list", POD, metadata.get("namespace", ""), query=query), until)
    except InferenceError:
        return []
    return sorted(pods, key=lambda pod: pod["metadata"].get("creationTimestamp") or "", reverse=True)


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _events(client: Client, metadata: Mapping[str, Any], kind: str, until: float) -> list[Object]:
    selector = f"involvedObject.name={metadata['name']},involvedObject.kind={kind}"
    namespace = metadata.get("namespace") or "default"
    try:
        events, _version = client.pages(Request("list", EVENT, namespace, query={"fieldSelector": selector}), until)
    except InferenceError:
        return []
    return [event for event in events if event["involvedObject"].get("uid") in (None, metadata.get("uid"))]


def _last_seen(event: Mapping[str, Any]) -> str:
    series = event.get("series") or {}
    return str(series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or "")


def _event(event: Mapping[str, Any]) -> dict[str, Any]:
    about = event["involvedObject"]
    return {
        "type": event.get("type") or "",
        "reason": event.get("reason") or "",
        "message": event.get("message") or "",
        "count": (event.get("series") or {}).get("count") or event.get("count") or 1,
        "object": f"{about.get('kind')}/{about.get('name')}",
    }


def _log(client: Client, pod: Object, until: float) -> list[str]:
    """The end of what the container logs that is in trouble, or under way; of the run before when it waits to be
    started again."""
    status = _container(pod.get("status") or {})
    if status is None:
        return []  # No container of it has got as far.
    previous = bool(status.get("restartCount")) and "waiting" in (status.get("state") or {})
    query = {"container": status["name"], "tailLines": LOG_LINES, "previous": previous}
    metadata = pod["metadata"]
    try:
        return client.text(
            Request("get", POD, metadata["namespace"], metadata["name"], query, subresource="log"), until
        ).splitlines()
    except InferenceError:
        return []


def _container(status: Object) -> Object | None:
    """The first that is not ready, among them the one that has been started again most often; else just the first."""
    statuses: list[Object] = [
        *(status.get("initContainerStatuses") or []),
        *(status.get("containerStatuses") or []),
    ]
    unready = [container for container in statuses if not container.get("ready")]
    return max(unready or statuses[:1], key=lambda container: container.get("restartCount") or 0, default=None)
