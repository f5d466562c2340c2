"""File rules: which files of a source make up a model, and which format it has. Pure.

Engines read weights, configurations and tokenizers. Pictures, documents, the same weights in other formats stay behind
without a word; what could only do harm, or hides what it is, fails the publication.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

import msgspec

Format = Literal["Safetensors", "GGUF", "Diffusers"]
CONFIG, INDEX = "config.json", "model_index.json"
SAFETENSORS, GGUF = ".safetensors", ".gguf"
DROPPED_FOLDERS = frozenset(
    (
        *("__macosx", "assets", "benchmark", "benchmarks", "coreml", "doc", "docs", "encoding", "eval", "evaluation"),
        *("example", "examples", "figures", "images", "metal", "notebooks", "onnx", "openvino", "original", "scripts"),
        *("test", "tests", "tflite"),
    )
)
REJECTED = (
    *(".so", ".dll", ".dylib", ".exe", ".jar", ".class", ".wasm"),
    *(".zip", ".tar", ".tgz", ".gz", ".bz2", ".tbz2", ".xz", ".txz", ".zst", ".tzst", ".7z", ".rar", ".lz4"),
)
"""Programs, and archives that nobody looks into."""
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
KEPT_NAMES = re.compile(
    r"(?:generation_config|tokenizer.*|special_tokens_map|preprocessor_config|processor_config|added_tokens|vocab|params"
    r"|dtypes|modules|.*\.index)\.json|vocab\.txt|merges\.txt|tokenizer\.model|spiece\.model|sentencepiece\.bpe\.model"
    r"|chat_template\.jinja"
)
KEPT_ENDINGS = (".json", ".yaml", ".yml", ".xml", ".jinja", ".model", ".txt", ".tiktoken")
DROPPED_NAMES = re.compile(
    r"(?:readme|license|licence|notice|copying|changelog|use_policy|requirements)\b.*", re.IGNORECASE
)
DIFFUSERS_BIN = re.compile(r"(?:diffusion_)?(?:pytorch_)?model.*\.bin")
"""Weights of a part of a pipeline that are not safetensors."""


class UnsupportedError(ValueError):
    """No model can be made of these files. The message says of which, and why."""


class Chosen(msgspec.Struct, frozen=True):
    format: Format
    weights: frozenset[str]
    companions: frozenset[str]

    @property
    def files(self) -> frozenset[str]:
        """All that enter."""
        return self.weights | self.companions


def choose(paths: Collection[str]) -> Chosen:
    """Raises UnsupportedError."""
    wanted = [path for path in paths if not _in_dropped_folder(path)]
    for path in sorted(wanted):
        if path.lower().endswith(REJECTED):
            raise UnsupportedError(f"{path} must not be part of a model: remove programs and archives from the source")
    format_ = _format(wanted)
    weights = frozenset(path for path in wanted if _is_weight(path, format_))
    companions = frozenset(path for path in wanted if path not in weights and _is_companion(path))
    return Chosen(format_, weights, companions)


def _format(paths: Collection[str]) -> Format:
    safetensors = sorted(path for path in paths if path.lower().endswith(SAFETENSORS))
    gguf = sorted(path for path in paths if path.lower().endswith(GGUF))
    if INDEX in paths:
        if safetensors or any(_is_weight(path, "Diffusers") for path in paths):
            return "Diffusers"
        raise UnsupportedError(f"it has {INDEX} and no weights")
    if safetensors and gguf:
        raise UnsupportedError(f"it has two formats, {safetensors[0]} and {gguf[0]}: keep one")
    if gguf:
        return "GGUF"
    if safetensors and CONFIG not in paths:
        raise UnsupportedError(f"{safetensors[0]} has no {CONFIG} beside it in the source's top folder")
    if safetensors:
        return "Safetensors"
    pickles = sorted(path for path in paths if path.lower().endswith(PICKLES))
    if pickles:
        raise UnsupportedError(f"{pickles[0]} is a pickle, which can run code: convert the weights to safetensors")
    raise UnsupportedError("it has no weights in safetensors, GGUF or Diffusers' format")


def _is_weight(path: str, format_: Format) -> bool:
    name = path.rpartition("/")[2].lower()
    if format_ == "GGUF":
        return name.endswith(GGUF)
    if format_ == "Diffusers" and "/" in path and DIFFUSERS_BIN.fullmatch(name):
        return True
    return name.endswith(SAFETENSORS)


def _is_companion(path: str) -> bool:
    name = path.rpartition("/")[2].lower()
    if KEPT_NAMES.fullmatch(name):
        return True
    return name.endswith(KEPT_ENDINGS) and not DROPPED_NAMES.fullmatch(name)


def _in_dropped_folder(path: str) -> bool:
    *folders, name = path.split("/")
    return name.startswith(".") or any(part.startswith(".") or part.lower() in DROPPED_FOLDERS for part in folders)
