"""The system configuration that all KubeAI Models share: profiles, images and the timing of the autoscaler. Pure.

:mod:`slipway.apis.kubeai.system_yaml` parses the configuration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from slipway.apis.kubeai.types import Engine
from slipway.kube.objects import Object
from slipway.kube.values.quantity import multiply
from slipway.serving.contract.api import InvalidSpecError
from slipway.spelling import did_you_mean, nearest

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
"""Keys of KubeAI's configuration that Slipway accepts with any value and ignores."""
NAME = r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?"


def _describe_text(expected: str, pattern: str) -> Meta:
    """Return schema metadata for a string, with a description and a pattern. The parser's own errors are more
    specific."""
    return Meta(extra_json_schema={"type": "string", "description": expected, "pattern": f"^({pattern})$"})


def _describe_keys(expected: str, pattern: str) -> Meta:
    """Return schema metadata for the keys of a mapping, with a description and a pattern."""
    return Meta(extra_json_schema={"propertyNames": {"description": expected, "pattern": f"^({pattern})$"}})


Name = Annotated[str, _describe_text("a name of lower-case letters, digits, '-' and '.'", NAME)]
NameOrNone = Annotated[str, _describe_text("a name of lower-case letters, digits, '-' and '.'", f"|{NAME}")]
Image = Annotated[str, _describe_text("an image", r"\S+")]
Quantity = Annotated[
    str,
    _describe_text("a quantity such as 2, 500m or 24Gi", r"(\d+\.?\d*|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,2})?"),
]
Seconds = Annotated[
    float,
    _describe_text("a duration such as 90s, 10m or 1h30m", r"(?=.*[1-9])(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+"),
]
Pointer = Annotated[str, _describe_text("a path that begins with /, such as /spec/priorityClassName", "/.*")]
_ANY_NAME = _describe_keys("a name", r"\S+")


def _require_one(*fields: str) -> Meta:
    """Return schema metadata that requires at least one of ``fields`` in a mapping."""
    return Meta(
        extra_json_schema={"anyOf": [{"required": [one], "properties": {one: {"minLength": 1}}} for one in fields]}
    )


class InvalidConfigError(InvalidSpecError):
    """Error for an invalid system configuration. The message names the key and the expected value."""

    def __init__(self, fault: str) -> None:
        super().__init__("InvalidConfig", f"system configuration: {fault}")
        self.fault = fault


class SecretNames(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names of Secrets with credentials in the Model's namespace. A missing Secret is no error, and an empty name means
    that no Secret is used."""

    alibaba: NameOrNone = ""
    aws: NameOrNone = ""
    gcp: NameOrNone = ""
    huggingface: NameOrNone = ""
    oci: NameOrNone = ""


class ModelServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Images of one engine."""

    images: Annotated[dict[str, Image], _ANY_NAME]
    """``imageName`` of a resource profile, or ``default`` -> container image."""


class ModelLoading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Configuration of the loader, which fills caches and downloads adapters."""

    image: str = ""
    """Container image of the loader. Empty to use the controller's setting ``loaderImage``."""


class DeviceClaim(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A device claim: devices that a pod gets by dynamic resource allocation instead of from a device plugin."""

    resource_claim_template_name: NameOrNone = ""
    """Name of a ResourceClaimTemplate in the Model's namespace. Each pod gets its own claim from the template."""
    resource_claim_name: NameOrNone = ""
    """Name of a ResourceClaim in the Model's namespace, which all pods of the Model share."""
    claim_name: Name = "gpu-claim"
    """Name of the claim in the pod."""
    claim_request: NameOrNone = "gpu"
    """Name of the claim's request whose devices the engine gets. Empty to give the engine the devices of all
    requests."""

    @property
    def in_pod(self) -> tuple[Object, ...]:
        """Items of the pod's ``resourceClaims``. Empty if the profile has no claim."""
        names = {
            "resourceClaimTemplateName": self.resource_claim_template_name,
            "resourceClaimName": self.resource_claim_name,
        }
        named = {field: name for field, name in names.items() if name}
        return ({"name": self.claim_name, **named},) if named else ()

    @property
    def in_container(self) -> tuple[Object, ...]:
        """Items of the container's ``resources.claims``. Empty if the profile has no claim."""
        request = {"request": self.claim_request} if self.claim_request else {}
        return ({"name": self.claim_name, **request},) if self.in_pod else ()


class ResourceProfile(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Resources of a Model's pod per unit of its ``resourceProfile`` count, and the nodes on which the pod can run."""

    image_name: str = ""
    requests: Annotated[dict[str, Quantity], _ANY_NAME] = {}
    limits: Annotated[dict[str, Quantity], _ANY_NAME] = {}
    node_selector: Annotated[dict[str, str], _ANY_NAME] = {}
    affinity: Object = {}
    tolerations: tuple[Object, ...] = ()
    scheduler_name: str = ""
    runtime_class_name: str = ""
    dra: Annotated[DeviceClaim, _require_one("resourceClaimTemplateName", "resourceClaimName")] = DeviceClaim()
    """Device claim of the pod. The count does not multiply the claim, which has its own number of devices."""

    def times(self, count: int) -> ResourceProfile:
        """Return the profile with its requests and limits multiplied by ``count``."""
        return msgspec.structs.replace(
            self,
            requests={name: multiply(quantity, count) for name, quantity in self.requests.items()},
            limits={name: multiply(quantity, count) for name, quantity in self.limits.items()},
        )


class SharedFilesystem(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A volume that many pods can mount at the same time: a new one from a StorageClass, or an existing
    PersistentVolume."""

    storage_class_name: str = ""
    persistent_volume_name: str = ""
    storage_size: Quantity = "10Gi"


class CacheProfile(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A kind of cache for weights. In each namespace, all Models with this profile share one volume."""

    shared_filesystem: Annotated[SharedFilesystem, _require_one("storageClassName", "persistentVolumeName")]


class Patch(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"source": "from"}, forbid_unknown_fields=True
):
    """One RFC 6902 operation on the pod. :mod:`slipway.kube.values.jsonpatch` applies the operation as a mapping."""

    op: Literal["add", "remove", "replace", "move", "copy", "test"]
    path: Pointer
    source: Pointer = ""
    """The field ``from``: the path from which ``move`` and ``copy`` read."""
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
    """Reference to a Secret."""

    name: Name


class ModelServerPods(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Fields for the pods of all Models."""

    service_account_name: str = ""
    """Name of the pods' ServiceAccount. Empty to use the default account of the Model's namespace, without mounting its
    token."""
    pod_security_context: Object = {}
    security_context: Object = {}
    """Security context of the engine's container, and of the containers that fill and empty caches."""
    image_pull_secrets: tuple[SecretName, ...] = ()
    json_patches: tuple[Annotated[Patch, _COMPLETE], ...] = msgspec.field(default=(), name="jsonPatches")


class ModelRollouts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings for the rollout of a changed Model."""

    surge: Annotated[int, Meta(ge=0)] = 1
    """Maximum number of additional pods during a rollout."""


class ModelAutoscaling(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Timing of the autoscaler, in seconds, and the name of the ConfigMap with its averages."""

    interval: Seconds = 10.0
    """Length of an interval in seconds. The mean of each interval becomes one value of the time window."""
    time_window: Seconds = 600.0
    """Seconds over which the number of in-flight requests is averaged."""
    state_config_map_name: str = ""


class SystemConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The system configuration with all defaults."""

    secret_names: SecretNames
    model_servers: Annotated[
        Mapping[str, ModelServer], Meta(extra_json_schema={"propertyNames": {"enum": [*get_args(Engine)]}})
    ]
    """``spec.engine`` of Models -> images of the engine."""
    model_loading: ModelLoading
    resource_profiles: Annotated[Mapping[str, ResourceProfile], _describe_keys("a name without ':'", r"[^:\s]+")]
    cache_profiles: Annotated[
        Mapping[str, CacheProfile], _describe_keys("a name of lower-case letters, digits, '-' and '.'", NAME)
    ]
    model_server_pods: ModelServerPods
    model_rollouts: ModelRollouts
    model_autoscaling: ModelAutoscaling
    unknown_keys: tuple[str, ...] = ()
    """Paths of unknown keys, which have no effect. They are misspelled, or from later versions of KubeAI."""

    def resource_profile(self, reference: str) -> ResourceProfile:
        """Return the resource profile for ``name:count``, with its resources multiplied by the count. Raise
        InvalidSpecError with the reason InvalidSpec for text of another form, and UnknownProfile if the configuration
        has no such profile."""
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
        """Return the volume of a cache profile. Raise InvalidSpecError with the reason UnknownCacheProfile if the
        configuration has no such profile."""
        if name not in self.cache_profiles:
            choices = ", ".join(sorted(self.cache_profiles)) or "none"
            raise InvalidSpecError(
                "UnknownCacheProfile",
                f"no cache profile {name!r}: the system configuration has {choices}"
                + did_you_mean(name, self.cache_profiles),
            )
        return self.cache_profiles[name].shared_filesystem

    def image(self, engine: str, profile: ResourceProfile) -> str:
        """Return the engine's image for a resource profile, or else its default image. Raise InvalidSpecError with the
        reason NoImage if the configuration has neither."""
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


def schema() -> Object:
    """Return the JSON Schema of ``system.yaml``. No section is required, because all of them have defaults. KubeAI's
    keys without effect in Slipway are marked as deprecated."""
    whole = msgspec.json.schema(SystemConfig)
    for definition in whole["$defs"].values():
        del definition["description"]  # it describes the Python type
        for field in definition["properties"].values():
            field.pop("default", None)
            if "pattern" in field:  # durations are parsed as numbers
                field["type"] = "string"
    sections = whole["$defs"]["SystemConfig"]
    del sections["required"], sections["properties"]["unknownKeys"]
    sections["additionalProperties"] = False
    sections["properties"] |= {name: {"deprecated": True} for name in UNUSED}
    return whole


def _hint(count: str) -> str:
    return ": one model on several nodes is not supported" if ":" in count else ""
