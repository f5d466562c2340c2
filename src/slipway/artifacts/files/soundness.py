"""Soundness: detects files that are not weights, and missing files of a set. Pure.

The content decides, not the file name's ending. A repository that was copied without Git LFS has pointers instead of
weights, a server that requires a login returns a page, and a model of several files may lack one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from slipway.artifacts.files.copies import BESIDE, PART, SAFETENSORS

BLANKS = b"\xef\xbb\xbf \t\r\n"
"""What may stand before a text, or behind it."""
HEAD = 512
"""Bytes of a file that tell what it is instead of weights."""
WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt", ".onnx")
READ = (*WEIGHTS, ".json", ".model", ".tiktoken", ".jinja", ".spm", ".vocab")
"""Endings of what engines read. Other files are read as well, as each tokenizer has its own names."""
POINTER_BYTES = 1024
"""No pointer and no error message is longer."""
POINTERS: Mapping[re.Pattern[bytes], tuple[str, str]] = {
    re.compile(rb"version https://git-lfs\.github\.com/spec/"): ("Git LFS", "git lfs pull"),
    re.compile(rb"# xet version "): ("git-xet", "git xet checkout"),
    re.compile(rb"(?:(?:\.\./)*\.git)?/annex/objects/"): ("git-annex", "git annex get ."),
}
"""How a pointer begins -> the program that it is of, and the command that fetches the file."""
PAGES = (b"<!doctype html", b"<html", b"<head", b"<body")
COMMENT = b"<!--"
"""Pages begin with it, but templates and XML do as well."""
OBJECTS = (b"<?xml", b"<error", b'{"error', b'{"message', b'{"detail')
"""With ``SENTENCES``: how errors of servers begin in place of weights, in lower case."""
SENTENCES = re.compile(
    rb"(?:error:? *)?(?:http/\d[\d.]* *)?(?:[45]\d\d:? +)?(?:(?:entry |file |page |repository |model )?not found"
    rb"|access denied|access to model|invalid (?:username or password|credentials)|unauthori[sz]ed|forbidden"
    rb"|too many requests|bad gateway|service unavailable|gateway time-?out|internal server error)\b[.!]?"
)
ERROR = re.compile(rb'\{\s*"error"\s*:\s*"[^"]*"\s*\}')
"""The same in place of JSON, which may have any keys."""
JSON = frozenset(("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json"))
"""What every engine reads next to safetensors, as JSON."""
TAIL = 64
"""Bytes at the end of such a file that show whether it is all there."""
MOST_PARTS = 1000
GGUF = ".gguf"
INDEX = ".safetensors.index.json"
PICKLE_INDEX = ".bin.index.json"
MODEL = re.compile(rf"(?!.*(?:{BESIDE.pattern})).*(?:\.safetensors|\.gguf)|pytorch_model.*\.bin", re.IGNORECASE)
"""Names of weights that are a model by themselves."""


def fault_of(path: str, head: bytes, size: int | None, *, as_json: bool = False) -> str:
    """What a file that an engine may read is instead, by its first bytes; empty: nothing that shows. ``size``: None: it
    is not known. ``as_json``: whether it is one of ``json_of``."""
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
    """Of files that are neither weights nor JSON only those that have nothing but the message."""
    if weights:
        return begin.startswith(OBJECTS) or bool(SENTENCES.match(begin))
    if as_json and begin.startswith(b"<"):
        return True
    text = begin.rstrip(BLANKS)
    return length < HEAD and bool(SENTENCES.fullmatch(text) or (as_json and ERROR.fullmatch(text)))


def json_of(weights: Collection[str]) -> frozenset[str]:
    """The paths of the files that the engine of these weights reads as JSON, if they are there. None where the engine
    is not certain to read them: next to GGUF, pickles and adapters, and in other folders."""
    if any(path.lower().endswith(GGUF) for path in weights):
        return frozenset()
    models = (path for path in weights if path.lower().endswith(SAFETENSORS) and "/" not in path)
    return JSON if any(MODEL.fullmatch(path) for path in models) else frozenset()


def fault_of_json(path: str, head: bytes, tail: bytes) -> str:
    """What is wrong with such a file, by its first and its last bytes; empty: nothing that shows."""
    begin, end = head[:HEAD].lstrip(BLANKS), tail[-TAIL:].rstrip(BLANKS)
    if not begin:
        return ""
    if begin[:1] not in b"{[":
        return unreadable(path, "it is not JSON")
    if end and end[-1:] != {b"{": b"}", b"[": b"]"}[begin[:1]]:
        return f"{path} is cut off: it does not end as JSON does: copy the file again"
    return ""


def missing_part(paths: Collection[str]) -> str:
    """The first part that these files lack of weights that are split: ``model-00002-of-00002.safetensors``."""
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
    """Returns all parts of a split file, the first one first; empty for a file that is not a part."""
    part = PART.search(path)
    if part is None or not path.lower().endswith(WEIGHTS) or not 1 < int(part[2]) <= MOST_PARTS:
        return ()
    begin, width, end = path[: part.start()], len(part[1]), path[part.end() :]
    # Files that are counted from 0 end with "2 of 2" as the others do.
    first = min(int(part[1]), 1)
    return tuple(f"{begin}-{number:0{width}}-of-{part[2]}{end}" for number in range(first, int(part[2]) + 1))


def named_by(index: str, content: Mapping[str, Any]) -> list[str]:
    """The paths of the files that an index of weights names; ``index``: its own path."""
    named, folder = content.get("weight_map"), index.rpartition("/")[0]
    files = {one for one in named.values() if isinstance(one, str)} if isinstance(named, Mapping) else set()
    return sorted(f"{folder}/{one}" if folder else one for one in files)


def belongs_to_other_model(index: str, content: Mapping[str, Any], paths: Collection[str]) -> bool:
    """Whether an index of weights belongs to another model: its folder has weights, but none that it names. Quantized
    and merged models often still have the index of the model that they were made from."""
    folder, named = index.rpartition("/")[0], named_by(index, content)
    if not named or any(path in paths for path in named):
        return False
    if index.lower().endswith(PICKLE_INDEX):
        return True
    return any(MODEL.fullmatch(path.rpartition("/")[2]) for path in paths if path.rpartition("/")[0] == folder)


def missing_of_index(index: str, content: Mapping[str, Any], paths: Collection[str]) -> str:
    """The first file that an index of weights names and that is not among these. An index that was left over counts for
    nothing."""
    if belongs_to_other_model(index, content, paths):
        return ""
    return next((path for path in named_by(index, content) if path not in paths), "")


def cut_off(path: str, size: int, promised: int) -> str:
    """Returns the message that a file has another size than its header declares."""
    return f"{path} has {size} bytes, but its header promises {promised}: copy the file again"


def unreadable(path: str, reason: object) -> str:
    """Returns the message that the content of a file does not match its name."""
    return f"{path} is not a valid file of its type: {reason}: copy the file again"


def incomplete(missing: str, by: str = "") -> str:
    """Returns the message that a file is missing. ``by``: what names it."""
    named = f"{by} names it" if by else "other parts of it are there"
    return f"{missing[:256]} is missing, but {named[:300]}: copy the whole model again"
