"""The use of Models by services, and of the cache by their pods. Pure.

A Model's weights are loaded into the namespace's cache when the Model is created, unless all services that use it get
the weights elsewhere. An annotation of each pod lists the weights that the pod reads from the cache, as ``<cache
key>=<digest of the weights>`` for each Model. It stays even if the service of the pod changes to another Model.
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
"""Reason of the condition Available if a Model is ready because each pod downloads the weights itself."""
SETTLING_SECONDS = 3.0
SERVED = "models"
"""Index of InferenceServices: the Models that they name."""
READ = "read"
"""Index of pods: the cache directories that they read."""
FETCHING = frozenset({"generic", "personaplex", "llamacpp-router"})
"""Runtimes that download their weights themselves, as TGI does if its arguments name a model."""
IN_CACHE = re.compile(rf"(?<![\w.-]){names.CACHE}(?![\w.-])")
DIGEST = 12
"""Length of a digest of weights in hexadecimal digits."""


def place(namespace: str, name: str) -> str:
    """Return a namespaced name as ``namespace/name``, the format of the indexes."""
    return f"{namespace}/{name}"


def by_model(service: Object) -> Iterable[str]:
    """Return the values of an InferenceService in the index :data:`SERVED`, each as ``namespace/name``."""
    return (place(key(service).namespace, name) for name in model_names(service))


def by_read_folder(pod: Object) -> Iterable[str]:
    """Return the values of a pod in the index :data:`READ`, each as ``namespace/directory``."""
    return (place(key(pod).namespace, cache_key) for cache_key in cache_keys_of(pod))


def model_names(service: Object) -> tuple[str, ...]:
    """Return the names of the Models that an InferenceService names: the served one and its draft model, if any."""
    spec = service["spec"]
    return tuple(name for name in (spec.get("modelRef", ""), draft_name(spec)) if name)


def draft_name(spec: Object) -> str:
    """Return the name of the draft Model in the raw spec of a service, or an empty string if there is none, or if
    speculative decoding is disabled or not supported by the runtime."""
    speculative = (spec.get("vllmConfig") or {}).get("speculative") or {}
    vllm: str = speculative.get("model", "") if speculative.get("enabled") else ""
    decoding = spec.get("speculativeDecoding") or {}
    llamacpp: str = decoding.get("draftModelRef", "") if decoding.get("type") not in UNDRAFTED else ""
    return {"vllm": vllm, "llamacpp": llamacpp}.get(spec.get("runtime", "llamacpp"), "")


def reads_cache(service: Object) -> bool:
    """Whether the pods of a service read the namespace's cache, provided that the operator has enabled the cache and
    the weights of the service's Model are loaded into it."""
    cache = service["spec"].get("modelCache") or {}
    own = cache.get("claimName") or cache.get("persistence") == "Ephemeral"
    return not own and not service["spec"].get("skipModelInit") and gets_cached_weights(service["spec"])


def gets_cached_weights(spec: Object) -> bool:
    """Whether the pods of a service with this raw spec get weights from a cache.

    Runtimes that download their own weights get weights from a cache only if their command line or environment
    variables name the path of the cache, and the user mounts no other volume there. At a path that they do not name,
    the image may have its own files.
    """
    own_model = spec.get("runtime") == "tgi" and MODEL_ID in flag_names(spec.get("extraArgs") or ())
    if spec.get("runtime") not in FETCHING and not own_model:
        return True
    words = [word for field in ("command", "args", "extraArgs") for word in spec.get(field) or ()]
    words += [variable.get("value", "") for variable in spec.get("env") or ()]
    mount_paths = (mount.get("mountPath", "").rstrip("/") for mount in spec.get("extraVolumeMounts") or ())
    return any(IN_CACHE.search(word) for word in words) and names.CACHE not in mount_paths


def services_of(world: World, model: Object) -> list[Object]:
    """Return the services that name a Model and are not being deleted."""
    return [one for one in world.list(INFERENCE_SERVICE, SERVED, place(*key(model))) if not deleting(one)]


def wants_cache(world: World, model: Object) -> bool:
    """Whether the cache should contain a Model's weights.

    It should if the Model has ``prefetch`` or a service that reads the cache. A Model without any services keeps its
    current state, whether or not its last service read the cache, and a new one is loaded into the cache.
    """
    if model["spec"].get("prefetch"):
        return True
    services = services_of(world, model)
    return any(map(reads_cache, services)) if services else not _loads_in_each_pod(model)


def settling_seconds(world: World) -> float:
    """Return the seconds to wait before loading a Model into the cache: until the Model is ``SETTLING_SECONDS`` old, or
    0 if it has a service or ``prefetch``. Services are often created right after their Model, and may not need the
    cache."""
    model = world.resource
    age = world.now - created_unix(model)
    if not 0 <= age < SETTLING_SECONDS or model["spec"].get("prefetch") or services_of(world, model):
        return 0.0
    return SETTLING_SECONDS - age


def readers(world: World, model: Object, cache_key: str) -> list[str]:
    """Return the sorted names of the services that need the cached weights of a Model: their pods read the weights, or
    the services are about to start such pods. A pod without the label of a service counts under its own name."""
    services = {key(service).name for service in services_of(world, model) if _wants_pods(service)}
    return sorted(services | {_service(pod) for pod in pods_that_read(world, key(model).namespace, cache_key)})


def is_needed_by_pods(world: World, model: Object) -> bool:
    """Whether a service has pods that read a Model from the cache, or is about to start some."""
    return any(_wants_pods(service) for service in services_of(world, model))


def pods_that_read(world: World, namespace: str, cache_key: str) -> list[Object]:
    """Return the pods that read a directory of the cache, including terminating pods that may still use it."""
    pods = world.listers.pods_of(INFERENCE_SERVICE, READ, place(namespace, cache_key))
    return [pod for pod in pods if may_use_volumes(pod, world.now)]


def cache_keys_of(pod: Object) -> list[str]:
    """Return the cache keys of the weights that a pod reads."""
    text: str = (pod["metadata"].get("annotations") or {}).get(USES, "")
    return [part.partition("=")[0] for part in text.split()]


def annotation(used: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the annotation for pods that read weights from the cache. ``used`` contains the cache key and the digest
    of each Model's weights. The result is empty if ``used`` is empty."""
    parts = sorted({f"{cache_key}={digest}" for cache_key, digest in used})
    return {USES: " ".join(parts)} if parts else {}


def digest(status: Object, *, alone: bool) -> str:
    """Return a digest of the fields in a Model's status that identify the weights. ``alone`` means that the weights are
    a single file, which its hash identifies: a server's ETag may change although the file does not."""
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
