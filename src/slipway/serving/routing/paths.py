"""Request paths of models. The gateway serves them. Engines and routes list the paths that they support."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class ModelPath(NamedTuple):
    """A path that accepts POST requests with the model ID in the body."""

    path: str
    form: bool = False
    """Whether the body is a form with a field ``model``. Otherwise it is JSON."""
    prompt: str = ""
    """Name of the body field with the prompt, if an engine can reuse its work for prompts with the same beginning. The
    value is empty otherwise."""
    anthropic: bool = False
    """Whether clients expect errors in Anthropic's format. Otherwise they expect OpenAI's."""


PATHS: tuple[ModelPath, ...] = (
    ModelPath("/v1/messages", prompt="messages", anthropic=True),
    ModelPath("/v1/messages/count_tokens", anthropic=True),
    ModelPath("/v1/chat/completions", prompt="messages"),
    ModelPath("/v1/completions", prompt="prompt"),
    ModelPath("/v1/embeddings"),
    ModelPath("/v1/responses", prompt="input"),
    ModelPath("/v1/moderations"),
    ModelPath("/v1/rerank"),
    ModelPath("/v2/rerank"),
    ModelPath("/v2/embed"),
    ModelPath("/v1/score"),
    ModelPath("/v1/audio/speech"),
    ModelPath("/v1/images/generations"),
    ModelPath("/tokenize"),
    ModelPath("/detokenize"),
    ModelPath("/v1/audio/transcriptions", form=True),
    ModelPath("/v1/audio/translations", form=True),
    ModelPath("/v1/images/edits", form=True),
    ModelPath("/v1/images/variations", form=True),
)
"""Paths of POST requests, with those of Anthropic's protocol first and those with forms last. The gateway needs this
list instead of a prefix, because engines also have administrative paths."""

STORED_RESPONSE = "/v1/responses/{id}"
"""Path of a response that the engine stores, for all operations on the response."""
SESSION = "/v1/realtime"
"""Path of a WebSocket session."""

NAMES = (*(one.path for one in PATHS), STORED_RESPONSE, SESSION)
"""All paths that an engine may support, including the two whose requests have the model ID in the query."""
BITS: Mapping[str, int] = {path: 1 << number for number, path in enumerate(NAMES)}
"""Map of a path to a bit, so that an integer can represent a set of paths."""
FIRST_OPENAI = min(BITS[one.path] for one in PATHS if not one.anthropic)
FIRST_FORM = min(BITS[one.path] for one in PATHS if one.form)


def all_but(*lacking: str) -> tuple[str, ...]:
    """Return all paths except those in ``lacking``."""
    return tuple(path for path in NAMES if path not in lacking)


def unknown(served: Iterable[str]) -> int:
    """Return the paths that are not in ``served``, as a sum of ``BITS``. Return 0 if ``served`` is empty, which means
    that the engine's paths are not known."""
    paths = frozenset(served)
    return sum(bit for path, bit in BITS.items() if path not in paths) if paths else 0
