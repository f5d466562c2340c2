"""vLLM: models in the Hugging Face hub's form, with LoRA adapters that come and go while it runs."""

from __future__ import annotations

import json

import msgspec

from slipway.artifacts.huggingface import environment
from slipway.artifacts.weights import BucketFolder
from slipway.engines.engine import ANYWHERE, Draft, Engine, Launch, Owned, http_probes
from slipway.engines.python import model_of, revision_of
from slipway.engines.settings import Setting, Table, Value, arguments, flags


def _args(launch: Launch) -> tuple[str, ...]:
    own = (f"--model={model_of(launch.weights)}", f"--served-model-name={launch.served_name}")
    streamed = ("--load-format=runai_streamer",) if isinstance(launch.weights, BucketFolder) else ()
    return (*own, *streamed, *launch.extra_args, *(("--enable-lora",) if launch.adapters else ()))


def _owned(launch: Launch) -> Owned:
    return {
        "--model": (model_of(launch.weights),),
        "--served-model-name": (launch.served_name,),
        "--host": ANYWHERE,
        "--port": (str(launch.port),),
        # With these it no longer answers plain HTTP on its port.
        "--uds": (),
        "--ssl-certfile": (),
        "--ssl-keyfile": (),
    }


def _env(launch: Launch) -> dict[str, str]:
    loading = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"} if launch.adapters else {}
    return {**environment(launch.hub_mirror), **loading}


VLLM = Engine(
    name="vllm",
    tasks=frozenset(("generate", "embed", "rerank", "transcribe")),
    probes=http_probes("/health", 10800),
    command=("python3", "-m", "vllm.entrypoints.openai.api_server"),
    args=_args,
    env=_env,
    owned=_owned,
    adapters=True,
)

SERVED = "--served-model-name"
SETTINGS: Table = (
    Setting("parallel_slots", "--max-num-seqs"),
    Setting("tensor_parallel_size", "--tensor-parallel-size", ("-tp",)),
    Setting("max_model_len", "--max-model-len"),
    Setting("quantization", "--quantization", ("-q",)),
    Setting("dtype", "--dtype"),
    Setting("kv_cache_dtype", "--kv-cache-dtype"),
    Setting("enable_prefix_caching", "--enable-prefix-caching", unless=("--no-enable-prefix-caching",)),
    Setting("enable_chunked_prefill", "--enable-chunked-prefill", unless=("--no-enable-chunked-prefill",)),
    Setting("enable_expert_parallel", "--enable-expert-parallel", ("-ep",)),
    Setting("max_num_batched_tokens", "--max-num-batched-tokens"),
    Setting("attention_backend", "--attention-backend"),
    Setting("cpu_offload_gb", "--cpu-offload-gb", gpu=True),
    Setting("gpu_memory_utilization", "--gpu-memory-utilization", gpu=True),
    Setting("speculative", "--speculative-config", ("-sc",)),
)


def _tuned_args(launch: Launch) -> tuple[str, ...]:
    given = flags(launch.extra_args)
    place = () if "--host" in given else ("--host", launch.bind)
    settings = arguments(SETTINGS, _settings(launch), launch.extra_args, launch.gpus)
    model = model_of(launch.weights)
    own = (model, *revision_of(launch.weights), *place, "--port", str(launch.port))
    # What vLLM itself would call it is in use with those who ask it directly. Of two lists of names the last counts.
    names = (SERVED, launch.served_name, model)
    if SERVED in given:
        return (*own, *settings, *launch.extra_args, *names, *_names(launch))
    return (*own, *names, *settings, *launch.extra_args)


def _names(launch: Launch) -> tuple[str, ...]:
    """Those that the user's arguments give the model."""
    found: list[str] = []
    listing = False
    for arg in launch.extra_args:
        flag, equals, value = arg.partition("=")
        if arg.startswith("-"):
            listing = flag.replace("_", "-") == SERVED
            found += [value] if listing and equals else []
        elif listing:
            found.append(arg)
    return tuple(found)


def _settings(launch: Launch) -> dict[str, Value]:
    """With what follows from the GPUs and the draft model."""
    parallel = launch.settings.get("tensor_parallel_size", launch.gpus)
    found = {name: value for name, value in launch.settings.items() if name != "tensor_parallel_size"}
    if parallel not in (0, 1):
        found["tensor_parallel_size"] = parallel
    if launch.draft:
        found["speculative"] = _speculative(launch.draft)
    return found


def _speculative(draft: Draft) -> str:
    return json.dumps({"model": model_of(draft.weights), "num_speculative_tokens": draft.tokens})


def _tuned_owned(launch: Launch) -> Owned:
    return {
        "--host": (*ANYWHERE, launch.bind),
        "--port": (str(launch.port),),
        "--uds": (),
        "--ssl-certfile": (),
        "--ssl-keyfile": (),
    }


VLLM_TUNED = msgspec.structs.replace(
    VLLM,
    probes=http_probes("/health", 1800),
    command=("vllm", "serve"),
    args=_tuned_args,
    owned=_tuned_owned,
    settings=SETTINGS,
    images={"": "vllm/vllm-openai:v0.20.0", "rocm": "vllm/vllm-openai-rocm:v0.20.0"},
    metric="vllm:num_requests_running",
)
"""The same with typed settings."""
