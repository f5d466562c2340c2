"""Metadata from the headers and configuration of model files, for a report."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from slipway.artifacts.documents.report import Report
from slipway.artifacts.facts import config
from slipway.artifacts.facts.config import ModelFacts
from slipway.artifacts.files import file_rules
from slipway.artifacts.headers import gguf, safetensors
from slipway.artifacts.headers.range_reader import MalformedFileError, Read
from slipway.artifacts.headers.safetensors import Safetensors
from slipway.decoding import DecodingError

MOST_HEADERS = 1000
"""Maximum number of files of one model whose headers are read."""
T = TypeVar("T")


def with_headers(report: Report, folder: Path, names: Sequence[str], header: str) -> Report:
    """Return the report with the metadata of the files ``names``. ``header`` selects the metadata, as in ``Work``. If a
    header is unreadable, record this in the report and raise nothing, because only the engine knows whether it can load
    the file."""
    try:
        if header == "model":
            return msgspec.structs.replace(report, model=model_of(folder, names))
        files = _of_format(names, header)
        if header == "gguf" and (report.file or files):
            return msgspec.structs.replace(report, gguf=_parse_header(folder / (report.file or files[0]), gguf.parse))
        if header == "safetensors" and files:
            return msgspec.structs.replace(report, safetensors=_tensors(folder, files))
    except (MalformedFileError, DecodingError, OSError) as error:
        return msgspec.structs.replace(report, header_fault=str(error)[:300])
    return report


def model_of(folder: Path, names: Sequence[str]) -> ModelFacts:
    """Return the facts about a model from the file that describes it and the headers of its weights. If the header of
    one safetensors file is unreadable, the headers of all safetensors files are ignored. Raise MalformedFileError,
    DecodingError or OSError."""
    main = config.described_by(names)
    if main.endswith(config.GGUF):
        parts = [name for name in _of_format(names, "gguf") if name.rpartition("/")[0] == main.rpartition("/")[0]]
        whole = [main] if "-00001-of-" not in main else parts
        return config.facts_of_gguf([_parse_header(folder / name, partial(gguf.parse, count=True)) for name in whole])
    configuration = config.parse_config(_beginning(folder / main)) if main else {}
    configuration = config.completed(configuration, _quantization_files(folder, names, main))
    shapes: dict[str, tuple[str, Sequence[int]]] = {}
    try:
        tensors = _tensors(folder, model_files(names, main), shapes).parameters
    except (MalformedFileError, OSError):
        tensors, shapes = {}, {}
    return config.facts_of(configuration, files=names, tensors=tensors, shapes=shapes)


def _quantization_files(folder: Path, names: Sequence[str], main: str) -> dict[str, Mapping[str, Any]]:
    """Return the content of the files next to ``main`` that describe the quantization, by file name. Unreadable files
    are left out."""
    read: dict[str, Mapping[str, Any]] = {}
    for name in config.QUANTIZATION_FILES:
        path = f"{main.rpartition('/')[0]}/{name}".lstrip("/")
        if path in names:
            with suppress(DecodingError, OSError):
                read[name] = config.parse_config(_beginning(folder / path))
    return read


def model_files(names: Sequence[str], main: str) -> list[str]:
    """Return the safetensors files of the model that the file ``main`` describes. A second copy of the weights, for
    other programs, is left out. For a pipeline, these are all files. For any other model, these are the files next to
    ``main`` whose names begin with ``model`` or, without such files, all files next to ``main`` or, without any, all
    files."""
    files = _of_format(sorted(file_rules.weights_of(names)), "safetensors") or _of_format(names, "safetensors")
    beside = [name for name in files if name.rpartition("/")[0] == main.rpartition("/")[0]]
    usual = [name for name in beside if name.rpartition("/")[2].startswith("model")]
    return files if main.endswith(config.PIPELINE) else usual or beside or files


def _of_format(names: Sequence[str], ending: str) -> list[str]:
    return [name for name in names if name.lower().endswith(f".{ending}")][:MOST_HEADERS]


def _beginning(path: Path) -> bytes:
    """Return the content of a file, but at most one byte more than ``config.MOST_BYTES``, so that the caller can detect
    a file that is too long."""
    with path.open("rb") as stream:
        return stream.read(config.MOST_BYTES + 1)


def _tensors(
    folder: Path, names: Sequence[str], shapes: dict[str, tuple[str, Sequence[int]]] | None = None
) -> Safetensors:
    """Return the combined headers of the safetensors files ``names``. ``shapes`` is filled as in
    ``safetensors.parse``."""
    parse = partial(safetensors.parse, budget=safetensors.Budget(), shapes=shapes)
    headers = [_parse_header(folder / name, parse) for name in names]
    parameters: Counter[str] = Counter()
    for one in headers:
        parameters.update(one.parameters)
    return Safetensors(
        tensor_count=sum(one.tensor_count for one in headers),
        parameters=dict(sorted(parameters.items())),
        size=sum(one.size for one in headers),
    )


def _parse_header(path: Path, parse: Callable[[Read], T]) -> T:
    handle = os.open(path, os.O_RDONLY)
    try:
        return parse(lambda offset, size: os.pread(handle, size, offset))
    finally:
        os.close(handle)
