"""Paths: the request paths of models. The gateway serves them; engines and routes list the ones that they support."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class ModelPath(NamedTuple):
    """A path that accepts POST with the model ID in its body."""

    path: str
    form: bool = False
    """Whether the body is a form with a field ``model``; otherwise it is JSON."""
    prompt: str = ""
    """The body's field with the prompt, if an engine can reuse its work for requests with the same beginning."""
    anthropic: bool = False
    """Whether clients expect errors in Anthropic's format; otherwise in OpenAI's."""


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
"""Paths of Anthropic's protocol first, forms last. A list instead of a prefix, because engines also have administrative
paths."""

STORED_RESPONSE = "/v1/responses/{id}"
"""A response that the engine stores, with all operations on it."""
SESSION = "/v1/realtime"
"""A WebSocket."""

NAMES = (*(one.path for one in PATHS), STORED_RESPONSE, SESSION)
"""All paths that an engine may support, including two with the model in the query."""
BITS: Mapping[str, int] = {path: 1 << number for number, path in enumerate(NAMES)}
"""A bit for each path, so that a set of paths is the sum of their bits."""
FIRST_OPENAI = min(BITS[one.path] for one in PATHS if not one.anthropic)
FIRST_FORM = min(BITS[one.path] for one in PATHS if one.form)


def all_but(*lacking: str) -> tuple[str, ...]:
    """Returns every path except these."""
    return tuple(path for path in NAMES if path not in lacking)


def unknown(served: Iterable[str]) -> int:
    """Returns the set of the paths that are not served; empty if ``served`` is empty, which means that it is not
    known."""
    paths = frozenset(served)
    return sum(bit for path, bit in BITS.items() if path not in paths) if paths else 0
