"""The system configuration that all Models of KubeAI share: profiles, images, the pace of the autoscaler. Pure.

It lies in a ConfigMap under KubeAI's own keys. What it says is laid over ``defaults.yaml``, entry by entry.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from importlib import resources
from typing import Annotated, Any, Literal, NoReturn, TypeVar

import msgspec
import yaml
from msgspec import Meta

from slipway.decoding import DecodingError, decode_yaml
from slipway.kube.objects import Object
from slipway.kube.quantity import multiply
from slipway.serving.plan import Invalid
from slipway.serving.times import parse_duration

T = TypeVar("T")

SECTIONS = (
    "secretNames",
    "modelServers",
    "modelLoading",
    "resourceProfiles",
    "cacheProfiles",
    "modelServerPods",
    "modelRollouts",
    "modelAutoscaling",
)
LONGEST = 256 << 10
"""Bytes of the configuration. The original's own has 10 KB; reading this much takes seconds."""
UNUSED = (
    "messaging",
    "leaderElection",
    "metricsAddr",
    "healthAddress",
    "allowPodAddressOverride",
    "fixedSelfMetricAddrs",
    "distributedInference",
    "proxy",
    "gatewayAPI",
)
"""Keys of the original that have no meaning here; whatever they hold is taken."""
FOREIGN_LOADER = re.compile(r"(.*/)?kubeai-model-loader([:@].*)?")
"""The original's loader speaks other arguments than ours: files that name it mean the default."""
CLAIM_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
SHORTEST_SECONDS = 0.1


class InvalidConfig(Invalid):
    """The system configuration cannot be read; the message names the key and what is expected there."""

    def __init__(self, fault: str) -> None:
        super().__init__("InvalidConfig", f"system configuration: {fault}")
        self.fault = fault


class SecretNames(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Secrets in the Model's namespace that hold credentials; a missing one is no error. Empty: none is asked for."""

    alibaba: str = ""
    aws: str = ""
    gcp: str = ""
    huggingface: str = ""
    oci: str = ""


class ModelServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One engine."""

    images: dict[str, str]
    """Image name, as resource profiles say it, or ``default`` -> container image."""


class ModelLoading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The program that fills caches and fetches adapters."""

    image: str = ""
    """Empty: the controller's own setting ``loaderImage``."""


class ResourceProfile(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What one share of a model's pod asks for, and on which nodes."""

    image_name: str = ""
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    affinity: Object = {}
    tolerations: tuple[Object, ...] = ()
    scheduler_name: str = ""
    runtime_class_name: str = ""

    def times(self, count: int) -> ResourceProfile:
        """The same with ``count`` times its resources."""
        return msgspec.structs.replace(
            self,
            requests={name: multiply(quantity, count) for name, quantity in self.requests.items()},
            limits={name: multiply(quantity, count) for name, quantity in self.limits.items()},
        )


class SharedFilesystem(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A volume that many pods can mount at once."""

    storage_class_name: str = ""
    persistent_volume_name: str = ""
    storage_size: str = "10Gi"


class CacheProfile(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Where weights are kept."""

    shared_filesystem: SharedFilesystem


class Patch(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"source": "from"}, forbid_unknown_fields=True
):
    """One operation of RFC 6902 on the whole pod; as builtins it is what :mod:`slipway.serving.jsonpatch` takes."""

    op: Literal["add", "remove", "replace", "move", "copy", "test"]
    path: str
    source: str | None = None
    """``from``: the place that ``move`` and ``copy`` read."""
    value: Any = msgspec.UNSET


class SecretName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names a Secret."""

    name: str


class ModelServerPods(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What the pods of all models have."""

    service_account_name: str = ""
    """Empty: the default account of the Model's namespace, without its token."""
    pod_security_context: Object = {}
    security_context: Object = {}
    """Of the engine's container."""
    image_pull_secrets: tuple[SecretName, ...] = ()
    json_patches: tuple[Patch, ...] = msgspec.field(default=(), name="jsonPatches")


class ModelRollouts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a changed model is rolled out."""

    surge: Annotated[int, Meta(ge=0)] = 1
    """Pods above the wanted number while it goes on."""


class ModelAutoscaling(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The autoscaler's pace. Times are seconds."""

    interval: float = 10.0
    """Between two looks."""
    time_window: float = 600.0
    """Over which requests in flight are averaged."""
    state_config_map_name: str = ""


class SystemConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of it, with every default filled in."""

    secret_names: SecretNames
    model_servers: Mapping[str, ModelServer]
    """Engine, as Models name it, -> its images."""
    model_loading: ModelLoading
    resource_profiles: Mapping[str, ResourceProfile]
    cache_profiles: Mapping[str, CacheProfile]
    model_server_pods: ModelServerPods
    model_rollouts: ModelRollouts
    model_autoscaling: ModelAutoscaling

    def resource_profile(self, asked: str) -> ResourceProfile:
        """The profile of ``name:count`` with its resources multiplied. Raises Invalid: InvalidSpec, UnknownProfile."""
        name, colon, count = asked.partition(":")
        if not name or not colon or not re.fullmatch(r"0*[1-9]\d{0,5}", count):
            raise Invalid(
                "InvalidSpec",
                f"spec.resourceProfile {asked!r} is not of the form name:count, such as cpu:1{_hint(count)}",
            )
        if name not in self.resource_profiles:
            known = ", ".join(sorted(self.resource_profiles))
            raise Invalid("UnknownProfile", f"the system configuration has no resource profile {name!r}, but {known}")
        return self.resource_profiles[name].times(int(count))

    def cache_profile(self, name: str) -> SharedFilesystem:
        """Raises Invalid: UnknownCacheProfile."""
        if name not in self.cache_profiles:
            known = ", ".join(sorted(self.cache_profiles)) or "none"
            raise Invalid("UnknownCacheProfile", f"no cache profile {name!r}: the system configuration has {known}")
        return self.cache_profiles[name].shared_filesystem

    def image(self, engine: str, profile: ResourceProfile) -> str:
        """The engine's image for a profile. Raises Invalid: NoImage."""
        server = self.model_servers.get(engine)
        images = server.images if server else {}
        image = images.get(profile.image_name) or images.get("default")
        if not image:
            raise Invalid(
                "NoImage",
                f"the system configuration has no image of {engine}: set modelServers.{engine}.images.default,"
                " or spec.image in the Model",
            )
        return image


def _hint(count: str) -> str:
    return ": one model on several nodes is not supported" if ":" in count else ""


def parse(text: str) -> SystemConfig:
    """The configuration that a ``system.yaml`` gives; an empty text gives the defaults. Raises InvalidConfig."""
    read = _read_or_fault(text)
    if isinstance(read, str):
        raise InvalidConfig(read)
    return read


@functools.lru_cache(maxsize=8)
def _read_or_fault(text: str) -> SystemConfig | str:
    """Every Model asks at each reconciliation, of a broken text as well: what is wrong with it is kept too."""
    try:
        return _system_config(text)
    except InvalidConfig as error:
        return error.fault


def _system_config(text: str) -> SystemConfig:
    given = _load(text)
    for key in given:
        if key not in (*SECTIONS, *UNUSED):
            raise InvalidConfig(f"{key} is no key of it; there are {', '.join(SECTIONS)}")
    whole = _laid_over(given, _defaults())
    return SystemConfig(
        secret_names=_read(whole["secretNames"], SecretNames, "secretNames"),
        model_servers={
            engine: _model_server(server, f"modelServers.{engine}") for engine, server in whole["modelServers"].items()
        },
        model_loading=_model_loading(whole["modelLoading"]),
        resource_profiles={
            name: _resource_profile(profile, f"resourceProfiles.{name}")
            for name, profile in whole["resourceProfiles"].items()
        },
        cache_profiles={name: _cache_profile(profile, name) for name, profile in whole["cacheProfiles"].items()},
        model_server_pods=_model_server_pods(whole["modelServerPods"]),
        model_rollouts=_read(whole["modelRollouts"], ModelRollouts, "modelRollouts"),
        model_autoscaling=_model_autoscaling(whole["modelAutoscaling"]),
    )


def _load(text: str) -> Object:
    try:
        given = decode_yaml(text, most=LONGEST)
    except DecodingError as error:
        raise InvalidConfig(f"it is not YAML: {error}") from error
    return _mapping(given, "it")


@functools.lru_cache(maxsize=1)
def _defaults() -> Object:
    text = (resources.files(__package__) / "defaults.yaml").read_text()
    defaults: Object = yaml.safe_load(text)
    return defaults


def _laid_over(given: Object, defaults: Object) -> Object:
    """Sections and their keys add to the defaults. An entry that is complete by itself replaces the default's: images
    with a ``default``, a profile with resources; one that is not, such as a profile of node selectors alone, adds."""
    whole = {}
    for section in SECTIONS:
        own, base = _mapping(given.get(section), section), defaults[section]
        if section in ("modelServers", "resourceProfiles"):
            entries = {name: _mapping(entry, f"{section}.{name}") for name, entry in own.items()}
            own = {name: _entry(_without_nulls(entry), base.get(name, {})) for name, entry in entries.items()}
        whole[section] = {**base, **own}
    return whole


def _entry(own: Object, base: Object) -> Object:
    images = own.get("images")
    if isinstance(images, dict) and "default" not in images:
        return {**base, **own, "images": {**base.get("images", {}), **images}}
    complete = {"requests", "limits", "images"} & own.keys()
    return own if complete else {**base, **own}


def _mapping(value: Any, path: str) -> Object:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise InvalidConfig(f"{path} must be a mapping of names")
    return value


def _without_nulls(value: Object) -> Object:
    """Null is the same as absent, as in Go."""
    return {name: entry for name, entry in value.items() if entry is not None}


def _read(value: Any, type_: type[T], path: str) -> T:
    try:
        return msgspec.convert(_without_nulls(_mapping(value, path)), type_)
    except msgspec.ValidationError as error:
        _refuse(path, str(error))


def _refuse(path: str, fault: str) -> NoReturn:
    """Turns "Expected `str`, got `int` - at `$.a`" round, so that the key comes first."""
    fault, _at, place = fault.partition(" - at `$")
    raise InvalidConfig(f"{path}{place.rstrip('`')}: {fault[0].lower()}{fault[1:]}")


def _model_server(value: Object, path: str) -> ModelServer:
    return _read({**value, "images": _texts(value.get("images"), f"{path}.images")}, ModelServer, path)


def _model_loading(value: Object) -> ModelLoading:
    loading = _read(value, ModelLoading, "modelLoading")
    return ModelLoading() if FOREIGN_LOADER.fullmatch(loading.image) else loading


def _resource_profile(value: Object, path: str) -> ResourceProfile:
    sizes = {part: _quantities(value.get(part), f"{path}.{part}") for part in ("requests", "limits")}
    selector = {"nodeSelector": _texts(value.get("nodeSelector"), f"{path}.nodeSelector")}
    return _read({**value, **sizes, **selector}, ResourceProfile, path)


def _texts(value: Any, path: str) -> dict[str, str]:
    texts = _without_nulls(_mapping(value, path))
    for name, text in texts.items():
        if not isinstance(text, str):
            raise InvalidConfig(f"{path}.{name}: expected a string; put {text!r} into quotes")
    return texts


def _quantities(value: Any, path: str) -> dict[str, str]:
    sizes = _without_nulls(_mapping(value, path))
    return {name: _quantity(quantity, f"{path}.{name}") for name, quantity in sizes.items()}


def _quantity(value: Any, path: str) -> str:
    """YAML's numbers are told as they were written, as far as that goes: 0.5 is not rounded."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InvalidConfig(f"{path}: expected a quantity such as 2, 500m or 24Gi")
    try:
        return multiply(str(value), 1)
    except ValueError as error:
        raise InvalidConfig(f"{path}: {error}") from error


def _cache_profile(value: Any, name: str) -> CacheProfile:
    path = f"cacheProfiles.{name}"
    if not CLAIM_NAME.fullmatch(name):
        raise InvalidConfig(f"{path}: the name becomes a claim's: expected at most 63 of a-z, 0-9, - and .")
    place = _without_nulls(_mapping(_mapping(value, path).get("sharedFilesystem"), f"{path}.sharedFilesystem"))
    if not place.get("storageClassName") and not place.get("persistentVolumeName"):
        raise InvalidConfig(f"{path}.sharedFilesystem: expected storageClassName or persistentVolumeName")
    size = _quantity(place.get("storageSize", "10Gi"), f"{path}.sharedFilesystem.storageSize")
    return _read({**value, "sharedFilesystem": {**place, "storageSize": size}}, CacheProfile, path)


def _model_server_pods(value: Object) -> ModelServerPods:
    pods = _read(value, ModelServerPods, "modelServerPods")
    for index, patch in enumerate(pods.json_patches):
        fault = _patch_fault(patch)
        if fault:
            raise InvalidConfig(f"modelServerPods.jsonPatches[{index}]: {fault}")
    return pods


def _patch_fault(patch: Patch) -> str | None:
    if not patch.path.startswith("/"):
        return f"path {patch.path!r} must begin with /, such as /spec/priorityClassName"
    if patch.op in ("move", "copy") and not (patch.source or "").startswith("/"):
        return f"{patch.op} needs from, a path that begins with /"
    if patch.op in ("add", "replace", "test") and patch.value is msgspec.UNSET:
        return f"{patch.op} needs a value"
    return None


def _model_autoscaling(value: Object) -> ModelAutoscaling:
    given = [name for name in ("interval", "timeWindow") if value.get(name) is not None]
    times = {name: _duration(value[name], f"modelAutoscaling.{name}") for name in given}
    return _read({**value, **times}, ModelAutoscaling, "modelAutoscaling")


def _duration(value: Any, path: str) -> float:
    """Seconds. A number counts nanoseconds, as Go writes durations to JSON."""
    try:
        seconds = value / 1e9 if isinstance(value, int) and not isinstance(value, bool) else parse_duration(str(value))
    except ValueError as error:
        raise InvalidConfig(f"{path}: {error}") from error
    if seconds < SHORTEST_SECONDS:
        raise InvalidConfig(f"{path}: {value!r} is shorter than 100ms; a number without a unit counts nanoseconds")
    return seconds
