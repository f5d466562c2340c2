"""Exchanges: what a running engine is asked, and what of its answers has to be alike. Pure.

The same requests go to a real engine, which is recorded, and to its stand-in, which is compared with the record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Json = Any


class Exchange(NamedTuple):
    """One request. ``{model}`` and ``{adapter}`` in its body become the model's name and an adapter's folder."""

    name: str
    method: str
    path: str
    body: Json = None
    form: Mapping[str, str] | None = None
    """Fields of a form in place of a body."""
    speech: bool = False
    """Whether the form has a file: ``recorded/speech.opus``, in which espeak-ng says SPOKEN."""


SPOKEN = "The engine answers through the gateway."


MESSAGES = [{"role": "user", "content": "hello"}]
CHAT = {"model": "{model}", "messages": MESSAGES, "max_tokens": 8, "temperature": 0}
COMPLETION = {"model": "{model}", "prompt": "hello", "max_tokens": 8, "temperature": 0}
RESPONSE = {"model": "{model}", "input": "hello", "max_output_tokens": 8, "temperature": 0}
COUNTED = {"stream": True, "stream_options": {"include_usage": True}}
LOADED = {"lora_name": "wiki", "lora_path": "{adapter}"}

GENERATES: Sequence[Exchange] = (
    Exchange("health", "GET", "/health"),
    Exchange("models", "GET", "/v1/models"),
    Exchange("chat", "POST", "/v1/chat/completions", CHAT),
    Exchange("chat_stream", "POST", "/v1/chat/completions", CHAT | COUNTED),
    Exchange("completion", "POST", "/v1/completions", COMPLETION),
    Exchange("completion_stream", "POST", "/v1/completions", COMPLETION | COUNTED),
    Exchange("response", "POST", "/v1/responses", RESPONSE),
    Exchange("response_stream", "POST", "/v1/responses", RESPONSE | {"stream": True}),
    Exchange("message", "POST", "/v1/messages", CHAT),
    Exchange("message_stream", "POST", "/v1/messages", CHAT | {"stream": True}),
    Exchange("message_tokens", "POST", "/v1/messages/count_tokens", {"model": "{model}", "messages": MESSAGES}),
    Exchange("tokens", "POST", "/tokenize", {"model": "{model}", "prompt": "hello"}),
    Exchange("unknown_model", "POST", "/v1/chat/completions", CHAT | {"model": "other"}),
    Exchange("unknown_model_message", "POST", "/v1/messages", CHAT | {"model": "other"}),
    Exchange("no_messages", "POST", "/v1/chat/completions", {"model": "{model}"}),
    Exchange("no_prompt", "POST", "/v1/completions", {"model": "{model}"}),
    Exchange("unknown_path", "GET", "/v1/nothing"),
    Exchange("wrong_method", "GET", "/v1/chat/completions"),
    Exchange("too_long", "POST", "/v1/chat/completions", CHAT | {"max_tokens": 1_000_000}),
)  # fmt: skip
"""Of an engine that generates text."""
ADAPTERS: Sequence[Exchange] = (
    Exchange("adapter_loaded", "POST", "/v1/load_lora_adapter", LOADED),
    Exchange("adapter_loaded_again", "POST", "/v1/load_lora_adapter", LOADED),
    Exchange("adapter_in_place", "POST", "/v1/load_lora_adapter", LOADED | {"load_inplace": True}),
    Exchange("adapter_listed", "GET", "/v1/models"),
    Exchange("adapter_chat", "POST", "/v1/chat/completions", CHAT | {"model": "wiki"}),
    Exchange("adapter_missing", "POST", "/v1/load_lora_adapter", {"lora_name": "bad", "lora_path": "/no/such"}),
    Exchange("adapter_without_path", "POST", "/v1/load_lora_adapter", {"lora_name": "bad"}),
    Exchange("adapter_unloaded", "POST", "/v1/unload_lora_adapter", {"lora_name": "wiki"}),
    Exchange("adapter_unloaded_again", "POST", "/v1/unload_lora_adapter", {"lora_name": "wiki"}),
    Exchange("adapter_gone", "POST", "/v1/chat/completions", CHAT | {"model": "wiki"}),
)
"""Of one that loads LoRA adapters while it runs, in this order."""
PAIR = {"model": "{model}", "query": "red fish", "documents": ["a bird", "one red fish"]}
EMBEDDING = {"model": "{model}", "input": "one"}
RERANK = Exchange("rerank", "POST", "/v1/rerank", PAIR)
EMBEDS: Sequence[Exchange] = (
    Exchange("health", "GET", "/health"),
    Exchange("models", "GET", "/v1/models"),
    Exchange("embedding", "POST", "/v1/embeddings", EMBEDDING),
    Exchange(
        "embeddings", "POST", "/v1/embeddings",
        {"model": "{model}", "input": ["one", "two"], "encoding_format": "float"},
    ),
    Exchange("embedding_base64", "POST", "/v1/embeddings", EMBEDDING | {"encoding_format": "base64"}),
    RERANK,
    Exchange("unknown_model", "POST", "/v1/embeddings", EMBEDDING | {"model": "other"}),
    Exchange("no_input", "POST", "/v1/embeddings", {"model": "{model}"}),
)  # fmt: skip
"""Of one that makes vectors, and does not rank."""
RANKS: Sequence[Exchange] = (
    Exchange("health", "GET", "/health"),
    Exchange("models", "GET", "/v1/models"),
    RERANK,
    Exchange("rerank_best", "POST", "/v1/rerank", PAIR | {"top_n": 1, "return_documents": True}),
    Exchange("no_query", "POST", "/v1/rerank", {"model": "{model}"}),
    Exchange("embedding", "POST", "/v1/embeddings", EMBEDDING),
)
"""Of one that ranks, and makes no vectors."""
SPEECH: Sequence[Exchange] = (
    Exchange("health", "GET", "/health"),
    Exchange("transcription", "POST", "/v1/audio/transcriptions", form={"model": "{model}"}, speech=True),
    Exchange(
        "transcription_verbose", "POST", "/v1/audio/transcriptions",
        form={"model": "{model}", "response_format": "verbose_json"}, speech=True,
    ),
    Exchange("translation", "POST", "/v1/audio/translations", form={"model": "{model}"}, speech=True),
    Exchange("no_file", "POST", "/v1/audio/transcriptions", form={"model": "{model}"}),
    Exchange("unknown_path", "GET", "/v1/nothing"),
)  # fmt: skip
"""Of one that transcribes."""
SETS: Mapping[str, Sequence[Exchange]] = {
    "generates": GENERATES,
    "adapters": ADAPTERS,
    "embeds": EMBEDS,
    "ranks": RANKS,
    "speech": SPEECH,
}


def filled(value: Json, model: str, adapter: str) -> Json:
    """A body with the names in their places."""
    if isinstance(value, dict):
        return {key: filled(one, model, adapter) for key, one in value.items()}
    if isinstance(value, list):
        return [filled(one, model, adapter) for one in value]
    return value.replace("{model}", model).replace("{adapter}", adapter) if isinstance(value, str) else value


def read(kind: str, body: bytes) -> Json:
    """A body as it is recorded: JSON, the events of a stream, or text."""
    if kind == "application/json":
        return short(json.loads(body))
    if kind == "text/event-stream":
        lines = (line.partition(":") for line in body.decode().splitlines())
        return [short(json.loads(text)) if text[:2] != " [" else text[1:] for name, _, text in lines if name == "data"]
    return body.decode()


def short(value: Json) -> Json:
    """With three numbers of each vector, which are enough to see what they are."""
    if isinstance(value, dict):
        return {key: short(one) for key, one in value.items()}
    if isinstance(value, list) and len(value) > 8 and all(isinstance(one, float | int) for one in value):
        return value[:3]
    if isinstance(value, list):
        return [short(one) for one in value]
    return value


def shape(value: Json) -> Json:
    """A value with the names of JSON's types in place of its texts and numbers; of a list, its first element's."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    if isinstance(value, bool) or value is None:
        return "null" if value is None else "boolean"
    return "string" if isinstance(value, str) else "number"


SAME = frozenset(
    ("object", "type", "finish_reason", "stop_reason", "role", "code", "param", "message", "detail", "owned_by")
)
"""Fields whose values have to be the same, and not only of one type."""
Record = Mapping[str, Json]


def differences(recorded: Record, answered: Record) -> list[str]:
    """What an answer has otherwise than the recorded one. What is null in one of them may be left out in the other."""
    lines = [
        f"{field}: {answered[field]}, recorded {recorded[field]}"
        for field in ("status", "type")
        if answered[field] != recorded[field]
    ]
    theirs, ours = recorded["body"], answered["body"]
    if recorded["type"] == "text/event-stream" and not lines:
        return _listed("body", kinds(theirs), kinds(ours))
    return lines + _compared("body", theirs, ours)


def kinds(events: Sequence[Json]) -> list[Json]:
    """One event of each kind in a stream, in the order of the first: that of each shape, and why it ended."""
    first_events: dict[str, Json] = {}
    for event in events:
        first_events.setdefault(json.dumps(_solid(shape(event)), sort_keys=True), event)
    return list(first_events.values())


def _solid(value: Json) -> Json:
    """Without what is null."""
    if isinstance(value, dict):
        return {key: _solid(one) for key, one in value.items() if one != "null"}
    return [_solid(one) for one in value] if isinstance(value, list) else value


def _compared(where: str, theirs: Json, ours: Json) -> list[str]:
    if theirs is None or ours is None:
        return []
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return [text for key in sorted({*theirs, *ours}) for text in _field(f"{where}.{key}", key, theirs, ours)]
    if isinstance(theirs, list) and isinstance(ours, list):
        return _listed(where, theirs[:1], ours[:1])
    one, other = shape(theirs), shape(ours)
    return [] if one == other else [f"{where}: {other}, recorded {one}"]


def _field(where: str, key: str, theirs: Record, ours: Record) -> list[str]:
    one, other = theirs.get(key), ours.get(key)
    if key in SAME and isinstance(one, str | int) and one != other:
        return [f"{where}: {other!r}, recorded {one!r}"]
    if one is None and other is not None and key not in theirs:
        return [f"{where}: there, not recorded"]
    if other is None and one is not None and key not in ours:
        return [f"{where}: not there, recorded"]
    return _compared(where, one, other)


def _listed(where: str, theirs: Sequence[Json], ours: Sequence[Json]) -> list[str]:
    if not theirs:
        return []
    if len(theirs) != len(ours):
        return [
            f"{where}: {len(ours)} kinds, recorded {len(theirs)}: {json.dumps(ours)[:400]}, {json.dumps(theirs)[:400]}"
        ]
    pairs = zip(theirs, ours, strict=True)
    return [text for at, (one, other) in enumerate(pairs) for text in _compared(f"{where}[{at}]", one, other)]
