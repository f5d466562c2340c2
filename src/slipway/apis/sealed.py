"""Rejects workloads whose engine would refuse all requests of the gateway. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from slipway.engines.definition.engine import Engine
from slipway.engines.recognition import assigned, recognise, replaced_words
from slipway.kube.objects import Object
from slipway.serving.containers.freedoms import templates
from slipway.serving.contract.api import InvalidSpecError


def refuse_sealed(workload: Object, container: str, engine: Engine) -> None:
    """Checks the container of this name in the pods of a workload. ``engine``: the engine in it, unless the command
    line runs another one.

    Raises InvalidSpecError.
    """
    for _place, template in templates(workload):
        for one in template["spec"].get("containers", ()):
            if one.get("name") == container:
                refuse(one, replaced_words(one), recognise(one).engine or engine)


def refuse(container: Object, words: Sequence[str], engine: Engine | None) -> None:
    """Raises InvalidSpecError if the engine of a container would reject the gateway's requests."""
    seals = engine.seals(container, words, assigned(container)) if engine else ()
    if seals:
        raise InvalidSpecError(
            "InvalidSpec",
            f"With {', '.join(seals)}, the engine rejects the gateway's requests, which have neither credentials nor"
            " TLS. Remove it, and use the gateway's API keys (gateway_api_keys).",
        )
