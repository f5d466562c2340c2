"""Service settings: the typed fields of an InferenceService, under the names that engines' tables have. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from slipway.apis.llmkube.runtime_types import PersonaPlexConfig, RopeScaling, TgiConfig, VllmConfig
from slipway.apis.llmkube.service_types import InferenceServiceSpec
from slipway.engines.settings import Value
from slipway.kube.objects import Object


class Given(msgspec.Struct, frozen=True):
    """A field that is set."""

    field: str
    """``ropeScaling.factor``."""
    setting: str
    value: Value


Row = tuple[str, str, Value | None]
"""Field, setting, value; what is absent, off or empty is not set."""
BLOCKS = {"vllm": "vllmConfig", "tgi": "tgiConfig", "personaplex": "personaPlexConfig"}
"""Runtime -> the field with what only it has."""


def given(spec: InferenceServiceSpec) -> tuple[Given, ...]:
    """All fields that are set, and that the runtime might take: those of other runtimes' blocks are not among them."""
    rows: dict[str, Iterable[Row]] = {
        "vllm": _vllm(spec.vllm_config),
        "tgi": _tgi(spec.tgi_config),
        "personaplex": _personaplex(spec.persona_plex_config),
    }
    found = (*_common(spec), *_rope(spec.rope_scaling), *rows.get(spec.runtime, ()))
    return tuple(
        Given(field, setting, value)
        for field, setting, value in found
        if value is not None and value is not False and value not in ("", ())
    )


def strangers(spec: InferenceServiceSpec, written: Object) -> tuple[str, ...]:
    """Fields that only another runtime has. ``written``: the spec as it stands in the resource."""
    fields = [block for runtime, block in BLOCKS.items() if runtime != spec.runtime and written.get(block)]
    if spec.args and spec.runtime != "generic":
        fields.append("args")
    if spec.extra_args and spec.runtime == "generic":
        fields.append("extraArgs")
    if spec.bind_address and spec.runtime in ("generic", "personaplex"):
        fields.append("bindAddress")
    return tuple(fields)


def _common(spec: InferenceServiceSpec) -> tuple[Row, ...]:
    return (
        ("contextSize", "context_size", spec.context_size),
        ("parallelSlots", "parallel_slots", spec.parallel_slots),
        ("flashAttention", "flash_attention", spec.flash_attention),
        ("jinja", "jinja", spec.jinja),
        _first("cache_type_k", ("cacheTypeCustomK", spec.cache_type_custom_k), ("cacheTypeK", spec.cache_type_k)),
        _first("cache_type_v", ("cacheTypeCustomV", spec.cache_type_custom_v), ("cacheTypeV", spec.cache_type_v)),
        ("moeCPUOffload", "moe_cpu_offload", spec.moe_cpu_offload),
        ("moeCPULayers", "moe_cpu_layers", spec.moe_cpu_layers or None),
        ("noKvOffload", "no_kv_offload", spec.no_kv_offload),
        ("tensorOverrides", "tensor_overrides", spec.tensor_overrides),
        ("batchSize", "batch_size", spec.batch_size),
        ("uBatchSize", "ubatch_size", spec.u_batch_size),
        ("noWarmup", "no_warmup", spec.no_warmup),
        ("reasoningBudget", "reasoning_budget", spec.reasoning_budget),
        ("reasoningBudgetMessage", "reasoning_budget_message", spec.reasoning_budget_message),
        ("metadataOverrides", "metadata_overrides", spec.metadata_overrides),
    )


def _first(setting: str, *fields: tuple[str, str | None]) -> Row:
    """The first of these fields that is set."""
    field, value = next((one for one in fields if one[1]), fields[-1])
    return (field, setting, value)


def _rope(rope: RopeScaling | None) -> tuple[Row, ...]:
    if rope is None:
        return ()
    return (
        ("ropeScaling.type", "rope_scaling", rope.type),
        ("ropeScaling.factor", "rope_scale", rope.factor),
        ("ropeScaling.originalContext", "rope_original_context", rope.original_context),
    )


def _vllm(config: VllmConfig) -> tuple[Row, ...]:
    plain = None if config.kv_cache_dtype == "auto" else config.kv_cache_dtype
    rows: tuple[Row, ...] = (
        ("tensorParallelSize", "tensor_parallel_size", config.tensor_parallel_size),
        ("maxModelLen", "max_model_len", config.max_model_len),
        ("quantization", "quantization", config.quantization),
        ("dtype", "dtype", config.dtype),
        _first("kv_cache_dtype", ("kvCacheCustomDtype", config.kv_cache_custom_dtype), ("kvCacheDtype", plain)),
        ("enablePrefixCaching", "enable_prefix_caching", config.enable_prefix_caching),
        ("enableChunkedPrefill", "enable_chunked_prefill", config.enable_chunked_prefill),
        ("enableExpertParallel", "enable_expert_parallel", config.enable_expert_parallel),
        ("maxNumBatchedTokens", "max_num_batched_tokens", config.max_num_batched_tokens),
        ("attentionBackend", "attention_backend", config.attention_backend),
        ("cpuOffloadGB", "cpu_offload_gb", config.cpu_offload_gb),
        ("gpuMemoryUtilization", "gpu_memory_utilization", config.gpu_memory_utilization),
    )
    return _within("vllmConfig", rows)


def _tgi(config: TgiConfig) -> tuple[Row, ...]:
    return _within(
        "tgiConfig",
        (
            ("quantize", "quantize", config.quantize),
            ("maxInputLength", "max_input_length", config.max_input_length),
            ("maxTotalTokens", "max_total_tokens", config.max_total_tokens),
            ("dtype", "dtype", config.dtype),
        ),
    )


def _personaplex(config: PersonaPlexConfig) -> tuple[Row, ...]:
    return _within(
        "personaPlexConfig",
        (
            ("quantize4Bit", "quantize_4_bit", config.quantize_4_bit),
            ("cpuOffload", "cpu_offload", config.cpu_offload),
        ),
    )


def _within(block: str, rows: tuple[Row, ...]) -> tuple[Row, ...]:
    return tuple((f"{block}.{field}", setting, value) for field, setting, value in rows)
