"""Rejection of workloads whose engine would refuse the gateway's requests. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from slipway.engines.definition.engine import Engine
from slipway.engines.recognition import assigned, recognise, replaced_words
from slipway.kube.objects import Object
from slipway.serving.containers.freedoms import templates
from slipway.serving.contract.api import InvalidSpecError


def refuse_sealed(workload: Object, container: str, engine: Engine) -> None:
    """Raise InvalidSpecError if an engine in a workload would reject the gateway's requests.

    Only containers named ``container`` are checked. ``engine`` is the engine in them, unless their command line runs
    another one.
    """
    for _place, template in templates(workload):
        for one in template["spec"].get("containers", ()):
            if one.get("name") == container:
                refuse(one, replaced_words(one), recognise(one).engine or engine)


def refuse(container: Object, words: Sequence[str], engine: Engine | None) -> None:
    """Raise InvalidSpecError if the engine of a container would reject the gateway's requests. ``words`` is the
    container's command line, as ``replaced_words`` returns it. If ``engine`` is None, nothing is checked."""
    seals = engine.seals(container, words, assigned(container)) if engine else ()
    if seals:
        raise InvalidSpecError(
            "InvalidSpec",
            f"With {', '.join(seals)}, the engine rejects the gateway's requests, which have neither credentials nor"
            " TLS. Remove it, and use the gateway's API keys (gateway_api_keys).",
        )
