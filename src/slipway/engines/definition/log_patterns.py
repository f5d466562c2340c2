"""Log patterns: derives the cause of a failure from the last lines of an engine's log. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from slipway import spelling
from slipway.artifacts.locations import huggingface
from slipway.artifacts.locations.huggingface import HuggingFaceFile
from slipway.artifacts.locations.weights import HubRepository, Weights
from slipway.serving.containers.diagnosis import Failure

DOWNLOAD = "DownloadFailed"
GPU_MEMORY = "OutOfGpuMemory"
NO_FILE = "FileNotFound"
UNSUPPORTED = "UnsupportedModel"
ARGUMENT = "InvalidArgument"
GATED = "The repository is gated: accept its terms on the hub, and give the model that account's token (HF_TOKEN)"
TOO_LARGE = "The model and its context do not fit into the GPU's memory"
UNKNOWN_ARGUMENT = "The engine rejected an argument in the spec"
UNREACHABLE = "The hub cannot be reached from the pod"
NO_SPACE = "The model is larger than the pod's volume for weights"


class LogPattern(NamedTuple):
    """A pattern in an engine's log, and the reason and the message of the failure.

    A message may contain ``{repository}``, ``{file}`` and ``{hub}``. A named group of the pattern changes the message:
    ``status`` is an HTTP status of the Hub, which is explained. ``files`` is a list of the repository's files: the
    message then reports the missing file instead. ``value`` is the value in the spec that the engine rejects.
    """

    pattern: re.Pattern[str]
    reason: str
    meaning: str
    passing: bool = False
    """Whether the failure is likely to resolve itself."""
    choices: tuple[str, ...] = ()
    """Valid values, from which the message suggests the nearest one."""


def log_patterns(
    *rows: tuple[str, str, str] | tuple[str, str, str, bool] | tuple[str, str, str, bool, tuple[str, ...]],
) -> tuple[LogPattern, ...]:
    return tuple(LogPattern(re.compile(row[0]), *row[1:]) for row in rows)


STAMP = re.compile(
    r"^(?:\d+\.\d\d\.\d{3}\.\d{3} |(?:\(\w+ pid=\d+\) )?(?:[A-Z]+ [\d-]{5,10} [\d:.,]{8,12} )?)", re.MULTILINE
)
"""Timestamps and process IDs at the beginning of lines. With them, the message would change at every restart."""
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\[(?:\?[0-9;]+|[0-9;]*[0-9])[A-HJKSTfhlm]|\[K")
"""Terminal escape sequences. The log may lack their first character."""


LISTED = re.compile(r"- ([\w./@+-]{1,100})$", re.MULTILINE | re.ASCII)
"""A file in a list in an engine's log. The author of the repository chooses the names, so a name with unusual
characters does not match."""
MOST_LISTED = 5


class Download(NamedTuple):
    """The source from which an engine downloads its model."""

    weights: Weights | None = None
    endpoint: str = ""
    """URL of a mirror of the Hub; empty for the public Hub."""

    @property
    def repository(self) -> str:
        if isinstance(self.weights, HuggingFaceFile):
            return self.weights.repository
        return self.weights.reference if isinstance(self.weights, HubRepository) else ""

    @property
    def file(self) -> str:
        return self.weights.file if isinstance(self.weights, HuggingFaceFile) else ""

    @property
    def host(self) -> str:
        return urlsplit(self.endpoint).hostname or "huggingface.co"


SOMETHING = Download()
"""The download of an engine whose source is unknown."""


def match_log(log: str, patterns: Iterable[LogPattern], download: Download = SOMETHING) -> Failure | None:
    """Return the failure of the first matching pattern, or None if no pattern matches. The failure includes the log
    from the matching line on, unless its message is sufficient."""
    text = STAMP.sub("", ESCAPE.sub("", log))
    for row in patterns:
        match = row.pattern.search(text)
        if match:
            return _failure(row, match, text[text.rfind("\n", 0, match.start()) + 1 :], download)
    return None


def _failure(row: LogPattern, match: re.Match[str], excerpt: str, download: Download) -> Failure:
    groups, named = match.groupdict(), bool(download.repository)
    meaning = row.meaning.format(
        repository=f" {download.repository}" * named,
        file=f" {download.file}" * bool(download.file),
        hub=f" from {download.host}" * named,
    )
    if groups.get("files") is not None:
        return Failure(row.reason, _missing_file(download, LISTED.findall(groups["files"])))
    if groups.get("value"):
        value = groups["value"][: spelling.CHARACTERS]
        alike = spelling.nearest(value, row.choices)
        fix = f"Did you mean {' or '.join(alike)}?" if alike else "Fix or remove it."
        return Failure(row.reason, f"{meaning}: {value!a}. {fix}")
    if groups.get("status") is None:
        return Failure(row.reason, meaning, excerpt, passing=row.passing)
    status = int(groups["status"])
    requested = next((name for name in ("repository", "file") if f"{{{name}}}" in row.meaning), "")
    return Failure(
        row.reason,
        f"{meaning}: {huggingface.explain_status(status, requested)}",
        "" if named else excerpt,
        passing=huggingface.passes(status),
    )


def _missing_file(download: Download, files: Sequence[str]) -> str:
    """Return the message for a missing file. It suggests the nearest name, or else lists files of the repository."""
    missing = f"{download.repository or 'The repository'} has no file {download.file!r}"
    text = f"{missing}." if download.file else "The repository has no file of that name."
    alike = spelling.nearest(download.file, files)
    if alike:
        return f"{text} Did you mean {' or '.join(alike)}?"
    rest = f" and {len(files) - MOST_LISTED} more" if len(files) > MOST_LISTED else ""
    return f"{text} It has {', '.join(files[:MOST_LISTED])}{rest}." if files else f"{text} Check the name."
