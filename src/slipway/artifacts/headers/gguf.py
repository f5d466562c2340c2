"""GGUF headers: the metadata of a llama.cpp file, read from its first bytes. Supports versions 1 to 3 in both byte
orders.

The metadata is a list of keys and typed values. The parser keeps the few values that users need. It skips all others
without decoding them, above all the tokenizer's long lists.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from enum import IntEnum

import msgspec

from slipway.artifacts.headers.range_reader import (
    MalformedFileError,
    RangeReader,
    Read,
    TruncatedError,
    UnreadableError,
)

MAGIC = b"GGUF"
VERSIONS = (1, 2, 3)
MOST_BYTES = 32 << 20
"""Maximum number of bytes to read of a header. The longest tokenizer is several times shorter."""
MOST_KEYS = 1 << 14
MOST_TEXTS = 1 << 21
"""Maximum number of strings in all lists of a header. A tokenizer with 256 Ki tokens has less than half as many,
including merges."""
MOST_TENSORS = 1 << 17
MOST_DIMENSIONS = 8
MOST_LISTS = 1 << 12
"""Maximum number of nested lists; real files have none."""
LONGEST_KEY = 1 << 16
LONGEST_TEXT = 128
"""Maximum length of a text value in characters. Longer texts are cut off."""
DEEPEST = 4
"""Maximum depth of nested arrays; real files have none."""
LARGEST = (1 << 63) - 1
"""The largest integer that the status of a Kubernetes object can hold."""


class Type(IntEnum):
    """Numbers of the value types in the file format."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


FORMATS: Mapping[Type, str] = {
    Type.UINT8: "B",
    Type.INT8: "b",
    Type.UINT16: "H",
    Type.INT16: "h",
    Type.UINT32: "I",
    Type.INT32: "i",
    Type.FLOAT32: "f",
    Type.BOOL: "?",
    Type.UINT64: "Q",
    Type.INT64: "q",
    Type.FLOAT64: "d",
}
QUANTIZATIONS: Mapping[int, str] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
}
"""``general.file_type`` -> common name. Other numbers are obsolete."""
BLOCKS: Mapping[int, Mapping[int, int]] = {
    1: {0: 4, 1: 2, 24: 1, 25: 2, 26: 4, 27: 8, 28: 8, 30: 2},
    32: {2: 18, 3: 20, 6: 22, 7: 24, 8: 34, 20: 18, 39: 17},
    256: {10: 84, 11: 110, 12: 144, 13: 176, 14: 210, 15: 292, 16: 66, 17: 74, 18: 98, 19: 50, 21: 110, 22: 82}
    | {23: 136, 29: 56, 34: 54, 35: 66},
}
"""Weights per block -> number of the tensor type in the file format -> bytes per block."""
BYTES = {type_: (weights, size) for weights, types in BLOCKS.items() for type_, size in types.items()}
ALIGNMENT, USUAL_ALIGNMENT = "general.alignment", 32
"""Key and default of the alignment of tensor data."""
PART = re.compile(r"-\d{5}-of-\d{5}(?=\.gguf\Z)", re.IGNORECASE)
GENERAL = ("general.architecture", "general.name", "general.file_type", "general.license")
OF_ARCHITECTURE = ("context_length", "embedding_length", "block_count", "attention.head_count")


class Gguf(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The content of a GGUF header. A field is 0 or empty if the header does not set it, or its value is invalid."""

    file_version: int
    tensor_count: int
    architecture: str = ""
    name: str = ""
    quantization: str = ""
    license: str = ""
    context_length: int = 0
    embedding_length: int = 0
    block_count: int = 0
    head_count: int = 0
    parameters: int = 0
    """Number of weights in all tensors, if they were counted."""


def parse(read: Read, *, count: bool = False, size: int = 0) -> Gguf:
    """Parse the header of a GGUF file. Raise MalformedFileError if it is invalid.

    With ``count``, also read the list of tensors after the metadata, and count the parameters. With ``count`` and
    ``size``, a file of ``size`` bytes that is too short for its tensors is invalid. A size of 0 is unknown.
    """
    reader = _Reader(RangeReader(read, MOST_BYTES))
    tensors, keys = reader.count("the number of tensors"), reader.count("the number of keys")
    if keys > MOST_KEYS:
        raise UnreadableError(f"it declares {keys} keys, more than the limit")
    metadata: dict[str, int | str] = {}
    for _unused in range(keys):
        key = reader.text(LONGEST_KEY, "a key")
        named = f"the value of {key[:64]!r}"
        value = reader.value(reader.type(named), named)
        if value is not None and (key in (*GENERAL, ALIGNMENT) or key.endswith(OF_ARCHITECTURE)):
            metadata[key] = value
    reader.ends()
    parameters, data = reader.parameters(tensors) if count else (0, 0)
    if count and size and tensors:
        alignment = _number(metadata.get(ALIGNMENT)) or USUAL_ALIGNMENT
        needed = -(-reader.position // alignment) * alignment + data
        if size < needed:
            raise TruncatedError(f"it has {size} bytes, but its tensors need {needed}")
    return _summary(reader.version, tensors, parameters, metadata)


def whole(name: str) -> str:
    """Return a file name without its part number, so that all parts of a split model have the same name."""
    return PART.sub("", name)


def _summary(version: int, tensors: int, parameters: int, metadata: Mapping[str, int | str]) -> Gguf:
    architecture = _text(metadata.get("general.architecture"))
    context, embedding, blocks, heads = (_number(metadata.get(f"{architecture}.{key}")) for key in OF_ARCHITECTURE)
    return Gguf(
        file_version=version,
        tensor_count=min(tensors, LARGEST),
        architecture=architecture,
        name=_text(metadata.get("general.name")),
        quantization=QUANTIZATIONS.get(_number(metadata.get("general.file_type"), -1), ""),
        license=_text(metadata.get("general.license")),
        context_length=context,
        embedding_length=embedding,
        block_count=blocks,
        head_count=heads,
        parameters=parameters,
    )


def _text(value: int | str | None) -> str:
    """Return a value on one line, without terminal control characters."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    return "".join(character for character in text if character.isprintable())[:LONGEST_TEXT]


def _number(value: int | str | None, missing: int = 0) -> int:
    return value if isinstance(value, int) and 0 <= value <= LARGEST else missing


class _Reader:
    """A reader of consecutive values, with the byte order and widths of the file's version."""

    def __init__(self, reader: RangeReader) -> None:
        if reader.take(4, "the first four bytes") != MAGIC:
            raise MalformedFileError("it does not begin with GGUF")
        self._reader = reader
        word = reader.take(4, "the version")
        # A file of version 3 may have the other byte order. The bytes of the version number show it.
        self._order = "<" if word[2:] == b"\0\0" else ">"
        self.version = self._unpack("I", word)
        if self.version not in VERSIONS:
            raise MalformedFileError(f"its version {self.version} is not one of {', '.join(map(str, VERSIONS))}")
        self._length = "I" if self.version == 1 else "Q"
        self._texts, self._lists = MOST_TEXTS, MOST_LISTS

    def count(self, what: str) -> int:
        """Read a number of entries, a length or a dimension. Errors describe it as ``what``."""
        return self._number(self._length, what)

    def type(self, key: str) -> Type:
        """Read a value type. Raise MalformedFileError with ``key`` in the message if the type is unknown."""
        number = self._number("I", key)
        try:
            return Type(number)
        except ValueError:
            raise MalformedFileError(f"{key} has the unknown type {number}") from None

    def text(self, longest: int, what: str) -> str:
        """Read a text of at most ``longest`` bytes. Raise UnreadableError if it is longer."""
        size = self.count(what)
        if size > longest:
            raise UnreadableError(f"{what} has {size} bytes, more than {longest}")
        return self._reader.take(size, what).decode("utf-8", "replace")

    def value(self, kind: Type, key: str, depth: int = 0) -> int | str | None:
        """Read an integer, a boolean or the beginning of a text. Skip any other value and return None."""
        if kind is Type.STRING:
            size = self.count(key)
            prefix = self._reader.take(min(size, 4 * LONGEST_TEXT), key)
            self._reader.skip(size - len(prefix), key)
            return prefix.decode("utf-8", "replace")
        if kind is Type.ARRAY:
            self._pass_array(key, depth)
            return None
        value = self._number(FORMATS[kind], key)
        return value if isinstance(value, int) else None

    def ends(self) -> None:
        """Raise MalformedFileError if the file ends before the last skipped value does."""
        self._reader.position -= 1
        self._reader.take(1, "its last value")

    @property
    def position(self) -> int:
        """Offset of the next value in the file in bytes."""
        return self._reader.position

    def parameters(self, tensors: int) -> tuple[int, int]:
        """Read the list of tensors. Return the number of weights in all tensors, and the minimum size of their data
        in bytes. Raise MalformedFileError if the list is invalid."""
        if tensors > MOST_TENSORS:
            raise UnreadableError(f"it declares {tensors} tensors, more than the limit")
        total = end = 0
        for _unused in range(tensors):
            self.text(LONGEST_KEY, "the name of a tensor")
            dimensions = self._number("I", "the shape of a tensor")
            if dimensions > MOST_DIMENSIONS:
                raise MalformedFileError(f"a tensor has {dimensions} dimensions, more than the limit")
            shape = [self.count("the shape of a tensor") for _unused in range(dimensions)]
            weights = math.prod(shape)
            total += weights
            if total > LARGEST:
                raise MalformedFileError("its tensors are larger than a file can be")
            block, size = BYTES.get(self._number("I", "the type of a tensor"), (1, 0))
            end = max(end, self._number("Q", "the place of a tensor") + weights // block * size)
        return total, end

    def _pass_array(self, key: str, depth: int) -> None:
        kind, count = self.type(key), self.count(key)
        if kind in FORMATS:
            self._reader.skip(count * struct.calcsize(f"={FORMATS[kind]}"), key)
            return
        if depth >= DEEPEST:
            raise UnreadableError(f"{key} is an array of arrays of arrays")
        if kind is Type.STRING:
            self._texts -= count
        else:
            self._lists -= count
        if self._texts < 0 or self._lists < 0:
            raise UnreadableError(f"{key} is longer than a header can be")
        if kind is Type.STRING:
            self._reader.skip_texts(count, struct.Struct(f"{self._order}{self._length}"), key)
            return
        for _unused in range(count):
            self._pass_array(key, depth + 1)

    def _number(self, form: str, what: str) -> int:
        return self._unpack(form, self._reader.take(struct.calcsize(f"={form}"), what))

    def _unpack(self, form: str, data: bytes) -> int:
        value: int = struct.unpack(f"{self._order}{form}", data)[0]
        return value
