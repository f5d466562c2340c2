"""SGLang: models in the Hugging Face hub's form."""

from __future__ import annotations

import msgspec

from slipway.artifacts.huggingface import environment
from slipway.engines.engine import ANYWHERE, Engine, Launch, Owned, http_probes
from slipway.engines.python import model_of, revision_of
from slipway.engines.settings import Setting, Table, Value, arguments, flags


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

SETTINGS: Table = (
    Setting("tensor_parallel_size", "--tp-size", ("--tp", "--tensor-parallel-size")),
    Setting("context_size", "--context-length"),
    Setting("parallel_slots", "--max-running-requests"),
)


def _tuned_args(launch: Launch) -> tuple[str, ...]:
    given = flags(launch.extra_args)
    model = ("--model-path", model_of(launch.weights), *revision_of(launch.weights))
    place = () if "--host" in given else ("--host", launch.bind)
    name = () if "--served-model-name" in given else ("--served-model-name", launch.served_name)
    parallel: dict[str, Value] = {"tensor_parallel_size": launch.gpus} if launch.gpus > 1 else {}
    settings = arguments(SETTINGS, {**parallel, **launch.settings}, launch.extra_args, launch.gpus)
    wanted = ("--is-embedding",) if launch.tasks & {"embed", "rerank"} else ()
    switches = (switch for switch in (*wanted, "--enable-metrics") if switch not in given)
    return (*model, *place, "--port", str(launch.port), *name, *settings, *switches, *launch.extra_args)


SGLANG_TUNED = msgspec.structs.replace(
    SGLANG,
    probes=http_probes("/health", 1800),
    args=_tuned_args,
    owned=lambda launch: {"--host": (*ANYWHERE, launch.bind), "--port": (str(launch.port),)},
    settings=SETTINGS,
    port=30000,
    images={"": "lmsysorg/sglang:v0.5.15.post1-cu129", "rocm": "lmsysorg/sglang:v0.5.15-rocm720-mi30x"},
    metric="sglang:num_running_reqs",
)
"""The same with typed settings."""
