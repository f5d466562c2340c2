"""Acceleration: how many of a model's layers lie on an accelerator, as far as that is sure without the log. Pure.

The log alone says what llama.cpp did with the GPUs that it has. Of a program that can have none it is known beforehand.
"""

from __future__ import annotations

from slipway.apis.llmkube.service_resolve import Service
from slipway.engines.flags import given_flags
from slipway.kube.objects import Object

CPU = "CPU"
"""llama.cpp's name for it."""
OUTPUT = 1
"""llama.cpp counts the output as one layer more than the header's."""
MOST_LAYERS = 100_000
"""A header says what its author likes."""
REMOTE = ("--rpc", "LLAMA_ARG_RPC")
"""The flag, and the variable, that have other machines compute layers."""


def acceleration(service: Service, model: Object | None) -> Object:
    """``status.acceleration`` of a service whose pods all are as its spec says. Empty: only the engine knows, as it has
    GPUs, or is of an image or a command of the user's."""
    spec = service.spec
    given = given_flags(spec.extra_args).union(str(variable.get("name")) for variable in spec.env)
    sure = spec.runtime == "llamacpp" and not (spec.image or spec.command or service.accelerators.backend)
    if not sure or given.intersection(REMOTE):
        return {}
    return {"acceleration": {"device": CPU, "layersOffloaded": 0, **_total(model)}}


def _total(model: Object | None) -> Object:
    """What the weights' header says, where it was read."""
    layers = (((model or {}).get("status") or {}).get("gguf") or {}).get("layerCount")
    if not isinstance(layers, int) or not 0 < layers < MOST_LAYERS:
        return {}
    return {"layersTotal": layers + OUTPUT}
