"""The requests: chat completions of a given size, as clients send them, with the model's name at either end."""

from __future__ import annotations

import json
import random

MODEL = "bench"
WORDS = 'the user asks what a harbour is for and gets, in "plain words", an answer\nabout ships, cafés and tides'


def _text(size: int, seed: int) -> str:
    """About ``size`` bytes of JSON: words with the escapes and the few non-ASCII characters that prompts have."""
    words, pick, text, length = WORDS.split(" "), random.Random(seed), [], 0
    while length < size:
        word = pick.choice(words)
        text.append(word)
        length += len(json.dumps(word, ensure_ascii=False).encode()) - 1
    return " ".join(text)


def chat(size: int, *, model_first: bool = True, turn: int = 4096) -> bytes:
    """A chat of about ``size`` bytes in turns of ``turn`` bytes."""
    messages = [{"role": "system", "content": "You are a helpful assistant."}]
    remaining = size - 150
    while remaining > 0:
        role = "user" if len(messages) % 2 else "assistant"
        messages.append({"role": role, "content": _text(min(remaining, turn), len(messages))})
        remaining -= turn + 40
    options = {"temperature": 0.7, "messages": messages, "max_tokens": 16}
    document = {"model": MODEL, **options} if model_first else {**options, "model": MODEL}
    return json.dumps(document, ensure_ascii=False).encode()


def stream(events: int, gap_us: int) -> bytes:
    """A chat of 1 KB whose answer is a stream: what ``max_tokens`` and ``seed`` say is done by the mock engine."""
    document = {"model": MODEL, "stream": True, "max_tokens": events, "seed": gap_us}
    return json.dumps({**document, "messages": [{"role": "user", "content": _text(850, 1)}]}).encode()
