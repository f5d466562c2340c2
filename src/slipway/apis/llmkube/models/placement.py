"""How a service's pods get the weights of a Model, and where the engine finds them. Pure.

The weights come from one of five places: the namespace's cache, which the Model's Job fills; a claim that the Model
names; a download by each pod; a download by the engine; or the engine's image. A pod downloads them into a claim, or
into a directory that is deleted with the pod.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from slipway.apis.llmkube import names
from slipway.apis.llmkube.models import usage
from slipway.apis.llmkube.models.loaders import source_access
from slipway.apis.llmkube.models.spec import Model, parse_model
from slipway.apis.llmkube.settings import llmkube
from slipway.apis.llmkube.types.model import ModelSpec
from slipway.apis.llmkube.types.service import InferenceServiceSpec
from slipway.artifacts.locations.weights import HubRepository, MountedFolder, Unnamed, Weights
from slipway.kube.objects import Object, deleting, generation
from slipway.serving.containers import volumes
from slipway.serving.contract.api import InvalidSpecError
from slipway.serving.contract.settings import Settings
from slipway.serving.pods.server import Mount
from slipway.weights.sources.source import Source

SCRATCH_VOLUME = "model-storage"
QUANTIZATION = re.compile(r"I?Q\d\w{0,12}|B?F16|F32")
"""Quantizations as they appear in the names of GGUF files. ``spec.quantization`` may also contain other text."""
DRAFT_SOURCE, DRAFT_VOLUME = "/draft-source", "draft-source"
Delivery = Literal["image", "engine", "claim", "cache", "loader"]
"""How weights get into a pod. ``image``: they are in the image. ``engine``: the engine downloads them. ``claim``: the
pod reads the source's claim. ``cache``: the pod reads the namespace's cache. ``loader``: an init container downloads
them."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The weights of one Model in a pod."""

    way: Delivery
    weights: Weights
    volumes: tuple[Object, ...] = ()
    mounts: tuple[Mount, ...] = ()
    """Mounts of the engine."""
    folder: str = ""
    """Path of the cache directory with all files of the Model; empty: the weights are not in a cache."""
    mmproj: str = ""
    """Path of the multimodal projector; empty: there is none."""
    loader: Model | None = None
    """The Model that the pod downloads before its engine starts; None: the pod downloads nothing."""
    used: tuple[tuple[str, str], ...] = ()
    """Cache key and digest of each Model's weights that the pod reads from the namespace's cache."""


class PlacementRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A Model, and the service that needs its weights."""

    resource: Object
    spec: ModelSpec
    service: str
    """Name of the InferenceService."""
    files: bool
    """Whether the engine loads a file instead of a directory."""
    draft: bool = False
    """Whether the Model is the draft model for another Model."""
    needless: bool = False
    """Whether the engine needs no weights from a cache: see ``usage.gets_cached_weights``."""


def place_weights(request: PlacementRequest, service: InferenceServiceSpec, settings: Settings) -> Placement:
    """Decide how a pod gets the weights of a Model. Raise InvalidSpecError if the Model is invalid, unless its weights
    are in the image, or if pods cannot get the weights in the required way."""
    if service.skip_model_init:
        return _in_image(request, settings)
    model = parse_model(request.resource, settings)
    if model.source.kind == "repository":
        return Placement(way="engine", weights=_repository(request, model.source))
    if model.source.kind == "claim":
        return _from_claim(request, model.source)
    if request.needless:
        return Placement(way="image", weights=Unnamed())
    return _from_cache(request, model, service, settings)


def own_loader(service: InferenceServiceSpec, settings: Settings) -> bool:
    """Whether a service's pods download weights themselves instead of using the namespace's cache. They must if the
    operator has disabled the cache."""
    cache = service.model_cache
    is_cached = llmkube(settings).model_cache.persistence == "Cached"
    return bool(cache.claim_name) or cache.persistence == "Ephemeral" or not is_cached


def own_claim(service: InferenceServiceSpec, settings: Settings) -> bool:
    """Whether a service has a dedicated claim, into which its pods download weights."""
    cache = service.model_cache
    per_service = llmkube(settings).model_cache.persistence == "PerService"
    return per_service and not cache.claim_name and cache.persistence != "Ephemeral"


def _in_image(request: PlacementRequest, settings: Settings) -> Placement:
    """Return the placement of weights that Slipway does not deliver. A path in the source refers to the image. The
    engine itself downloads a repository."""
    text = request.spec.source.removeprefix("file://")
    if text.startswith("/"):
        return Placement(way="image", weights=_mounted(request, text))
    try:
        source = parse_model(request.resource, settings).source
    except InvalidSpecError:
        return Placement(way="image", weights=Unnamed())
    weights = _repository(request, source) if source.repository else Unnamed()
    return Placement(way="engine" if source.repository else "image", weights=weights)


def _repository(request: PlacementRequest, source: Source) -> HubRepository:
    """Return the repository that the engine downloads. If the engine loads files and the Model's quantization is one
    that file names contain, the engine uses the file with that quantization."""
    reference, _at, revision = source.repository.partition("@")
    chosen = QUANTIZATION.fullmatch(request.spec.quantization) if request.files else None
    return HubRepository(f"{reference}:{chosen[0]}" if chosen else reference, revision)


def _mounted(request: PlacementRequest, path: str) -> MountedFolder:
    """Return the location of mounted weights for the engine: a file for engines that load files, otherwise a directory
    or its only file."""
    folder, _slash, file = path.rpartition("/")
    return MountedFolder(folder, file) if request.files else MountedFolder(path)


def _from_claim(request: PlacementRequest, source: Source) -> Placement:
    if request.files and not source.path:
        text = f"this runtime needs a file, and its source does not name one: pvc://{source.claim}/model.gguf"
        raise InvalidSpecError("InvalidSpec", text)
    place, volume = (DRAFT_SOURCE, DRAFT_VOLUME) if request.draft else (names.SOURCE, names.SOURCE_VOLUME)
    path = f"{place}/{source.path}" if source.path else place
    return Placement(
        way="claim",
        weights=_mounted(request, path),
        volumes=(volumes.claim(volume, source.claim, read_only=True),),
        mounts=(Mount(volume, place, read_only=True),),
    )


def _from_cache(
    request: PlacementRequest, model: Model, service: InferenceServiceSpec, settings: Settings
) -> Placement:
    alone, status = own_loader(service, settings), request.resource.get("status") or {}
    # Weights in the namespace's cache may be stored under another Model's file name.
    path = model.path(None) if alone and model.source.main else status.get("path") or model.path(None)
    # An engine that loads a directory finds all files there.
    several = model.source.files and not (model.source.stored_as or request.files or request.spec.format == "gguf")
    mmproj = f"{model.place.path}/{request.spec.mmproj}" if request.spec.mmproj else ""
    fault = _fault(request, model) if alone else ""
    if fault:
        raise InvalidSpecError("InvalidSpec", f"without the namespace's cache, {fault}")
    volume = _own_volume(request, service, settings) if alone else volumes.claim(names.CACHE_VOLUME, names.CLAIM)
    return Placement(
        way="loader" if alone else "cache",
        weights=_mounted(request, model.place.path if several else path),
        volumes=(volume, *(source_access(model).volumes if alone else ())),
        mounts=(Mount(volume["name"], names.CACHE, read_only=True),),
        folder=model.place.path,
        mmproj=mmproj,
        loader=model if alone else None,
        used=() if alone else ((model.place.folder, usage.digest(status, alone=_is_one_file(model))),),
    )


def _is_one_file(model: Model) -> bool:
    return bool(model.source.stored_as) or (len(model.source.files) == 1 and bool(model.source.main))


def _fault(request: PlacementRequest, model: Model) -> str:
    """Return the reason why pods cannot download the weights themselves, or an empty string if they can."""
    if request.draft and model.source.kind == "host":
        return "a draft model cannot come from the node's disk"
    if request.files and not model.source.main:
        return "the first of spec.files must be a path, because the files that match a pattern are not known yet"
    return ""


def _own_volume(request: PlacementRequest, service: InferenceServiceSpec, settings: Settings) -> Object:
    if own_claim(service, settings):
        return volumes.claim(names.CACHE_VOLUME, names.own_claim(request.service))
    if service.model_cache.claim_name:
        return volumes.claim(names.CACHE_VOLUME, service.model_cache.claim_name)
    return volumes.scratch(SCRATCH_VOLUME, service.resources.ephemeral_storage)


def explain_unready(model: Object, way: Delivery = "engine") -> tuple[str, str] | None:
    """Return a reason and a message if a Model is not ready for pods that get its weights in this ``way``, otherwise
    None. A status of an older spec counts as not ready."""
    name, status = model["metadata"]["name"], model.get("status") or {}
    if deleting(model):
        return "ModelLeaving", f"The Model {name} is being deleted. Running pods continue, but no new ones start."
    if status.get("observedGeneration", 0) < generation(model) or not status.get("phase"):
        return "ModelNotReady", f"The Model {name} has not been reconciled yet."
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    available = conditions.get("Available") or conditions.get("Accepted") or {}
    if status["phase"] == "Ready":
        elsewhere = way == "cache" and available.get("reason") == usage.BY_EACH_POD
        return ("ModelNotReady", f"The weights of the Model {name} are not in the cache yet.") if elsewhere else None
    message = str(available.get("message", ""))
    if status["phase"] == "Failed":
        return "ModelFailed", f"The Model {name} cannot be served: {message or 'see its status'}"
    return "ModelNotReady", f"The Model {name} is not ready yet{': ' + message if message else '.'}"
