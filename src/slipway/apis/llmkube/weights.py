"""Weights: a Model read and checked as a whole, and the loader that brings what it names, in whatever pod. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from slipway.apis.llmkube import names, sources, uses
from slipway.apis.llmkube.hardware import resource, vendor_of
from slipway.apis.llmkube.model_types import ModelSpec
from slipway.apis.llmkube.sources import Source
from slipway.artifacts import huggingface
from slipway.artifacts.report import Report
from slipway.kube.objects import PERSISTENT_VOLUME_CLAIM, Object
from slipway.serving import agent, volumes
from slipway.serving.loader import asked_by_the_controller
from slipway.serving.plan import Invalid, Reference, World
from slipway.serving.server import Container, Mount, variables
from slipway.serving.settings import Settings
from slipway.serving.workload import UNPRIVILEGED

HEADERS = {"gguf": "gguf", "safetensors": "safetensors"}
"""Formats whose headers the loader reads."""
TOKEN_KEY = "token"  # noqa: S105 - the key of a Secret
NEEDED = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
FURTHER = ("AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL")
"""Keys of a Secret for a bucket. Without those that are needed the pod says so, before anybody is asked."""
GPU_NODES = {
    "nvidia": "nvidia.com/gpu.present",
    "amd": "amd.com/gpu.product-name",
    "intel": "intel.feature.node.kubernetes.io/gpu",
}
"""Labels that the vendors' feature discoveries give to nodes with GPUs."""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A Model whose source means something."""

    resource: Object
    spec: ModelSpec
    source: Source
    settings: Settings
    shared: bool = True
    """Whether it is wanted in the cache of its namespace."""
    controller_key: str = ""
    """See World."""

    @property
    def name(self) -> str:
        name: str = self.resource["metadata"]["name"]
        return name

    @property
    def namespace(self) -> str:
        namespace: str = self.resource["metadata"]["namespace"]
        return namespace

    @property
    def key(self) -> str:
        return sources.key(self.spec)

    @property
    def on_a_mac(self) -> bool:
        """Whether it is served outside of the cluster, so that nothing is done about it inside."""
        return self.spec.hardware.accelerator == "metal"

    @property
    def cached(self) -> bool:
        """Whether it is brought into the cache of its namespace."""
        kept = self.settings.model_cache.persistence == "Cached"
        return self.source.cached and not self.on_a_mac and kept and self.shared

    @property
    def by_each_pod(self) -> bool:
        """Whether it is in no cache, so that each pod brings it for itself."""
        return self.source.cached and not self.on_a_mac and not self.cached

    @property
    def in_claim(self) -> bool:
        return self.source.kind == "claim" and not self.on_a_mac

    @property
    def claim(self) -> Reference | None:
        """The claim that its weights lie on, or will."""
        name = names.CLAIM if self.cached else self.source.claim if self.in_claim else ""
        return Reference(PERSISTENT_VOLUME_CLAIM, self.namespace, name) if name else None

    @property
    def folder(self) -> str:
        """Of the cache, in every container that reads it or fills it."""
        return f"{names.CACHE}/{self.key}"

    def path(self, report: Report | None) -> str:
        """Where a container finds the main file, or the folder where there is none; ``report`` knows which file a
        pattern meant, and as what another Model of the same source has stored it."""
        if self.in_claim:
            return f"{names.SOURCE}/{self.source.path}".rstrip("/")
        told = report.file if report else ""
        shared = told if self.cached and self.source.stored_as else ""
        main = shared or self.source.main or (told if self.source.files else "")
        return f"{self.folder}/{main}" if main else self.folder


def read(resource: Object, settings: Settings) -> Model:
    """Raises Invalid: InvalidSource, SourceNotAllowed or InvalidFileSet."""
    try:
        spec = msgspec.convert(resource["spec"], ModelSpec)
    except msgspec.ValidationError as error:
        raise Invalid("InvalidSource", f"spec: {error}") from error
    source = sources.parse(spec, resource["metadata"]["name"], settings.sources)
    return Model(resource=resource, spec=spec, source=source, settings=settings)


def wanted(world: World, asked: Mapping[str, bool]) -> Model:
    """The same, as the services of the namespace want it; ``asked``: see ``uses.demand``. Raises Invalid."""
    model, shared = read(world.resource, world.settings), uses.wants_cache(world.resource, asked)
    return msgspec.structs.replace(model, shared=shared, controller_key=world.controller_key)


def loader(model: Model, name: str = agent.CONTAINER, *, refresh: bool = False, volume: str = "") -> Container:
    """A container that brings the weights of a source that can be cached into ``model.folder``, and ends.

    In a Job, or before an engine in its pod. ``volume``: of the pod, mounted at the cache's path; empty: the cache's.
    ``refresh``: what is there may be of an older state of the source.
    """
    options = [*_repeated("--file", model.source.files), *_repeated("--as", [model.source.stored_as])]
    options += ["--refresh"] if refresh else []
    mounts = (Mount(volume or names.CACHE_VOLUME, names.CACHE), *_host_mount(model))
    return _container(model, name, ("stage", _url(model), model.folder, *options, *_checks(model)), mounts)


def inspector(model: Model) -> Container:
    """Reads what a claim has already: its header, and its hash where one is expected."""
    mount = Mount(names.SOURCE_VOLUME, names.SOURCE, read_only=True)
    return _container(model, agent.CONTAINER, ("inspect", model.path(None), *_checks(model)), (mount,))


def prober(model: Model, *, header: bool = False) -> Container:
    """Asks a source what state it is in, and fetches nothing, or the ``header`` alone."""
    told = [HEADERS.get(model.spec.format, "")] if header else []
    options = [*_repeated("--file", model.source.files), *_repeated("--header", told)]
    return _container(model, agent.CONTAINER, ("probe", _url(model), *options, *_guard(model)), _host_mount(model))


def source_volumes(model: Model) -> tuple[Object, ...]:
    """What a loader reads from, beside the network."""
    if model.source.kind == "claim":
        return (volumes.claim(names.SOURCE_VOLUME, model.source.claim, read_only=True),)
    if model.source.kind == "host":
        single = bool(model.source.stored_as)
        return (volumes.of_the_node(names.HOST_VOLUME, model.source.path, "File" if single else "Directory"),)
    return ()


def tolerations(model: Model) -> tuple[Object, ...]:
    """A cache that one node at a time can use shall lie where the engine can be: on nodes with GPUs, too."""
    gpu = model.spec.hardware.gpu
    if not gpu.count:
        return ()
    key = gpu.toleration_key or resource(model.spec.hardware)
    return ({"key": key, "operator": "Exists", "effect": "NoSchedule"},)


def affinity(model: Model) -> Object:
    """A liking for nodes with GPUs, for the same reason."""
    hardware = model.spec.hardware
    if not hardware.gpu.count:
        return {}
    has = {"matchExpressions": [{"key": GPU_NODES[vendor_of(hardware)], "operator": "Exists"}]}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "preference": has}]}}


def _container(model: Model, name: str, words: Sequence[str], mounts: tuple[Mount, ...]) -> Container:
    container = Container(
        name=name,
        image=model.settings.loader_image,
        args=("loader", *words),
        env=_credentials(model),
        mounts=mounts,
        security=UNPRIVILEGED,
    )
    # Of the others nobody asks for progress: their port stays closed.
    return asked_by_the_controller(container, model.controller_key) if name == agent.CONTAINER else container


def _url(model: Model) -> str:
    return f"file://{names.HOST}/model" if model.source.kind == "host" else model.source.url


def _repeated(option: str, values: Sequence[str]) -> list[str]:
    """The option with each value, which may look like an option itself; nothing for those that are empty."""
    return [f"{option}={value}" for value in values if value]


def _checks(model: Model) -> tuple[str, ...]:
    expected, header = model.spec.sha256.lower(), HEADERS.get(model.spec.format, "")
    return (*_repeated("--sha256", [expected]), *_repeated("--header", [header]), *_guard(model))


def _guard(model: Model) -> tuple[str, ...]:
    """Addresses are guarded that whoever wrote the spec may have chosen: one that stands in it, or in its Secret. Those
    of hubs are the operator's."""
    source, secret = model.source, model.spec.source_secret_ref
    if source.kind not in ("web", "bucket"):
        return ()
    named = source.kind == "web" or bool(secret and secret.name)
    return model.settings.sources.options(guarded=named)


def _credentials(model: Model) -> tuple[Object, ...]:
    """Variables for the source alone: a web address has no others than those in it. Of a Secret these keys are given
    and no others, which could send the loader anywhere, such as through a proxy."""
    if model.source.kind == "hub":
        mirror = variables(huggingface.environment(model.settings.hugging_face_endpoint))
        return (*mirror, *hub_token(model.spec, model.settings, huggingface.TOKEN))
    secret = model.spec.source_secret_ref
    if model.source.kind != "bucket" or not (secret and secret.name):
        return ()
    return tuple(_key(name, secret.name, name, optional=name not in NEEDED) for name in (*NEEDED, *FURTHER))


def hub_token(spec: ModelSpec, settings: Settings, variable: str) -> tuple[Object, ...]:
    """A token for the hub: of the Secret that the Model names, else of the namespace's. A missing one is no error, as
    most repositories need none."""
    named = spec.source_secret_ref.name if spec.source_secret_ref else ""
    if named:
        return (_key(variable, named, huggingface.TOKEN),)
    usual = settings.sources.hugging_face_secret
    return (_key(variable, usual, TOKEN_KEY),) if usual else ()


def _key(variable: str, secret: str, key: str, *, optional: bool = True) -> Object:
    source: Object = {"name": secret, "key": key}
    return {"name": variable, "valueFrom": {"secretKeyRef": source | ({"optional": True} if optional else {})}}


def _host_mount(model: Model) -> tuple[Mount, ...]:
    if model.source.kind != "host":
        return ()
    return (Mount(names.HOST_VOLUME, f"{names.HOST}/model", read_only=True),)
