# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.

"""Additional information about an object that is not ready: its events, its pods' events, and the last lines of their
log.

Information that the account may not read, or that takes too long, is omitted.
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
    """Return ``events`` and ``log`` of an object.

    ``events`` are sorted with the newest last, each with type, reason, message, count and object. Events that repeat a
    condition's message are omitted. ``log`` is a list of lines, possibly empty.
    """
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
    """Return the newest pod that should be ready and is not, or None."""
    for selector in kind.pods:
        for pod in _pods(client, selector.format(name=label_value(metadata["name"])), metadata, until):
            if not _is_ready(pod) and (pod.get("status") or {}).get("phase") != "Succeeded":
                return pod
    return None


def label_value(name: str) -> str:
    """Return a resource's name as the label value that the controller gives its pods. A long name is cut and ends in a
    digest."""
    if len(name) <= LABEL_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    plain = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
    return f"{plain[: LABEL_LENGTH - len(digest) - 1].rstrip('-')}-{digest}"


def _pods(client: Client, selector: str, metadata: Mapping[str, Any], until: float) -> list[Object]:
    query = {"labelSelector": selector}
    try:
        # The pods of a cluster-scoped object may be in any namespace.
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
    """Return the last log lines of the pod's most relevant container. If the container waits for a restart, they are
    those of its previous run."""
    status = _container(pod.get("status") or {})
    if status is None:
        return []  # No container has started yet.
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
    """Return the container that is not ready and was restarted most often. If all are ready, return the first. The
    result is None if there are no containers."""
    statuses: list[Object] = [
        *(status.get("initContainerStatuses") or []),
        *(status.get("containerStatuses") or []),
    ]
    unready = [container for container in statuses if not container.get("ready")]
    return max(unready or statuses[:1], key=lambda container: container.get("restartCount") or 0, default=None)
