"""Sayings: lines of engines' logs, and what they mean to a person. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from slipway.artifacts import huggingface
from slipway.serving.diagnosis import Failure

DOWNLOAD = "DownloadFailed"
GPU_MEMORY = "OutOfGpuMemory"
NO_FILE = "FileNotFound"
UNSUPPORTED = "UnsupportedModel"
ARGUMENT = "InvalidArgument"
GATED = "The repository is gated: accept its terms on the hub, and give the model that account's token (HF_TOKEN)"
TOO_LARGE = "The model and its context do not fit into the GPU's memory"
UNKNOWN_ARGUMENT = "The engine does not take one of the arguments in the spec"
UNREACHABLE = "The hub cannot be reached from the pod"
NO_SPACE = "The model is larger than the pod's place for weights"


class Saying(NamedTuple):
    """A pattern in the log, the reason and the text that it stands for.

    A group ``status`` in the pattern is the hub's HTTP status, whose advice goes after the text.
    """

    pattern: re.Pattern[str]
    reason: str
    meaning: str
    passing: bool = False
    """Likely to pass by itself."""


def sayings(*rows: tuple[str, str, str] | tuple[str, str, str, bool]) -> tuple[Saying, ...]:
    return tuple(Saying(re.compile(row[0]), *row[1:]) for row in rows)


STAMP = re.compile(
    r"^(?:\d+\.\d\d\.\d{3}\.\d{3} |(?:\(\w+ pid=\d+\) )?(?:[A-Z]+ [\d-]{5,10} [\d:.,]{8,12} )?)", re.MULTILINE
)
"""Times and process numbers before lines: they would make each start's message another one."""
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\[(?:\?[0-9;]+|[0-9;]*[0-9])[A-HJKSTfhlm]|\[K")
"""Commands to a terminal; their first character may be lost."""


def explained(log: str, known: Iterable[Saying]) -> Failure | None:
    """What the first saying that occurs means, with the log from its line on; None: none does."""
    text = STAMP.sub("", ESCAPE.sub("", log))
    for saying in known:
        found = saying.pattern.search(text)
        if found:
            shown = text[text.rfind("\n", 0, found.start()) + 1 :]
            status = found.groupdict().get("status")
            if status is None:
                return Failure(saying.reason, saying.meaning, shown, passing=saying.passing)
            advice = huggingface.explain_status(int(status))
            return Failure(saying.reason, f"{saying.meaning}: {advice}", shown, passing=huggingface.passes(int(status)))
    return None
