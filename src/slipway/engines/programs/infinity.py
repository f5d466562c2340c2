"""Infinity: embeddings and reranking, configured by environment variables."""

from __future__ import annotations

from slipway.artifacts.locations.huggingface import environment
from slipway.engines.definition.engine import ANYWHERE, Engine, Launch, Metrics, Owned, Program, http_probes
from slipway.engines.definition.python import model_of
from slipway.engines.definition.sealed import Seals

PREFIX = "/v1"
"""Prefix of the API's paths. Without a prefix, OpenAI clients would not find the API."""


def _env(launch: Launch) -> dict[str, str]:
    host = {"INFINITY_HOST": launch.bind} if launch.bind == ANYWHERE[1] else {}
    return {
        **host,
        "INFINITY_MODEL_ID": model_of(launch.weights),
        "INFINITY_SERVED_MODEL_NAME": launch.served_name,
        "INFINITY_URL_PREFIX": PREFIX,
        "INFINITY_ENGINE": "torch",
        "INFINITY_PORT": str(launch.port),
        **environment(launch.hub_mirror),
    }


def _owned(launch: Launch) -> Owned:
    """Return the values that a user may set, by the suffix of a flag and an environment variable. ``_url_prefix`` is
    the suffix of ``--url-prefix`` and ``INFINITY_URL_PREFIX``."""
    return {
        "_host": ANYWHERE,
        "_model_id": (model_of(launch.weights),),
        "_port": (str(launch.port),),
        "_served_model_name": (launch.served_name,),
        "_url_prefix": (PREFIX,),
    }


INFINITY = Engine(
    name="infinity",
    container="infinity",
    tasks=frozenset(("embed", "rerank")),
    schemes=frozenset(("hf", "pvc", "oci")),
    probes=http_probes("/health", 1200),
    args=lambda launch: ("v2", *launch.extra_args),
    env=_env,
    owned_env=lambda launch: {f"INFINITY{name.upper()}": values for name, values in _owned(launch).items()},
    owned=lambda launch: {f"-{name}".replace("_", "-"): values for name, values in _owned(launch).items()},
    sealed_by=Seals(flags=("--api-key",), variables=("INFINITY_API_KEY",), clearable=("INFINITY_API_KEY",)),
    port=7997,
    closes_idle=True,
    images={
        "": "michaelf34/infinity:0.0.77",
        "cpu": "michaelf34/infinity:0.0.77-cpu",
        "rocm": "michaelf34/infinity:0.0.77-rocm",
    },
    paths=("/v1/embeddings", "/v1/rerank"),
    metrics=Metrics(),
    program=Program(
        modules=("infinity_emb",),
        names=("infinity_emb",),
        image=r"infinity",
        name_flags=("--served-model-name",),
        port_variable="INFINITY_PORT",
    ),
)
