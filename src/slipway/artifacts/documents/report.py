"""Report: the loader's result for weights that it downloaded, inspected or probed.

The loader writes it as JSON into its container's termination message, which outlives the container, and the controller
reads it from the pod's status. A permanent failure is a code and a sentence: ``Code: sentence``.

Others may write to a volume or the status of a pod, so an invalid report counts as missing.
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
"""Bytes of a report: Kubernetes keeps 4096 of a message."""
MESSAGE_BYTES = 8192
"""Bytes of a termination message that are looked at, whatever keeps it."""
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
"""A path that stays in its folder and is no file of the loader's own; or none."""
Count = Annotated[int, msgspec.Meta(ge=0)]
FAILED = re.compile(r"([A-Za-z]+): (.+)", re.DOTALL)


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Empty and 0: unknown."""

    file: Annotated[str, msgspec.Meta(pattern=INSIDE)] = ""
    """The main file, relative to the folder."""
    files: Count = 1
    size: Count = 0
    """Bytes of all files."""
    sha256: Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{64})?\Z")] = ""
    """Of the main file, lower-case hex."""
    etag: str = ""
    """Tells this state of the source from any other."""
    revision: str = ""
    """What a person knows it by, such as a commit."""
    gguf: Gguf | None = None
    """Header of the main file, where it is one."""
    safetensors: Safetensors | None = None
    header_fault: str = ""
    """Why the header of a file that has one could not be read."""
    fault: str = ""
    """What is wrong with files that are there already: one is a pointer, or cut off, or missing."""
    model: ModelFacts | None = None
    """What the files say together."""
    seal: Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{64})?\Z")] = ""
    """By which the next load of the same model knows its folder again."""


def encode_report(report: Report) -> bytes:
    """Encodes a report as JSON. If it is too long, metadata from the file is left out, the headers first."""
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
    """Returns the code, if there is one, and the sentence."""
    match = FAILED.fullmatch(message)
    if match is None or match[1] not in get_args(Fault):
        return None, message
    return msgspec.convert(match[1], Fault), match[2]
