"""PersonaPlex: speech answered with speech, by NVIDIA's edition of Moshi. It speaks WebSockets and TLS, no HTTP that a
probe could ask, and fetches its weights itself."""

from __future__ import annotations

from slipway.artifacts.huggingface import environment
from slipway.artifacts.weights import HubRepository, shown
from slipway.engines.engine import Engine, Launch, tcp_probes
from slipway.engines.llamacpp import LLAMACPP_TUNED
from slipway.engines.python import model_of, revision_of
from slipway.engines.settings import Setting, Table, arguments, flags

SETTINGS: Table = (
    Setting("quantize_4_bit", "--quantize-4bit"),
    Setting("cpu_offload", "--cpu-offload"),
)


def _args(launch: Launch) -> tuple[str, ...]:
    """It listens on every address whatever ``--host`` says. Weights of other kinds than a repository it cannot be told
    of; then it takes its own."""
    weights = launch.weights
    named = isinstance(weights, HubRepository) and "--hf-repo" not in flags(launch.extra_args)
    if named and revision_of(weights):
        raise ValueError(f"PersonaPlex cannot be told the revision of {shown(weights)}: leave it out")
    model = ("--hf-repo", model_of(weights)) if named else ()
    settings = arguments(SETTINGS, launch.settings, launch.extra_args, launch.gpus)
    return ("--ssl", "/app/ssl", "--port", str(launch.port), *model, *settings, *launch.extra_args)


PERSONAPLEX = Engine(
    name="personaplex",
    tasks=frozenset(("generate",)),
    probes=tcp_probes(1800),
    command=("/app/moshi/.venv/bin/python", "-m", "moshi.server"),
    args=_args,
    # Its graphs are compiled for minutes at the start otherwise.
    env=lambda launch: {"NO_TORCH_COMPILE": "1", **environment(launch.hub_mirror)},
    owned=lambda launch: {"--port": (str(launch.port),)},
    settings=SETTINGS,
    port=8998,
    # It has none of its own.
    metric=LLAMACPP_TUNED.metric,
)
