"""OpenAI's addresses, answered by a Generator: chats, completions, responses, embeddings, rerank, scores."""

from __future__ import annotations

import base64
import hashlib
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from .generation import Generator, tokens_of
from .web import Answer, Handler, Refused, Request, as_events, as_json, as_named_events

Body = dict[str, Any]
Mark = Callable[[str], str]
"""Name of a requested model -> who answers for it (the base model, or an adapter's digest); raises Refused."""


PREFIXES = {"chat.completion.chunk": "chatcmpl", "text_completion": "cmpl"}
"""Kind of a chunk -> how its id begins."""

RESPONSE: Body = {
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "tool_choice": "none",
    "tools": [],
    "top_p": 1.0,
    "background": False,
    "service_tier": "auto",
    "truncation": "disabled",
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""What a response says of a request that says nothing about it."""


class OpenAI:
    """The handlers of one engine. ``dimensions`` is the length of an embedding."""

    fingerprint = "standin"
    tells_cached = True
    """Whether usage says how many tokens of a prompt were cached."""

    def __init__(self, generator: Generator, mark: Mark, dimensions: int = 64) -> None:
        self.generator = generator
        self.mark = mark
        self.dimensions = dimensions

    def table(self) -> dict[str, Handler]:
        return {
            "POST /v1/chat/completions": self.chat,
            "POST /v1/completions": self.completion,
            "POST /v1/responses": self.response,
            "POST /v1/embeddings": self.embeddings,
            "POST /v1/rerank": self.rerank,
            "POST /rerank": self.rerank,
            "POST /v1/score": self.score,
            "POST /score": self.score,
        }

    # --- generation ------------------------------------------------------------------------------------------------

    def chat(self, request: Request) -> Answer:
        body = request.json()
        messages = body.get("messages")
        if not isinstance(messages, list):
            raise missing(body, "messages")
        prompt = "".join(f"<|{message.get('role')}|>{text_of(message.get('content'))}\n" for message in messages)
        if body.get("stream"):
            first = {"delta": {"role": "assistant", "content": ""}}
            return self._stream(body, prompt, "chat.completion.chunk", lambda text: {"delta": {"content": text}}, first)
        text, usage = self._run(body, prompt)
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason_of(usage, body)}
        return as_json(self._whole(body, "chatcmpl", "chat.completion", choice, usage))

    def completion(self, request: Request) -> Answer:
        body = request.json()
        prompt = body.get("prompt")
        if prompt is None:
            text = "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)"
            raise Refused(400, "BadRequestError", text, "prompt")
        prompt = text_of(prompt)
        if body.get("stream"):
            return self._stream(body, prompt, "text_completion", lambda text: {"text": text})
        text, usage = self._run(body, prompt)
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason_of(usage, body)}
        return as_json(self._whole(body, "cmpl", "text_completion", choice, usage))

    def response(self, request: Request) -> Answer:
        body = request.json()
        completion = body | {"max_tokens": body.get("max_output_tokens")}
        head = {
            "id": f"resp_{uuid.uuid4().hex[:16]}",
            "object": "response",
            "created_at": int(time.time()),
            "model": body.get("model"),
            "max_output_tokens": limit(completion),
        } | RESPONSE
        if body.get("stream"):
            return self._response_stream(completion, head)
        text, usage = self._run(completion, text_of(body.get("input")))
        return as_json(head | response_end(text, usage))

    def _response_stream(self, body: Body, head: Body) -> Answer:
        mark, prompt = self._checked(body), tokens_of(text_of(body.get("input")))

        def events() -> Iterator[Body]:
            begun = {"response": head | {"status": "in_progress", "output": []}}
            yield begun | {"type": "response.created"}
            yield begun | {"type": "response.in_progress"}
            item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []}
            yield {"type": "response.output_item.added", "output_index": 0, "item": item}
            place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
            yield place | {"type": "response.content_part.added", "part": output_text("", [])}
            words: list[str] = []
            with self.generator.slot():
                cached = self.generator.prefill(mark, prompt)
                for word in self.generator.decode(mark, limit(body)):
                    text = f" {word}" if words else word
                    words.append(text)
                    yield place | {"type": "response.output_text.delta", "delta": text, "logprobs": []}
            text = "".join(words)
            end = response_end(text, self._usage(len(prompt), len(words), cached))
            yield place | {"type": "response.output_text.done", "text": text, "logprobs": []}
            yield place | {"type": "response.content_part.done", "part": output_text(text)}
            yield {"type": "response.output_item.done", "output_index": 0, "item": end["output"][0]}
            yield {"type": "response.completed", "response": head | end}

        return as_named_events(event | {"sequence_number": at} for at, event in enumerate(events()))

    def _run(self, body: Body, prompt: str) -> tuple[str, Body]:
        mark, tokens = self._checked(body), tokens_of(prompt)
        with self.generator.slot():
            cached = self.generator.prefill(mark, tokens)
            words = list(self.generator.decode(mark, limit(body)))
        return " ".join(words), self._usage(len(tokens), len(words), cached)

    def _stream(
        self, body: Body, prompt: str, kind: str, choice: Callable[[str], Body], first: Body | None = None
    ) -> Answer:
        """``first``: what the stream begins with. Its last word says why it is the last."""
        mark, tokens, head = self._checked(body), tokens_of(prompt), self._head(body, PREFIXES[kind], kind)

        def chunk(part: Body, reason: str | None) -> Body:
            return head | {"choices": [{"index": 0, **part, "logprobs": None, "finish_reason": reason}]}

        def events() -> Iterator[Body]:
            count, most = 0, limit(body)
            with self.generator.slot():
                cached = self.generator.prefill(mark, tokens)
                if first:
                    yield chunk(first, None)
                for word in self.generator.decode(mark, most):
                    text = word if count == 0 else f" {word}"
                    count += 1
                    yield chunk(choice(text), "length" if count == most else None)
                if count < most:
                    yield chunk(choice(""), "abort")
            if (body.get("stream_options") or {}).get("include_usage"):
                usage = self._usage(len(tokens), count, cached)
                yield head | {"choices": [], "usage": usage, "system_fingerprint": self.fingerprint}

        return as_events(events())

    # --- vectors and scores ----------------------------------------------------------------------------------------

    def embeddings(self, request: Request) -> Answer:
        body = request.json()
        self._checked(body)
        given = body.get("input")
        if given is None:
            raise missing(body, "input")
        texts = [text_of(item) for item in given] if isinstance(given, list) else [text_of(given)]
        data = [
            {"object": "embedding", "index": at, "embedding": encoded(vector(text, self.dimensions), body)}
            for at, text in enumerate(texts)
        ]
        count = sum(len(tokens_of(text)) for text in texts)
        return as_json(self._head(body, "embd", "list") | {"data": data, "usage": usage_of(count, 0, 0)})

    def rerank(self, request: Request) -> Answer:
        body = request.json()
        self._checked(body)
        fields = [name for name in ("query", "documents") if name not in body]
        if fields:
            raise missing(body, *fields)
        scores = [(likeness(body["query"], text), at, text) for at, text in enumerate(body["documents"])]
        ranked = sorted(scores, key=lambda score: (-score[0], score[1]))[: body.get("top_n") or None]
        results = [{"index": at, "document": {"text": text}, "relevance_score": score} for score, at, text in ranked]
        count = sum(len(tokens_of(text_of(text))) for text in (body["query"], *body["documents"]))
        usage = {"prompt_tokens": count, "total_tokens": count}
        return as_json(
            {"id": f"score-{uuid.uuid4().hex[:16]}", "model": body.get("model"), "usage": usage, "results": results}
        )

    def score(self, request: Request) -> Answer:
        body = request.json()
        self._checked(body)
        texts = body.get("text_2", [])
        texts = texts if isinstance(texts, list) else [texts]
        data = [
            {"index": at, "object": "score", "score": likeness(str(body.get("text_1")), text)}
            for at, text in enumerate(texts)
        ]
        return as_json(self._head(body, "score", "list") | {"data": data, "usage": usage_of(1, 0, 0)})

    # --- parts -----------------------------------------------------------------------------------------------------

    def _checked(self, body: Body) -> str:
        return self.mark(str(body.get("model") or ""))

    def _usage(self, prompt: int, completion: int, cached: int) -> Body:
        return usage_of(prompt, completion, cached if self.tells_cached else None)

    def _whole(self, body: Body, prefix: str, kind: str, choice: Body, usage: Body) -> Body:
        more = {"choices": [choice], "usage": usage, "system_fingerprint": self.fingerprint}
        return self._head(body, prefix, kind) | more

    def _head(self, body: Body, prefix: str, kind: str) -> Body:
        return {
            "id": f"{prefix}-{uuid.uuid4().hex[:16]}",
            "object": kind,
            "created": int(time.time()),
            "model": body.get("model"),
        }


def output_text(text: str, logprobs: list[Any] | None = None) -> Body:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def response_end(text: str, usage: Body) -> Body:
    """What a response has when it is complete."""
    content = [output_text(text)]
    counted = {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {
            "cache_write_tokens": 0,
            "cached_tokens": 0,
            "cached_tokens_per_turn": [],
            "input_tokens_per_turn": [],
        }
        | usage.get("prompt_tokens_details", {}),
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {
            "output_tokens_per_turn": [],
            "reasoning_tokens": 0,
            "tool_output_tokens": 0,
            "tool_output_tokens_per_turn": [],
        },
        "total_tokens": usage["total_tokens"],
    }
    return {
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "output": [{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}],
        "usage": counted,
    }


def missing(body: Body, *fields: str) -> Refused:
    """Fields that a body has to have, in the words of pydantic as vLLM passes them on."""
    size = f"<dict of {len(body)} items>"
    faults = [{"type": "missing", "loc": f"body.{name}", "msg": "Field required", "input": size} for name in fields]
    head = "1 validation error:" if len(faults) == 1 else f"{len(faults)} validation errors:"
    return Refused(400, "Bad Request", "\n  ".join([head, *map(str, faults)]), f"body.{fields[0]}")


def text_of(content: Any) -> str:
    """The text of a message, a prompt, or a list of parts, messages or token numbers."""
    if isinstance(content, list):
        return "".join(text_of(part) for part in content)
    if isinstance(content, dict):
        return text_of(content.get("text", content.get("content", "")))
    return str(content)


def limit(body: Body) -> int:
    return max(1, int(body.get("max_completion_tokens") or body.get("max_tokens") or 16))


def reason_of(usage: Body, body: Body) -> str:
    """Why an answer ended: vLLM aborts it when it is stopped."""
    return "length" if usage["completion_tokens"] == limit(body) else "abort"


def usage_of(prompt: int, completion: int, cached: int | None) -> Body:
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion} | details


def vector(text: str, dimensions: int) -> list[float]:
    """Of length one, the same for the same text."""
    noise = hashlib.shake_128(text.encode()).digest(dimensions)
    values = [byte / 127.5 - 1 for byte in noise]
    length = sum(value * value for value in values) ** 0.5 or 1.0
    return [value / length for value in values]


def encoded(values: list[float], body: Body) -> list[float] | str:
    """A vector in the format that a request has for it."""
    if body.get("encoding_format") != "base64":
        return values
    return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()


def likeness(query: str, text: Any) -> float:
    """The share of the query's words that a text has."""
    words = set(query.lower().split())
    return len(words & set(text_of(text).lower().split())) / (len(words) or 1)
