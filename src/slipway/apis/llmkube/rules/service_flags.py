"""The typed fields of an InferenceService, as settings with the names in the engines' tables. Pure.

A setting has the name of its field, such as ``context_size``. If the field is in a block of the spec, the name of the
block is a prefix, as in ``rope_scaling_type``. Blocks that only one runtime uses add no prefix.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import msgspec

from slipway.apis.llmkube.rules.engines import ENGINES
from slipway.apis.llmkube.types.runtime import SglangConfig
from slipway.apis.llmkube.types.service import InferenceServiceSpec
from slipway.engines.definition.flags import Value
from slipway.kube.objects import Object


class ExplicitSetting(msgspec.Struct, frozen=True):
    """A field that the spec sets."""

    field: str
    """Path of the field, such as ``ropeScaling.factor``."""
    setting: str
    value: Value


BLOCKS = {"vllm": "vllmConfig", "tgi": "tgiConfig", "sglang": "sglangConfig", "personaplex": "personaPlexConfig"}
"""Runtime -> the block of the spec that only this runtime uses."""
SUPPORTED_SETTINGS = frozenset(row.name for engine in ENGINES.values() for row in engine.flags)
ON_MACS = ("turboQuantBits", "hotCacheMaxSize", "pagedSSDCacheDir", "pagedSSDCacheMaxSize")
"""Fields of oMLX, which is not a runtime of the cluster."""
UNSET = (None, False, 0, "", (), "auto")
"""Default values that leave the decision to the engine."""
BEFORE = {
    "cache_type_custom_k": "cache_type_k",
    "cache_type_custom_v": "cache_type_v",
    "kv_cache_custom_dtype": "kv_cache_dtype",
    "context_length": "context_size",
    "max_running_requests": "parallel_slots",
}
"""Setting -> the setting that it overrides, because both have the same effect."""


def explicit_settings(spec: InferenceServiceSpec) -> tuple[ExplicitSetting, ...]:
    """Return the fields of a spec that are set and have a row in the flag table of some engine, one for each setting.
    Blocks of other runtimes and overridden fields are omitted."""
    own = BLOCKS.get(spec.runtime, "")
    settings = _index_by_setting(spec)
    if own == BLOCKS["sglang"] and spec.sglang_config.lora_adapters:
        adapters = adapters_of(spec.sglang_config)
        settings["lora_modules"] = ExplicitSetting(f"{own}.loraAdapters", "lora_modules", adapters)
    for name, plain in BEFORE.items():
        if first := settings.pop(name, None):
            settings[plain] = ExplicitSetting(first.field, plain, first.value)
    return tuple(settings.values())


def overridden_fields(spec: InferenceServiceSpec) -> dict[str, str]:
    """Return the general fields that a field in the runtime's own block overrides, each with the path of the overriding
    field."""
    settings = _index_by_setting(spec)
    pairs = [
        (settings[plain].field, settings[name].field)
        for name, plain in BEFORE.items()
        if {name, plain} <= settings.keys()
    ]
    return {plain: own for plain, own in pairs if "." in own and "." not in plain}


def fields_of_other_runtimes(spec: InferenceServiceSpec, raw_spec: Object) -> tuple[str, ...]:
    """Return the names of the set fields that belong to another runtime. ``raw_spec`` is the spec before it is
    parsed."""
    fields = [block for runtime, block in BLOCKS.items() if runtime != spec.runtime and raw_spec.get(block)]
    if spec.args and spec.runtime != "generic":
        fields.append("args")
    if spec.extra_args and spec.runtime == "generic":
        fields.append("extraArgs")
    if spec.bind_address and spec.runtime in ("generic", "personaplex"):
        fields.append("bindAddress")
    if spec.speculative_decoding and spec.runtime != "llamacpp":
        fields.append("speculativeDecoding")
    return (*fields, *(field for field in ON_MACS if raw_spec.get(field)))


def adapters_of(config: SglangConfig) -> tuple[str, ...]:
    """Return SGLang's LoRA adapters, each as ``<name>=<path>`` or JSON. If ``loraAdapters`` and ``loraModules`` have an
    adapter of the same name, ``loraAdapters`` takes precedence."""
    named = {one.name: f"{one.name}={one.path}" for one in config.lora_adapters}
    others = (text for text in config.lora_modules if text.partition("=")[0] not in named)
    return (*others, *named.values())


def _index_by_setting(spec: InferenceServiceSpec) -> dict[str, ExplicitSetting]:
    return {one.setting: one for one in _of(spec, BLOCKS.get(spec.runtime, ""))}


def _of(part: msgspec.Struct, own: str, place: str = "", prefix: str = "") -> Iterator[ExplicitSetting]:
    """Yield the fields that are set in a part of the spec at the path ``place``. ``own`` is the path of the runtime's
    own block, and ``prefix`` is the beginning of the settings' names."""
    for field in _fields(type(part)):
        value, path, name = getattr(part, field.name), f"{place}{field.encode_name}", f"{prefix}{field.name}"
        if isinstance(value, msgspec.Struct):
            alone = path in BLOCKS.values()
            if getattr(value, "active", True) and (not alone or path == own):
                yield from _of(value, own, f"{path}.", "" if alone else f"{name}_")
        elif BEFORE.get(name, name) in SUPPORTED_SETTINGS and not (value in UNSET and value == field.default):
            yield ExplicitSetting(path, name, value)


@cache
def _fields(struct: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return a struct's fields. The result is cached, because msgspec evaluates all annotations at each call."""
    return msgspec.structs.fields(struct)
