"""Token counting: its part of haproxy.cfg, and the counts of HAProxy's threads. Pure.

Rules and a stick table count the tokens of complete small answers, because calling Lua costs more than a small request.
A filter in ``tokens.lua`` counts the tokens of all other answers while they pass. Each HAProxy thread keeps separate
counts, and returns them on its own command socket.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from slipway.gateway.settings import Settings
from slipway.serving.routing import paths

SHOW_TOKENS = "show slipway tokens"
"""Command, implemented in ``tokens.lua``, that prints the token counts of a thread."""
_MOST_LINES = 100_000
_ESTIMATED = "txn.tokens_estimated"
_USAGE = "txn.usage"
"""HAProxy variable with the token counts of an answer in the order of ``_KINDS``, separated by colons."""
_KINDS = ("input", "cached", "output", "reasoning")
_LOGGED = "".join(
    f" %(tokens_{kind}:sint)[var({_USAGE}),field({number},:)]" for number, kind in enumerate(_KINDS, start=1)
)
_LOGGED += f" %(tokens_estimated:bool)[var({_ESTIMATED})]"

TABLE = "token_counts"
"""Name of the stick table with the tokens of complete small answers, by backend and name of the key."""
_SLOT = 7
START_VARIABLE = "proc.slipway_start"
"""HAProxy variable that changes at each start of HAProxy."""
USAGE_MAP, READ_MAP = "usage.map", "usage_read.map"
_WHOLE_BYTES = 8192
"""Maximum size in bytes of the answers whose tokens are counted by rules. For larger answers, the filter is faster."""
_GENERATING = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
_READING = ("/v1/embeddings", "/v1/rerank", "/v1/score", "/v2/rerank", "/v2/embed")
_WRAP = 1 << 32
_SEPARATOR = "!"
"""Separator between the backend and the name of the key. Neither contains it."""
_ROW = re.compile(rf"key=(\S+{_SEPARATOR}\S+) .*gpc0=(\d+) gpc1=(\d+) gpc2=(\d+) gpc3=(\d+)")


def _bits(names: Iterable[str]) -> int:
    return sum(paths.BITS[name] for name in names)


class Counts(NamedTuple):
    """The numbers of tokens of one model and API key since HAProxy started. ``input`` includes ``cached``, and
    ``output`` includes ``reasoning``."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0
    estimated_input: int = 0
    estimated_output: int = 0

    def plus(self, other: Counts) -> Counts:
        """Return the sum of two counts, field by field."""
        return Counts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def by_kind(self) -> dict[str, int]:
        """Return the number of tokens by kind, including estimated tokens."""
        return {"input": self.input, "cached": self.cached, "output": self.output, "reasoning": self.reasoning}

    def estimated_by_kind(self) -> dict[str, int]:
        """Return the number of estimated tokens by kind. The engine did not report these tokens."""
        return {"input": self.estimated_input, "output": self.estimated_output}


def sum_answers(answers: Iterable[str]) -> dict[tuple[str, str], Counts]:
    """Return the sum of the counts in all answers, by backend and name of the key. The name is ``-`` if no keys are
    required."""
    totals: dict[tuple[str, str], Counts] = {}
    for answer in answers:
        for line in answer.splitlines()[:_MOST_LINES]:
            backend, key, *numbers = line.split(" ")
            counts = Counts(*map(int, numbers))
            totals[backend, key] = totals.get((backend, key), Counts()).plus(counts)
    return totals


def socket_names(settings: Settings) -> list[str]:
    """Return the file names of the threads' command sockets; empty if tokens are not counted."""
    return [f"thread{number}.sock" for number in range(1, settings.threads + 1)] if settings.count_tokens else []


def sockets(settings: Settings) -> str:
    """Return the lines for the section ``global`` that open the threads' command sockets."""
    return "".join(
        f"    stats socket {settings.run_directory}/{name} mode 600 level user thread {number}\n"
        for number, name in enumerate(socket_names(settings), start=1)
    )


def global_lines(settings: Settings) -> str:
    """Return the lines for the section ``global`` that load the filter and store the start time; empty if tokens are
    not counted."""
    if not settings.count_tokens:
        return ""
    cut = f"{paths.BITS['/v1/responses']} {paths.BITS['/v1/messages']}"
    arguments = f"{_bits(_GENERATING)} {_bits(_READING)} {cut}"
    return f"""\
    set-var {START_VARIABLE} date(0,us)
    lua-load-per-thread {settings.run_directory}/lua/tokens.lua {arguments}
"""


def slots(settings: Settings, others: int) -> int:
    """Return the number of stick counters that a request needs. ``others`` is the number that other rules need."""
    return max(others, _SLOT + 1) if settings.count_tokens else others


def filter_lines(settings: Settings) -> tuple[str, ...]:
    """Return the line of the public frontend with the filter; empty if tokens are not counted."""
    return ("    filter lua.tokens",) if settings.count_tokens else ()


def rules(settings: Settings) -> tuple[str, ...]:
    """Return the rules of the public frontend that count the tokens of answers; empty if tokens are not counted.

    Only small answers with an announced size are buffered until they are complete. Streams are not buffered.
    """
    if not settings.count_tokens:
        return ()
    run = settings.run_directory
    counted = f"var(txn.kind),and({_bits((*_GENERATING, *_READING))}) -m int gt 0"
    key = "txn.key" if settings.api_keys_secret else "txn.no_key"
    without = "" if settings.api_keys_secret else "    http-request set-var(txn.no_key) str(-)\n"
    limited = " !spends" if settings.api_keys_secret else ""
    adds = "\n".join(
        f"    http-response sc-add-gpc({number - 1},{_SLOT}) var({_USAGE}),field({number},:)"
        f" if {{ var({_USAGE}),field({number},:) -m len gt 0 }}"
        for number in range(2, len(_KINDS) + 1)
    )
    return (
        f"""\
{without}\
    http-request set-var(txn.size) req.body_len
    acl succeeds status 200:299
    acl counted {counted}
    # If a request moved to another process, that process counts it.
    acl moved var(txn.hold) -m str moved
    http-response set-var(txn.length) res.hdr_val(content-length) if succeeds counted !moved
    acl whole var(txn.length) -m int 1:{_WHOLE_BYTES}
    # Lua counts the tokens of keys with a token limit.
    acl spends var(txn.limits) -m reg ^[0-9]*:[0-9] :[0-9]+$
    http-response wait-for-body time {settings.stream_idle_seconds}s if whole
    # Text ends before a NUL, or where a broken answer ends.
    http-response set-var(res.text) res.body,concat() if whole{limited}
    # An answer with large headers does not fit in the buffer.
    acl arrived res.body_len,sub(txn.length) -m int 0
    acl complete var(res.text),length,sub(txn.length) -m int 0
    http-response set-var({_USAGE}) var(res.text),map_regm({run}/{USAGE_MAP}) if complete
    acl usage var({_USAGE}) -m found
    acl reads var(txn.kind),and({_bits(_READING)}) -m int gt 0
    http-response set-var({_USAGE}) var(res.text),map_regm({run}/{READ_MAP}) if !usage complete reads
    http-response unset-var(res.text)
    http-response track-sc{_SLOT} var(txn.be),concat({_SEPARATOR},{key}) table {TABLE} if usage
    http-response sc-add-gpc(0,{_SLOT}) var({_USAGE}),field(1,:)
{adds}
    http-response set-var({_ESTIMATED}) bool(false) if usage
    # No entry is tracked if the answer has no usage, or if the table is full.
    http-response lua.count_answer if whole !{{ sc_tracked({_SLOT}) }} arrived
    http-response lua.follow_answer if !whole succeeds counted !moved || whole !arrived""",
    )


def tables(settings: Settings) -> str:
    """Return the section of haproxy.cfg with the stick table; empty if tokens are not counted. Entries never expire.
    If the table is full, Lua counts the tokens."""
    if not settings.count_tokens:
        return ""
    return f"""
backend {TABLE} from base
    stick-table type string len 384 size 20k nopurge store gpc({len(_KINDS)})
"""


# Every part is possessive or decided by its first characters, so an engine's answer cannot cause long work.
_TEXT = r'"(?:[^"\\]++|\\.)*+"'
_PLAIN = rf'(?:[^{{}}\[\]",]++|{_TEXT}|\[[^{{}}\[\]"]*+\])'
_KEY = r'"[^"\\]*+"\s*+:\s*+'
_COUNTED = "(?:prompt|completion|input|output|cache_read_input|cache_creation_input)_tokens"
_BEFORE = r'^(?:[^"]++|"(?!usage"\s*+:\s*+\{))*+'
_AFTER = r'(?:[^"]++|"(?!usage"\s*+:))*+\z'
"""End of a pattern that begins with ``_BEFORE``. The pattern matches answers with only one usage object. If there are
several, Lua uses the largest numbers."""


def _number_pattern(key: str, group: int) -> str:
    """Return the pattern of a JSON key with a number, which matches only once in an object. Lua parses objects with a
    repeated key. ``group`` is the number of the pattern's group."""
    return rf'(?({group})(?!))"{key}"\s*+:\s*+(\d{{1,9}})(?=[\s,}}])'


def _object_pattern(*members: str) -> str:
    return rf"\{{\s*+(?:(?:{'|'.join(members)})\s*+,?\s*+)*+\}}"


def _usage_pattern(prompt: str, completion: str, unusual: str) -> str:
    """Return the pattern of a usage object that has the key ``prompt``, but no key whose beginning matches
    ``unusual``.

    Groups 1 to 4 are the numbers of prompt, completion, cached and reasoning tokens.
    """
    detail = rf'(?!"(?:{_COUNTED})"|"(?:cached|reasoning)_tokens"\s*+:\s*+\d){_KEY}{_PLAIN}'
    details = _object_pattern(_number_pattern("cached_tokens", 3), _number_pattern("reasoning_tokens", 4), detail)
    member = f'(?!"(?:{prompt}"|{completion}"|{unusual})){_KEY}(?:{details}|{_PLAIN})'
    usage = _object_pattern(_number_pattern(prompt, 1), _number_pattern(completion, 2), member)
    return rf'"usage"\s*+:\s*+{usage}(?(1)|(?!))'


def maps() -> dict[str, str]:
    """Return the text of the maps from the pattern of a complete answer to the groups with the token counts, by file
    name.

    The patterns match answers with the usual ``usage`` object, and Lua parses all other answers. Quotes in a JSON
    string are escaped, so ``"usage"`` is always a key.
    """
    openai = _usage_pattern("prompt_tokens", "completion_tokens", "cached_tokens|reasoning_tokens|output_tokens")
    responses = _usage_pattern(
        "input_tokens", "output_tokens", "cache|prompt_tokens|completion_tokens|reasoning_tokens"
    )
    # (?| gives both alternatives the same groups.
    generated = f"(?|{openai}|{responses})(?(2)|(?!))"
    return {
        name: f"{_BEFORE}{usage}{_AFTER} \\1:\\3:\\2:\\4\n"
        for name, usage in ((USAGE_MAP, generated), (READ_MAP, openai))
    }


class TableCounters:
    """The totals of the stick table since HAProxy started. Each reading corrects the table's counters, which wrap
    around at 2^32."""

    def __init__(self) -> None:
        self._process = ""
        self._sums: dict[str, tuple[int, ...]] = {}

    def rows(self, process: str, table: str) -> str:
        """Convert HAProxy's dump of the stick table to the format of ``SHOW_TOKENS``. ``process`` is the value of
        ``START_VARIABLE``. A new value resets the totals."""
        if process != self._process:
            self._process, self._sums = process, {}
        for key, *numbers in _ROW.findall(table):
            before = self._sums.get(key, (0,) * len(numbers))
            self._sums[key] = tuple(
                total + (int(number) - total) % _WRAP for total, number in zip(before, numbers, strict=True)
            )
        return "\n".join(_row(key, sums) for key, sums in self._sums.items())


def _row(escaped: str, sums: tuple[int, ...]) -> str:
    backend, _unused, name = re.sub(r"\\(.)", r"\1", escaped).partition(_SEPARATOR)
    return " ".join((backend, name, *map(str, sums), "0", "0"))


def log_format(text: str, settings: Settings) -> str:
    """Return the format of the access log: ``text``, with fields for token counts if tokens are counted."""
    return f'{text.removesuffix(chr(34))}{_LOGGED}"' if settings.count_tokens else text
