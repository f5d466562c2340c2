"""Paths: the request paths of models. The gateway serves them; engines and routes list the ones that they support."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class ModelPath(NamedTuple):
    """A path that takes POST with the model ID in its body."""

    path: str
    form: bool = False
    """Whether the body is a form with a field ``model``; else it is JSON."""
    prompt: str = ""
    """The field of the body that holds a prompt, where requests that begin alike may share an engine's work."""
    anthropic: bool = False
    """Whether clients expect errors in the shape of Anthropic's protocol; else in that of OpenAI's."""


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
"""Those of Anthropic's protocol first, forms last. A list, not a prefix: engines have administrative paths too."""

STORED_RESPONSE = "/v1/responses/{id}"
"""A response that the engine keeps, and what can be done with it."""
SESSION = "/v1/realtime"
"""A WebSocket."""

NAMES = (*(one.path for one in PATHS), STORED_RESPONSE, SESSION)
"""All that an engine may know: those, and two whose model stands in the query."""
BITS: Mapping[str, int] = {path: 1 << number for number, path in enumerate(NAMES)}
"""A number for each path, so that a set of them is the sum of theirs."""
FIRST_OPENAI = min(BITS[one.path] for one in PATHS if not one.anthropic)
FIRST_FORM = min(BITS[one.path] for one in PATHS if one.form)


def all_but(*lacking: str) -> tuple[str, ...]:
    """Every path but these."""
    return tuple(path for path in NAMES if path not in lacking)


def unknown(served: Iterable[str]) -> int:
    """The set of the paths that are not among these; none where nothing is told."""
    paths = frozenset(served)
    return sum(bit for path, bit in BITS.items() if path not in paths) if paths else 0
