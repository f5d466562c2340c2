"""Generic: any image that listens on a port. Its arguments are only those of the user."""

from __future__ import annotations

from slipway.artifacts.locations.huggingface import environment
from slipway.engines.definition.engine import Engine, Metrics, tcp_probes

GENERIC = Engine(
    name="generic",
    container="inference-server",
    tasks=frozenset(("generate", "embed", "rerank", "transcribe")),
    schemes=frozenset(("hf", "pvc", "oci")),
    probes=tcp_probes(1800),
    args=lambda launch: launch.extra_args,
    env=lambda launch: environment(launch.hub_mirror),
    shell=False,
    shared_memory=False,
    port=8080,
    metrics=Metrics(),
)
