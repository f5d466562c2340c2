"""Parser of KubeAI's ``system.yaml``, which also adds the defaults. Pure.

``system.yaml`` is a key of a ConfigMap. Its entries are merged with the entries of ``defaults.yaml`` and with the
engines' images.
"""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import Any, NoReturn, TypeVar

import msgspec
import yaml
from msgspec import inspect

from slipway.apis.kubeai.engines import ENGINES, images
from slipway.apis.kubeai.settings import (
    NAME,
    SECTIONS,
    UNUSED,
    CacheProfile,
    InvalidConfigError,
    ModelAutoscaling,
    ModelLoading,
    ModelRollouts,
    ModelServer,
    ModelServerPods,
    Patch,
    ResourceProfile,
    SecretNames,
    SystemConfig,
)
from slipway.decoding import DecodingError, decode_yaml
from slipway.kube.objects import Object
from slipway.kube.values.quantity import multiply
from slipway.kube.values.times import parse_duration

T = TypeVar("T")

MAX_BYTES = 256 << 10
"""Maximum size of the configuration in bytes. KubeAI's own configuration has 10 KB, and parsing the maximum takes
seconds."""
FOREIGN_LOADER = re.compile(r"(.*/)?kubeai-model-loader([:@].*)?")
"""Image of KubeAI's loader. Slipway ignores such an image and uses its own loader, because the two take different
arguments."""
CLAIM_NAME = re.compile(NAME)
SHORTEST_SECONDS = 0.1
GPU_RESOURCE = re.compile(r"gpu|/mig-")
"""Pattern of GPU resource names in the device plugins of NVIDIA, AMD and Intel."""
SHAPES = {
    field.encode_name: inspect.type_info(field.type)
    for field in msgspec.structs.fields(SystemConfig)
    if field.encode_name in SECTIONS
}
"""Section of the configuration -> type of its value."""


def parse(text: str) -> SystemConfig:
    """Return the configuration in a ``system.yaml``, with all defaults. An empty string results in the defaults. Raise
    InvalidConfigError for an invalid configuration."""
    config = _parse_or_fault(text)
    if isinstance(config, str):
        raise InvalidConfigError(config)
    return config


@functools.lru_cache(maxsize=8)
def _parse_or_fault(text: str) -> SystemConfig | str:
    """Return the configuration, or the message of its error. Both are cached, because each reconciliation of a Model
    needs one of them."""
    try:
        return _build(text)
    except InvalidConfigError as error:
        return error.fault


def _build(text: str) -> SystemConfig:
    document, unknown = _drop_unknown_keys(_load(text))
    whole = _add_defaults(document, _defaults())
    return SystemConfig(
        secret_names=_convert(whole["secretNames"], SecretNames, "secretNames"),
        model_servers={
            engine: _parse_model_server(server, f"modelServers.{engine}")
            for engine, server in whole["modelServers"].items()
        },
        model_loading=_parse_model_loading(whole["modelLoading"]),
        resource_profiles={
            name: _parse_resource_profile(profile, f"resourceProfiles.{name}")
            for name, profile in whole["resourceProfiles"].items()
        },
        cache_profiles={name: _parse_cache_profile(profile, name) for name, profile in whole["cacheProfiles"].items()},
        model_server_pods=_parse_pods(whole["modelServerPods"]),
        model_rollouts=_convert(whole["modelRollouts"], ModelRollouts, "modelRollouts"),
        model_autoscaling=_parse_autoscaling(whole["modelAutoscaling"]),
        unknown_keys=unknown,
    )


def _drop_unknown_keys(document: Object) -> tuple[Object, tuple[str, ...]]:
    """Return the configuration without the keys in UNUSED and without unknown keys, and the paths of the unknown
    keys."""
    unknown: list[str] = []
    sections = {}
    for section, part in document.items():
        if section in SHAPES:
            sections[section] = _prune(part, SHAPES[section], f"{section}.", unknown)
        elif section not in UNUSED:
            unknown.append(section)
    return sections, tuple(unknown)


def _prune(value: Any, type_: inspect.Type, path: str, unknown: list[str]) -> Any:
    """Return a value without the keys that its type does not have. The paths of these keys are added to ``unknown``."""
    if isinstance(type_, inspect.Metadata):
        return _prune(value, type_.type, path, unknown)
    if isinstance(value, dict) and isinstance(type_, inspect.StructType):
        types = {field.encode_name: field.type for field in type_.fields}
        unknown += [f"{path}{name}" for name in value if name not in types]
        parts = {name: part for name, part in value.items() if name in types}
        return {name: _prune(part, types[name], f"{path}{name}.", unknown) for name, part in parts.items()}
    if isinstance(value, dict) and isinstance(type_, inspect.DictType):
        return {name: _prune(part, type_.value_type, f"{path}{name}.", unknown) for name, part in value.items()}
    if isinstance(value, list) and isinstance(type_, inspect.VarTupleType):
        places = (f"{path.removesuffix('.')}[{index}]." for index in range(len(value)))
        return [_prune(part, type_.item_type, place, unknown) for part, place in zip(value, places, strict=True)]
    return value


def _load(text: str) -> Object:
    try:
        document = decode_yaml(text, most=MAX_BYTES)
    except DecodingError as error:
        raise InvalidConfigError(f"it is not YAML: {error}") from error
    return _require_mapping(document, "it")


@functools.lru_cache(maxsize=1)
def _defaults() -> Object:
    text = (resources.files(__package__) / "defaults.yaml").read_text()
    servers = {name: {"images": images(engine)} for name, engine in ENGINES.items()}
    return {**yaml.safe_load(text), "modelServers": servers}


def _add_defaults(document: Object, defaults: Object) -> Object:
    """Return the configuration with the defaults added. In ``modelServers`` and ``resourceProfiles``, a complete entry
    replaces the default entry: images with a ``default``, or a profile with ``requests`` or ``limits``. Any other
    entry, such as a profile with only node selectors, is merged into the default entry field by field. In the other
    sections, each entry or field replaces the default."""
    whole = {}
    for section in SECTIONS:
        own, base = _require_mapping(document.get(section), section), defaults[section]
        if section in ("modelServers", "resourceProfiles"):
            entries = {name: _require_mapping(entry, f"{section}.{name}") for name, entry in own.items()}
            own = {name: _merge_entry(_without_nulls(entry), base.get(name, {})) for name, entry in entries.items()}
        whole[section] = {**base, **own}
    return whole


def _merge_entry(own: Object, base: Object) -> Object:
    images = own.get("images")
    if isinstance(images, dict) and "default" not in images:
        return {**base, **own, "images": {**base.get("images", {}), **images}}
    complete = {"requests", "limits", "images"} & own.keys()
    return own if complete else {**base, **own}


def _require_mapping(value: Any, path: str) -> Object:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise InvalidConfigError(f"{path} must be a mapping of names")
    return value


def _without_nulls(value: Object) -> Object:
    """Return a mapping without null values. A null value counts as missing, as in Go."""
    return {name: entry for name, entry in value.items() if entry is not None}


def _convert(value: Any, type_: type[T], path: str) -> T:
    try:
        return msgspec.convert(_without_nulls(_require_mapping(value, path)), type_)
    except msgspec.ValidationError as error:
        _raise_invalid(path, str(error))


def _raise_invalid(path: str, fault: str) -> NoReturn:
    """Raise InvalidConfigError with a message that begins with the key. ``fault`` is a message of msgspec, which ends
    with the path of the key."""
    fault, _at, place = fault.partition(" - at `$")
    raise InvalidConfigError(f"{path}{place.rstrip('`')}: {fault[0].lower()}{fault[1:]}")


def _parse_model_server(value: Object, path: str) -> ModelServer:
    return _convert({**value, "images": _parse_texts(value.get("images"), f"{path}.images")}, ModelServer, path)


def _parse_model_loading(value: Object) -> ModelLoading:
    loading = _convert(value, ModelLoading, "modelLoading")
    return ModelLoading() if FOREIGN_LOADER.fullmatch(loading.image) else loading


def _parse_resource_profile(value: Object, path: str) -> ResourceProfile:
    sizes = {part: _parse_quantities(value.get(part), f"{path}.{part}") for part in ("requests", "limits")}
    selector = {"nodeSelector": _parse_texts(value.get("nodeSelector"), f"{path}.nodeSelector")}
    profile = _convert({**value, **sizes, **selector}, ResourceProfile, path)
    if value.get("dra") is not None:
        _check_claim(profile, path)
    return profile


def _check_claim(profile: ResourceProfile, path: str) -> None:
    """Raise InvalidConfigError for an invalid device claim of a resource profile."""
    if bool(profile.dra.resource_claim_template_name) == bool(profile.dra.resource_claim_name):
        raise InvalidConfigError(f"{path}.dra: expected resourceClaimTemplateName or resourceClaimName, and not both")
    gpus = sorted(filter(GPU_RESOURCE.search, {*profile.requests, *profile.limits}))
    if gpus:
        raise InvalidConfigError(f"{path}: dra allocates the GPUs. Remove {', '.join(gpus)} from requests and limits")


def _parse_texts(value: Any, path: str) -> dict[str, str]:
    texts = _without_nulls(_require_mapping(value, path))
    for name, text in texts.items():
        if not isinstance(text, str):
            raise InvalidConfigError(f"{path}.{name}: expected a string; put {text!r} into quotes")
    return texts


def _parse_quantities(value: Any, path: str) -> dict[str, str]:
    sizes = _without_nulls(_require_mapping(value, path))
    return {name: _parse_quantity(quantity, f"{path}.{name}") for name, quantity in sizes.items()}


def _parse_quantity(value: Any, path: str) -> str:
    """Return a quantity in the API server's form. Numbers in YAML keep their digits, so 0.5 is not rounded. Raise
    InvalidConfigError for other values."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InvalidConfigError(f"{path}: expected a quantity such as 2, 500m or 24Gi")
    try:
        return multiply(str(value), 1)
    except ValueError as error:
        raise InvalidConfigError(f"{path}: {error}") from error


def _parse_cache_profile(value: Any, name: str) -> CacheProfile:
    path = f"cacheProfiles.{name}"
    if not CLAIM_NAME.fullmatch(name):
        raise InvalidConfigError(f"{path}: the name is used for a PVC: expected at most 63 of a-z, 0-9, - and .")
    volume = _require_mapping(_require_mapping(value, path).get("sharedFilesystem"), f"{path}.sharedFilesystem")
    place = _without_nulls(volume)
    if not place.get("storageClassName") and not place.get("persistentVolumeName"):
        raise InvalidConfigError(f"{path}.sharedFilesystem: expected storageClassName or persistentVolumeName")
    size = _parse_quantity(place.get("storageSize", "10Gi"), f"{path}.sharedFilesystem.storageSize")
    return _convert({**value, "sharedFilesystem": {**place, "storageSize": size}}, CacheProfile, path)


def _parse_pods(value: Object) -> ModelServerPods:
    pods = _convert(value, ModelServerPods, "modelServerPods")
    for index, patch in enumerate(pods.json_patches):
        fault = _patch_fault(patch)
        if fault:
            raise InvalidConfigError(f"modelServerPods.jsonPatches[{index}]: {fault}")
    return pods


def _patch_fault(patch: Patch) -> str | None:
    if not patch.path.startswith("/"):
        return f"path {patch.path!r} must begin with /, such as /spec/priorityClassName"
    if patch.op in ("move", "copy") and not patch.source.startswith("/"):
        return f"{patch.op} needs from, a path that begins with /"
    if patch.op in ("add", "replace", "test") and patch.value is msgspec.UNSET:
        return f"{patch.op} needs a value"
    return None


def _parse_autoscaling(value: Object) -> ModelAutoscaling:
    fields = [name for name in ("interval", "timeWindow") if value.get(name) is not None]
    times = {name: _parse_duration(value[name], f"modelAutoscaling.{name}") for name in fields}
    return _convert({**value, **times}, ModelAutoscaling, "modelAutoscaling")


def _parse_duration(value: Any, path: str) -> float:
    """Return a duration in seconds. Integers are nanoseconds, as in Go's JSON format of durations. Raise
    InvalidConfigError for other values, and for less than SHORTEST_SECONDS."""
    try:
        seconds = value / 1e9 if isinstance(value, int) and not isinstance(value, bool) else parse_duration(str(value))
    except ValueError as error:
        raise InvalidConfigError(f"{path}: {error}") from error
    if seconds < SHORTEST_SECONDS:
        raise InvalidConfigError(f"{path}: {value!r} is shorter than 100ms; a number without a unit counts nanoseconds")
    return seconds
