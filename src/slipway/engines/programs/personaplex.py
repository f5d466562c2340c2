"""PersonaPlex: NVIDIA's edition of Moshi, a speech-to-speech model. The server uses WebSockets and TLS, has no HTTP
endpoint for a probe, and downloads its weights itself."""

from __future__ import annotations

from slipway.artifacts.locations.huggingface import environment
from slipway.artifacts.locations.weights import HubRepository, describe_weights
from slipway.engines.definition.engine import Engine, Launch, tcp_probes
from slipway.engines.definition.flags import FlagSpec, FlagTable, arguments, flag_names
from slipway.engines.definition.python import model_of, revision_of

FLAGS: FlagTable = (
    FlagSpec("quantize_4_bit", "--quantize-4bit"),
    FlagSpec("cpu_offload", "--cpu-offload"),
)


def _args(launch: Launch) -> tuple[str, ...]:
    """Return the arguments of PersonaPlex. The engine listens on every address regardless of ``--host``. It only
    accepts a repository as weights, and otherwise uses its default weights. Raise ValueError for a revision of the
    repository, unless the user's arguments name a repository."""
    weights = launch.weights
    named = isinstance(weights, HubRepository) and "--hf-repo" not in flag_names(launch.extra_args)
    if named and revision_of(weights):
        raise ValueError(f"PersonaPlex does not support the revision in {describe_weights(weights)}: remove it")
    model = ("--hf-repo", model_of(weights)) if named else ()
    settings = arguments(FLAGS, launch.settings, launch.extra_args, launch.gpus)
    return ("--ssl", "/app/ssl", "--port", str(launch.port), *model, *settings, *launch.extra_args)


PERSONAPLEX = Engine(
    name="personaplex",
    container="personaplex",
    tasks=frozenset(("generate",)),
    schemes=frozenset(("hf",)),
    probes=tcp_probes(1800),
    command=("/app/moshi/.venv/bin/python", "-m", "moshi.server"),
    args=_args,
    # Without this variable, PersonaPlex compiles its graphs for minutes at startup.
    env=lambda launch: {"NO_TORCH_COMPILE": "1", **environment(launch.hub_mirror)},
    owned=lambda launch: {"--port": (str(launch.port),)},
    flags=FLAGS,
    port=8998,
)
