"""Copies: removes copies of the same weights from a model's files. Pure.

A source may contain the weights of a model several times: in the vendor's layout, in several precisions, in one file
and in parts, or as PyTorch files. The model consists of the files that an index lists. Without an index, it consists of
the files with the usual names in the configuration's directory.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

PART = re.compile(r"-([0-9]{1,6})-of-([0-9]{1,6})(?=\.[A-Za-z0-9]+\Z)")
"""Part number and number of parts in the name of a split file. Most models use five digits, some use fewer or six."""
PRECISIONS = r"fp16|bf16|fp32|fp8|fp4|int8|int4|float16|bfloat16|float32|float8|half|non_ema|ema"
VARIANT = re.compile(
    rf"[.](?:{PRECISIONS})(?=[.-])|[_-](?:{PRECISIONS})(?=(?:-[0-9]+-of-[0-9]+)?\.safetensors\Z)", re.IGNORECASE
)
FOLDER = re.compile(
    rf"(?:{PRECISIONS}|nf4|awq|gptq|exl2|exl3|mlx|hqq|nvfp4|mxfp4|[2-8][-_]?bits?|quantized"
    r"|(?:checkpoint|global_step)[-_]?[0-9]+)",
    re.IGNORECASE,
)
"""Names of directories with a copy of the model in another precision, or from an earlier training step."""
LAYOUT = re.compile(r"consolidated(?:[.-].*)?\.safetensors", re.IGNORECASE)
"""File names of weights in a vendor's own layout."""
USUAL = re.compile(r"(?:pytorch_)?model(?:-[0-9]{1,6}-of-[0-9]{1,6})?\.safetensors", re.IGNORECASE)
COMPANION = re.compile(r"mmproj|imatrix|^adapter_", re.IGNORECASE)
"""Files that accompany a model: projectors, importance matrices, adapters."""
SAFETENSORS = ".safetensors"


def without(
    weights: Collection[str], paths: Collection[str], *, indexed: Collection[str] = (), pipeline: bool = False
) -> frozenset[str]:
    """Return the files in ``weights`` that are not copies. ``paths``: all files of the source; ``indexed``: the files
    that indexes list; ``pipeline``: whether the model is a diffusion pipeline, with a directory per component."""
    rest = set(weights)
    top = {path for path in rest if "/" not in path}
    if not pipeline and any(not COMPANION.search(path) for path in top):
        rest -= {path for path in rest - top if FOLDER.fullmatch(path.partition("/")[0])}
    if pipeline and rest - top:
        rest -= top
    folders: dict[str, set[str]] = {}
    for path in rest:
        folders.setdefault(path.rpartition("/")[0], set()).add(path)
    everything, named = frozenset(paths), frozenset(indexed)
    return frozenset(rest.difference(*(_copies(beside, everything, named) for beside in folders.values())))


def stem(path: str) -> str:
    """Return a path without its part number, so that all parts of a split file have the same stem."""
    return PART.sub("", path)


def _copies(beside: Collection[str], paths: frozenset[str], indexed: frozenset[str]) -> set[str]:
    """Return the copies among the weights of one directory."""
    sets = _sets(beside)
    copied = {path for path in beside if VARIANT.search(name := _name(path)) and _plain(path, name) in sets}
    # A file listed in the index of other weights is part of the model.
    copied -= {path for path in copied & indexed if f"{stem(path)}.index.json" not in paths}
    for whole, by_total in sets.items():
        copied |= _further(whole, by_total, paths, indexed)
    if any(USUAL.fullmatch(_name(path)) for path in beside) and not (indexed & _laid_out(beside)):
        copied |= _laid_out(beside)
    if any(path.lower().endswith(SAFETENSORS) for path in beside):
        copied |= {path for path in beside if path.lower().endswith(".bin")}
    return copied


def _sets(beside: Collection[str]) -> dict[str, dict[str, set[str]]]:
    """Group weights by their stem, and then by the number of parts in their names, which is empty for an unsplit
    file."""
    sets: dict[str, dict[str, set[str]]] = {}
    for path in beside:
        part = PART.search(path)
        sets.setdefault(stem(path), {}).setdefault(part[2] if part else "", set()).add(path)
    return sets


def _further(
    whole: str, by_total: Mapping[str, set[str]], paths: frozenset[str], indexed: frozenset[str]
) -> frozenset[str]:
    """Return the copies among the files with the stem ``whole``. ``by_total``: number of parts, empty for an unsplit
    file -> paths."""
    parts = frozenset[str]().union(*(files for total, files in by_total.items() if total))
    if "" in by_total and (whole in indexed or f"{whole}.index.json" not in paths):
        return parts - indexed
    named = {total for total, files in by_total.items() if files & indexed}
    others = {path for total, files in by_total.items() if total and named and total not in named for path in files}
    return frozenset(others | ({whole} if parts and "" in by_total else set()))


def _laid_out(beside: Collection[str]) -> set[str]:
    return {path for path in beside if LAYOUT.fullmatch(_name(path))}


def _plain(path: str, name: str) -> str:
    """Return the stem of a path, without the precision in its name."""
    return stem(path[: len(path) - len(name)] + VARIANT.sub("", name))


def _name(path: str) -> str:
    return path.rpartition("/")[2]
