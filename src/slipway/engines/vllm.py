"""vLLM: models in the Hugging Face hub's form, with LoRA adapters that come and go while it runs."""

from __future__ import annotations

from slipway.artifacts.huggingface import environment
from slipway.artifacts.weights import BucketFolder
from slipway.engines.engine import ANYWHERE, Engine, Launch, Owned, http_probes
from slipway.engines.python import model_of


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
