"""The page on engines lists the recorded answers, and the last run of `make engines`.

SLIPWAY_WRITE_ENGINES=1 writes the lists into the page.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from ...docs.pages import ROOT

PAGE = ROOT / "docs/reference/engines.md"
RECORDED = ROOT / "tests/engines/recorded"
RUN = ROOT / "tests/lanes/engines.json"
HEADING, NEXT = "## Recorded answers", "\n## Run them yourself\n"
NAMES = {
    "vllm": "vLLM",
    "infinity": "Infinity",
    "llamacpp": "llama.cpp",
    "faster-whisper-server": "faster-whisper, with a server of the package index",
}
SETS = {
    "generates": "chats, completions, responses, messages, streams, errors",
    "adapters": "LoRA adapters",
    "embeds": "embeddings",
    "ranks": "rerank",
    "speech": "transcription",
}


def rows() -> Iterator[str]:
    yield "| engine | version | requests | answers | recorded on |"
    yield "| --- | --- | --- | --- | --- |"
    for path in sorted(RECORDED.glob("*.json")):
        record = json.loads(path.read_text())
        link = f"[{len(record['answers'])}](../../tests/engines/recorded/{path.name})"
        sets = ", ".join(SETS[name] for name in record["sets"])
        yield f"| {NAMES[record['engine']]} | {record['version']} | {sets} | {link} | {record['at']} |"


def last_run() -> str:
    if not RUN.exists():
        return "`make engines` has not passed on a cluster yet."
    run = json.loads(RUN.read_text())
    minutes, tests = round(run["seconds"] / 60), run["passed"] + len(run["failed"])
    counts = f"{run['passed']} of {tests} tests passed in {minutes} minutes on {run['cores']} cores"
    return f"Last run of `make engines` on a cluster: {run['at'][:10]}, {counts}."


def section() -> str:
    head = (
        "We sent the same requests to real engines and recorded the answers. Unit tests compare the stand-ins of vLLM, "
        "Infinity and faster-whisper with them, and `make engines` compares the engines themselves."
    )
    return "\n".join([HEADING, "", head, "", *rows(), "", last_run(), ""])


def test_the_page_lists_what_was_recorded() -> None:
    before, _heading, rest = PAGE.read_text().partition(HEADING)
    after = rest[rest.index(NEXT) :]
    if os.environ.get("SLIPWAY_WRITE_ENGINES"):
        PAGE.write_text(before + section() + after)
    assert PAGE.read_text() == before + section() + after
