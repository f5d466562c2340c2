"""The flags that vLLM's OpenAI server takes, as its own parser has them: flags.txt. argparse refuses others as vLLM
does, and takes the same abbreviations."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLLOWS: dict[str, dict[str, Any]] = {
    "value": {"default": ""},
    "values": {"default": [], "nargs": "+"},
    "optional": {"default": "", "nargs": "?"},
    "true": {"default": False, "action": "store_true"},
    "switch": {"default": False, "action": argparse.BooleanOptionalAction},
}
"""What may follow a flag -> what argparse calls it."""


def rows() -> list[tuple[str, list[str], list[str]]]:
    """Of each flag: what follows it, its spellings, the values that it takes where it does not take any."""
    lines = (Path(__file__).parent / "flags.txt").read_text().splitlines()
    table = []
    for line in lines:
        if not line.startswith("#"):
            head, _equals, choices = line.partition(" = ")
            kind, *flags = head.split()
            table.append((kind, flags, choices.split()))
    return table


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Flags with dashes or underscores, after ``serve MODEL`` where it is asked as ``vllm`` is; ends the process with
    status 2 and argparse's words for one that is unknown."""
    serve = arguments[:1] == ["serve"]
    parser = argparse.ArgumentParser(prog="vllm serve" if serve else "api_server.py")
    if serve:
        parser.add_argument("model_tag", nargs="?")
        arguments = arguments[1:]
    for kind, spellings, choices in rows():
        parser.add_argument(*spellings, **FOLLOWS[kind], **({"choices": choices} if choices else {}))
    dashed = []
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        dashed.append((flag.replace("_", "-") if flag.startswith("--") else flag) + equals + value)
    flags = parser.parse_args(dashed)
    flags.port = int(flags.port or 8000)
    if serve:
        flags.model = flags.model_tag or flags.model
    return flags
