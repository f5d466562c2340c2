"""Uses: which services have which Models, and what their pods read from the cache. Pure.

Pods say so in an annotation, ``<cache key>=<digest of the weights>`` for each Model. It goes on saying so while a
service goes over to another Model; and a pod of weights that have been loaded anew since is one of an older template.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable

from slipway.apis.llmkube import names
from slipway.apis.llmkube.service_types import KIND as INFERENCE_SERVICE
from slipway.kube.objects import Object, deleting, generation, key, labels
from slipway.serving.diagnosis import remains
from slipway.serving.plan import USES, World

DIGEST = 12
"""Hexadecimal digits of a digest of weights."""


def model_names(service: Object) -> tuple[str, ...]:
    """The Models that an InferenceService names: that which it serves, and that which proposes tokens for it."""
    spec = service["spec"]
    asked = (spec.get("vllmConfig") or {}).get("speculative") or {}
    draft = asked.get("model", "") if asked.get("enabled") and spec.get("runtime") == "vllm" else ""
    return tuple(name for name in (spec.get("modelRef", ""), draft) if name)


def concerned(old: Object | None, new: Object | None) -> Collection[str]:
    """The Models for which something follows from the change of a service; not from that of its status."""
    if old and new and generation(old) == generation(new) and deleting(old) == deleting(new):
        return ()
    return {name for service in (old, new) if service for name in model_names(service)}


def services(world: World, name: str) -> list[Object]:
    """The services of the world's namespace that name a Model, and stay."""
    found = (user for user in world.users if user["kind"] == INFERENCE_SERVICE.kind and not deleting(user))
    return [service for service in found if name in model_names(service)]


def reads_cache(service: Object) -> bool:
    """Whether the pods of a service read the cache of the namespace, where they read weights of a cache at all."""
    cache = service["spec"].get("modelCache") or {}
    own = cache.get("claimName") or cache.get("persistence") == "Ephemeral"
    return not own and not service["spec"].get("skipModelInit")


def readers(world: World, model: str, cache_key: str) -> list[str]:
    """Names of the services because of which weights have to stay: those whose pods read them, and those that want
    pods which will."""
    found = {key(service).name for service in services(world, model) if reads_cache(service) and _wants_pods(service)}
    return sorted(found | {_service(pod) for pod in _pods(world) if cache_key in reads(pod)})


def read_keys(world: World) -> set[str]:
    """Cache keys of everything that pods of the namespace read."""
    return {cache_key for pod in _pods(world) for cache_key in reads(pod)}


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


def _wants_pods(service: Object) -> bool:
    spec, status = service["spec"], service.get("status") or {}
    return bool(status.get("replicas") or (spec.get("replicas", 1) and not spec.get("suspend")))


def _service(pod: Object) -> str:
    return labels(pod).get(names.SERVICE_LABEL) or key(pod).name
