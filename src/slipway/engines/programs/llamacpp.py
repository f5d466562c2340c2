"""llama.cpp's ``llama-server``: GGUF files, downloaded by the engine itself or mounted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from slipway.artifacts.locations.huggingface import HuggingFaceFile, environment
from slipway.artifacts.locations.weights import HubRepository, MountedFolder, describe_weights
from slipway.engines.definition import retired_flags
from slipway.engines.definition.engine import ANYWHERE, Engine, Launch, Metrics, Owned, Program, Task, http_probes
from slipway.engines.definition.gpus import Devices
from slipway.engines.definition.log_patterns import (
    ARGUMENT,
    DOWNLOAD,
    GPU_MEMORY,
    NO_FILE,
    NO_SPACE,
    TOO_LARGE,
    UNREACHABLE,
    UNSUPPORTED,
    log_patterns,
)
from slipway.engines.definition.optional_paths import Switches
from slipway.engines.definition.sealed import Seals

CACHE = "/cache"
SPELLINGS = {"--hf-repo": ("-hf", "-hfr"), "--hf-file": ("-hff",), "--alias": ("-a",), "--model": ("-m",)}
"""Further spellings of the flags that Slipway sets."""
MODES: dict[Task, str] = {"embed": "--embedding", "rerank": "--reranking"}
NO_GPU = "The container cannot open its GPU: the driver is missing, or its user is not in the device's group"
UNREADABLE = "This version of llama.cpp cannot read the model file"
INCOMPLETE = "The model file is incomplete or damaged: copy or download it again"
PARALLEL = ("--parallel", "-np")
SLOTS = re.compile(r"[0-9]{1,4}")
MOST_SLOTS = 256
"""Maximum number of slots of llama.cpp."""
HTTP_THREADS = 128
"""Number of HTTP threads for requests that wait for a slot, for probes and for metrics."""


def http_threads(args: Sequence[str]) -> int:
    """Return the number of HTTP threads that llama-server needs to use every slot in its arguments: ``HTTP_THREADS``,
    plus the number after the last ``--parallel``, of which at most ``MOST_SLOTS`` count.

    llama-server uses a thread for each open request, including waiting requests, and has few threads by default.
    Versions since March 2026 add threads under load, up to 1024 in total. Earlier versions add none.
    """
    slots = [int(word) for flag, word in pairwise(args) if flag in PARALLEL and SLOTS.fullmatch(word)]
    return HTTP_THREADS + min(slots[-1] if slots else 0, MOST_SLOTS)


def _args(launch: Launch) -> tuple[str, ...]:
    model = (word for pair in model_args(launch).items() for word in pair)
    mode = (MODES[task] for task in sorted(launch.tasks) if task in MODES)
    place = ("--host", launch.bind, "--port", str(launch.port))
    return (*place, *model, "--alias", launch.served_name, *mode, *launch.extra_args)


def model_args(launch: Launch) -> dict[str, str]:
    """Return the flags for the location of the model, with their values. Raise ValueError for weights that llama.cpp
    cannot load."""
    weights = launch.weights
    if isinstance(weights, HuggingFaceFile):
        return {"--hf-repo": weights.repository, "--hf-file": weights.file}
    if isinstance(weights, HubRepository):
        if weights.revision:
            raise ValueError(
                f"llama.cpp needs a file for the revision of {describe_weights(weights)}: name the file as well"
            )
        return {"--hf-repo": weights.reference}
    if isinstance(weights, MountedFolder) and weights.model:
        return {"--model": f"{weights.path}/{weights.model}"}
    raise ValueError(f"{describe_weights(weights)} is not a file")


def _owned(launch: Launch) -> Owned:
    owned: dict[str, tuple[str, ...]] = {
        "--host": ANYWHERE,
        "--port": (str(launch.port),),
        "--alias": (launch.served_name,),
        **{flag: (value,) for flag, value in model_args(launch).items()},
    }
    return {spelling: values for flag, values in owned.items() for spelling in (flag, *SPELLINGS.get(flag, ()))}


def _env(launch: Launch) -> dict[str, str]:
    return {
        **environment(launch.hub_mirror, CACHE),
        "LLAMA_CACHE": f"{CACHE}/llama.cpp",
        "LLAMA_ARG_THREADS_HTTP": str(http_threads(launch.extra_args)),
        "LLAMA_ARG_ENDPOINT_METRICS": "1",
    }


COMMON_FLAGS = (
    *("--batch-size", "--cache-prompt", "--cache-ram", "--cache-reuse", "--cache-type-k", "--cache-type-v"),
    *("--chat-template", "--chat-template-file", "--chat-template-kwargs", "--cont-batching", "--cpu-moe"),
    *("--ctx-checkpoints", "--ctx-size", "--embedding", "--fit", "--fit-ctx", "--flash-attn"),
    *("--frequency-penalty", "--gpu-layers", "--jinja", "--keep", "--kv-offload", "--lora", "--lora-scaled"),
    *("--main-gpu", "--min-p", "--mmproj", "--n-cpu-moe", "--n-gpu-layers", "--n-predict", "--numa"),
    *("--override-kv", "--override-tensor", "--parallel", "--pooling", "--presence-penalty", "--reasoning-budget"),
    *("--reasoning-format", "--repeat-penalty", "--rerank", "--reranking", "--rope-freq-base", "--rope-freq-scale"),
    *("--rope-scale", "--rope-scaling", "--seed", "--slot-save-path", "--split-mode", "--swa-full", "--temp"),
    *("--tensor-split", "--threads", "--threads-batch", "--threads-http", "--timeout", "--top-k", "--top-p"),
    *("--ubatch-size", "--yarn-orig-ctx"),
)
"""Flags that messages suggest for a misspelled flag. llama-server itself does not suggest any."""

LOG_PATTERNS = log_patterns(
    (r"GET failed \((?P<status>\d{3})\)", DOWNLOAD, "The repository{repository} cannot be read{hub}"),
    (r"failed with status code: (?P<status>\d{3})", DOWNLOAD, "The model file{file} cannot be downloaded{hub}"),
    (r"status: (?P<status>[45]\d\d)\b", DOWNLOAD, "The model file{file} cannot be downloaded{hub}"),
    (r"Available GGUF files:?(?P<files>(?:\n\W*(?:I\W+)?- .+)*)", DOWNLOAD, ""),
    (r"HTTPLIB failed|failed to download model", DOWNLOAD, UNREACHABLE, True),
    (r"exactly one out metadata, path_model", DOWNLOAD, "The hub returned no model file"),
    (r"No space left on device", DOWNLOAD, NO_SPACE),
    (r"invalid device: (?:ROCm|SYCL|Vulkan|CUDA)\d", "NoGpu", NO_GPU),
    (
        r"invalid argument(?:: (?P<value>\S+))?",
        ARGUMENT,
        "llama-server rejected an argument in the spec",
        False,
        COMMON_FLAGS,
    ),
    (
        r"error while handling (?:argument|environment variable) \"(?P<value>[^\"\n]{1,200})\"",
        ARGUMENT,
        "llama-server rejected the value of an argument",
    ),
    (
        r"cudaMalloc failed|error: out of memory|failed to allocate (?:CUDA|ROCm|Vulkan)\S* buffer",
        GPU_MEMORY,
        TOO_LARGE,
    ),
    (
        r"unknown model architecture|invalid magic|has invalid (?:ggml|GGUF) type|tensor name \d+ is too long",
        UNSUPPORTED,
        UNREADABLE,
    ),
    (r"not within the file bounds|failed to read (?:key-value pairs|tensor)", UNSUPPORTED, INCOMPLETE),
    (r"failed to open GGUF file|No such file or directory", NO_FILE, "The model file is not in the container"),
)

LLAMACPP = Engine(
    name="llamacpp",
    container="llama-server",
    tasks=frozenset(("generate", "embed", "rerank")),
    schemes=frozenset(("hf", "pvc", "oci")),
    reads="file",
    generates_alone=True,
    probes=http_probes("/health", 10800),
    args=_args,
    env=_env,
    owned=_owned,
    owned_env=lambda _launch: {"LLAMA_ARG_API_PREFIX": ("", "/")},
    unreachable_by={"--api-prefix": ("", "/")},
    shared_memory=False,
    cache_path=CACHE,
    log_patterns=LOG_PATTERNS,
    devices=Devices(
        variable="LLAMA_ARG_DEVICE",
        flags=("--device", "-dev", "--rpc", "--list-devices"),
        names={"rocm": "ROCm", "vulkan": "Vulkan", "intel": "SYCL", "sycl": "SYCL"},
    ),
    sealed_by=Seals(
        flags=("--api-key", "--api-key-file", "--ssl-key-file", "--ssl-cert-file"),
        variables=(
            "LLAMA_API_KEY",
            "LLAMA_ARG_API_KEY_FILE",
            "LLAMA_ARG_SSL_KEY_FILE",
            "LLAMA_ARG_SSL_CERT_FILE",
        ),
        clearable_today=("LLAMA_API_KEY", "LLAMA_ARG_SSL_KEY_FILE", "LLAMA_ARG_SSL_CERT_FILE"),
    ),
    port=8080,
    closes_idle=True,
    # One of the HTTP threads answers /health.
    shared_threads=True,
    retired=retired_flags.LLAMACPP,
    older_images=frozenset(("rocm", "intel")),
    images={
        "": "ghcr.io/ggml-org/llama.cpp:server-v0.5.0",
        "cuda": "ghcr.io/ggml-org/llama.cpp:server-cuda-v0.5.0",
        "gh200": "ghcr.io/ggml-org/llama.cpp:server-cuda-v0.5.0",
        "rocm": "ghcr.io/ggml-org/llama.cpp:server-rocm-v0.4.1",
        "vulkan": "ghcr.io/ggml-org/llama.cpp:server-vulkan-v0.5.0",
        "intel": "ghcr.io/ggml-org/llama.cpp:server-intel-b10820",
    },
    paths=(
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/responses",
        "/v1/rerank",
        "/v1/audio/transcriptions",
        "/tokenize",
        "/detokenize",
    ),
    # Without these flags the engine returns 501, which clients retry. A reranker needs its type of pooling.
    optional_paths={
        "/v1/embeddings": Switches(
            flags=frozenset(("--embedding", "--embeddings", "--rerank", "--reranking")),
            variables=frozenset(("LLAMA_ARG_EMBEDDINGS", "LLAMA_ARG_RERANKING")),
        ),
        "/v1/rerank": Switches(
            flags=frozenset(("--rerank", "--reranking", "--pooling")),
            variables=frozenset(("LLAMA_ARG_RERANKING", "LLAMA_ARG_POOLING")),
        ),
    },
    metrics=Metrics(
        running="llamacpp:requests_processing",
        waiting="llamacpp:requests_deferred",
        prompt_tokens="llamacpp:prompt_tokens_total",
        generated_tokens="llamacpp:tokens_predicted_total",
    ),
    program=Program(
        names=("llama-server",),
        image=r"llama\.?cpp|llama-server",
        name_flags=("--alias", "-a"),
        port_variable="LLAMA_ARG_PORT",
        # llama-server takes files without names, and applies all adapters to every response.
        adapters=lambda adapters: tuple(word for path in adapters.values() for word in ("--lora", path)),
    ),
)
