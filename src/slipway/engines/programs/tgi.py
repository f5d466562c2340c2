"""Text Generation Inference: models in the Hugging Face Hub's layout. The engine is no longer developed, but still in
use."""

from __future__ import annotations

from slipway.artifacts.locations.huggingface import environment
from slipway.engines.definition.engine import ANYWHERE, Engine, Launch, Metrics, Owned, Program, http_probes
from slipway.engines.definition.flags import FlagSpec, FlagTable, Value, arguments, flag_names
from slipway.engines.definition.python import adapter_pairs, model_of, revision_of
from slipway.engines.definition.sealed import Seals

MODEL_ID = "--model-id"
FLAGS: FlagTable = (
    FlagSpec("quantize", "--quantize"),
    FlagSpec("max_input_length", "--max-input-length", unless=("--max-input-tokens",)),
    FlagSpec("max_total_tokens", "--max-total-tokens"),
    FlagSpec("dtype", "--dtype"),
    FlagSpec("shards", "--num-shard", unless=("--sharded",)),
)


def _args(launch: Launch) -> tuple[str, ...]:
    flags = flag_names(launch.extra_args)
    model = () if MODEL_ID in flags else (MODEL_ID, model_of(launch.weights), *revision_of(launch.weights))
    place = () if "--hostname" in flags else ("--hostname", launch.bind)
    shards: dict[str, Value] = {"shards": launch.gpus} if launch.gpus > 1 else {}
    settings = arguments(FLAGS, {**launch.settings, **shards}, launch.extra_args, launch.gpus)
    return (*model, *place, "--port", str(launch.port), *settings, *launch.extra_args)


def _owned(launch: Launch) -> Owned:
    port = (str(launch.port),)
    return {"--hostname": (*ANYWHERE, launch.bind), "--port": port, "-p": port}


TGI = Engine(
    name="tgi",
    container="tgi",
    tasks=frozenset(("generate",)),
    schemes=frozenset(("hf", "pvc", "oci")),
    probes=http_probes("/health", 1800),
    args=_args,
    env=lambda launch: environment(launch.hub_mirror),
    owned=_owned,
    flags=FLAGS,
    sealed_by=Seals(flags=("--api-key",), variables=("API_KEY",)),
    port=80,
    images={
        "": "ghcr.io/huggingface/text-generation-inference:3.3.7",
        "rocm": "ghcr.io/huggingface/text-generation-inference:3.3.7-rocm",
        "intel": "ghcr.io/huggingface/text-generation-inference:3.3.7-intel-xpu",
    },
    paths=("/v1/chat/completions", "/v1/completions", "/tokenize"),
    metrics=Metrics(
        running="tgi_batch_current_size",
        waiting="tgi_queue_size",
        prompt_tokens="tgi_request_input_length_sum",
        generated_tokens="tgi_request_generated_tokens_sum",
        request_seconds="tgi_request_duration",
        scaled_by="tgi_queue_size",
    ),
    token="HUGGING_FACE_HUB_TOKEN",  # noqa: S106 - the variable's name
    program=Program(
        names=("text-generation-launcher", "text-generation-server"),
        image=r"text-generation-inference",
        port_flags=("--port", "-p"),
        port_variable="PORT",
        adapters=lambda adapters: ("--lora-adapters", ",".join(adapter_pairs(adapters))),
    ),
)
