"""llama.cpp's ``llama-server``: GGUF files, downloaded by the engine itself or mounted."""

from __future__ import annotations

import math
import re

import msgspec

from slipway.artifacts.huggingface import HuggingFaceFile, environment
from slipway.artifacts.weights import HubRepository, MountedFolder, Unnamed, shown
from slipway.engines.engine import ANYWHERE, Engine, Launch, Owned, Sharding, Task, http_probes
from slipway.engines.sayings import (
    ARGUMENT,
    DOWNLOAD,
    GPU_MEMORY,
    NO_FILE,
    NO_SPACE,
    TOO_LARGE,
    UNREACHABLE,
    UNSUPPORTED,
    sayings,
)
from slipway.engines.settings import Setting, Table, Value, arguments, flags

CACHE = "/cache"
SPELLINGS = {"--hf-repo": ("-hf", "-hfr"), "--hf-file": ("-hff",), "--alias": ("-a",), "--model": ("-m",)}
"""Further names of the flags that slipway decides."""
MODES: dict[Task, str] = {"embed": "--embedding", "rerank": "--reranking"}
HTTP_THREADS = 128
"""llama-server gives each open request a thread and has few by default; with all of them taken ``/health`` waits, and a
busy model looks like a dead one."""


def _args(launch: Launch) -> tuple[str, ...]:
    model = (word for pair in _model(launch).items() for word in pair)
    mode = (MODES[task] for task in sorted(launch.tasks) if task in MODES)
    place = ("--host", ANYWHERE[0], "--port", str(launch.port))
    return (*place, *model, "--alias", launch.served_name, *mode, *launch.extra_args)


def _model(launch: Launch) -> dict[str, str]:
    weights = launch.weights
    if isinstance(weights, HuggingFaceFile):
        return {"--hf-repo": weights.repository, "--hf-file": weights.file}
    if isinstance(weights, HubRepository):
        if weights.revision:
            raise ValueError(f"llama.cpp cannot be told the revision of {shown(weights)}: name the file in it as well")
        return {"--hf-repo": weights.reference}
    if isinstance(weights, MountedFolder) and weights.model:
        return {"--model": f"{weights.path}/{weights.model}"}
    raise ValueError(f"{shown(weights)}: that is no file")


def _owned(launch: Launch) -> Owned:
    owned: dict[str, tuple[str, ...]] = {
        "--host": ANYWHERE,
        "--port": (str(launch.port),),
        "--alias": (launch.served_name,),
        **{flag: (value,) for flag, value in _model(launch).items()},
    }
    return {spelling: values for flag, values in owned.items() for spelling in (flag, *SPELLINGS.get(flag, ()))}


def _env(launch: Launch) -> dict[str, str]:
    return {
        **environment(launch.hub_mirror, CACHE),
        "LLAMA_CACHE": f"{CACHE}/llama.cpp",
        "LLAMA_ARG_THREADS_HTTP": str(HTTP_THREADS),
        "LLAMA_ARG_ENDPOINT_METRICS": "1",
    }


SAYINGS = sayings(
    (r"GET failed \((?P<status>\d{3})\)", DOWNLOAD, "The repository cannot be read"),
    (r"failed with status code: (?P<status>\d{3})", DOWNLOAD, "The model file cannot be downloaded"),
    (r"status: (?P<status>[45]\d\d)\b", DOWNLOAD, "The model file cannot be downloaded"),
    (r"Available GGUF files", DOWNLOAD, "The repository has no file of that name; the log lists those that it has"),
    (r"HTTPLIB failed|failed to download model", DOWNLOAD, UNREACHABLE, True),
    (r"exactly one out metadata, path_model", DOWNLOAD, "The hub gave no model file"),
    (r"No space left on device", DOWNLOAD, NO_SPACE),
    (r"invalid argument", ARGUMENT, "llama-server does not take one of the arguments in the spec"),
    (
        r"cudaMalloc failed|error: out of memory|failed to allocate (?:CUDA|ROCm|Vulkan)\S* buffer",
        GPU_MEMORY,
        TOO_LARGE,
    ),
    (r"unknown model architecture|invalid magic", UNSUPPORTED, "This llama.cpp cannot read the model file"),
    (r"failed to open GGUF file|No such file or directory", NO_FILE, "The model file is not in the container"),
)

LLAMACPP = Engine(
    name="llamacpp",
    tasks=frozenset(("generate", "embed", "rerank")),
    one_task=True,
    probes=http_probes("/health", 10800),
    args=_args,
    env=_env,
    owned=_owned,
    shared_memory=False,
    cache_path=CACHE,
    sayings=SAYINGS,
)

SETTINGS: Table = (
    Setting("gpu_layers", "--n-gpu-layers", ("-ngl", "--gpu-layers"), gpu=True),
    Setting("split_mode", "--split-mode", ("-sm",), gpu=True),
    Setting("tensor_split", "--tensor-split", ("-ts",), gpu=True),
    Setting("context_size", "--ctx-size", ("-c",)),
    Setting("rope_scaling", "--rope-scaling"),
    Setting("rope_scale", "--rope-scale", unless=("--rope-scaling",)),
    Setting("rope_original_context", "--yarn-orig-ctx", unless=("--rope-scaling",)),
    Setting("parallel_slots", "--parallel", ("-np",)),
    Setting("flash_attention", "--flash-attn", ("-fa",), on="on", gpu=True),
    Setting("jinja", "--jinja"),
    Setting("cache_type_k", "--cache-type-k", ("-ctk",)),
    Setting("cache_type_v", "--cache-type-v", ("-ctv",)),
    Setting("moe_cpu_offload", "--cpu-moe", ("-cmoe",)),
    Setting("moe_cpu_layers", "--n-cpu-moe", ("-ncmoe",)),
    Setting("no_kv_offload", "--no-kv-offload", ("-nkvo",)),
    Setting("tensor_overrides", "--override-tensor", repeats=True),
    Setting("batch_size", "--batch-size", ("-b",)),
    Setting("ubatch_size", "--ubatch-size", ("-ub",)),
    Setting("no_warmup", "--no-warmup"),
    Setting("reasoning_budget", "--reasoning-budget"),
    Setting("reasoning_budget_message", "--reasoning-budget-message", needs="reasoning_budget"),
    Setting("mmproj", "--mmproj", ("-mm",)),
    Setting("metadata_overrides", "--override-kv", repeats=True),
)
POOLED: dict[Task, tuple[tuple[str, str], ...]] = {
    "embed": (("--embedding", ""), ("--pooling", "last"), ("--cache-ram", "0")),
    "rerank": (("--reranking", ""), ("--embedding", ""), ("--pooling", "rank"), ("--cache-ram", "0")),
}
"""What each mode sets. A cache of prompts is of no use to texts that are read once."""
ALL_LAYERS = 99
SPLIT_MODES = {"layer": "layer", "pipeline": "layer", "tensor": "row", "row": "row", "none": "none"}
RANGE = re.compile(r"(\d{1,6})-(\d{1,6})")


def _tuned_args(launch: Launch) -> tuple[str, ...]:
    given = flags(launch.extra_args)
    model = () if isinstance(launch.weights, Unnamed) else (word for pair in _model(launch).items() for word in pair)
    place = () if "--host" in given else ("--host", launch.bind)
    alias = () if given & {"--alias", "-a"} else ("--alias", launch.served_name)
    settings = arguments(SETTINGS, {**launch.settings, **_spread(launch)}, launch.extra_args, launch.gpus)
    modes = (pair for task in sorted(launch.tasks) for pair in POOLED.get(task, ()) if pair[0] not in given)
    mode = (word for pair in modes for word in pair if word)
    metrics = () if "--metrics" in given else ("--metrics",)
    return (*model, *place, "--port", str(launch.port), *alias, *settings, *mode, *launch.extra_args, *metrics)


def _spread(launch: Launch) -> dict[str, Value]:
    """Where the layers are."""
    layers: dict[str, Value] = {"gpu_layers": launch.gpu_layers or ALL_LAYERS}
    if launch.gpus < 2:
        return layers
    mode = SPLIT_MODES[launch.sharding.strategy]
    layers["split_mode"] = mode
    return layers if mode == "none" else layers | {"tensor_split": tensor_split(launch.sharding, launch.gpus)}


def tensor_split(sharding: Sharding, gpus: int) -> str:
    """Each GPU's share: that of its layers in lowest terms, ``5,3`` of ``0-24`` and ``25-39``. The same for all where
    there is not one range that makes sense for each GPU."""
    found = [RANGE.fullmatch(text.strip()) for text in sharding.ranges]
    sizes = [int(one[2]) - int(one[1]) + 1 for one in found if one]
    if len(found) != gpus or len(sizes) != gpus or min(sizes) < 1:
        sizes = [1] * gpus
    return ",".join(str(size // math.gcd(*sizes)) for size in sizes)


def _tuned_env(launch: Launch) -> dict[str, str]:
    fetched = isinstance(launch.weights, HuggingFaceFile | HubRepository)
    place = {"LLAMA_CACHE": f"{CACHE}/llama.cpp"} if fetched else {}
    hub = environment(launch.hub_mirror, CACHE if fetched else "")
    return {**hub, **place, "LLAMA_ARG_THREADS_HTTP": str(HTTP_THREADS)}


def _tuned_owned(launch: Launch) -> Owned:
    return {"--host": (*ANYWHERE, launch.bind), "--port": (str(launch.port),)}


LLAMACPP_TUNED = msgspec.structs.replace(
    LLAMACPP,
    probes=http_probes("/health", 1800),
    args=_tuned_args,
    env=_tuned_env,
    owned=_tuned_owned,
    settings=SETTINGS,
    port=8080,
    images={
        "": "ghcr.io/ggml-org/llama.cpp:server-v0.5.0",
        "cuda": "ghcr.io/ggml-org/llama.cpp:server-cuda-v0.5.0",
        "rocm": "ghcr.io/ggml-org/llama.cpp:server-rocm-v0.4.1",
        "vulkan": "ghcr.io/ggml-org/llama.cpp:server-vulkan-v0.5.0",
        "intel": "ghcr.io/ggml-org/llama.cpp:server-intel-b10820",
    },
    metric="llamacpp:requests_processing",
)
"""The same with typed settings."""
