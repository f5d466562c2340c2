"""LLMKube's runtimes, and how they differ from the engines' own definitions. Pure.

LLMKube converts typed fields to flags, omits flags that ``extraArgs`` sets, and starts some programs with its own
command lines. An engine that is not in ``OWN`` runs as its module defines it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Container, Mapping
from typing import get_args

from msgspec.structs import replace

from slipway import engines
from slipway.apis.llmkube.rules import ranks
from slipway.apis.llmkube.types.service import Runtime
from slipway.artifacts.locations.huggingface import HuggingFaceFile, environment
from slipway.artifacts.locations.weights import HubRepository, MountedFolder, Unnamed, describe_weights
from slipway.engines.definition.engine import ANYWHERE, Draft, Engine, Launch, Metrics, Owned, Sharding, Task
from slipway.engines.definition.flags import FlagSpec, FlagTable, Value, arguments, flag_names
from slipway.engines.definition.python import model_of, revision_of
from slipway.engines.programs import llamacpp
from slipway.engines.programs.llamacpp import LLAMACPP
from slipway.engines.programs.sglang import SGLANG
from slipway.engines.programs.vllm import VLLM
from slipway.serving.pods.server import Probes


def _address(launch: Launch) -> Owned:
    """Return the flags that set the engine's address, with the values that a user's arguments may give them."""
    return {"--host": (*ANYWHERE, launch.bind), "--port": (str(launch.port),)}


Spellings = Mapping[str, Mapping[Value, str]]
"""Setting -> LLMKube's value -> the engine's value."""


def _spell(settings: Mapping[str, Value], spellings: Spellings) -> dict[str, Value]:
    return {name: spellings.get(name, {}).get(value, value) for name, value in settings.items()}


LLAMACPP_FLAGS: FlagTable = (
    FlagSpec("gpu_layers", "--n-gpu-layers", ("-ngl", "--gpu-layers"), gpu=True),
    FlagSpec("split_mode", "--split-mode", ("-sm",), gpu=True),
    FlagSpec("tensor_split", "--tensor-split", ("-ts",), gpu=True),
    FlagSpec("context_size", "--ctx-size", ("-c",)),
    FlagSpec("rope_scaling_type", "--rope-scaling"),
    FlagSpec("rope_scaling_factor", "--rope-scale", unless=("--rope-scaling",)),
    FlagSpec("rope_scaling_original_context", "--yarn-orig-ctx", unless=("--rope-scaling",)),
    FlagSpec("parallel_slots", "--parallel", ("-np",)),
    FlagSpec("flash_attention", "--flash-attn", ("-fa",), on="on", gpu=True),
    FlagSpec("jinja", "--jinja"),
    FlagSpec("cache_type_k", "--cache-type-k", ("-ctk",)),
    FlagSpec("cache_type_v", "--cache-type-v", ("-ctv",)),
    FlagSpec("moe_cpu_offload", "--cpu-moe", ("-cmoe",)),
    FlagSpec("moe_cpu_layers", "--n-cpu-moe", ("-ncmoe",)),
    FlagSpec("no_kv_offload", "--no-kv-offload", ("-nkvo",)),
    FlagSpec("tensor_overrides", "--override-tensor", repeats=True),
    FlagSpec("batch_size", "--batch-size", ("-b",)),
    FlagSpec("u_batch_size", "--ubatch-size", ("-ub",)),
    FlagSpec("no_warmup", "--no-warmup"),
    FlagSpec("speculative_decoding_type", "--spec-type"),
    FlagSpec("draft_model", "-md", ("--model-draft", "--spec-draft-model")),
    FlagSpec("speculative_decoding_n_draft_max", "--spec-draft-n-max", ("--draft-max", "--draft", "--draft-n")),
    FlagSpec("speculative_decoding_p_min", "--spec-draft-p-min", ("--draft-p-min",)),
    FlagSpec("reasoning_budget", "--reasoning-budget"),
    FlagSpec("reasoning_budget_message", "--reasoning-budget-message", needs="reasoning_budget"),
    FlagSpec("mmproj", "--mmproj", ("-mm",)),
    FlagSpec("metadata_overrides", "--override-kv", repeats=True),
)
LLAMACPP_SPELLINGS: Spellings = {"speculative_decoding_type": {"mtp": "draft-mtp", "draft": "draft-simple"}}
POOLED: dict[Task, tuple[tuple[str, str], ...]] = {
    "embed": (("--embedding", ""), ("--pooling", "last"), ("--cache-ram", "0")),
    "rerank": (("--reranking", ""), ("--embedding", ""), ("--pooling", "rank"), ("--cache-ram", "0")),
}
"""Task -> llama.cpp's flags for it, as pairs of a flag and its value. The flags disable the prompt cache, which is
useless for texts that are read only once."""
ALL_LAYERS = 99
SPLIT_MODES = {"layer": "layer", "pipeline": "layer", "tensor": "row", "row": "row", "none": "none"}
RANGE = re.compile(r"(\d{1,6})-(\d{1,6})")


def _llamacpp_args(launch: Launch) -> tuple[str, ...]:
    flags = flag_names(launch.extra_args)
    named = {} if isinstance(launch.weights, Unnamed) else llamacpp.model_args(launch)
    model = (word for pair in named.items() for word in pair)
    place = () if "--host" in flags else ("--host", launch.bind)
    alias = () if flags & {"--alias", "-a"} else ("--alias", launch.served_name)
    values = {**_spell(launch.settings, LLAMACPP_SPELLINGS), **_drafted(launch), **_spread(launch)}
    settings = arguments(LLAMACPP_FLAGS, values, launch.extra_args, launch.gpus)
    modes = (pair for task in sorted(launch.tasks) for pair in POOLED.get(task, ()) if pair[0] not in flags)
    mode = (word for pair in modes for word in pair if word)
    metrics = () if "--metrics" in flags else ("--metrics",)
    return (*model, *place, "--port", str(launch.port), *alias, *settings, *mode, *launch.extra_args, *metrics)


def _drafted(launch: Launch) -> dict[str, Value]:
    """Return the setting with the path of the draft model's file. The result is empty without a draft model. Raise
    ValueError if the draft model is not a file."""
    weights = launch.draft.weights if launch.draft else None
    if weights is None:
        return {}
    if not (isinstance(weights, MountedFolder) and weights.model):
        raise ValueError(
            f"{describe_weights(weights)} is not a file: a draft model must be a file from a cache or a claim"
        )
    return {"draft_model": f"{weights.path}/{weights.model}"}


def _spread(launch: Launch) -> dict[str, Value]:
    """Return the settings for the number of layers in GPU memory and, with several GPUs, their distribution over the
    GPUs."""
    layers: dict[str, Value] = {"gpu_layers": launch.gpu_layers or ALL_LAYERS}
    if launch.gpus < 2:
        return layers
    mode = SPLIT_MODES[launch.sharding.strategy]
    layers["split_mode"] = mode
    return layers if mode == "none" else layers | {"tensor_split": tensor_split(launch.sharding, launch.gpus)}


def tensor_split(sharding: Sharding, gpus: int) -> str:
    """Return each GPU's share of the layers in lowest terms, such as ``5,3`` for the ranges ``0-24`` and ``25-39``. The
    shares are equal unless there is one valid range for each GPU."""
    matches = [RANGE.fullmatch(text.strip()) for text in sharding.ranges]
    sizes = [int(one[2]) - int(one[1]) + 1 for one in matches if one]
    if len(matches) != gpus or len(sizes) != gpus or min(sizes) < 1:
        sizes = [1] * gpus
    return ",".join(str(size // math.gcd(*sizes)) for size in sizes)


def _llamacpp_env(launch: Launch) -> dict[str, str]:
    fetched = isinstance(launch.weights, HuggingFaceFile | HubRepository)
    place = {"LLAMA_CACHE": f"{llamacpp.CACHE}/llama.cpp"} if fetched else {}
    hub = environment(launch.hub_mirror, llamacpp.CACHE if fetched else "")
    settings = arguments(LLAMACPP_FLAGS, launch.settings, launch.extra_args, launch.gpus)
    threads = llamacpp.http_threads((*settings, *launch.extra_args))
    return {**hub, **place, "LLAMA_ARG_THREADS_HTTP": str(threads)}


SERVED = "--served-model-name"
VLLM_FLAGS: FlagTable = (
    FlagSpec("parallel_slots", "--max-num-seqs"),
    FlagSpec("tensor_parallel_size", "--tensor-parallel-size", ("-tp",)),
    FlagSpec("max_model_len", "--max-model-len"),
    FlagSpec("quantization", "--quantization", ("-q",)),
    FlagSpec("dtype", "--dtype"),
    FlagSpec("kv_cache_dtype", "--kv-cache-dtype"),
    FlagSpec("enable_prefix_caching", "--enable-prefix-caching", unless=("--no-enable-prefix-caching",)),
    FlagSpec("enable_chunked_prefill", "--enable-chunked-prefill", unless=("--no-enable-chunked-prefill",)),
    FlagSpec("enable_expert_parallel", "--enable-expert-parallel", ("-ep",)),
    FlagSpec("max_num_batched_tokens", "--max-num-batched-tokens"),
    FlagSpec("attention_backend", "--attention-backend"),
    FlagSpec("cpu_offload_gb", "--cpu-offload-gb", gpu=True),
    FlagSpec("gpu_memory_utilization", "--gpu-memory-utilization", gpu=True),
    FlagSpec("speculative", "--speculative-config", ("-sc",)),
)


def _vllm_args(launch: Launch) -> tuple[str, ...]:
    flags = flag_names(launch.extra_args)
    place = () if "--host" in flags else ("--host", launch.bind)
    settings = arguments(VLLM_FLAGS, _vllm_settings(launch), launch.extra_args, launch.gpus)
    settings += ("--enable-lora",) if launch.adapters and "--enable-lora" not in flags else ()
    model = model_of(launch.weights)
    own = (model, *revision_of(launch.weights), *place, "--port", str(launch.port))
    # Direct clients of vLLM use its own name for the model. If there are two lists of names, the last one counts.
    names = (SERVED, launch.served_name, model, *launch.further_names)
    if SERVED in flags:
        return (*own, *settings, *launch.extra_args, *names, *_names(launch))
    return (*own, *names, *settings, *launch.extra_args)


def _names(launch: Launch) -> tuple[str, ...]:
    """Return the model names that the user's arguments set with ``--served-model-name``."""
    names: list[str] = []
    listing = False
    for arg in launch.extra_args:
        flag, equals, value = arg.partition("=")
        if arg.startswith("-"):
            listing = flag.replace("_", "-") == SERVED
            names += [value] if listing and equals else []
        elif listing:
            names.append(arg)
    return tuple(names)


def _vllm_settings(launch: Launch) -> dict[str, Value]:
    """Return vLLM's settings, including those derived from the GPUs and the draft model."""
    parallel = launch.settings.get(ranks.TENSOR, ranks.tensor("vllm", launch))
    settings = {name: value for name, value in launch.settings.items() if name != ranks.TENSOR}
    if parallel not in (0, 1):
        settings[ranks.TENSOR] = parallel
    if launch.draft:
        settings["speculative"] = _speculative(launch.draft)
    return settings


def _speculative(draft: Draft) -> str:
    return json.dumps({"model": model_of(draft.weights), "num_speculative_tokens": draft.tokens})


def _vllm_owned(launch: Launch) -> Owned:
    return {**_address(launch), "--uds": (), "--ssl-certfile": (), "--ssl-keyfile": ()}


SGLANG_FLAGS: FlagTable = (
    FlagSpec("tensor_parallel_size", "--tp-size", ("--tp", "--tensor-parallel-size")),
    FlagSpec("expert_parallel_size", "--ep-size", ("--ep", "--expert-parallel-size")),
    FlagSpec("data_parallel_size", "--dp-size", ("--dp", "--data-parallel-size")),
    FlagSpec("context_size", "--context-length"),
    FlagSpec("mem_fraction_static", "--mem-fraction-static", gpu=True),
    FlagSpec("chunked_prefill_size", "--chunked-prefill-size"),
    FlagSpec("parallel_slots", "--max-running-requests"),
    FlagSpec("quantization", "--quantization"),
    FlagSpec("kv_cache_dtype", "--kv-cache-dtype"),
    FlagSpec("attention_backend", "--attention-backend"),
    FlagSpec("enable_prefix_caching", ""),
    FlagSpec("tool_call_parser", "--tool-call-parser"),
    FlagSpec("reasoning_parser", "--reasoning-parser"),
    FlagSpec("chat_template", "--chat-template"),
    FlagSpec("speculative_algorithm", "--speculative-algorithm"),
    FlagSpec("speculative_draft_model_path", "--speculative-draft-model-path"),
    FlagSpec("speculative_num_steps", "--speculative-num-steps"),
    FlagSpec("speculative_eagle_top_k", "--speculative-eagle-topk"),
    FlagSpec("speculative_num_draft_tokens", "--speculative-num-draft-tokens"),
    FlagSpec("speculative_accept_threshold_single", "--speculative-accept-threshold-single"),
    FlagSpec("speculative_accept_threshold_acc", "--speculative-accept-threshold-acc"),
    FlagSpec("lora_modules", "--lora-paths", listed=True),
    FlagSpec("max_lora_rank", "--max-lora-rank"),
    FlagSpec("lora_target_modules", "--lora-target-modules", listed=True),
    FlagSpec("log_level", "--log-level"),
    FlagSpec("trust_remote_code", "--trust-remote-code"),
    FlagSpec("skip_tokenizer_init", "--skip-tokenizer-init"),
)
RANK, MODULES = "64", "--lora-target-modules"
"""Default maximum rank, which hardly any adapter exceeds, and the flag for the modules that adapters change."""
SGLANG_SPELLINGS: Spellings = {"attention_backend": {"flash_attn": "fa3"}, "tool_call_parser": {"qwen3": "qwen25"}}


def _sglang_args(launch: Launch) -> tuple[str, ...]:
    flags = flag_names(launch.extra_args)
    model = ("--model-path", model_of(launch.weights), *revision_of(launch.weights))
    place = () if "--host" in flags else ("--host", launch.bind)
    name = () if SERVED in flags else (SERVED, launch.served_name)
    parallel: dict[str, Value] = {ranks.TENSOR: size} if (size := ranks.tensor("sglang", launch)) > 1 else {}
    all_settings = {**parallel, **_spell(launch.settings, SGLANG_SPELLINGS)}
    settings = arguments(SGLANG_FLAGS, all_settings, launch.extra_args, launch.gpus)
    settings += _sglang_adapters(launch, flags)
    mode = ("--is-embedding",) if launch.tasks & {"embed", "rerank"} else ()
    switches = (switch for switch in (*mode, "--enable-metrics") if switch not in flags)
    return (*model, *place, "--port", str(launch.port), *name, *settings, *switches, *launch.extra_args)


def _sglang_adapters(launch: Launch, user_flags: Container[str]) -> tuple[str, ...]:
    """Return SGLang's arguments for adapters that are loaded at runtime: ``--enable-lora`` and, unless SGLang loads
    adapters at startup, from which it derives them, defaults for the maximum rank and the changed modules. Flags that
    the user sets are omitted. The result is empty without adapters at runtime."""
    if not launch.adapters:
        return ()
    declared = "--lora-paths" in user_flags or bool(launch.settings.get("lora_modules"))
    guessed = () if declared else (("max_lora_rank", "--max-lora-rank", RANK), ("lora_target_modules", MODULES, "all"))
    flags = ((flag, value) for name, flag, value in guessed if not launch.settings.get(name) and flag not in user_flags)
    enabled = () if "--enable-lora" in user_flags else ("--enable-lora",)
    return (*enabled, *(word for pair in flags for word in pair))


GENERATES = "/health_generate"
"""Path of SGLang that returns 200 only after the engine has generated a token."""


ROUTER = "llamacpp-router"
MODELS = "/models"
"""Mount path of the user's volume with the models that llama.cpp loads on demand."""


def _router_args(launch: Launch) -> tuple[str, ...]:
    flags = flag_names(launch.extra_args)
    models = () if flags & {"--models-dir", "--models-preset"} else ("--models-dir", MODELS)
    place = () if "--host" in flags else ("--host", launch.bind)
    metrics = () if "--metrics" in flags else ("--metrics",)
    return (*models, *place, "--port", str(launch.port), *launch.extra_args, *metrics)


def _sglang_probes() -> Probes:
    usual = SGLANG.probes
    startup, readiness = (replace(probe, path=GENERATES) for probe in (usual.startup, usual.readiness))
    return replace(usual, startup=startup, readiness=readiness)


OWN: tuple[Engine, ...] = (
    replace(LLAMACPP, args=_llamacpp_args, env=_llamacpp_env, owned=_address, flags=LLAMACPP_FLAGS),
    replace(VLLM, command=("vllm", "serve"), args=_vllm_args, owned=_vllm_owned, flags=VLLM_FLAGS),
    replace(SGLANG, args=_sglang_args, owned=_address, flags=SGLANG_FLAGS, probes=_sglang_probes()),
)
"""Engines that LLMKube does not run as their modules define them."""
ENGINES: Mapping[str, Engine] = {
    runtime: next((engine for engine in OWN if engine.name == runtime), None) or engines.ENGINES[runtime]
    for runtime in get_args(Runtime)
    if runtime != ROUTER
} | {ROUTER: replace(LLAMACPP, args=_router_args, env=_llamacpp_env, owned=_address)}
"""``spec.runtime`` -> engine."""


def scaling_metric(engine: Engine) -> str:
    """Return the default metric of a HorizontalPodAutoscaler for an engine. For engines without metrics it is
    llama.cpp's, as in the original."""
    metrics = engine.metrics or Metrics()
    return metrics.scaled_by or metrics.running or "llamacpp:requests_processing"


EVERY_ADDRESS = {"llamacpp": "::", ROUTER: "::", "vllm": "::", "tgi": "::"}
"""Runtime -> address to listen on if ``bindAddress`` is not set. On ``::`` these engines also accept IPv4. SGLang is
not included, because its server uvicorn would then accept only IPv6."""
IMPLIED_MODE = frozenset({"sglang"})
"""Runtimes whose mode also follows from ``extraArgs`` or ``endpoint.path``; for the others only ``spec.mode``
counts."""
