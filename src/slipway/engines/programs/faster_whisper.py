"""faster-whisper-server: speech transcription, configured by environment variables."""

from __future__ import annotations

from slipway.artifacts.locations.huggingface import environment
from slipway.engines.definition.engine import ANYWHERE, Engine, Launch, Owned, http_probes
from slipway.engines.definition.python import model_of
from slipway.engines.definition.sealed import Seals
from slipway.serving.routing.paths import SESSION

PORT = 8000
"""Default port of the image."""


def _env(launch: Launch) -> dict[str, str]:
    place = {} if launch.port == PORT else {"UVICORN_PORT": str(launch.port)}
    host = {"UVICORN_HOST": launch.bind} if launch.bind == ANYWHERE[1] else {}
    own = {"WHISPER__MODEL": model_of(launch.weights), "ENABLE_UI": "false"}
    return {**own, **host, **place, **environment(launch.hub_mirror)}


def _owned_env(launch: Launch) -> Owned:
    return {
        "UVICORN_FD": ("",),
        "UVICORN_HOST": ANYWHERE,
        "UVICORN_PORT": (str(launch.port),),
        "UVICORN_UDS": ("",),
        "WHISPER__MODEL": (model_of(launch.weights),),
    }


FASTER_WHISPER = Engine(
    name="fasterwhisper",
    container="faster-whisper",
    tasks=frozenset(("transcribe",)),
    schemes=frozenset(("hf", "pvc", "oci")),
    probes=http_probes("/health", 1800),
    args=lambda launch: launch.extra_args,
    env=_env,
    owned_env=_owned_env,
    # Pydantic reads the engine's own variables in any case. The variables of uvicorn are case-sensitive.
    any_case=frozenset(("API_KEY", "WHISPER__MODEL")),
    reads_model_field=False,
    paths=(
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
        "/v1/audio/speech",
        "/v1/chat/completions",
        SESSION,
    ),
    sealed_by=Seals(variables=("API_KEY", "UVICORN_SSL_KEYFILE", "UVICORN_SSL_CERTFILE")),
    port=PORT,
    closes_idle=True,
    # Transcriptions and /health share the 40 threads that FastAPI has for blocking functions.
    shared_threads=True,
    images={
        "": "fedirz/faster-whisper-server:0.6.0-rc.3-cpu",
        "cuda": "fedirz/faster-whisper-server:0.6.0-rc.3-cuda",
    },
)
