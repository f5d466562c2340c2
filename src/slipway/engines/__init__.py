"""Engines: the programs that run models. One file an engine, each a :class:`slipway.engines.engine.Engine`.

An engine knows its flags, port, images, health path, metrics and log; it knows no API. Written once, it serves every
API. What an API does otherwise stands in ``engines.py`` of that API.
"""

from __future__ import annotations

from collections.abc import Mapping

from slipway.engines.engine import Engine
from slipway.engines.faster_whisper import FASTER_WHISPER
from slipway.engines.generic import GENERIC
from slipway.engines.infinity import INFINITY
from slipway.engines.llamacpp import LLAMACPP
from slipway.engines.ollama import OLLAMA
from slipway.engines.personaplex import PERSONAPLEX
from slipway.engines.sglang import SGLANG
from slipway.engines.tgi import TGI
from slipway.engines.vllm import VLLM

ENGINES: Mapping[str, Engine] = {
    engine.name: engine
    for engine in (LLAMACPP, VLLM, SGLANG, TGI, INFINITY, OLLAMA, FASTER_WHISPER, GENERIC, PERSONAPLEX)
}
"""Every engine that slipway knows, by name."""
