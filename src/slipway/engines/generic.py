"""Generic: any image that listens on a port. Its command line is the user's alone."""

from __future__ import annotations

from slipway.artifacts.huggingface import environment
from slipway.engines.engine import Engine, tcp_probes
from slipway.engines.llamacpp import LLAMACPP_TUNED

GENERIC = Engine(
    name="generic",
    tasks=frozenset(("generate", "embed", "rerank", "transcribe")),
    probes=tcp_probes(1800),
    args=lambda launch: launch.extra_args,
    env=lambda launch: environment(launch.hub_mirror),
    shared_memory=False,
    port=8080,
    # Mostly an edition of llama.cpp.
    metric=LLAMACPP_TUNED.metric,
)
