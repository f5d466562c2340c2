"""Soundness: detects files that are not weights, and missing files of a set. Pure.

The content decides, not the file extension. A repository copied without Git LFS has pointer files instead of weights, a
server that requires a login returns a web page, and a model with several files may lack one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from slipway.artifacts.files.copies import COMPANION, PART, SAFETENSORS

BLANKS = b"\xef\xbb\xbf \t\r\n"
"""White space and the byte order mark, which may precede or follow a text."""
HEAD = 512
"""Number of bytes at the beginning of a file from which its real type is detected."""
WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt", ".onnx")
READ = (*WEIGHTS, ".json", ".model", ".tiktoken", ".jinja", ".spm", ".vocab")
"""Extensions of files that engines read. They also read other files, because each tokenizer has its own names."""
POINTER_BYTES = 1024
"""Maximum size of pointer files and error messages in bytes."""
POINTERS: Mapping[re.Pattern[bytes], tuple[str, str]] = {
    re.compile(rb"version https://git-lfs\.github\.com/spec/"): ("Git LFS", "git lfs pull"),
    re.compile(rb"# xet version "): ("git-xet", "git xet checkout"),
    re.compile(rb"(?:(?:\.\./)*\.git)?/annex/objects/"): ("git-annex", "git annex get ."),
}
"""Beginning of a pointer file -> its program, and the command that fetches the real file."""
PAGES = (b"<!doctype html", b"<html", b"<head", b"<body")
COMMENT = b"<!--"
"""Start of a comment. Web pages may begin with a comment, but so may templates and XML."""
OBJECTS = (b"<?xml", b"<error", b'{"error', b'{"message', b'{"detail')
"""Beginnings (in lower case) of server errors stored in place of weights; see also ``SENTENCES``."""
SENTENCES = re.compile(
    rb"(?:error:? *)?(?:http/\d[\d.]* *)?(?:[45]\d\d:? +)?(?:(?:entry |file |page |repository |model )?not found"
    rb"|access denied|access to model|invalid (?:username or password|credentials)|unauthori[sz]ed|forbidden"
    rb"|too many requests|bad gateway|service unavailable|gateway time-?out|internal server error)\b[.!]?"
)
ERROR = re.compile(rb'\{\s*"error"\s*:\s*"[^"]*"\s*\}')
"""A server error in JSON. Only a whole file can match, because a model's JSON file may also have the key ``error``."""
JSON = frozenset(("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json"))
"""JSON files that every engine reads in addition to safetensors."""
TAIL = 64
"""Number of bytes at the end of a JSON file that show whether the file is complete."""
MOST_PARTS = 1000
GGUF = ".gguf"
INDEX = ".safetensors.index.json"
PICKLE_INDEX = ".bin.index.json"
MODEL = re.compile(rf"(?!.*(?:{COMPANION.pattern})).*(?:\.safetensors|\.gguf)|pytorch_model.*\.bin", re.IGNORECASE)
"""Names of a model's own weights, as opposed to adapters and projectors."""


def fault_of(path: str, head: bytes, size: int | None, *, as_json: bool = False) -> str:
    """Return the problem with a file that an engine may read, judging by its first bytes; empty if there is none.
    ``head`` has ``HEAD`` bytes, or fewer if the file is shorter. ``size`` is in bytes, None if it is unknown.
    ``as_json`` is true for the files in :func:`json_of`."""
    weights = path.lower().endswith(WEIGHTS)
    what = "the weights" if weights else "the file itself"
    begin = head[:HEAD].lstrip(BLANKS).lower()
    for beginning, (program, command) in POINTERS.items():
        if beginning.match(begin):
            return f"{path} is a {program} pointer, not {what}: run '{command}' in the repository and copy it again"
    if begin.startswith(PAGES) or ((weights or as_json) and begin.startswith(COMMENT)):
        return f"{path} is a web page, not {what}: check the address and whether it needs a token"
    if _is_answer(begin, len(head), weights=weights, as_json=as_json):
        return f"{path} is an error message of a server, not {what}: check the address and whether it needs a token"
    if (weights and not head and not size) or (as_json and not begin and len(head) < HEAD):
        return f"{path} is empty: copy {'the weights' if weights else 'the file'} again"
    return ""


def _is_answer(begin: bytes, length: int, *, weights: bool, as_json: bool) -> bool:
    """Whether a file is a server's error message. In place of weights, more text may follow the message. In any other
    file, the message must be the whole content."""
    if weights:
        return begin.startswith(OBJECTS) or bool(SENTENCES.match(begin))
    if as_json and begin.startswith(b"<"):
        return True
    text = begin.rstrip(BLANKS)
    return length < HEAD and bool(SENTENCES.fullmatch(text) or (as_json and ERROR.fullmatch(text)))


def json_of(weights: Collection[str]) -> frozenset[str]:
    """Return the names of the files that the engine of these weights reads as JSON. Empty if that is uncertain: for
    GGUF, pickles, adapters, and weights in subdirectories."""
    if any(path.lower().endswith(GGUF) for path in weights):
        return frozenset()
    models = (path for path in weights if path.lower().endswith(SAFETENSORS) and "/" not in path)
    return JSON if any(MODEL.fullmatch(path) for path in models) else frozenset()


def fault_of_json(path: str, head: bytes, tail: bytes) -> str:
    """Return the problem with a JSON file, judging by its first and last bytes; empty if there is none. Ignore an empty
    file, which :func:`fault_of` reports."""
    begin, end = head[:HEAD].lstrip(BLANKS), tail[-TAIL:].rstrip(BLANKS)
    if not begin:
        return ""
    if begin[:1] not in b"{[":
        return unreadable(path, "it is not JSON")
    if end and end[-1:] != {b"{": b"}", b"[": b"]"}[begin[:1]]:
        return f"{path} is cut off: it does not end as JSON does: copy the file again"
    return ""


def missing_part(paths: Collection[str]) -> str:
    """Return the first missing part of split weights, such as ``model-2-of-2.safetensors``; empty if none is
    missing."""
    parts: dict[tuple[str, str, str], list[str]] = {}
    for path in paths:
        part = PART.search(path)
        if part and path.lower().endswith(WEIGHTS):
            parts.setdefault((path[: part.start()], part[2], path[part.end() :]), []).append(part[1])
    for (begin, total, ending), texts in sorted(parts.items()):
        numbers, width = {int(text) for text in texts}, min(map(len, texts))
        first = 0 if 0 in numbers else 1
        for number in range(first, first + min(int(total), MOST_PARTS)):
            if number not in numbers:
                return f"{begin}-{number:0{width}}-of-{total}{ending}"
    return ""


def parts_of(path: str) -> tuple[str, ...]:
    """Return all parts of a split weight file, in order; empty for any other file, and for a file with one part or more
    than ``MOST_PARTS``."""
    part = PART.search(path)
    if part is None or not path.lower().endswith(WEIGHTS) or not 1 < int(part[2]) <= MOST_PARTS:
        return ()
    begin, width, end = path[: part.start()], len(part[1]), path[part.end() :]
    # Files numbered from 0 also end with the total: "2 of 2".
    first = min(int(part[1]), 1)
    return tuple(f"{begin}-{number:0{width}}-of-{part[2]}{end}" for number in range(first, int(part[2]) + 1))


def named_by(index: str, content: Mapping[str, Any]) -> list[str]:
    """Return the sorted paths of the files that an index of weights lists. ``index`` is the path of the index."""
    named, folder = content.get("weight_map"), index.rpartition("/")[0]
    files = {one for one in named.values() if isinstance(one, str)} if isinstance(named, Mapping) else set()
    return sorted(f"{folder}/{one}" if folder else one for one in files)


def belongs_to_other_model(index: str, content: Mapping[str, Any], paths: Collection[str]) -> bool:
    """Whether an index belongs to another model: its directory has weights, but none of those listed. An index of
    PyTorch files needs no weights in its directory. Quantized and merged models often still have the index of the
    original model."""
    folder, named = index.rpartition("/")[0], named_by(index, content)
    if not named or any(path in paths for path in named):
        return False
    if index.lower().endswith(PICKLE_INDEX):
        return True
    return any(MODEL.fullmatch(path.rpartition("/")[2]) for path in paths if path.rpartition("/")[0] == folder)


def missing_of_index(index: str, content: Mapping[str, Any], paths: Collection[str]) -> str:
    """Return the first missing file that an index lists; empty if none is missing. Ignore indexes of other models."""
    if belongs_to_other_model(index, content, paths):
        return ""
    return next((path for path in named_by(index, content) if path not in paths), "")


def cut_off(path: str, size: int, promised: int) -> str:
    """Return the message for a file whose size in bytes differs from the size that its header promises."""
    return f"{path} has {size} bytes, but its header promises {promised}: copy the file again"


def unreadable(path: str, reason: object) -> str:
    """Return the message for a file whose content does not match its name."""
    return f"{path} is not a valid file of its type: {reason}: copy the file again"


def incomplete(missing: str, by: str = "") -> str:
    """Return the message for a missing file. ``by`` is the index that lists the file; empty for a part of a set."""
    named = f"{by} names it" if by else "other parts of it are there"
    return f"{missing[:256]} is missing, but {named[:300]}: copy the whole model again"
