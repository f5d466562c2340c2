"""Objects of one kind that an informer cannot process, for any reason.

An author may write an object that our code cannot handle. Each version of such an object is reported once, in the log
and to the listeners. The metric counts the objects that are currently faulty, without fixed or deleted ones.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Collection, Sequence

from slipway.decoding import DecodingError, describe_error
from slipway.kube.api.salvage import identity
from slipway.kube.metrics import Metrics
from slipway.kube.objects import Key, Kind, Object

log = logging.getLogger(__name__)

Listener = Callable[[Kind, Object, str], None]
"""A function that receives the kind, the object's identity (including its UID) and a sentence about its fault."""


class Faults:
    """The objects of one kind that are currently faulty."""

    def __init__(self) -> None:
        self._versions: dict[Key, tuple[str, str]] = {}
        """UID and resource version of each faulty object."""
        self._listeners: list[Listener] = []

    def __len__(self) -> int:
        return len(self._versions)

    def listen(self, listener: Listener) -> None:
        """Register a listener, which is called for each fault from now on."""
        self._listeners.append(listener)

    def note(self, metrics: Metrics, kind: Kind, obj: Object, errors: Sequence[BaseException]) -> Key:
        """Record an object's faults, and report the first one unless this version was reported before. Return the
        object's key, whose unreadable parts are empty. Listeners are not called if the name or the UID is
        unreadable."""
        reference = identity(obj.get("metadata"))
        metadata = reference["metadata"]
        name = Key(metadata.get("namespace", ""), metadata.get("name", ""))
        version = metadata.get("uid", ""), metadata.get("resourceVersion", "")
        if self._versions.get(name) == version:
            return name
        if name not in self._versions:
            metrics.object_faults.labels(kind.plural).inc()
        self._versions[name] = version
        fault, place = _described(errors[0])
        log.warning("Cannot use %s %s: %s%s", kind.kind, name, fault, place)
        if version[0] and name.name:
            for listener in self._listeners:
                listener(kind, reference, f"Slipway cannot use this object: {fault}")
        return name

    def forget(self, metrics: Metrics, kind: Kind, names: Collection[Key]) -> None:
        """Record that the objects with the keys ``names`` are fixed or deleted. Keys of other objects are ignored."""
        for name in names:
            if self._versions.pop(name, None) is not None:
                metrics.object_faults.labels(kind.plural).dec()

    def others(self, names: Collection[Key]) -> set[Key]:
        """Return the keys of the faulty objects that are not in ``names``."""
        return self._versions.keys() - set(names)


def _described(error: BaseException) -> tuple[str, str]:
    """Return a description of an error, and the place in the program that raised it. The place is empty for a
    DecodingError."""
    if isinstance(error, DecodingError):
        return describe_error(error), ""
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    place = f" ({frames[0].filename.rpartition('/')[2]}:{frames[0].lineno}, {frames[0].name})" if frames else ""
    return f"{type(error).__name__}: {describe_error(error)}", place
