"""Report: the loader's result for weights that it downloaded, inspected or probed.

The loader writes a report as JSON into its container's termination message, which outlives the container. The
controller reads it from the pod's status. The message of a permanent failure is ``Code: sentence``.

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
"""Maximum size of a report in bytes. Kubernetes keeps 4096 bytes of a termination message."""
MESSAGE_BYTES = 8192
"""Maximum size in bytes of a termination message to parse."""
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
"""Pattern for a path that stays inside its directory and is not one of the loader's own files. May be empty."""
Count = Annotated[int, msgspec.Meta(ge=0)]
FAILED = re.compile(r"([A-Za-z]+): (.+)", re.DOTALL)


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The loader's result for the weights of one model. A field is empty, 0 or None if its value is unknown."""

    file: Annotated[str, msgspec.Meta(pattern=INSIDE)] = ""
    """Path of the main file, relative to the model's directory."""
    files: Count = 1
    size: Count = 0
    """Total size of all files in bytes."""
    sha256: Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{64})?\Z")] = ""
    """SHA-256 of the main file in lower-case hex."""
    etag: str = ""
    """Identifier of the source's content at the time of the load."""
    revision: str = ""
    """Revision of the source as users write it, such as a commit."""
    gguf: Gguf | None = None
    """Header of the main file, if it is a GGUF file."""
    safetensors: Safetensors | None = None
    header_fault: str = ""
    """Reason why the header of a file could not be read."""
    fault: str = ""
    """Problem with existing files: one of them is a pointer file, truncated or missing."""
    model: ModelFacts | None = None
    """Facts derived from all files."""
    seal: Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{64})?\Z")] = ""
    """Seal by which the next load of the model recognizes the model's directory."""


def encode_report(report: Report) -> bytes:
    """Encode a report as JSON. If it is too long, omit the headers, and then the facts about the model."""
    brief = msgspec.structs.replace(report, gguf=None, safetensors=None, header_fault="too long")
    shorter = (report, brief, msgspec.structs.replace(brief, model=None))
    texts = [msgspec.json.encode(one) for one in shorter]
    return next((text for text in texts if len(text) <= LONGEST), texts[-1])


def parse_report(message: str) -> Report | None:
    """Parse a report. Return None if the message is not a report."""
    try:
        return decode_json(message, Report, most=MESSAGE_BYTES)
    except DecodingError:
        return None


def fault(message: str) -> tuple[Fault | None, str]:
    """Split a failure message into its code and its sentence. The code is None if the message has no known code."""
    match = FAILED.fullmatch(message)
    if match is None or match[1] not in get_args(Fault):
        return None, message
    return msgspec.convert(match[1], Fault), match[2]
