"""Cases of what the API server takes and refuses: how they are written down, and how they are put to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml
from kubernetes.dynamic.exceptions import DynamicApiError

from ..cluster.cluster import Cluster, Object


def spelled_out(value: Any) -> Any:
    """Without the short form of long texts, ``{times: N, of: text}``."""
    if isinstance(value, dict) and value.keys() == {"times", "of"}:
        return value["of"] * value["times"]
    if isinstance(value, dict):
        return {name: spelled_out(below) for name, below in value.items()}
    return [spelled_out(below) for below in value] if isinstance(value, list) else value


def laid_over(least: Object, spec: Object) -> Object:
    """Returns the spec of a case: its fields override the required minimum, and null removes a field."""
    return {name: value for name, value in (least | spelled_out(spec)).items() if value is not None}


def judged(cluster: Cluster, body: Object, update: Object | None) -> str:
    """What the API server says against an object, or against its update; empty: nothing.

    Only what is updated is really made: it should be something that a controller makes nothing of.
    """
    if update is None:
        return message_of(lambda: cluster.create(body, rehearsed=True))
    cluster.create(body)
    kind, metadata = body["kind"], body["metadata"]
    try:
        return message_of(lambda: cluster.patch(kind, metadata["namespace"], metadata["name"], {"spec": update}))
    finally:
        cluster.delete(kind, metadata["namespace"], metadata["name"])


def message_of(call: Callable[[], Object]) -> str:
    try:
        call()
    except DynamicApiError as refusal:
        return text_of(refusal)
    return ""


def text_of(refusal: DynamicApiError) -> str:
    assert refusal.status == 422, refusal.body
    text: str = yaml.safe_load(refusal.body)["message"]
    return text


def is_part(part: Any, whole: Any) -> bool:
    """Whether all that is written is there, beside what was filled in."""
    if isinstance(part, dict):
        return all(name in whole and is_part(value, whole[name]) for name, value in part.items())
    if isinstance(part, list):
        return len(part) == len(whole) and all(map(is_part, part, whole))
    return bool(part == whole)
