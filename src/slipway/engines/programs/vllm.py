"""vLLM: models in the Hugging Face Hub's layout, with LoRA adapters that are loaded at runtime."""

from __future__ import annotations

from slipway.artifacts.locations.huggingface import environment
from slipway.artifacts.locations.weights import BucketFolder
from slipway.engines.definition import retired_flags
from slipway.engines.definition.engine import ANYWHERE, Engine, Launch, Metrics, Owned, Program, http_probes
from slipway.engines.definition.log_patterns import ARGUMENT, NO_FILE, UNSUPPORTED, log_patterns
from slipway.engines.definition.python import ABSENT, PYTHON, UNKNOWN, adapter_pairs, model_of
from slipway.engines.definition.sealed import Seals
from slipway.serving.routing.paths import all_but

UNFIT = "An engine argument is not compatible with this model, or with this version of the engine"
NO_CONFIG = "The model's directory or repository does not exist, or has no config.json"
# Kubernetes keeps the last 2048 bytes, but the list of all supported architectures is longer.
PATTERNS = log_patterns(
    (r"(?:'\w+', ){20}.*\]\) \[type=value_error", UNSUPPORTED, UNKNOWN),
    (r"Unknown (?:quantization method|attention backend)|Load format .* is not supported", ARGUMENT, UNFIT),
    (r"Cannot find the config file for|User-specified max_model_len", ARGUMENT, UNFIT),
    (r"is not supported on current platform", ARGUMENT, UNFIT),
    (r"Invalid repository ID or local directory specified", NO_FILE, NO_CONFIG),
    (r"appears path-like, but doesn't exist", NO_FILE, ABSENT),
)

"""Patterns for messages of vLLM itself, as in version 0.32.0, in addition to those of its libraries. The first match
counts."""
PORT = 8000
"""Default port of vLLM."""


def _args(launch: Launch) -> tuple[str, ...]:
    own = (f"--model={model_of(launch.weights)}", f"--served-model-name={launch.served_name}")
    # By default, vLLM listens on every IPv4 address.
    host = (f"--host={launch.bind}",) if launch.bind == ANYWHERE[1] else ()
    place = host if launch.port == PORT else (*host, f"--port={launch.port}")
    streamed = ("--load-format=runai_streamer",) if isinstance(launch.weights, BucketFolder) else ()
    return (*own, *place, *streamed, *launch.extra_args, *(("--enable-lora",) if launch.adapters else ()))


def _owned(launch: Launch) -> Owned:
    return {
        "--model": (model_of(launch.weights),),
        "--served-model-name": (launch.served_name,),
        "--host": ANYWHERE,
        "--port": (str(launch.port),),
        # With these flags, vLLM does not accept plain HTTP on its port.
        "--ssl-certfile": (),
        "--ssl-keyfile": (),
    }


def _env(launch: Launch) -> dict[str, str]:
    loading = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"} if launch.adapters else {}
    return {**environment(launch.hub_mirror), **loading}


VLLM = Engine(
    name="vllm",
    container="vllm",
    tasks=frozenset(("generate", "embed", "rerank", "transcribe")),
    schemes=frozenset(("hf", "pvc", "oci", "s3")),
    probes=http_probes("/health", 10800),
    command=("python3", "-m", "vllm.entrypoints.openai.api_server"),
    args=_args,
    env=_env,
    owned=_owned,
    unreachable_by={"--grpc": (), "--headless": (), "--uds": ("",)},
    log_patterns=PYTHON + PATTERNS,
    adapters=True,
    sealed_by=Seals(
        flags=("--api-key", "--ssl-certfile", "--ssl-keyfile"),
        variables=("VLLM_API_KEY",),
        clearable=("VLLM_API_KEY",),
    ),
    port=PORT,
    closes_idle=True,
    retired=retired_flags.VLLM,
    abbreviates=True,
    older_images=frozenset(("tpu",)),
    images={
        "": "vllm/vllm-openai:v0.33.0",
        "cpu": "public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:v0.33.0",
        "rocm": "vllm/vllm-openai-rocm:v0.33.0",
        "tpu": "vllm/vllm-tpu:23194d83e8f2a6783b0d8c275f5f8a22faab9aec",
    },
    paths=all_but("/v1/moderations", "/v1/images/variations"),
    metrics=Metrics(
        running="vllm:num_requests_running",
        waiting="vllm:num_requests_waiting",
        prompt_tokens="vllm:prompt_tokens_total",
        generated_tokens="vllm:generation_tokens_total",
        cache_usage=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        ttft_seconds="vllm:time_to_first_token_seconds",
        request_seconds="vllm:e2e_request_latency_seconds",
    ),
    program=Program(
        modules=("vllm",),
        names=("vllm",),
        subcommand="serve",
        image=r"(?:.*[-_.])?vllm(?:[-_.].*)?",
        name_flags=("--served-model-name",),
        several_names=True,
        adapters=lambda adapters: ("--enable-lora", "--lora-modules", *adapter_pairs(adapters)),
    ),
)
