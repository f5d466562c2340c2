"""Text Generation Inference: models in the Hugging Face hub's form. No longer developed, and still in use."""

from __future__ import annotations

from slipway.artifacts.huggingface import environment
from slipway.engines.engine import ANYWHERE, Engine, Launch, Owned, http_probes
from slipway.engines.python import model_of, revision_of
from slipway.engines.settings import Setting, Table, Value, arguments, flags

SETTINGS: Table = (
    Setting("quantize", "--quantize"),
    Setting("max_input_length", "--max-input-length", unless=("--max-input-tokens",)),
    Setting("max_total_tokens", "--max-total-tokens"),
    Setting("dtype", "--dtype"),
    Setting("shards", "--num-shard", unless=("--sharded",)),
)


def _args(launch: Launch) -> tuple[str, ...]:
    model = ("--model-id", model_of(launch.weights), *revision_of(launch.weights))
    place = () if "--hostname" in flags(launch.extra_args) else ("--hostname", launch.bind)
    shards: dict[str, Value] = {"shards": launch.gpus} if launch.gpus > 1 else {}
    settings = arguments(SETTINGS, {**launch.settings, **shards}, launch.extra_args, launch.gpus)
    return (*model, *place, "--port", str(launch.port), *settings, *launch.extra_args)


def _owned(launch: Launch) -> Owned:
    port = (str(launch.port),)
    return {"--hostname": (*ANYWHERE, launch.bind), "--port": port, "-p": port}


TGI = Engine(
    name="tgi",
    tasks=frozenset(("generate",)),
    probes=http_probes("/health", 1800),
    args=_args,
    env=lambda launch: environment(launch.hub_mirror),
    owned=_owned,
    settings=SETTINGS,
    port=80,
    images={
        "": "ghcr.io/huggingface/text-generation-inference:3.3.7",
        "rocm": "ghcr.io/huggingface/text-generation-inference:3.3.7-rocm",
        "intel": "ghcr.io/huggingface/text-generation-inference:3.3.7-intel-xpu",
    },
    metric="tgi_queue_size",
    token="HUGGING_FACE_HUB_TOKEN",  # noqa: S106 - the variable's name
)
