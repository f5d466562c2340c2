"""Facts about weights in a status: their header and size. Pure."""

from __future__ import annotations

import re

from slipway.artifacts.documents.report import Report
from slipway.artifacts.headers.gguf import Gguf
from slipway.kube.objects import Object

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
LICENCES = (
    (re.compile(r"apache[-_ ]?(license)?[-_ ,]*(version)?[-_ ]?2(\.0)?", re.IGNORECASE), "apache-2.0"),
    (re.compile(r"mit([-_ ]licen[sc]e)?", re.IGNORECASE), "mit"),
    (re.compile(r"llama[-_ ]?3\.([123]).*", re.IGNORECASE), r"llama-3.\1-community"),
    (re.compile(r"gemma.*", re.IGNORECASE), "gemma"),
)
"""Pattern of a license's spellings -> usual name of the license. Other licenses keep their names."""


def header(gguf: Gguf) -> Object:
    """Return the value of ``status.gguf`` for the header of a GGUF file. Unknown values are left out."""
    fields = {
        "architecture": gguf.architecture,
        "modelName": gguf.name,
        "quantization": gguf.quantization,
        "contextLength": gguf.context_length,
        "embeddingSize": gguf.embedding_length,
        "layerCount": gguf.block_count,
        "headCount": gguf.head_count,
        "tensorCount": gguf.tensor_count,
        "fileVersion": gguf.file_version,
        "license": licence(gguf.license),
    }
    return {field: value for field, value in fields.items() if value}


def licence(text: str) -> str:
    """Return the usual name of a license, or ``text`` if no pattern in ``LICENCES`` matches it."""
    return next((match.expand(word) for form, word in LICENCES if (match := form.fullmatch(text.strip()))), text)


def human(size: float) -> str:
    """Format a number of bytes in human-readable form, with a binary unit, such as ``1.5 GiB``."""
    unit = UNITS[0]
    for unit in UNITS:
        if size < 1024 or unit == UNITS[-1]:
            break
        size /= 1024
    return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"


def describe_header(begin: str, report: Report) -> str:
    """Return a sentence that begins with ``begin`` and describes the files, the tensors of safetensors files, and a
    problem with the files or their headers."""
    parts = [f"{report.files} files"] if report.files > 1 else []
    if report.safetensors:
        numbers = report.safetensors.parameters
        total = sum(numbers.values())
        parts.append(f"{report.safetensors.tensor_count} tensors, {total:,} parameters ({', '.join(numbers)})")
    if report.fault:
        parts.append(f"no engine can read them: {report.fault}")
    elif report.header_fault:
        parts.append(f"their header is not readable: {report.header_fault}")
    return f"{begin}{': ' if parts else ''}{'; '.join(parts)}."
