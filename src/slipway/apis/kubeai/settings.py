"""The system configuration that all Models of KubeAI share: profiles, images, the pace of the autoscaler. Pure.

It lies in a ConfigMap under KubeAI's own keys. What it says is laid over ``defaults.yaml`` and the engines' images,
entry by entry.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from importlib import resources
from typing import Annotated, Any, Literal, NoReturn, TypeVar, get_args

import msgspec
import yaml
from msgspec import Meta, inspect

from slipway.apis.kubeai.engines import ENGINES, images
from slipway.apis.kubeai.types import Engine
from slipway.decoding import DecodingError, decode_yaml
from slipway.kube.objects import Object
from slipway.kube.values.quantity import multiply
from slipway.kube.values.times import parse_duration
from slipway.serving.contract.api import InvalidSpecError
from slipway.spelling import did_you_mean, nearest

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
NAME = r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?"
CLAIM_NAME = re.compile(NAME)
SHORTEST_SECONDS = 0.1


def _written(expected: str, pattern: str) -> Meta:
    """How a value is written in the file, for its schema. Reading it says more of what is wrong."""
    return Meta(extra_json_schema={"type": "string", "description": expected, "pattern": f"^({pattern})$"})


def _named(expected: str, pattern: str) -> Meta:
    """What the names in a mapping look like, for its schema."""
    return Meta(extra_json_schema={"propertyNames": {"description": expected, "pattern": f"^({pattern})$"}})


Name = Annotated[str, _written("a name of lower-case letters, digits, '-' and '.'", NAME)]
NameOrNone = Annotated[str, _written("a name of lower-case letters, digits, '-' and '.'", f"|{NAME}")]
Image = Annotated[str, _written("an image", r"\S+")]
Quantity = Annotated[
    str,
    _written("a quantity such as 2, 500m or 24Gi", r"(\d+\.?\d*|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,2})?"),
]
Seconds = Annotated[
    float,
    _written("a duration such as 90s, 10m or 1h30m", r"(?=.*[1-9])(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+"),
]
Pointer = Annotated[str, _written("a path that begins with /, such as /spec/priorityClassName", "/.*")]
ANY_NAME = _named("a name", r"\S+")


GPU_RESOURCE = re.compile(r"gpu|/mig-")
"""Resources of GPUs in the device plugins of NVIDIA, AMD and Intel."""


def _needed(*fields: str) -> Meta:
    """The fields of which a mapping must have at least one."""
    return Meta(
        extra_json_schema={"anyOf": [{"required": [one], "properties": {one: {"minLength": 1}}} for one in fields]}
    )


class InvalidConfigError(InvalidSpecError):
    """The system configuration cannot be read; the message names the key and what is expected there."""

    def __init__(self, fault: str) -> None:
        super().__init__("InvalidConfig", f"system configuration: {fault}")
        self.fault = fault


class SecretNames(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Secrets in the Model's namespace that hold credentials; a missing one is no error. Empty: none is asked for."""

    alibaba: NameOrNone = ""
    aws: NameOrNone = ""
    gcp: NameOrNone = ""
    huggingface: NameOrNone = ""
    oci: NameOrNone = ""


class ModelServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One engine."""

    images: Annotated[dict[str, Image], ANY_NAME]
    """Image name, as resource profiles say it, or ``default`` -> container image."""


class ModelLoading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The program that fills caches and fetches adapters."""

    image: str = ""
    """Empty: the controller's own setting ``loaderImage``."""


class DeviceClaim(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Devices that a pod gets by dynamic resource allocation, instead of from a device plugin."""

    resource_claim_template_name: NameOrNone = ""
    """ResourceClaimTemplate in the Model's namespace: each pod gets its own claim."""
    resource_claim_name: NameOrNone = ""
    """ResourceClaim in the Model's namespace. All pods share it."""
    claim_name: Name = "gpu-claim"
    """The claim's name in the pod."""
    claim_request: NameOrNone = "gpu"
    """The claim's request that the engine gets. Empty: all requests."""

    @property
    def in_pod(self) -> tuple[Object, ...]:
        """The pod's ``resourceClaims``. Empty if the profile has no claim."""
        names = {
            "resourceClaimTemplateName": self.resource_claim_template_name,
            "resourceClaimName": self.resource_claim_name,
        }
        named = {field: name for field, name in names.items() if name}
        return ({"name": self.claim_name, **named},) if named else ()

    @property
    def in_container(self) -> tuple[Object, ...]:
        """The container's ``resources.claims``."""
        request = {"request": self.claim_request} if self.claim_request else {}
        return ({"name": self.claim_name, **request},) if self.in_pod else ()


class ResourceProfile(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What one share of a model's pod asks for, and on which nodes."""

    image_name: str = ""
    requests: Annotated[dict[str, Quantity], ANY_NAME] = {}
    limits: Annotated[dict[str, Quantity], ANY_NAME] = {}
    node_selector: Annotated[dict[str, str], ANY_NAME] = {}
    affinity: Object = {}
    tolerations: tuple[Object, ...] = ()
    scheduler_name: str = ""
    runtime_class_name: str = ""
    dra: Annotated[DeviceClaim, _needed("resourceClaimTemplateName", "resourceClaimName")] = DeviceClaim()
    """The number of shares does not multiply the claim, which has its own number of devices."""

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
    storage_size: Quantity = "10Gi"


class CacheProfile(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Where weights are kept."""

    shared_filesystem: Annotated[SharedFilesystem, _needed("storageClassName", "persistentVolumeName")]


class Patch(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"source": "from"}, forbid_unknown_fields=True
):
    """One operation of RFC 6902 on the whole pod; as builtins it is what :mod:`slipway.kube.values.jsonpatch` takes."""

    op: Literal["add", "remove", "replace", "move", "copy", "test"]
    path: Pointer
    source: Pointer = ""
    """``from``: the place that ``move`` and ``copy`` read."""
    value: Any = msgspec.UNSET


_COMPLETE = Meta(
    extra_json_schema={
        "allOf": [
            {"if": {"properties": {"op": {"enum": operations}}}, "then": {"required": [field]}}
            for field, operations in (("from", ["move", "copy"]), ("value", ["add", "replace", "test"]))
        ]
    }
)


class SecretName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names a Secret."""

    name: Name


class ModelServerPods(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What the pods of all models have."""

    service_account_name: str = ""
    """Empty: the default account of the Model's namespace, without its token."""
    pod_security_context: Object = {}
    security_context: Object = {}
    """Of the engine's container."""
    image_pull_secrets: tuple[SecretName, ...] = ()
    json_patches: tuple[Annotated[Patch, _COMPLETE], ...] = msgspec.field(default=(), name="jsonPatches")


class ModelRollouts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a changed model is rolled out."""

    surge: Annotated[int, Meta(ge=0)] = 1
    """Pods above the wanted number while it goes on."""


class ModelAutoscaling(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The autoscaler's pace. Times are seconds."""

    interval: Seconds = 10.0
    """Between two looks."""
    time_window: Seconds = 600.0
    """Over which requests in flight are averaged."""
    state_config_map_name: str = ""


class SystemConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole of it, with every default filled in."""

    secret_names: SecretNames
    model_servers: Annotated[
        Mapping[str, ModelServer], Meta(extra_json_schema={"propertyNames": {"enum": [*get_args(Engine)]}})
    ]
    """Engine, as Models name it, -> its images."""
    model_loading: ModelLoading
    resource_profiles: Annotated[Mapping[str, ResourceProfile], _named("a name without ':'", r"[^:\s]+")]
    cache_profiles: Annotated[
        Mapping[str, CacheProfile], _named("a name of lower-case letters, digits, '-' and '.'", NAME)
    ]
    model_server_pods: ModelServerPods
    model_rollouts: ModelRollouts
    model_autoscaling: ModelAutoscaling
    unknown_keys: tuple[str, ...] = ()
    """Paths of keys that are not known and have no effect: misspelled ones, and those of later versions of KubeAI."""

    def resource_profile(self, reference: str) -> ResourceProfile:
        """The profile of ``name:count`` with its resources multiplied. Raises InvalidSpecError: InvalidSpec,
        UnknownProfile."""
        name, colon, count = reference.partition(":")
        if not name or not colon or not re.fullmatch(r"0*[1-9]\d{0,5}", count):
            raise InvalidSpecError(
                "InvalidSpec",
                f"spec.resourceProfile: {reference!r} is not of the form name:count, such as cpu:1{_hint(count)}",
            )
        if name not in self.resource_profiles:
            alike = " or ".join(nearest(name, self.resource_profiles))
            choices = ", ".join(sorted(self.resource_profiles))
            raise InvalidSpecError(
                "UnknownProfile",
                f"spec.resourceProfile: the system configuration has no profile {name!r}."
                f"{f' Did you mean {alike}?' if alike else ''} It has {choices}.",
            )
        return self.resource_profiles[name].times(int(count))

    def cache_profile(self, name: str) -> SharedFilesystem:
        """Raises InvalidSpecError: UnknownCacheProfile."""
        if name not in self.cache_profiles:
            choices = ", ".join(sorted(self.cache_profiles)) or "none"
            raise InvalidSpecError(
                "UnknownCacheProfile",
                f"no cache profile {name!r}: the system configuration has {choices}"
                + did_you_mean(name, self.cache_profiles),
            )
        return self.cache_profiles[name].shared_filesystem

    def image(self, engine: str, profile: ResourceProfile) -> str:
        """The engine's image for a profile. Raises InvalidSpecError: NoImage."""
        server = self.model_servers.get(engine)
        images = server.images if server else {}
        image = images.get(profile.image_name) or images.get("default")
        if not image:
            raise InvalidSpecError(
                "NoImage",
                f"the system configuration has no image for {engine}. Set modelServers.{engine}.images.default,"
                " or spec.image in the Model",
            )
        return image


SHAPES = {
    field.encode_name: inspect.type_info(field.type)
    for field in msgspec.structs.fields(SystemConfig)
    if field.encode_name in SECTIONS
}
"""Section -> its type."""


def schema() -> Object:
    """JSON Schema of the file. Nothing is required, as ``defaults.yaml`` has every section; keys of the original that
    have no meaning here are deprecated."""
    whole = msgspec.json.schema(SystemConfig)
    for definition in whole["$defs"].values():
        del definition["description"]  # of the Python type
        for field in definition["properties"].values():
            field.pop("default", None)
            if "pattern" in field:  # durations are read as numbers
                field["type"] = "string"
    sections = whole["$defs"]["SystemConfig"]
    del sections["required"], sections["properties"]["unknownKeys"]
    sections["additionalProperties"] = False
    sections["properties"] |= {name: {"deprecated": True} for name in UNUSED}
    return whole


def _hint(count: str) -> str:
    return ": one model on several nodes is not supported" if ":" in count else ""


def parse(text: str) -> SystemConfig:
    """The configuration that a ``system.yaml`` gives; an empty text gives the defaults. Raises InvalidConfigError."""
    read = _read_or_fault(text)
    if isinstance(read, str):
        raise InvalidConfigError(read)
    return read


@functools.lru_cache(maxsize=8)
def _read_or_fault(text: str) -> SystemConfig | str:
    """Every Model asks at each reconciliation, of a broken text as well: what is wrong with it is kept too."""
    try:
        return _system_config(text)
    except InvalidConfigError as error:
        return error.fault


def _system_config(text: str) -> SystemConfig:
    given, unknown = _drop_unknown_keys(_load(text))
    whole = _laid_over(given, _defaults())
    return SystemConfig(
        secret_names=_convert(whole["secretNames"], SecretNames, "secretNames"),
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
        model_rollouts=_convert(whole["modelRollouts"], ModelRollouts, "modelRollouts"),
        model_autoscaling=_model_autoscaling(whole["modelAutoscaling"]),
        unknown_keys=unknown,
    )


def _drop_unknown_keys(given: Object) -> tuple[Object, tuple[str, ...]]:
    """Returns the configuration without unknown keys, and their paths."""
    unknown: list[str] = []
    sections = {}
    for section, part in given.items():
        if section in SHAPES:
            sections[section] = _pruned(part, SHAPES[section], f"{section}.", unknown)
        elif section not in UNUSED:
            unknown.append(section)
    return sections, tuple(unknown)


def _pruned(value: Any, type_: inspect.Type, path: str, unknown: list[str]) -> Any:
    """A value without the keys that its type does not have, whose paths go to ``unknown``."""
    if isinstance(type_, inspect.Metadata):
        return _pruned(value, type_.type, path, unknown)
    if isinstance(value, dict) and isinstance(type_, inspect.StructType):
        types = {field.encode_name: field.type for field in type_.fields}
        unknown += [f"{path}{name}" for name in value if name not in types]
        parts = {name: part for name, part in value.items() if name in types}
        return {name: _pruned(part, types[name], f"{path}{name}.", unknown) for name, part in parts.items()}
    if isinstance(value, dict) and isinstance(type_, inspect.DictType):
        return {name: _pruned(part, type_.value_type, f"{path}{name}.", unknown) for name, part in value.items()}
    if isinstance(value, list) and isinstance(type_, inspect.VarTupleType):
        places = (f"{path.removesuffix('.')}[{index}]." for index in range(len(value)))
        return [_pruned(part, type_.item_type, place, unknown) for part, place in zip(value, places, strict=True)]
    return value


def _load(text: str) -> Object:
    try:
        given = decode_yaml(text, most=LONGEST)
    except DecodingError as error:
        raise InvalidConfigError(f"it is not YAML: {error}") from error
    return _mapping(given, "it")


@functools.lru_cache(maxsize=1)
def _defaults() -> Object:
    text = (resources.files(__package__) / "defaults.yaml").read_text()
    servers = {name: {"images": images(engine)} for name, engine in ENGINES.items()}
    return {**yaml.safe_load(text), "modelServers": servers}


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
        raise InvalidConfigError(f"{path} must be a mapping of names")
    return value


def _without_nulls(value: Object) -> Object:
    """Null is the same as absent, as in Go."""
    return {name: entry for name, entry in value.items() if entry is not None}


def _convert(value: Any, type_: type[T], path: str) -> T:
    try:
        return msgspec.convert(_without_nulls(_mapping(value, path)), type_)
    except msgspec.ValidationError as error:
        _refuse(path, str(error))


def _refuse(path: str, fault: str) -> NoReturn:
    """Turns "Expected `str`, got `int` - at `$.a`" round, so that the key comes first."""
    fault, _at, place = fault.partition(" - at `$")
    raise InvalidConfigError(f"{path}{place.rstrip('`')}: {fault[0].lower()}{fault[1:]}")


def _model_server(value: Object, path: str) -> ModelServer:
    return _convert({**value, "images": _texts(value.get("images"), f"{path}.images")}, ModelServer, path)


def _model_loading(value: Object) -> ModelLoading:
    loading = _convert(value, ModelLoading, "modelLoading")
    return ModelLoading() if FOREIGN_LOADER.fullmatch(loading.image) else loading


def _resource_profile(value: Object, path: str) -> ResourceProfile:
    sizes = {part: _quantities(value.get(part), f"{path}.{part}") for part in ("requests", "limits")}
    selector = {"nodeSelector": _texts(value.get("nodeSelector"), f"{path}.nodeSelector")}
    profile = _convert({**value, **sizes, **selector}, ResourceProfile, path)
    if value.get("dra") is not None:
        _check_claim(profile, path)
    return profile


def _check_claim(profile: ResourceProfile, path: str) -> None:
    """Raises InvalidConfigError."""
    if bool(profile.dra.resource_claim_template_name) == bool(profile.dra.resource_claim_name):
        raise InvalidConfigError(f"{path}.dra: expected resourceClaimTemplateName or resourceClaimName, and not both")
    gpus = sorted(filter(GPU_RESOURCE.search, {*profile.requests, *profile.limits}))
    if gpus:
        raise InvalidConfigError(f"{path}: dra allocates the GPUs. Remove {', '.join(gpus)} from requests and limits")


def _texts(value: Any, path: str) -> dict[str, str]:
    texts = _without_nulls(_mapping(value, path))
    for name, text in texts.items():
        if not isinstance(text, str):
            raise InvalidConfigError(f"{path}.{name}: expected a string; put {text!r} into quotes")
    return texts


def _quantities(value: Any, path: str) -> dict[str, str]:
    sizes = _without_nulls(_mapping(value, path))
    return {name: _quantity(quantity, f"{path}.{name}") for name, quantity in sizes.items()}


def _quantity(value: Any, path: str) -> str:
    """YAML's numbers are told as they were written, as far as that goes: 0.5 is not rounded."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InvalidConfigError(f"{path}: expected a quantity such as 2, 500m or 24Gi")
    try:
        return multiply(str(value), 1)
    except ValueError as error:
        raise InvalidConfigError(f"{path}: {error}") from error


def _cache_profile(value: Any, name: str) -> CacheProfile:
    path = f"cacheProfiles.{name}"
    if not CLAIM_NAME.fullmatch(name):
        raise InvalidConfigError(f"{path}: the name is used for a PVC: expected at most 63 of a-z, 0-9, - and .")
    place = _without_nulls(_mapping(_mapping(value, path).get("sharedFilesystem"), f"{path}.sharedFilesystem"))
    if not place.get("storageClassName") and not place.get("persistentVolumeName"):
        raise InvalidConfigError(f"{path}.sharedFilesystem: expected storageClassName or persistentVolumeName")
    size = _quantity(place.get("storageSize", "10Gi"), f"{path}.sharedFilesystem.storageSize")
    return _convert({**value, "sharedFilesystem": {**place, "storageSize": size}}, CacheProfile, path)


def _model_server_pods(value: Object) -> ModelServerPods:
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


def _model_autoscaling(value: Object) -> ModelAutoscaling:
    given = [name for name in ("interval", "timeWindow") if value.get(name) is not None]
    times = {name: _duration(value[name], f"modelAutoscaling.{name}") for name in given}
    return _convert({**value, **times}, ModelAutoscaling, "modelAutoscaling")


def _duration(value: Any, path: str) -> float:
    """Seconds. A number counts nanoseconds, as Go writes durations to JSON."""
    try:
        seconds = value / 1e9 if isinstance(value, int) and not isinstance(value, bool) else parse_duration(str(value))
    except ValueError as error:
        raise InvalidConfigError(f"{path}: {error}") from error
    if seconds < SHORTEST_SECONDS:
        raise InvalidConfigError(f"{path}: {value!r} is shorter than 100ms; a number without a unit counts nanoseconds")
    return seconds
