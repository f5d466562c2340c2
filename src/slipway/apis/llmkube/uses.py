"""Uses: which services have which Models, and what their pods read from the cache. Pure.

A Model fills the cache of its namespace as soon as it is there, unless all services that have it bring its weights into
their pods otherwise. What pods read of the cache they say in an annotation, ``<cache key>=<digest of the weights>`` for
each Model: also while their service goes over to another Model, and until they are replaced as the weights are newer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping

from slipway.apis.llmkube import names
from slipway.apis.llmkube.service_types import KIND as INFERENCE_SERVICE
from slipway.kube.objects import Object, created_unix, deleting, generation, key, labels
from slipway.serving.diagnosis import remains
from slipway.serving.plan import USES, World

BY_EACH_POD = "WorkloadResolved"
"""Reason of Models that are ready though nothing is loaded: pods do that."""
SETTLING_SECONDS = 3.0
DIGEST = 12
"""Hexadecimal digits of a digest of weights."""


def model_names(service: Object) -> tuple[str, ...]:
    """The Models that an InferenceService names: that which it serves, and that which proposes tokens for it."""
    spec = service["spec"]
    return tuple(name for name in (spec.get("modelRef", ""), draft_name(spec)) if name)


def draft_name(spec: Object) -> str:
    """Name of the Model that proposes tokens; empty: there is none."""
    asked = (spec.get("vllmConfig") or {}).get("speculative") or {}
    name: str = asked.get("model", "") if asked.get("enabled") and spec.get("runtime") == "vllm" else ""
    return name


def concerned(old: Object | None, new: Object | None) -> Collection[str]:
    """The Models for which something follows from the change of a service; not from that of its status."""
    if old and new and generation(old) == generation(new) and deleting(old) == deleting(new):
        return ()
    return {name for service in (old, new) if service for name in model_names(service)}


def reads_cache(service: Object) -> bool:
    """Whether the pods of a service read the cache of the namespace, where they read weights of a cache at all."""
    cache = service["spec"].get("modelCache") or {}
    own = cache.get("claimName") or cache.get("persistence") == "Ephemeral"
    return not own and not service["spec"].get("skipModelInit")


def demand(world: World) -> dict[str, bool]:
    """Name of each Model that services have -> whether any of them reads it in the cache."""
    found: dict[str, bool] = {}
    for service in _services(world):
        for name in model_names(service):
            found[name] = found.get(name, False) or reads_cache(service)
    return found


def wants_cache(model: Object, asked: Mapping[str, bool]) -> bool:
    """Whether a Model's weights are to be in the cache; ``asked``: the demand of its namespace.

    Where no service has it any more all stays as it is: the last one that went read the cache or it did not.
    """
    if model["spec"].get("prefetch"):
        return True
    found = asked.get(key(model).name)
    return found if found is not None else not _kept_out(model)


def undecided(world: World, asked: Mapping[str, bool]) -> float:
    """Seconds for which it is better to wait before the cache is filled: services often come right after their Model,
    and may not want that."""
    model = world.resource
    if key(model).name in asked or model["spec"].get("prefetch"):
        return 0.0
    age = world.now - created_unix(model)
    return SETTLING_SECONDS - age if 0 <= age < SETTLING_SECONDS else 0.0


def readers(world: World, model: str, cache_key: str) -> list[str]:
    """Names of the services because of which weights have to stay: those whose pods read them, and those that want
    pods which will."""
    found = {key(service).name for service in _services(world) if model in _wanted(service)}
    return sorted(found | {_service(pod) for pod in _pods(world) if cache_key in reads(pod)})


def read_keys(world: World) -> set[str]:
    """Cache keys of everything that pods of the namespace read."""
    return {cache_key for pod in _pods(world) for cache_key in reads(pod)}


def wanted_names(world: World) -> set[str]:
    """The Models that pods are wanted for which read them in the cache."""
    return {name for service in _services(world) for name in _wanted(service)}


def reads(pod: Object) -> list[str]:
    """Cache keys of what a pod reads."""
    told: str = pod["metadata"]["annotations"][USES]
    return [part.partition("=")[0] for part in told.split()]


def annotation(used: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What pods say that read these: cache key, and digest of the weights that are there."""
    parts = sorted({f"{cache_key}={digest}" for cache_key, digest in used})
    return {USES: " ".join(parts)} if parts else {}


def digest(status: Object, *, alone: bool) -> str:
    """Tells weights from those that were there before, as far as a Model's status does. ``alone``: it is one file, of
    which a hash says all; a server's ETag may change where the bytes do not."""
    told = [str(status.get(field, "")) for field in ("sha256", "sourceETag", "sourceContentLength")]
    text = told[0] if alone and told[0] else " ".join(told)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST]


def _pods(world: World) -> Iterable[Object]:
    pods = (user for user in world.users if USES in (user["metadata"].get("annotations") or {}))
    return (pod for pod in pods if remains(pod, world.now))


def _services(world: World) -> Iterable[Object]:
    """Those of the namespace that stay."""
    return (user for user in world.users if user["kind"] == INFERENCE_SERVICE.kind and not deleting(user))


def _wanted(service: Object) -> tuple[str, ...]:
    """The Models that pods of a service would read in the cache; none while it has none and wants none."""
    spec, status = service["spec"], service.get("status") or {}
    pods = status.get("replicas") or (spec.get("replicas", 1) and not spec.get("suspend"))
    return model_names(service) if pods and reads_cache(service) else ()


def _kept_out(model: Object) -> bool:
    conditions = (model.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Available" and one["reason"] == BY_EACH_POD for one in conditions)


def _service(pod: Object) -> str:
    return labels(pod).get(names.SERVICE_LABEL) or key(pod).name
