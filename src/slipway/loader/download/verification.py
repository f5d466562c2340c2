"""Checks that loaded files match their names, and that the model is complete.

The engine decides about weights of an unknown kind. But a file that is obviously something else, such as a pointer
file, an HTML page or a truncated file, is rejected here, because otherwise a pod would fail much later.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from slipway.artifacts.facts import config
from slipway.artifacts.files import file_rules, soundness
from slipway.artifacts.headers import gguf, safetensors
from slipway.artifacts.headers.range_reader import MalformedFileError, Read, TruncatedError, UnreadableError
from slipway.decoding import DecodingError
from slipway.loader.transport.selection import FaultError

MOST_FILES = 10_000
"""Maximum number of files whose first bytes are read."""
MOST_INDEX = 64 << 20


def check_names(paths: Collection[str]) -> None:
    """Check the names of the files before they are downloaded. Raise FaultError if a part of the weights is missing."""
    if missing := soundness.missing_part(file_rules.weights_of(paths)):
        raise FaultError("UnsupportedSource", soundness.incomplete(missing))


def check_files(folder: Path, paths: Collection[str]) -> None:
    """Check the loaded files ``paths`` in ``folder``. Raise FaultError for the first invalid or missing file, or
    OSError for an unreadable one."""
    if fault := fault_in(folder, paths):
        raise FaultError("UnsupportedSource", fault)


def fault_in(folder: Path, paths: Collection[str]) -> str:
    """Return the first problem with the files ``paths`` of a directory, or an empty string if there is none. Raise
    OSError."""
    weights = file_rules.weights_of(paths)
    if missing := soundness.missing_part(weights):
        return soundness.incomplete(missing)
    read_as_json = soundness.json_of(weights)
    for path in sorted(paths)[:MOST_FILES]:
        if _is_index(path, weights) and (fault := _fault_of_index(folder, path, paths)):
            return fault
        if path not in weights and not _is_companion(folder, path):
            continue
        if fault := _fault_of(folder / path, path, as_json=path in read_as_json):
            return fault
    return ""


def _is_index(path: str, weights: Collection[str]) -> bool:
    """Whether a file is an index of the weights. The index of a PyTorch copy does not count if there are safetensors
    files."""
    if path.lower().endswith(soundness.PICKLE_INDEX):
        return not any(weight.lower().endswith(".safetensors") for weight in weights)
    return path.lower().endswith(soundness.INDEX)


def _fault_of_index(folder: Path, index: str, paths: Collection[str]) -> str:
    if file_rules.in_dropped_folder(index) or (folder / index).stat().st_size > MOST_INDEX:
        return ""
    try:
        content = config.parse_config((folder / index).read_bytes())
    except DecodingError:
        return ""
    missing = soundness.missing_of_index(index, content, paths)
    return soundness.incomplete(missing, index) if missing else ""


def _is_companion(folder: Path, path: str) -> bool:
    if path.lower().endswith(soundness.WEIGHTS) or file_rules.in_dropped_folder(path):
        return False
    return file_rules.is_companion(path, (folder / path).stat().st_size)


def _fault_of(path: Path, name: str, *, as_json: bool) -> str:
    with path.open("rb", buffering=0) as stream:
        size, head = path.stat().st_size, stream.read(soundness.HEAD)
        if fault := soundness.fault_of(name, head, size, as_json=as_json):
            return fault

        def read(offset: int, count: int) -> bytes:
            stream.seek(offset)
            return stream.read(count)

        if as_json:
            return soundness.fault_of_json(name, head, read(max(0, size - soundness.TAIL), soundness.TAIL))
        return _fault_of_header(name, head, size, read)


def _fault_of_header(name: str, head: bytes, size: int, read: Read) -> str:
    """Return the problem with the header of a file whose first bytes, ``head``, are valid, or an empty string if there
    is none.

    A file without the extension of a known format has a problem only if it is a truncated GGUF file.
    """
    ending = name.lower().rpartition(".")[2]
    try:
        if ending == "gguf" or head.startswith(gguf.MAGIC):
            gguf.parse(read, count=True, size=size)
        elif ending == "safetensors":
            promised = safetensors.parse(read).size
            return "" if promised == size else soundness.cut_off(name, size, promised)
    except UnreadableError:
        return ""
    except TruncatedError as error:
        return f"{name} is cut off: {error}: copy the file again"
    except (MalformedFileError, DecodingError) as error:
        return soundness.unreadable(name, error) if ending in ("gguf", "safetensors") else ""
    return ""
