"""Engines: the programs that run models, each a file with an ``Engine`` (see ``engines.definition.engine``).

An engine defines its flags, port, images, health path, metrics and log patterns. All APIs share the engines, and an
engine does not depend on an API. If an API uses an engine differently, the API's own ``engines.py`` has the difference.
"""

from __future__ import annotations

from collections.abc import Mapping

from slipway.engines.definition.engine import Engine
from slipway.engines.programs.faster_whisper import FASTER_WHISPER
from slipway.engines.programs.generic import GENERIC
from slipway.engines.programs.infinity import INFINITY
from slipway.engines.programs.llamacpp import LLAMACPP
from slipway.engines.programs.ollama import OLLAMA
from slipway.engines.programs.personaplex import PERSONAPLEX
from slipway.engines.programs.sglang import SGLANG
from slipway.engines.programs.tgi import TGI
from slipway.engines.programs.vllm import VLLM

ENGINES: Mapping[str, Engine] = {
    engine.name: engine
    for engine in (LLAMACPP, VLLM, SGLANG, TGI, INFINITY, OLLAMA, FASTER_WHISPER, GENERIC, PERSONAPLEX)
}
"""All supported engines, by name."""
