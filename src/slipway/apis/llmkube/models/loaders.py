"""The containers and Jobs that load, inspect or check the source of a Model. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from slipway.apis.llmkube import names
from slipway.apis.llmkube.models.spec import Model
from slipway.apis.llmkube.rules.hardware import resource, vendor_of
from slipway.apis.llmkube.settings import llmkube
from slipway.apis.llmkube.types.model import ModelSpec
from slipway.artifacts.locations import huggingface
from slipway.kube.objects import Object, key
from slipway.kube.values.names import label_value
from slipway.serving.containers import volumes
from slipway.serving.contract.settings import Settings
from slipway.serving.pods.server import Container
from slipway.serving.pods.workload import MANAGER, UNPRIVILEGED, restricted
from slipway.weights.jobs import loads as jobs
from slipway.weights.jobs.loads import ANSWER_SECONDS, Runner
from slipway.weights.place import Place
from slipway.weights.sources.credentials import S3_KEYS, Access, from_secret, hub_mirror, mounted, of_operator

NO_ACCESS = Access()
LoaderTask = Literal["download", "inspect", "revalidate"]
HEADERS = {"gguf": "gguf", "safetensors": "safetensors"}
"""Format of a Model -> value of the loader's option ``--header``, for formats whose headers the loader can read."""
TOKEN_KEY = "token"  # noqa: S105 - the key of a Secret
BUCKET_KEYS = (*S3_KEYS, "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL")
"""Keys of a Secret with bucket credentials, which are also the names of the environment variables. A pod cannot start
without the first two."""
GPU_NODES = {
    "nvidia": "nvidia.com/gpu.present",
    "amd": "amd.com/gpu.product-name",
    "intel": "intel.feature.node.kubernetes.io/gpu",
}
"""Vendor -> label that its feature discovery sets on nodes with GPUs."""


def loader(model: Model, name: str, volume: Object) -> Container:
    """Return an init container that downloads a Model's weights. ``volume`` is a volume of the pod, which the container
    mounts at the path of the cache."""
    access = mounted(volume, names.CACHE) + source_access(model) + _credentials(model)
    return jobs.container(runner(model), _staging(model), access, name=name)


def download(model: Model, *, refresh: bool) -> Object:
    """Build the Job that loads the weights into the cache. ``refresh`` means that existing files may be outdated."""
    cache = model.place.access(names.CACHE_VOLUME)
    return _job(model, "download", _staging(model, refresh=refresh), cache=cache)


def inspection(model: Model) -> Object:
    """Build the Job that reads the header of a Model's weights. For weights in a claim, the Job also verifies the hash,
    if the Model has one."""
    if not model.in_claim:
        return _probe(model, "inspect", header=HEADERS.get(model.spec.format, ""))
    return _job(model, "inspect", ("inspect", model.path(None), *_checks(model)))


def revalidation(model: Model) -> Object:
    """Build the Job that checks a source for changes. The Job downloads nothing."""
    return _probe(model, "revalidate")


def eviction(model: Object, folder: Place, settings: Settings) -> Object:
    """Build the Job that removes a directory from the cache on behalf of a Model. The Model's spec may be invalid."""
    namespace, name = key(model)
    job_runner, job_name = runner_for(name, settings), names.job_name(name, "evict")
    return jobs.evict(job_runner, job_name, namespace, folder, names.CACHE_VOLUME, options=("--below", names.CACHE))


def _staging(model: Model, *, refresh: bool = False) -> tuple[str, ...]:
    options = [*_repeated("--file", model.source.files), *_repeated("--as", [model.source.stored_as])]
    options += ["--refresh"] if refresh else []
    return ("stage", _url(model), model.place.path, *options, *_checks(model))


def _probe(model: Model, what: LoaderTask, header: str = "") -> Object:
    options = [*_repeated("--file", model.source.files), *_repeated("--header", [header])]
    return _job(model, what, ("probe", _url(model), *options, *_guard(model)), deadline_seconds=ANSWER_SECONDS)


def _job(
    model: Model, what: LoaderTask, arguments: tuple[str, ...], *, cache: Access = NO_ACCESS, deadline_seconds: int = 0
) -> Object:
    """Build a Job that runs the loader with these ``arguments`` for a Model."""
    job_runner, access = runner(model), cache + source_access(model)
    return jobs.task(
        job_runner,
        names.job_name(model.name, what),
        model.namespace,
        jobs.container(job_runner, arguments, access + _credentials(model)),
        access.volumes,
        deadline_seconds=deadline_seconds,
        tolerations=_tolerations(model),
        affinity=_affinity(model),
    )


def source_access(model: Model) -> Access:
    """Return the environment variables, volumes and mounts with which a loader reads a Model's source, except
    credentials."""
    if model.source.kind == "claim":
        claim = volumes.claim(names.SOURCE_VOLUME, model.source.claim, read_only=True)
        return mounted(claim, names.SOURCE, read_only=True)
    return _host(model) if model.source.kind == "host" else of_operator(model.settings.loader)


def runner(model: Model) -> Runner:
    return runner_for(model.name, model.settings, model.controller_key)


def runner_for(model: str, settings: Settings, controller_key: str = "") -> Runner:
    """Return the image, labels and security context of a Model's loaders. The operator can run loaders as root, because
    some volumes belong to root and ignore a pod's group."""
    user = settings.user(llmkube(settings).model_cache.run_as_user)
    grouped = {**restricted(user), "runAsNonRoot": user != 0, "fsGroup": names.GROUP_ID}
    return Runner(
        image=settings.loader_image,
        manager=MANAGER,
        labels={names.MODEL_LABEL: label_value(model)},
        security=UNPRIVILEGED,
        pod_security=restricted(None) if user is None else grouped,
        controller_key=controller_key,
    )


def _tolerations(model: Model) -> tuple[Object, ...]:
    """Return the tolerations of a Model's Jobs. If the engine needs GPUs, the Jobs also run on nodes with GPUs, because
    only one node may be able to mount the cache. With claims for devices, they do so only if the Model names the key of
    the nodes' taint."""
    gpu, own = model.spec.hardware.gpu, model.spec.prefetch_tolerations
    if not gpu.count or (gpu.resource_claims and not gpu.toleration_key):
        return own
    key = gpu.toleration_key or resource(model.spec.hardware)
    return ({"key": key, "operator": "Exists", "effect": "NoSchedule"}, *own)


def _affinity(model: Model) -> Object:
    """Return the affinity of a Model's Jobs. If the engine needs GPUs, the Jobs prefer nodes with GPUs, because only
    one node may be able to mount the cache. The result is empty if the engine needs no GPUs."""
    hardware = model.spec.hardware
    if not hardware.gpu.count:
        return {}
    has = {"matchExpressions": [{"key": GPU_NODES[vendor_of(hardware)], "operator": "Exists"}]}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "preference": has}]}}


def hub_token(spec: ModelSpec, settings: Settings, variable: str) -> tuple[Object, ...]:
    """Return the environment variable ``variable`` with a token for the Hub, from the Secret that the Model names or
    else from the default Secret of the namespace. A missing Secret is not an error, because most repositories need no
    token."""
    named = spec.source_secret_ref.name if spec.source_secret_ref else ""
    if named:
        return from_secret(named, {variable: huggingface.TOKEN})
    return from_secret(llmkube(settings).hugging_face_secret, {variable: TOKEN_KEY})


def _url(model: Model) -> str:
    return f"file://{names.HOST}/model" if model.source.kind == "host" else model.source.url


def _repeated(option: str, values: Sequence[str]) -> list[str]:
    """Return ``<option>=<value>`` for each non-empty value, as one argument, because a value may begin with a
    hyphen."""
    return [f"{option}={value}" for value in values if value]


def _checks(model: Model) -> tuple[str, ...]:
    expected, header = model.spec.sha256.lower(), HEADERS.get(model.spec.format, "")
    return (*_repeated("--sha256", [expected]), *_repeated("--header", [header]), *_guard(model))


def _guard(model: Model) -> tuple[str, ...]:
    """Return the loader's options that restrict the addresses in an author's spec or Secret. The Hub and buckets
    without a Secret are not restricted, because the operator sets their addresses."""
    secret, kind = model.spec.source_secret_ref, model.source.kind
    if kind not in ("web", "bucket"):
        return ()
    named = kind == "web" or bool(secret and secret.name)
    return model.settings.sources.options(guarded=named)


def _credentials(model: Model) -> Access:
    """Return the credentials that the source needs, as environment variables. Other keys of the Secret are ignored,
    because they could redirect the loader, for example through a proxy."""
    if model.source.kind == "hub":
        token = hub_token(model.spec, model.settings, huggingface.TOKEN)
        return Access(env=(*hub_mirror(model.settings.hugging_face_endpoint), *token))
    secret = model.spec.source_secret_ref
    if model.source.kind != "bucket" or secret is None:
        return Access()
    return Access(env=from_secret(secret.name, {name: name for name in BUCKET_KEYS}, needed=S3_KEYS))


def _host(model: Model) -> Access:
    """Return access to the node path that the source names. The result is empty for other sources."""
    if model.source.kind != "host":
        return Access()
    single = bool(model.source.stored_as)
    folder = volumes.of_the_node(names.HOST_VOLUME, model.source.path, "File" if single else "Directory")
    return mounted(folder, f"{names.HOST}/model", read_only=True)
