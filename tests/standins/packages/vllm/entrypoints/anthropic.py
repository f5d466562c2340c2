"""Anthropic's protocol as vLLM speaks it, and its count of tokens."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

from standin.generation import tokens_of
from standin.openai import OpenAI, limit, text_of
from standin.web import Answer, Refused, Request, as_json

Body = dict[str, Any]


class Messages:
    """Answered by the generator behind OpenAI's addresses. ``context``: most tokens of a prompt and its answer."""

    def __init__(self, openai: OpenAI, context: int) -> None:
        self.openai = openai
        self.context = context

    def message(self, request: Request) -> Answer:
        body = request.json()
        mark, prompt = self._mark(body), tokens_of(text_of(body.get("messages")))
        head = {"id": f"chatcmpl-{uuid.uuid4().hex[:16]}", "type": "message", "role": "assistant"}
        head |= {"model": body.get("model")}
        generator = self.openai.generator

        def words() -> Iterator[str]:
            with generator.slot():
                generator.prefill(mark, prompt)
                for at, word in enumerate(generator.decode(mark, limit(body))):
                    yield f" {word}" if at else word

        if body.get("stream"):
            return Answer(
                kind="text/event-stream; charset=utf-8", chunks=events(head, len(prompt), limit(body), words())
            )
        tokens = list(words())
        content = [{"type": "text", "text": "".join(tokens)}]
        usage = {"input_tokens": len(prompt), "output_tokens": len(tokens)}
        return as_json(head | {"content": content, "stop_reason": reason_of(len(tokens), limit(body)), "usage": usage})

    def count(self, request: Request) -> Answer:
        body = request.json()
        self._mark(body)
        count = len(tokens_of(text_of(body.get("messages"))))
        return as_json({"input_tokens": count, "context_management": {"original_input_tokens": count}})

    def tokenize(self, request: Request) -> Answer:
        body = request.json()
        self.openai.mark(str(body.get("model") or ""))
        tokens = tokens_of(text_of(body.get("prompt", body.get("messages", ""))))
        numbers = list(range(len(tokens)))
        return as_json({"count": len(tokens), "max_model_len": self.context, "tokens": numbers, "token_strs": None})

    def _mark(self, body: Body) -> str:
        """Raises Refused in the form of an error that Anthropic's clients read."""
        try:
            return self.openai.mark(str(body.get("model") or ""))
        except Refused as refused:
            error = json.loads(refused.answer.body)["error"]
            details = {"type": error["type"], "message": error["message"]}
            refused.answer = as_json({"type": "error", "error": details}, refused.answer.status)
            raise


def reason_of(count: int, most: int) -> str | None:
    """Why an answer ended: vLLM names no reason where it was stopped."""
    return "max_tokens" if count == most else None


def events(head: Body, prompt: int, most: int, words: Iterator[str]) -> Iterator[bytes]:
    """The events of a stream, each under its name; no ``[DONE]`` follows them."""
    usage = {"input_tokens": prompt, "output_tokens": 0}
    started = head | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    yield event("message_start", message=started)
    count = 0
    for word in words:
        if not count:
            yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        count += 1
        yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": word})
    yield event("content_block_stop", index=0)
    usage = {"input_tokens": prompt, "output_tokens": count}
    yield event("message_delta", delta={"stop_reason": reason_of(count, most), "stop_sequence": None}, usage=usage)
    yield event("message_stop")


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
