"""Writes the advice of docs/reference/troubleshooting.md on each reason, for the gateway's page and for the modules.

usage: advice.py

A heading names one reason or several. The paragraph that begins with "Do." has the advice. If it begins with the name
of a reason and a colon, each part with such a label is for the reasons in the label, and the others have no advice.
If a table with the heading "message" has advice for each message, its rows are kept apart, and the paragraph is for
all other messages.
Reasons about which nothing is to be done are left out.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/troubleshooting.md"
OF_THE_UI = ROOT / "src/slipway/gateway/ui/advice.json"
OF_MODULES = ROOT / "plugins/module_utils/_advice_data.py"
_HEADING = re.compile(r"^## ([A-Z][A-Za-z]+(?:, [A-Z][A-Za-z]+)*)$", re.MULTILINE)
_DO = re.compile(r"^\*\*Do\.\*\* (.+)$", re.MULTILINE)
_ROW = re.compile(r"^\| (.+?) \| (.+?) \|$", re.MULTILINE)
_LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")
_ASIDE = re.compile(r"\((\[[^]]+\]\([^)]+\))\)")
_PATTERN = "..."
"""Stands in a message for what differs; what follows it is compared."""
_LONGEST = 96
"""Characters of a string on a line of the modules' file."""
_HEAD = '''\
# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.
# Written by `make generate` from docs/reference/troubleshooting.md; do not edit.

"""What to do about each reason of a condition, in the words of the page about it."""

from __future__ import annotations

from collections.abc import Mapping

'''


def advice(page: str) -> dict[str, Any]:
    """Reason -> ``do`` and, where they differ by message, ``cases``."""
    reasons: dict[str, Any] = {}
    parts = _HEADING.split(page)
    for names, text in zip(parts[1::2], parts[2::2], strict=True):
        own = text.partition("\n## ")[0]
        match = _DO.search(own)
        advised = by_reason(match.group(1) if match else "", names.split(", "))
        table = not match or "| message | do |" in own
        rows = {plain(row[0]): plain(row[1]) for row in _ROW.findall(own)} if table else {}
        cases = {
            message.rpartition(_PATTERN)[2].lstrip(": "): do
            for message, do in rows.items()
            if message not in ("message", "---")
        }
        for name, do in advised.items():
            entry = {"do": do, "cases": cases}
            if (do and do != "Nothing.") or cases:
                reasons[name] = {key: value for key, value in entry.items() if value}
    return reasons


def by_reason(text: str, names: list[str]) -> dict[str, str]:
    """The advice of a paragraph for each reason of its heading."""
    any_name = f"`(?:{'|'.join(names)})`"
    label = re.compile(rf"({any_name}(?:, {any_name})*): ")
    if not label.match(text):
        return dict.fromkeys(names, plain(text))
    parts = label.split(text)[1:]
    advised = dict.fromkeys(names, "")
    for labelled, part in zip(parts[::2], parts[1::2], strict=True):
        do = plain(part)
        advised |= dict.fromkeys(re.findall(r"\w+", labelled), do[:1].upper() + do[1:])
    return advised


def plain(text: str) -> str:
    """Without links; a colon before a block that is not taken along becomes a full stop."""
    text = _LINK.sub(r"\1", _ASIDE.sub(r"(see \1)", text)).strip()
    return f"{text[:-1]}." if text.endswith(":") else text


def in_brief(reasons: dict[str, Any]) -> dict[str, str]:
    """What modules say by reason: plain text, and nothing about reasons that need nothing done."""
    brief = {reason: _brief(entry.get("do", "")) for reason, entry in reasons.items()}
    return {reason: do for reason, do in brief.items() if do and not do.startswith("Nothing")}


def by_message(reasons: dict[str, Any]) -> dict[str, tuple[tuple[str, str], ...]]:
    """The same by reason and text of the message, of reasons with different advice for each."""
    return {
        reason: tuple((_brief(text).lower(), _brief(do)) for text, do in entry["cases"].items())
        for reason, entry in reasons.items()
        if entry.get("cases")
    }


def _brief(text: str) -> str:
    return text.replace("`", "").replace("**", "")


def module(texts: dict[str, str], cases: dict[str, tuple[tuple[str, str], ...]]) -> str:
    """The modules' file."""
    entries = (f"    {json.dumps(reason)}: (\n{_lines(text)}    ),\n" for reason, text in texts.items())
    rows = (f"    {json.dumps(reason)}: (\n{_pairs(pairs)}    ),\n" for reason, pairs in cases.items())
    return (
        f"{_HEAD}ADVICE: Mapping[str, str] = {{\n{''.join(entries)}}}\n"
        "# Text of a message in lower case, and what to do about it.\n"
        f"CASES: Mapping[str, tuple[tuple[str, str], ...]] = {{\n{''.join(rows)}}}\n"
    )


def _pairs(pairs: tuple[tuple[str, str], ...]) -> str:
    return "".join(f"        ({json.dumps(text)}, (\n{_lines(do)}        )),\n" for text, do in pairs)


def _lines(text: str) -> str:
    """String literals that make the text when they are joined."""
    pieces = [""]
    for word in re.findall(r"\S+\s*", text):
        if pieces[-1] and len(pieces[-1]) + len(word) > _LONGEST:
            pieces.append("")
        pieces[-1] += word
    return "".join(f"        {json.dumps(piece, ensure_ascii=False)}\n" for piece in pieces)


def main() -> None:
    """Reads the page, and writes both files."""
    reasons = advice(PAGE.read_text())
    OF_THE_UI.write_text(f"{json.dumps(reasons, indent=1, ensure_ascii=False)}\n")
    OF_MODULES.write_text(module(in_brief(reasons), by_message(reasons)))


if __name__ == "__main__":
    main()
