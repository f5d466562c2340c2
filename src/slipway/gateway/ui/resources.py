"""The users' resources for the page. Watches the kinds in the settings."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from slipway.kube.api.client import Client
from slipway.kube.caches.informer import Informer
from slipway.kube.objects import Kind, Object, created_unix, deleting, uid

MOST_CONDITIONS = 20
"""Maximum number of conditions to keep of one resource."""
MOST_MESSAGE = 2000
"""Maximum length in characters of a condition's message, which may contain a container's last log lines."""
MOST_DEVICES = 8
"""Maximum number of device types to keep of one resource."""
_DEVICE = r"[A-Za-z0-9][A-Za-z0-9./_-]{0,62}"
_PROFILE = re.compile(rf"(?P<type>{_DEVICE}):(?P<count>[0-9]{{1,4}})")
_EXTENDED = re.compile(rf"(?=[^/]+/){_DEVICE}")
"""Name of an extended resource in Kubernetes, such as ``nvidia.com/gpu``."""
_COUNT = re.compile(r"[0-9]{1,4}")
_MOST_COUNT = 10_000
_PERCENT = re.compile(r"([0-9]{1,3})%")


class Condition(NamedTuple):
    """A condition in the status of a resource."""

    type: str
    status: str
    reason: str
    message: str


class Resource(NamedTuple):
    """A user's resource, with its status from the controller."""

    kind: str
    """Plural and group, as kubectl accepts it: ``models.example.com``."""
    namespace: str
    """Namespace; empty for cluster-scoped resources."""
    name: str
    uid: str
    created: int
    """Unix time of the creation."""
    leaving: bool
    """Whether the resource is being deleted."""
    desired: int | None
    """Number of replicas in the spec; None if the spec does not have the field."""
    conditions: tuple[Condition, ...]
    devices: Mapping[str, int] = {}
    """Type of GPU or other device -> number per replica, if the spec names them."""
    progress: int | None = None
    """Percentage of the weights that are loaded; None if the status does not contain it."""

    def find_condition(self, type_: str) -> Condition | None:
        """Return the condition of the type ``type_``, or None if it does not exist."""
        return next((condition for condition in self.conditions if condition.type == type_), None)


class Resources:
    """The resources of several kinds, kept up to date by watches. The cluster need not have all kinds."""

    def __init__(self, client: Client, kinds: Sequence[Kind]) -> None:
        self._informers = [Informer(client, kind, trim=trim, optional="their API") for kind in kinds]

    async def run(self) -> None:
        """Keep the resources up to date until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run())

    def all(self) -> list[Resource]:
        """Return all resources in no particular order. Omit kinds that the cluster does not have."""
        return [
            parse_resource(informer.kind, obj)
            for informer in self._informers
            if not informer.missing
            for obj in informer.store.all()
        ]

    def unread(self) -> tuple[str, ...]:
        """Return the kinds, such as ``models.example.com``, that currently cannot be read from the API server."""
        return tuple(_name(informer.kind) for informer in self._informers if informer.silent_since)


def trim(obj: Object) -> Object:
    """Return the parts of a resource to cache: identity, replicas, devices, progress and conditions."""
    metadata = obj["metadata"]
    fields = ("namespace", "name", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
    trimmed: Object = {"metadata": {field: metadata[field] for field in fields if field in metadata}}
    spec, status = _mapping(obj.get("spec")), _mapping(obj.get("status"))
    if isinstance(spec.get("replicas"), int):
        trimmed["spec"] = {"replicas": spec["replicas"]}
    if devices := _parse_devices(spec):
        trimmed["devices"] = devices
    progress = _parse_progress(status)
    if progress is not None:
        trimmed["progress"] = progress
    conditions = status.get("conditions")
    if isinstance(conditions, list):
        trimmed["status"] = {"conditions": [_trim_condition(_mapping(one)) for one in conditions[:MOST_CONDITIONS]]}
    return trimmed


def parse_resource(kind: Kind, obj: Object) -> Resource:
    """Parse an object that :func:`trim` returned."""
    metadata = obj["metadata"]
    return Resource(
        _name(kind),
        metadata.get("namespace", ""),
        metadata["name"],
        uid(obj),
        created_unix(obj),
        deleting(obj),
        _mapping(obj.get("spec")).get("replicas"),
        tuple(_mapping(obj.get("status")).get("conditions", ())),
        _mapping(obj.get("devices")),
        obj.get("progress"),
    )


def _parse_devices(spec: Object) -> dict[str, int]:
    """Return the number of devices per replica by type, from a profile (``nvidia-gpu-l4:2``), a number of GPUs, or
    container requests and limits in a spec. Empty if the spec names no devices."""
    profile = _PROFILE.fullmatch(_text(spec.get("resourceProfile")))
    if profile and not profile["type"].startswith("cpu"):
        return {profile["type"]: int(profile["count"])}
    runner = _mapping(_mapping(spec.get("engine")).get("runner"))
    resources = _mapping(spec.get("resources") or runner.get("resources"))
    named = {"gpu": resources.get("gpu"), **_mapping(resources.get("requests")), **_mapping(resources.get("limits"))}
    counts = {
        name: int(text)
        for name, text in ((name, _text(count)) for name, count in named.items())
        if _COUNT.fullmatch(text) and (name == "gpu" or _EXTENDED.fullmatch(name))
    }
    return dict([(name, count) for name, count in counts.items() if count][:MOST_DEVICES])


def _parse_progress(status: Object) -> int | None:
    """Return the percentage of the weights that are loaded, from a percentage or the numbers of bytes in a status.
    Return None if the status has neither."""
    if percent := _PERCENT.fullmatch(_text(status.get("progress"))):
        return min(int(percent[1]), 100)
    counts = _mapping(status.get("cache")) or status
    done, total = counts.get("doneBytes"), counts.get("totalBytes")
    if type(done) is int and type(total) is int and total > 0:
        return min(max(done * 100 // total, 0), 100)
    return None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(value) if type(value) is int and abs(value) < _MOST_COUNT else ""


def _trim_condition(condition: Object) -> Condition:
    type_, status, reason, message = (
        str(condition.get(field) or "") for field in ("type", "status", "reason", "message")
    )
    return Condition(
        type_, status, reason, message if len(message) <= MOST_MESSAGE else f"{message[:MOST_MESSAGE]} ..."
    )


def _mapping(value: Any) -> Object:
    return value if isinstance(value, dict) else {}


def _name(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}"
