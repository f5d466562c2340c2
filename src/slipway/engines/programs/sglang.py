"""SGLang: models in the Hugging Face Hub's layout."""

from __future__ import annotations

from slipway.artifacts.locations.huggingface import environment
from slipway.artifacts.locations.weights import BucketFolder
from slipway.engines.definition import retired_flags
from slipway.engines.definition.engine import ANYWHERE, Engine, Launch, Metrics, Owned, Program, http_probes
from slipway.engines.definition.python import adapter_pairs, model_of
from slipway.engines.definition.sealed import Seals
from slipway.serving.routing.paths import SESSION, all_but


def _args(launch: Launch) -> tuple[str, ...]:
    model = (f"--model-path={model_of(launch.weights)}", f"--served-model-name={launch.served_name}")
    streamed = ("--load-format=runai_streamer",) if isinstance(launch.weights, BucketFolder) else ()
    mode = ("--is-embedding",) if launch.tasks & {"embed", "rerank"} else ()
    return (*model, *streamed, f"--host={launch.bind}", f"--port={launch.port}", *mode, *launch.extra_args)


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
    container="sglang",
    tasks=frozenset(("generate", "embed", "rerank")),
    schemes=frozenset(("hf", "pvc", "oci", "s3")),
    generates_alone=True,
    probes=http_probes("/health", 10800),
    command=("python3", "-m", "sglang.launch_server"),
    args=_args,
    env=lambda launch: environment(launch.hub_mirror),
    owned=_owned,
    unreachable_by={"--grpc-mode": (), "--smg-grpc-mode": ()},
    sealed_by=Seals(flags=("--api-key", "--ssl-certfile", "--ssl-keyfile")),
    port=30000,
    closes_idle=True,
    one_family=True,
    retired=retired_flags.SGLANG,
    abbreviates=True,
    images={"": "lmsysorg/sglang:v0.5.23", "rocm": "lmsysorg/sglang:v0.5.23-rocm720-mi30x"},
    paths=all_but("/v1/moderations", "/v1/images/variations", "/v2/rerank", "/v2/embed", SESSION),
    metrics=Metrics(
        running="sglang:num_running_reqs",
        waiting="sglang:num_queue_reqs",
        prompt_tokens="sglang:prompt_tokens_total",
        generated_tokens="sglang:generation_tokens_total",
        cache_usage=("sglang:token_usage",),
        ttft_seconds="sglang:time_to_first_token_seconds",
        request_seconds="sglang:e2e_request_latency_seconds",
    ),
    program=Program(
        modules=("sglang",),
        names=("sglang",),
        subcommand="serve",
        image=r"(?:.*[-_.])?sglang(?:[-_.].*)?",
        name_flags=("--served-model-name",),
        adapters=lambda adapters: ("--lora-paths", *adapter_pairs(adapters)),
    ),
)
