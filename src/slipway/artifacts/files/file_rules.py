"""File rules: selects a source's files that make up a model, and detects its format. Pure.

Engines read weights, configurations and tokenizers. Images, documents and further copies of the weights are skipped
silently, and small unknown files are kept. A file that can only be harmful, or hides its content, fails the
publication.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

from slipway.artifacts.files import copies, soundness

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
"""Extensions of files that fail the publication: programs, and archives, which are not inspected."""
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
KEPT_NAMES = re.compile(
    r"(?:generation_config|tokenizer.*|special_tokens_map|preprocessor_config|processor_config|added_tokens|vocab|params"
    r"|dtypes|modules|.*\.index)\.json|vocab\.txt|merges\.txt|tokenizer\.model.*|spiece\.model|sentencepiece\.bpe\.model"
    r"|chat_template\.jinja"
)
KEPT_ENDINGS = (".json", ".yaml", ".yml", ".xml", ".jinja", ".model", ".txt", ".tiktoken", ".spm", ".bpe", ".vocab")
DROPPED_ENDINGS = (
    *(".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg", ".bmp", ".ico", ".tif", ".tiff", ".heic", ".avif"),
    *(".mp3", ".mp4", ".wav", ".flac", ".ogg", ".m4a", ".webm", ".mov", ".mkv", ".avi"),
    *(".md", ".pdf", ".rst", ".html", ".htm", ".css", ".doc", ".docx", ".pptx", ".tex", ".bib", ".log", ".cff"),
    *(".csv", ".tsv", ".parquet", ".arrow", ".jsonl", ".ipynb", ".xlsx", ".db", ".sqlite"),
    *(".py", ".pyc", ".pyi", ".sh", ".bash", ".ps1", ".bat", ".js", ".ts", ".rs", ".go"),
    *(".c", ".cc", ".cpp", ".cu", ".h", ".hpp"),
    *(".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".h5", ".keras", ".onnx", ".onnx_data", ".msgpack"),
    *(".ot", ".npz", ".npy", ".mlmodel", ".mlpackage", ".tflite", ".pb", ".engine", ".plan", ".nemo", ".pdparams"),
    *(".pdiparams", ".ggml", ".llamafile", ".safetensors", ".gguf", ".part", ".incomplete", ".lock"),
    *(".md5", ".sha256", ".sha512", ".asc", ".sig", ".pem", ".key", ".crt", ".p12", ".env", ".bak", ".orig", ".rej"),
)
"""Extensions of skipped files: documents, images, recordings, data, code, weights in other formats, leftover copies."""
SMALL = 16 << 20
"""Maximum size in bytes of a file of unknown kind that is kept, because it may be a new tokenizer."""
DROPPED_NAMES = re.compile(
    r"(?:readme|license|licence|notice|copying|changelog|use_policy|requirements|dockerfile|makefile|citation|authors)\b.*",
    re.IGNORECASE,
)
OTHER_INDEX = re.compile(r".*\.(?:bin|h5|msgpack|pt|pth)\.index\.json")
"""Names of indexes that list weights in other formats."""
DIFFUSERS_BIN = re.compile(r"(?:diffusion_)?(?:pytorch_)?model.*\.bin")
"""Names of a pipeline component's weights in PyTorch's format."""


class UnsupportedError(ValueError):
    """The files of a source are not a supported model. The message has the reason."""


class FileChoice(msgspec.Struct, frozen=True):
    """The files of a source that make up a model: the weights, and the companions, which are other files that engines
    may read."""

    format: Format
    weights: frozenset[str]
    companions: frozenset[str]

    @property
    def files(self) -> frozenset[str]:
        """All selected files."""
        return self.weights | self.companions


def choose(
    paths: Collection[str], *, sizes: Mapping[str, int | None] | None = None, indexed: Collection[str] = ()
) -> FileChoice:
    """Select the files that make up a model. Raise UnsupportedError if they are not a supported model, or include a
    program or an archive.

    ``sizes``: path -> size in bytes, None if unknown; large files of unknown kind are skipped. ``indexed``: the weights
    that indexes list.
    """
    model_paths = [path for path in paths if not in_dropped_folder(path)]
    for path in sorted(model_paths):
        if path.lower().endswith(REJECTED):
            raise UnsupportedError(f"{path} is not allowed in a model: remove programs and archives from the source")
    format_ = _format(model_paths)
    candidates = [path for path in model_paths if _is_weight(path, format_)]
    weights = copies.without(candidates, model_paths, indexed=indexed, pipeline=format_ == "Diffusers")
    dropped = {path.partition("/")[0] for path in candidates if "/" in path} - {
        path.partition("/")[0] for path in weights
    }
    indexes = {f"{copies.stem(path)}.index.json" for path in candidates if path not in weights}
    indexes -= {f"{copies.stem(path)}.index.json" for path in weights}
    companions = frozenset(
        path
        for path in model_paths
        if path not in candidates
        and path not in indexes
        and path.partition("/")[0] not in dropped
        and is_companion(path, (sizes or {}).get(path))
    )
    return FileChoice(format_, weights, companions)


def weights_of(paths: Collection[str], *, indexed: Collection[str] = ()) -> frozenset[str]:
    """Return the weights in a source, in any format. Omit copies, and weights in directories that engines do not
    read."""
    model_paths = [path for path in paths if not in_dropped_folder(path)]
    candidates = [path for path in model_paths if path.lower().endswith(soundness.WEIGHTS)]
    return copies.without(candidates, model_paths, indexed=indexed, pipeline=INDEX in paths)


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
        raise UnsupportedError(f"{safetensors[0]} has no {CONFIG} next to it in the source's top-level directory")
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


def is_companion(path: str, size: int | None) -> bool:
    """Whether an engine may read a file that contains no weights. ``size`` is in bytes, None if it is unknown. A file
    of unknown kind and size counts as small."""
    name = path.rpartition("/")[2].lower()
    if OTHER_INDEX.fullmatch(name):
        return False
    if KEPT_NAMES.fullmatch(name):
        return True
    if DROPPED_NAMES.fullmatch(name) or name.endswith(DROPPED_ENDINGS):
        return False
    return name.endswith(KEPT_ENDINGS) or size is None or size <= SMALL


def in_dropped_folder(path: str) -> bool:
    """Whether a file is hidden, or in a directory that engines do not read."""
    *folders, name = path.split("/")
    return name.startswith(".") or any(part.startswith(".") or part.lower() in DROPPED_FOLDERS for part in folders)
