"""Loaders: the containers and Jobs that load, inspect or check the source of a Model. Pure."""

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
"""Formats whose headers the loader reads."""
TOKEN_KEY = "token"  # noqa: S105 - the key of a Secret
BUCKET_KEYS = (*S3_KEYS, "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL")
"""Keys of a Secret for a bucket, named like the variables. Without the first two the pod reports an error before any
request."""
GPU_NODES = {
    "nvidia": "nvidia.com/gpu.present",
    "amd": "amd.com/gpu.product-name",
    "intel": "intel.feature.node.kubernetes.io/gpu",
}
"""Labels that the vendors' feature discovery sets on nodes with GPUs."""


def loader(model: Model, name: str, volume: Object) -> Container:
    """Returns an init container that downloads a cacheable source into the Model's folder. ``volume``: a volume of the
    pod, mounted at the cache's path."""
    access = mounted(volume, names.CACHE) + source_access(model) + _credentials(model)
    return jobs.container(runner(model), _staging(model), access, name=name)


def download(model: Model, *, refresh: bool) -> Object:
    """Builds the Job that loads the weights into the cache. ``refresh``: existing files may be of an older state of the
    source."""
    cache = model.place.access(names.CACHE_VOLUME)
    return _job(model, "download", _staging(model, refresh=refresh), cache=cache)


def inspection(model: Model) -> Object:
    """Builds the Job that inspects the content of a claim, its header, and its hash if one is expected; for other
    sources it reads only the header."""
    if not model.in_claim:
        return _probe(model, "inspect", header=HEADERS.get(model.spec.format, ""))
    return _job(model, "inspect", ("inspect", model.path(None), *_checks(model)))


def revalidation(model: Model) -> Object:
    """Builds the Job that checks the state of a source, and downloads nothing."""
    return _probe(model, "revalidate")


def eviction(model: Object, folder: Place, settings: Settings) -> Object:
    """Builds the Job with which a Model, valid or not, removes a folder of the cache."""
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
    """Builds a Job that runs the loader with these ``arguments`` for a Model."""
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
    """Returns a loader's access to its source."""
    if model.source.kind == "claim":
        claim = volumes.claim(names.SOURCE_VOLUME, model.source.claim, read_only=True)
        return mounted(claim, names.SOURCE, read_only=True)
    return _host(model) if model.source.kind == "host" else of_operator(model.settings.loader)


def runner(model: Model) -> Runner:
    return runner_for(model.name, model.settings, model.controller_key)


def runner_for(model: str, settings: Settings, controller_key: str = "") -> Runner:
    """Returns the user of loaders. Volumes that do not support a pod's group belong to root, and no other user can
    write to them."""
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
    """Returns the tolerations of the loader's Jobs. A cache that only one node can mount must be where the engine can
    run, including nodes with GPUs."""
    gpu, own = model.spec.hardware.gpu, model.spec.prefetch_tolerations
    if not gpu.count or (gpu.resource_claims and not gpu.toleration_key):
        return own
    key = gpu.toleration_key or resource(model.spec.hardware)
    return ({"key": key, "operator": "Exists", "effect": "NoSchedule"}, *own)


def _affinity(model: Model) -> Object:
    """Returns a preference for nodes with GPUs, for the same reason."""
    hardware = model.spec.hardware
    if not hardware.gpu.count:
        return {}
    has = {"matchExpressions": [{"key": GPU_NODES[vendor_of(hardware)], "operator": "Exists"}]}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "preference": has}]}}


def hub_token(spec: ModelSpec, settings: Settings, variable: str) -> tuple[Object, ...]:
    """Returns a token for the Hub, from the Secret that the Model names, or else from the namespace's. A missing Secret
    is not an error, because most repositories need none."""
    named = spec.source_secret_ref.name if spec.source_secret_ref else ""
    if named:
        return from_secret(named, {variable: huggingface.TOKEN})
    return from_secret(llmkube(settings).hugging_face_secret, {variable: TOKEN_KEY})


def _url(model: Model) -> str:
    return f"file://{names.HOST}/model" if model.source.kind == "host" else model.source.url


def _repeated(option: str, values: Sequence[str]) -> list[str]:
    """Returns the option with each non-empty value, which may look like an option itself."""
    return [f"{option}={value}" for value in values if value]


def _checks(model: Model) -> tuple[str, ...]:
    expected, header = model.spec.sha256.lower(), HEADERS.get(model.spec.format, "")
    return (*_repeated("--sha256", [expected]), *_repeated("--header", [header]), *_guard(model))


def _guard(model: Model) -> tuple[str, ...]:
    """Restricts addresses that the author may have chosen, in the spec or its Secret. Addresses of hubs are the
    operator's."""
    secret, kind = model.spec.source_secret_ref, model.source.kind
    if kind not in ("web", "bucket"):
        return ()
    named = kind == "web" or bool(secret and secret.name)
    return model.settings.sources.options(guarded=named)


def _credentials(model: Model) -> Access:
    """Returns only the variables that the source needs. Other keys of the Secret are ignored, because they could
    redirect the loader, for example through a proxy."""
    if model.source.kind == "hub":
        token = hub_token(model.spec, model.settings, huggingface.TOKEN)
        return Access(env=(*hub_mirror(model.settings.hugging_face_endpoint), *token))
    secret = model.spec.source_secret_ref
    if model.source.kind != "bucket" or secret is None:
        return Access()
    return Access(env=from_secret(secret.name, {name: name for name in BUCKET_KEYS}, needed=S3_KEYS))


def _host(model: Model) -> Access:
    """Returns access to a node path, if the source is one."""
    if model.source.kind != "host":
        return Access()
    single = bool(model.source.stored_as)
    folder = volumes.of_the_node(names.HOST_VOLUME, model.source.path, "File" if single else "Directory")
    return mounted(folder, f"{names.HOST}/model", read_only=True)
