"""Ollama: models from its own registry, other registries, or a mounted store. Ollama starts without a model, and a
command loads the model."""

from __future__ import annotations

import shlex

from slipway.artifacts.locations.weights import MountedFolder, OllamaModel, describe_weights
from slipway.engines.definition.engine import Engine, Launch, Program
from slipway.engines.definition.log_patterns import (
    ARGUMENT,
    DOWNLOAD,
    NO_FILE,
    NO_SPACE,
    UNKNOWN_ARGUMENT,
    log_patterns,
)
from slipway.serving.pods.server import Probe, Probes

PROGRAM = "/bin/ollama"
LAST_WORDS = "/dev/termination-log"
"""Termination log of a container. Kubernetes copies the content of this file to the pod's status when the container
exits."""
START_SECONDS = 10800


def _start(launch: Launch) -> tuple[str, ...]:
    """Return a command that downloads the model, unless it is in the image or a mounted store, and copies it to its
    served name. If the model generates text, the command also loads it into memory. Raise ValueError for weights that
    are not an Ollama model.

    After a failure, the command writes its last output to the termination log, because a probe's output is not in the
    container's log. It removes the progress bar's characters, which a status cannot contain.
    """
    weights, name = launch.weights, shlex.quote(launch.served_name)
    steps = []
    if isinstance(weights, OllamaModel) and weights.pull:
        insecure = " --insecure" if weights.insecure else ""
        steps.append(f"{PROGRAM} pull{insecure} {shlex.quote(weights.reference)}")
    steps.append(f"{PROGRAM} cp {shlex.quote(_own_name(launch))} {name}")
    if "generate" in launch.tasks:
        steps.append(f"{PROGRAM} run {name} hi")
    script = " && ".join(steps)
    log = rf"2>&1 | tail -c 1000 | tr -cd '\11\12\40-\176' > {LAST_WORDS} && : > {LAST_WORDS}"
    return ("bash", "-c", f"set -o pipefail; {{ {script}; }} {log}")


def _own_name(launch: Launch) -> str:
    """Return the model's name in Ollama. Raise ValueError for weights that are not an Ollama model."""
    if isinstance(launch.weights, OllamaModel):
        return launch.weights.reference
    if isinstance(launch.weights, MountedFolder) and launch.weights.model:
        return launch.weights.model
    raise ValueError(f"{describe_weights(launch.weights)} is not an Ollama model")


def _env(launch: Launch) -> dict[str, str]:
    store = {"OLLAMA_MODELS": launch.weights.path} if isinstance(launch.weights, MountedFolder) else {}
    host = f"[{launch.bind}]" if ":" in launch.bind else launch.bind
    return {"OLLAMA_HOST": f"{host}:{launch.port}", "OLLAMA_KEEP_ALIVE": "999999h", **store}


LOG_PATTERNS = log_patterns(
    (r"pull model manifest: file does not exist", DOWNLOAD, "The registry has no such model: check spec.url"),
    (
        r"server gave HTTP response to HTTPS client|certificate signed by unknown authority",
        DOWNLOAD,
        "The registry has no certificate that Ollama trusts: add ?insecure=true to spec.url",
    ),
    (r"pull model manifest: .*(?:unauthorized|denied|40[13])", DOWNLOAD, "The registry denied access to the model"),
    (r"no space left on device", DOWNLOAD, NO_SPACE),
    (
        r"pull model manifest|max retries exceeded|dial tcp|i/o timeout|no such host|unexpected EOF",
        DOWNLOAD,
        "The registry cannot be reached from the pod",
        True,
    ),
    (r"requires more system memory", "OOMKilled", "The model needs more memory than its resource profile provides"),
    (r"model .* not found", NO_FILE, "Ollama has no model with this name: check spec.url"),
    (r"unknown (?:command|flag|shorthand flag)", ARGUMENT, UNKNOWN_ARGUMENT),
)

OLLAMA = Engine(
    name="ollama",
    container="ollama",
    tasks=frozenset(("generate", "embed")),
    schemes=frozenset(("ollama", "pvc")),
    reads="store",
    probes=Probes(
        startup=Probe(initial_delay=1, period=3, timeout=START_SECONDS, failures=10),
        readiness=Probe(path="/", period=10, timeout=2, failures=3),
        liveness=Probe(path="/", initial_delay=900, period=30, timeout=3, failures=3),
    ),
    args=lambda launch: launch.extra_args,
    env=_env,
    owned_env=lambda launch: {"OLLAMA_HOST": (_env(launch)["OLLAMA_HOST"],)},
    start=_start,
    log_patterns=LOG_PATTERNS,
    port=11434,
    paths=(
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/responses",
        "/v1/messages",
        "/v1/images/generations",
        "/v1/images/edits",
        "/v1/audio/transcriptions",
    ),
    images={"": "ollama/ollama:0.17.4", "rocm": "ollama/ollama:0.17.4-rocm"},
    program=Program(names=("ollama",), subcommand="serve", image=r"ollama", port_variable="OLLAMA_HOST"),
)
