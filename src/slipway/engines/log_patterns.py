"""Log patterns: what the last lines of an engine's log mean. Pure."""

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


class LogPattern(NamedTuple):
    """A pattern in an engine's log, and the reason and message that it stands for.

    If the pattern has a group ``status``, it is an HTTP status of the hub: advice on that status follows the message.
    """

    pattern: re.Pattern[str]
    reason: str
    meaning: str
    passing: bool = False
    """Whether the failure is likely to pass by itself."""


def log_patterns(*rows: tuple[str, str, str] | tuple[str, str, str, bool]) -> tuple[LogPattern, ...]:
    return tuple(LogPattern(re.compile(row[0]), *row[1:]) for row in rows)


STAMP = re.compile(
    r"^(?:\d+\.\d\d\.\d{3}\.\d{3} |(?:\(\w+ pid=\d+\) )?(?:[A-Z]+ [\d-]{5,10} [\d:.,]{8,12} )?)", re.MULTILINE
)
"""Times and process numbers before lines: they would make each start's message another one."""
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\[(?:\?[0-9;]+|[0-9;]*[0-9])[A-HJKSTfhlm]|\[K")
"""Commands to a terminal; their first character may be lost."""


def match_log(log: str, patterns: Iterable[LogPattern]) -> Failure | None:
    """What the first pattern that matches means, with the log from its line on; None: none matches."""
    text = STAMP.sub("", ESCAPE.sub("", log))
    for row in patterns:
        found = row.pattern.search(text)
        if found:
            shown = text[text.rfind("\n", 0, found.start()) + 1 :]
            status = found.groupdict().get("status")
            if status is None:
                return Failure(row.reason, row.meaning, shown, passing=row.passing)
            advice = huggingface.explain_status(int(status))
            return Failure(row.reason, f"{row.meaning}: {advice}", shown, passing=huggingface.passes(int(status)))
    return None
