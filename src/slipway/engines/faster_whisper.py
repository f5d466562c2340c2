"""faster-whisper-server: transcription of speech, configured by environment variables."""

from __future__ import annotations

from slipway.artifacts.huggingface import environment
from slipway.engines.engine import Engine, Launch, http_probes
from slipway.engines.python import model_of


def _env(launch: Launch) -> dict[str, str]:
    return {"WHISPER__MODEL": model_of(launch.weights), "ENABLE_UI": "false", **environment(launch.hub_mirror)}


FASTER_WHISPER = Engine(
    name="fasterwhisper",
    tasks=frozenset(("transcribe",)),
    probes=http_probes("/health", 1800),
    args=lambda launch: launch.extra_args,
    env=_env,
    reads_model_field=False,
)
