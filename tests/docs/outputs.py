"""The outputs that the pages show, and records of what the commands above them printed on a cluster.

A block of text directly below a block of commands is their output. If tests/docs runs these commands, it compares the
block with what they print. With SLIPWAY_WRITE_OUTPUTS=1 it writes a record of that, and rewrites each block that
differs. tests/unit/docs/test_outputs.py compares blocks with records, without a cluster.

A page may shorten an output: ``...`` replaces a part of a line, or whole lines if it is a line itself. Values that
differ in each run match each other (PLACEHOLDERS), and so do spaces, because these align the columns of tables.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .pages import NOT_RUN, ROOT, Block, blocks, commands, to_run

WRITE = "SLIPWAY_WRITE_OUTPUTS"
RECORDS = Path(__file__).parent / "recorded"
LONGEST = 160
"""Characters of a line that is written to a page; a longer one is shortened."""
FIRST, LAST = 4, 16
"""Lines of a longer output that are written to a page."""

SECRETS = {
    "<certificate>": r"(?<=-----BEGIN CERTIFICATE-----\n)[\w+/=\n]+(?=\n)",
    "<token>": r"\beyJ[\w.-]+",
    "<key>": r"\bsk-[\w-]{20,}",
}
"""Placeholder -> the printed text that neither a record nor a page may contain."""
PLACEHOLDERS = {
    "<answer>": r'(?<="content":")(?:[^"\\]|\\.)*|(?<="content": ")(?:[^"\\]|\\.)*',
    "<id>": r"\bchatcmpl-\w+",
    "<timings>": r'(?<="timings":\{)[^}]+',
    "<tokens>": r'(?<="cached_tokens":)\d+',
    "<namespace>": r"\bdocs-[0-9a-f]{6}\b",
    "<time>": r"\b20\d\d-\d\d-\d\dT[\d:.]+Z|\b1[6-9]\d{8}\b",
    "<ip>": r"\b\d{1,3}(?:\.\d{1,3}){3}\b",
    "<hash>": r"\b[0-9a-f]{12,64}\b|\b[0-9a-f]{8,10}-[bcdfghjklmnpqrstvwxz2456789]{5}\b",
    "<age>": r"(?<![\w-])(?:\d+[dhms]){1,2}\b",
}
"""Placeholder -> values that differ in each run. The namespaces are those of other pages."""
BACKGROUND = re.compile(r"(?:^Forwarding from .*|Handling connection for \d+)\n", re.MULTILINE)
"""What a port-forward in the background prints in the middle of other outputs."""
DOTS = re.compile(r"(?:\\ )?\\\.\\\.\\\.")
"""Escaped dots. The space before them is the page's."""
STEP = re.compile(r"^\+ (\S+:\d+)$\n", re.MULTILINE)
"""The line in front of what a command of this block printed."""


def shown_outputs(page: Sequence[Block]) -> list[tuple[Block, Block]]:
    """Each block of commands whose output the page shows, with that output."""
    return [(above, below) for above, below in itertools.pairwise(page) if _is_output(above, below)]


def _is_output(above: Block, below: Block) -> bool:
    return above.language == "bash" and below.language == "text" and below.adjoins


def is_captured(block: Block) -> bool:
    """Whether tests/docs runs all commands of the block, so that it sees their output."""
    return bool(to_run(block)) and len(to_run(block)) == len(commands(block))


# ---- comparing -------------------------------------------------------------------------------------------------------


def without_secrets(text: str) -> str:
    return _replaced(text, SECRETS)


def normalized(text: str) -> str:
    """The text with placeholders, one space between words, and without empty lines."""
    lines = (" ".join(line.split()) for line in _replaced(text, SECRETS | PLACEHOLDERS).splitlines())
    return "".join(f"{line}\n" for line in lines if line)


def _replaced(text: str, patterns: Mapping[str, str]) -> str:
    for placeholder, pattern in patterns.items():
        text = re.sub(pattern, placeholder, text)
    return text


def matches(shown: str, output: str) -> bool:
    """Whether a page may show this for an output."""
    return re.fullmatch("".join(map(_pattern, normalized(shown).splitlines())), normalized(output)) is not None


def _pattern(line: str) -> str:
    return r"(?:[^\n]*\n)*?" if line == "..." else DOTS.sub(r"[^\\n]*", re.escape(line)) + "\n"


def faults(page: Sequence[Block], recorded: Mapping[str, str]) -> list[str]:
    """What is wrong with the outputs of a page, by the record of its commands."""
    return [fault for above, below in shown_outputs(page) if (fault := _fault(above, below, recorded))]


def _fault(above: Block, below: Block, recorded: Mapping[str, str]) -> str:
    if not is_captured(above):
        return "" if NOT_RUN & set(above.marks) else f"{above.name}: no mark names what checks this output"
    if above.text not in recorded:
        return f"{below.name}: this output was never captured from these commands. Run tests/docs with {WRITE}=1"
    if not matches(below.text, recorded[above.text]):
        return f"{below.name}: the page shows\n{below.text}\nbut the commands printed\n{recorded[above.text]}"
    return ""


# ---- capturing -------------------------------------------------------------------------------------------------------


def captured(page: Sequence[Block], log: str) -> dict[str, str]:
    """Commands -> what they printed, for each output that the page shows, from the log of a run."""
    printed: dict[str, str] = {}
    _before, *parts = STEP.split(BACKGROUND.sub("", log))
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        printed[name] = printed.get(name, "") + (f"{text.strip()}\n" if text.strip() else "")
    return {above.text: printed.get(above.name, "") for above, _below in shown_outputs(page) if is_captured(above)}


def record_of(page: Path) -> Path:
    return RECORDS / page.relative_to(ROOT)


def read(record: Path) -> dict[str, str]:
    """Commands -> their output, normalized."""
    pairs = shown_outputs(blocks(record)) if record.exists() else []
    return {above.text: below.text for above, below in pairs}


def render(outputs: Mapping[str, str]) -> str:
    """A record. It is itself a page of commands with their outputs, in full."""
    parts = [f"```bash\n{text}```\n\n```text\n{normalized(output)}```\n" for text, output in outputs.items()]
    return "\n".join(["Written by tests/docs, see tests/docs/outputs.py.\n", *parts])


def rewritten(text: str, page: Sequence[Block], outputs: Mapping[str, str]) -> str:
    """The page's text with these outputs. A block that already matches stays, so a page keeps its ``...``."""
    lines = text.splitlines()
    for above, below in reversed(shown_outputs(page)):
        if above.text not in outputs:
            continue
        first, size = below.line - 1, len(below.text.splitlines())
        if not matches(below.text, outputs[above.text]):
            indent = lines[first - 1].partition("`")[0]
            lines[first : first + size] = [f"{indent}{line}".rstrip() for line in _presentable(outputs[above.text])]
    return "\n".join(lines) + "\n"


def _presentable(output: str) -> Iterator[str]:
    lines = re.sub(PLACEHOLDERS["<answer>"], "...", without_secrets(output)).splitlines()
    for line in lines if len(lines) <= FIRST + LAST else [*lines[:FIRST], "...", *lines[-LAST:]]:
        short = f"{line[: LONGEST - 3]}..."
        yield short if len(line) > LONGEST and matches(short, line) else line
