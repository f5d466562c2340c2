"""Metrics of models. They have Deckhouse's names if they have the meaning of Deckhouse's metrics. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from slipway.apis.deckhouse import names
from slipway.apis.deckhouse.settings import deckhouse
from slipway.apis.description import Sample
from slipway.kube.objects import Kind, Object, key, uid
from slipway.kube.values.quantity import amount
from slipway.serving.contract.settings import Settings
from slipway.weights.jobs import turns

PREFIX = "d8_ai_models"
OF_MODELS = {
    "status_phase": "1 for the current phase of a model.",
    "ready": "1 if workloads can use the model.",
    "condition": "1 for the current status of each condition.",
    "info": "Metadata of the model.",
    "artifact_size_bytes": "Size of the artifact in bytes.",
}
OF_STORAGE = {
    "capacity_known": "1 if there is a limit.",
    "used_bytes": "Total size of the ready artifacts in bytes.",
    "limit_bytes": "Maximum total size of artifacts in bytes.",
    "available_bytes": "Remaining bytes below the limit.",
}
NAMES = frozenset(
    [f"{PREFIX}_storage_backend_{name}" for name in OF_STORAGE]
    + [f"{PREFIX}_{kind}_{name}" for kind in ("model", "clustermodel") for name in OF_MODELS]
)
"""Names of all metrics that :func:`samples` may yield."""


def samples(resources: Mapping[Kind, Sequence[Object]], settings: Settings) -> Iterable[Sample]:
    """Yield the samples for all models and for the storage. ``limit_bytes`` and ``available_bytes`` are left out if the
    storage has no limit."""
    models = [(kind, one) for kind in (names.MODEL, names.CLUSTER_MODEL) for one in resources.get(kind, ())]
    for kind, model in models:
        for name, labels, value in _of_model(kind, model):
            yield Sample(f"{PREFIX}_{kind.kind.lower()}_{name}", OF_MODELS[name], labels, value)
    own = deckhouse(settings)
    for name, value in _of_storage(own.copies * sum(_size(model) for _kind, model in models), own.capacity_limit):
        yield Sample(f"{PREFIX}_storage_backend_{name}", OF_STORAGE[name], {}, value)


def _of_model(kind: Kind, model: Object) -> Iterable[tuple[str, Mapping[str, str], float]]:
    place, status = key(model), model.get("status") or {}
    labels = {**({"namespace": place.namespace} if kind.namespaced else {}), "name": place.name, "uid": uid(model)}
    phase, source = status.get("phase") or "Pending", (status.get("source") or {}).get("resolvedType", "")
    yield "status_phase", labels | {"phase": phase, "source_type": source}, 1
    yield "ready", labels, float(phase == "Ready")
    for one in status.get("conditions") or ():
        yield "condition", labels | {name: str(one.get(name, "")) for name in ("type", "status", "reason")}, 1
    resolved, artifact = (status.get(part) or {} for part in ("resolved", "artifact"))
    facts = {"resolved_source_type": source, "format": resolved.get("format", "")}
    yield "info", labels | facts | {"artifact_kind": artifact.get("kind", "")}, 1
    if _size(model):
        yield "artifact_size_bytes", labels, _size(model)


def _of_storage(used: int, limit: str) -> Iterable[tuple[str, float]]:
    yield "capacity_known", float(bool(limit))
    yield "used_bytes", used
    if limit:
        most = math.floor(amount(limit))
        yield "limit_bytes", most
        yield "available_bytes", max(most - used, 0)


def _size(model: Object) -> int:
    """Return the size of a model's published artifact in bytes, or 0 before its publication. Until then, the status
    only contains the size that the publisher reports."""
    return turns.size_of(model) if turns.is_published(model) else 0
