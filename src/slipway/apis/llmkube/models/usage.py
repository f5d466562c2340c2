"""Usage: which services use which Models, and what their pods read from the cache. Pure.

A Model fills the namespace's cache when it is created, unless all services that use it get its weights elsewhere. Pods
have an annotation that lists what they read from the cache, ``<cache key>=<digest of the weights>`` for each Model,
even while their service changes to another Model, and until newer weights replace them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from slipway.apis.llmkube import names
from slipway.apis.llmkube.types.runtime import UNDRAFTED
from slipway.apis.llmkube.types.service import KIND as INFERENCE_SERVICE
from slipway.engines.definition.flags import flag_names
from slipway.engines.programs.tgi import MODEL_ID
from slipway.kube.objects import Object, created_unix, deleting, key, labels
from slipway.serving.containers.diagnosis import may_use_volumes
from slipway.serving.contract.api import USES, World

BY_EACH_POD = "WorkloadResolved"
"""Reason of Models that are ready although nothing is loaded, because pods download the weights."""
SETTLING_SECONDS = 3.0
SERVED = "models"
"""Index of InferenceServices: the Models that they name."""
READ = "read"
"""Index of pods: the cache folders that they read."""
FETCHING = frozenset({"generic", "personaplex", "llamacpp-router"})
"""Runtimes that download their weights themselves, as TGI does if its arguments name a model."""
IN_CACHE = re.compile(rf"(?<![\w.-]){names.CACHE}(?![\w.-])")
DIGEST = 12
"""Length of a digest of weights in hexadecimal digits."""


def place(namespace: str, name: str) -> str:
    """Returns a name in a namespace, in the format of the indexes."""
    return f"{namespace}/{name}"


def by_model(service: Object) -> Iterable[str]:
    """Index function for :data:`SERVED`."""
    return (place(key(service).namespace, name) for name in model_names(service))


def by_read_folder(pod: Object) -> Iterable[str]:
    """Index function for :data:`READ`."""
    return (place(key(pod).namespace, cache_key) for cache_key in cache_keys_of(pod))


def model_names(service: Object) -> tuple[str, ...]:
    """Returns the Models that an InferenceService names: the served one and its draft model."""
    spec = service["spec"]
    return tuple(name for name in (spec.get("modelRef", ""), draft_name(spec)) if name)


def draft_name(spec: Object) -> str:
    """Returns the name of the draft Model; empty: there is none."""
    speculative = (spec.get("vllmConfig") or {}).get("speculative") or {}
    vllm: str = speculative.get("model", "") if speculative.get("enabled") else ""
    decoding = spec.get("speculativeDecoding") or {}
    llamacpp: str = decoding.get("draftModelRef", "") if decoding.get("type") not in UNDRAFTED else ""
    return {"vllm": vllm, "llamacpp": llamacpp}.get(spec.get("runtime", "llamacpp"), "")


def reads_cache(service: Object) -> bool:
    """Whether the pods of a service read the namespace's cache, if they read a cache at all."""
    cache = service["spec"].get("modelCache") or {}
    own = cache.get("claimName") or cache.get("persistence") == "Ephemeral"
    return not own and not service["spec"].get("skipModelInit") and gets_cached_weights(service["spec"])


def gets_cached_weights(spec: Object) -> bool:
    """Whether the pods of a service get weights from a cache.

    Runtimes that download their own weights only do so if their command line or variables name the cache's folder.
    Otherwise the image may have its own files there.
    """
    own_model = spec.get("runtime") == "tgi" and MODEL_ID in flag_names(spec.get("extraArgs") or ())
    if spec.get("runtime") not in FETCHING and not own_model:
        return True
    words = [word for field in ("command", "args", "extraArgs") for word in spec.get(field) or ()]
    words += [variable.get("value", "") for variable in spec.get("env") or ()]
    mount_paths = (mount.get("mountPath", "").rstrip("/") for mount in spec.get("extraVolumeMounts") or ())
    return any(IN_CACHE.search(word) for word in words) and names.CACHE not in mount_paths


def services_of(world: World, model: Object) -> list[Object]:
    """Returns the services that name a Model and are not being deleted."""
    return [one for one in world.list(INFERENCE_SERVICE, SERVED, place(*key(model))) if not deleting(one)]


def wants_cache(world: World, model: Object) -> bool:
    """Whether the cache should contain a Model's weights.

    Without any services the current state stays, whether or not the last service read the cache.
    """
    if model["spec"].get("prefetch"):
        return True
    services = services_of(world, model)
    return any(map(reads_cache, services)) if services else not _loads_in_each_pod(model)


def settling_seconds(world: World) -> float:
    """Returns the seconds to wait before filling the cache: services are often created right after their Model, and may
    not need the cache."""
    model = world.resource
    age = world.now - created_unix(model)
    if not 0 <= age < SETTLING_SECONDS or model["spec"].get("prefetch") or services_of(world, model):
        return 0.0
    return SETTLING_SECONDS - age


def readers(world: World, model: Object, cache_key: str) -> list[str]:
    """Returns the names of the services for which weights must stay: those whose pods read them, and those that are
    about to start such pods."""
    services = {key(service).name for service in services_of(world, model) if _wants_pods(service)}
    return sorted(services | {_service(pod) for pod in pods_that_read(world, key(model).namespace, cache_key)})


def is_needed_by_pods(world: World, model: Object) -> bool:
    """Whether a service requires pods that read the Model in the cache."""
    return any(_wants_pods(service) for service in services_of(world, model))


def pods_that_read(world: World, namespace: str, cache_key: str) -> list[Object]:
    """Returns the pods that read a folder of the cache."""
    pods = world.listers.pods_of(INFERENCE_SERVICE, READ, place(namespace, cache_key))
    return [pod for pod in pods if may_use_volumes(pod, world.now)]


def cache_keys_of(pod: Object) -> list[str]:
    """Returns the cache keys that a pod reads."""
    text: str = (pod["metadata"].get("annotations") or {}).get(USES, "")
    return [part.partition("=")[0] for part in text.split()]


def annotation(used: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Returns the annotation for pods that read these weights: cache key, and digest of the current weights."""
    parts = sorted({f"{cache_key}={digest}" for cache_key, digest in used})
    return {USES: " ".join(parts)} if parts else {}


def digest(status: Object, *, alone: bool) -> str:
    """Returns a digest that distinguishes weights from earlier ones, as far as a Model's status does. ``alone``: they
    are a single file, which its hash identifies; a server's ETag may change although the bytes do not."""
    parts = [str(status.get(field, "")) for field in ("sha256", "sourceETag", "sourceContentLength")]
    text = parts[0] if alone and parts[0] else " ".join(parts)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST]


def _wants_pods(service: Object) -> bool:
    """Whether a service has pods that read the cache, or is about to start some."""
    spec, status = service["spec"], service.get("status") or {}
    pods = status.get("replicas") or (spec.get("replicas", 1) and not spec.get("suspend"))
    return bool(pods) and reads_cache(service)


def _loads_in_each_pod(model: Object) -> bool:
    conditions = (model.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Available" and one["reason"] == BY_EACH_POD for one in conditions)


def _service(pod: Object) -> str:
    return labels(pod).get(names.SERVICE_LABEL) or key(pod).name
