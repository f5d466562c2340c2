"""Report: the loader's result for weights that it downloaded, inspected or probed.

The loader writes it as JSON into its container's termination message, which outlives the container, and the controller
reads it from the pod's status. A permanent failure is a code and a sentence: ``Code: sentence``.

Other writers may change a volume or a pod's status, so an invalid report counts as missing.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, get_args

import msgspec

from slipway.artifacts.facts.config import ModelFacts
from slipway.artifacts.headers.gguf import Gguf
from slipway.artifacts.headers.safetensors import Safetensors
from slipway.decoding import DecodingError, decode_json

LONGEST = 3500
"""Maximum size of a report; Kubernetes keeps 4096 bytes of a message."""
MESSAGE_BYTES = 8192
"""Maximum size of a termination message that is read, wherever it comes from."""
Fault = Literal[
    "IntegrityCheckFailed",
    "SourceNotAllowed",
    "SourceNotFound",
    "InvalidFileSet",
    "UnsupportedSource",
    "InsufficientStorage",
]
"""Codes of permanent failures."""
INSIDE = r"\A((?!\.\.?(/|\Z)|\.slipway)[^/\x00]+(/(?!\.\.?(/|\Z))[^/\x00]+)*)?\Z"
"""A path that stays inside its directory and is not one of the loader's own files; may be empty."""
Count = Annotated[int, msgspec.Meta(ge=0)]
FAILED = re.compile(r"([A-Za-z]+): (.+)", re.DOTALL)


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The loader's report. Empty and 0: unknown."""

    file: Annotated[str, msgspec.Meta(pattern=INSIDE)] = ""
    """The main file, relative to the directory."""
    files: Count = 1
    size: Count = 0
    """Total size of all files in bytes."""
    sha256: Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{64})?\Z")] = ""
    """SHA-256 of the main file in lower-case hex."""
    etag: str = ""
    """Identifies this state of the source."""
    revision: str = ""
    """The revision as people know it, such as a commit."""
    gguf: Gguf | None = None
    """Header of the main file, if it is a GGUF file."""
    safetensors: Safetensors | None = None
    header_fault: str = ""
    """Why the header of a file could not be read."""
    fault: str = ""
    """What is wrong with existing files: one is a pointer file, truncated or missing."""
    model: ModelFacts | None = None
    """The facts from all files together."""
    seal: Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{64})?\Z")] = ""
    """Seal by which the next load of the same model recognizes its folder."""


def encode_report(report: Report) -> bytes:
    """Encodes a report as JSON. If it is too long, metadata from the files is omitted, headers first."""
    brief = msgspec.structs.replace(report, gguf=None, safetensors=None, header_fault="too long")
    shorter = (report, brief, msgspec.structs.replace(brief, model=None))
    texts = [msgspec.json.encode(one) for one in shorter]
    return next((text for text in texts if len(text) <= LONGEST), texts[-1])


def parse_report(message: str) -> Report | None:
    """Parses a report. Returns None if the message is not a report."""
    try:
        return decode_json(message, Report, most=MESSAGE_BYTES)
    except DecodingError:
        return None


def fault(message: str) -> tuple[Fault | None, str]:
    """Splits a message into the code, if there is one, and the sentence."""
    match = FAILED.fullmatch(message)
    if match is None or match[1] not in get_args(Fault):
        return None, message
    return msgspec.convert(match[1], Fault), match[2]
