"""Safetensors headers: a file's tensors with their types and sizes, read from its first bytes.

A file begins with eight bytes that contain the length of a JSON document. The document follows, and then the tensors
without gaps.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import msgspec

from slipway.artifacts.headers.range_reader import MalformedFileError, RangeReader, Read, UnreadableError
from slipway.decoding import DecodingError, decode_json

LONGEST = 16 << 20
"""Maximum size of the JSON document in bytes."""
LONGEST_OF_FORMAT = 100_000_000
LENGTH = 8
METADATA = "__metadata__"
LARGEST = (1 << 63) - 1
MOST_DIMENSIONS = 64
TYPE = re.compile(r"[A-Z][A-Z0-9_]{0,15}")
MOST_TYPES = 16
MOST_BYTES = 64 << 20
MOST_FIELDS = 1 << 20
"""Maximum number of fields in all headers of one source. A tensor has four fields, and the largest models have a
hundred thousand tensors."""


class _Tensor(msgspec.Struct, frozen=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class Safetensors(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The content of a safetensors header."""

    tensor_count: int
    parameters: Mapping[str, int]
    """Data type such as ``BF16`` -> number of values of this type in all tensors."""
    size: int
    """Size of the whole file in bytes, according to its header."""


class Budget:
    """A limit for reading the headers of one source. It counts content instead of time, so that the result is the same
    on slow and fast machines."""

    def __init__(self) -> None:
        self._bytes, self._fields = MOST_BYTES, MOST_FIELDS

    def spend(self, document: bytes) -> None:
        """Deduct a header's JSON document from the limit, before it is parsed. Raise UnreadableError if the limit is
        exceeded."""
        self._bytes -= len(document)
        self._fields -= document.count(b":")
        if self._bytes < 0 or self._fields < 0:
            raise UnreadableError("the headers of its files are too long in total")


def parse(
    read: Read, budget: Budget | None = None, shapes: dict[str, tuple[str, Sequence[int]]] | None = None
) -> Safetensors:
    """Parse the header of a safetensors file. Raise MalformedFileError if it is invalid, and UnreadableError if it
    exceeds a limit.

    A file whose real size differs from ``size`` of the result is truncated or has extra bytes. All files of a source
    share a ``budget``. Without one, the limit applies to this file alone. The function adds the data type and shape of
    each tensor to ``shapes``, by name, unless it is None.
    """
    reader = RangeReader(read, LENGTH + LONGEST)
    length = int.from_bytes(reader.take(LENGTH, "the length of its header"), "little")
    if not 2 <= length <= LONGEST_OF_FORMAT:
        raise MalformedFileError(f"its header would have {length} bytes")
    if length > LONGEST:
        if reader.take(1, "its header") != b"{":
            raise MalformedFileError("its header is not a list of tensors")
        raise UnreadableError(f"its header has {length} bytes, more than {LONGEST}")
    document = reader.take(length, "its header")
    (budget or Budget()).spend(document)
    tensors = _tensors(document)
    parameters: dict[str, int] = {}
    for name, tensor in tensors.items():
        if len(tensor.shape) > MOST_DIMENSIONS:
            raise UnreadableError(f"the tensor {name[:64]!r} has more than {MOST_DIMENSIONS} dimensions")
        if any(not 0 <= extent <= LARGEST for extent in tensor.shape):
            raise MalformedFileError(f"the tensor {name[:64]!r} has an impossible shape")
        if not TYPE.fullmatch(tensor.dtype):
            raise MalformedFileError(f"the tensor {name[:64]!r} has the unknown type {tensor.dtype[:64]!r}")
        # In a shape with a zero, the product of the other extents may have thousands of digits.
        count = 0 if 0 in tensor.shape else math.prod(tensor.shape)
        if count > LARGEST:
            raise MalformedFileError(f"the tensor {name[:64]!r} has an impossible shape")
        parameters[tensor.dtype] = parameters.get(tensor.dtype, 0) + count
        if shapes is not None:
            shapes[name] = tensor.dtype, tensor.shape
    if len(parameters) > MOST_TYPES:
        raise UnreadableError(f"its tensors have {len(parameters)} types, more than the limit")
    if sum(parameters.values()) > LARGEST:
        raise MalformedFileError("its tensors are larger than a file can be")
    return Safetensors(
        tensor_count=len(tensors),
        parameters=dict(sorted(parameters.items())),
        size=LENGTH + length + _data_size(tensors),
    )


def _tensors(document: bytes) -> dict[str, _Tensor]:
    try:
        whole = decode_json(document, dict[str, msgspec.Raw], most=LONGEST)
        return {name: decode_json(raw, _Tensor, most=LONGEST) for name, raw in whole.items() if name != METADATA}
    except DecodingError as error:
        raise MalformedFileError(f"its header is not a list of tensors: {error}") from error


def _data_size(tensors: Mapping[str, _Tensor]) -> int:
    """Return the size of all tensors in bytes. Raise MalformedFileError if they overlap or leave gaps."""
    end = 0
    for begin, following in sorted(tensor.data_offsets for tensor in tensors.values()):
        if begin != end or following < begin:
            raise MalformedFileError("its tensors overlap or leave gaps")
        end = following
    if end > LARGEST - LENGTH - LONGEST:
        raise MalformedFileError("its tensors are larger than a file can be")
    return end
