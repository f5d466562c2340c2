"""Counting of tokens: what HAProxy's configuration says of it, and what its threads answer. Pure.

The counting itself is tokens.lua, a filter on answers. Each thread counts for itself, and has a command socket of its
own by which it is asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from slipway.gateway.settings import Settings

SHOW = "show slipway tokens"
"""Answered by tokens.lua."""
_MOST_LINES = 100_000
_LOGGED = (
    " %(tokens_input:sint)[var(txn.tokens_input)] %(tokens_cached:sint)[var(txn.tokens_cached)]"
    " %(tokens_output:sint)[var(txn.tokens_output)] %(tokens_reasoning:sint)[var(txn.tokens_reasoning)]"
    " %(tokens_estimated:bool)[var(txn.tokens_estimated)]"
)


class Counts(NamedTuple):
    """Tokens of one model and key since HAProxy started. `cached` are part of `input`, `reasoning` of `output`."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0
    estimated_input: int = 0
    estimated_output: int = 0

    def plus(self, other: Counts) -> Counts:
        """The sum."""
        return Counts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def told(self) -> dict[str, int]:
        """All tokens by kind, estimated ones too."""
        return {"input": self.input, "cached": self.cached, "output": self.output, "reasoning": self.reasoning}

    def estimated(self) -> dict[str, int]:
        """By kind, those that no engine told."""
        return {"input": self.estimated_input, "output": self.estimated_output}


def added(answers: Iterable[str]) -> dict[tuple[str, str], Counts]:
    """The sum of the threads' answers, by backend and name of the key (``-`` where none is asked for)."""
    totals: dict[tuple[str, str], Counts] = {}
    for answer in answers:
        for line in answer.splitlines()[:_MOST_LINES]:
            backend, key, *numbers = line.split(" ")
            counts = Counts(*map(int, numbers))
            totals[backend, key] = totals.get((backend, key), Counts()).plus(counts)
    return totals


def socket_names(settings: Settings) -> list[str]:
    """Command sockets of the threads, in the shared directory; none where tokens are not counted."""
    return [f"thread{number}.sock" for number in range(1, settings.threads + 1)] if settings.count_tokens else []


def sockets(settings: Settings) -> str:
    """Of the section ``global``: the threads' sockets."""
    return "".join(
        f"    stats socket {settings.run_directory}/{name} mode 600 level user thread {number}\n"
        for number, name in enumerate(socket_names(settings), start=1)
    )


def start(settings: Settings) -> str:
    """Of the section ``global``: the filter's file."""
    return f"    lua-load-per-thread {settings.run_directory}/lua/tokens.lua\n" if settings.count_tokens else ""


def sections(settings: Settings) -> tuple[str, ...]:
    """The public frontend's filter."""
    return ("    filter lua.tokens",) if settings.count_tokens else ()


def rules(settings: Settings) -> tuple[str, ...]:
    """Rules of the public frontend, once the body is read: what the filter cannot ask for when the answer comes."""
    if not settings.count_tokens:
        return ()
    return ("    http-request set-var(txn.path) path\n    http-request set-var(txn.size) req.body_len",)


def log_format(text: str, settings: Settings) -> str:
    """The access log's format, with the tokens where they are counted."""
    return f'{text.removesuffix(chr(34))}{_LOGGED}"' if settings.count_tokens else text
