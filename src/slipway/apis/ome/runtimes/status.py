"""Status of a runtime: whether the runtime is valid, and whether an older runtime for the same models takes precedence.
Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from slipway.apis.ome.runtimes.candidates import Entry, InvalidRuntime, candidate
from slipway.kube.caches.store import Change
from slipway.kube.objects import Key, Kind, Object, created_unix, key
from slipway.serving.contract.api import Listers, Rejection, StatusResult, Watch, World
from slipway.serving.contract.watches import NAMESPACE, by_namespace
from slipway.serving.status.builder import build_status, first_rejection, verdict

SELECTED = "selected"
"""Index of runtimes by the models for which they can be selected. If two runtimes share a value of the index, the
selection between them depends only on their names."""


def watch(kind: Kind) -> Watch:
    """Return the watch for runtimes of a kind. A new, changed or deleted runtime enqueues the runtimes for the same
    models, because their status may change."""

    def enqueue(change: Change, listers: Listers) -> Iterable[Key]:
        values = {value for one in (change.old, change.new) if one for value in selected_for(one)}
        return {key(other) for value in values for other in listers.list(kind, SELECTED, value)}

    return Watch(kind=kind, enqueue=enqueue, indexes={SELECTED: selected_for, NAMESPACE: by_namespace})


def selected_for(runtime: Object) -> Iterable[str]:
    """Return the values of a runtime in the index :data:`SELECTED`: one for each selectable entry and protocol. Empty
    for an invalid or disabled runtime."""
    one = candidate(runtime)
    if isinstance(one, InvalidRuntime) or one.disabled:
        return ()
    scope = (one.reference.namespace, one.smallest, one.largest, sorted(one.classes))
    entries = [_identity(entry) for entry in one.entries if entry.auto_select]
    protocols = sorted(one.protocols) or [""]
    return [msgspec.json.encode((protocol, scope, entry)).decode() for entry in entries for protocol in protocols]


def status(world: World, rejection: Rejection | None, kind: Kind) -> StatusResult:
    """Return the status of a runtime: rejected if it is invalid or shadowed by an older runtime."""
    runtime = world.resource
    rivals = [other for value in selected_for(runtime) for other in world.list(kind, SELECTED, value)]
    rejection = first_rejection(_fault(runtime, rivals), rejection)
    return build_status(runtime, {}, (verdict(rejection, "Services can use it."),))


def _fault(runtime: Object, rivals: Iterable[Object]) -> Rejection | None:
    one = candidate(runtime)
    if isinstance(one, InvalidRuntime):
        return Rejection("InvalidSpec", f"it {one.message}")
    older = min(rivals, key=_age, default=runtime)
    if _age(older) < _age(runtime):
        return Rejection(
            "Shadowed",
            f"{key(older).name}, which is older, matches the same models with the same score, so the names"
            " decide between the two. Change the priority or the size range of one, or disable it",
        )
    return None


def _age(runtime: Object) -> tuple[int, str]:
    return created_unix(runtime), key(runtime).name


def _identity(entry: Entry) -> Object:
    identity: Object = msgspec.to_builtins(msgspec.structs.replace(entry, auto_select=True, priority=1))
    for part in ("format", "framework"):
        identity[part] = {name: value for name, value in identity[part].items() if name != "weight"}
    return identity | {"score": entry.score}
