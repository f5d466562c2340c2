"""SGLang: models in the Hugging Face hub's form."""

from __future__ import annotations

from slipway.artifacts.huggingface import environment
from slipway.engines.engine import ANYWHERE, Engine, Launch, Owned, http_probes
from slipway.engines.python import model_of


def _args(launch: Launch) -> tuple[str, ...]:
    model = (f"--model-path={model_of(launch.weights)}", f"--served-model-name={launch.served_name}")
    mode = ("--is-embedding",) if launch.tasks & {"embed", "rerank"} else ()
    return (*model, f"--host={ANYWHERE[0]}", f"--port={launch.port}", *mode, *launch.extra_args)


def _owned(launch: Launch) -> Owned:
    model = (model_of(launch.weights),)
    return {
        "--model-path": model,
        "--model": model,
        "--served-model-name": (launch.served_name,),
        "--host": ANYWHERE,
        "--port": (str(launch.port),),
    }


SGLANG = Engine(
    name="sglang",
    tasks=frozenset(("generate", "embed", "rerank")),
    one_task=True,
    probes=http_probes("/health", 10800),
    command=("python3", "-m", "sglang.launch_server"),
    args=_args,
    env=lambda launch: environment(launch.hub_mirror),
    owned=_owned,
)
