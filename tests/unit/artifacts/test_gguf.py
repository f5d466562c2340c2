"""GGUF headers: what is found in good ones, that long lists are not read, and that no bad one does any harm."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from slipway.artifacts.headers.gguf import MOST_BYTES, MOST_LISTS, MOST_TEXTS, QUANTIZATIONS, Gguf, Type, parse
from slipway.artifacts.headers.range_reader import PIECE, MalformedFileError, UnreadableError

from .pieces import Bytes

SCRIPT = Path(__file__).parents[3] / "scripts/tiny_gguf.py"
LLAMA = {
    "general.architecture": (Type.STRING, "llama"),
    "general.name": (Type.STRING, "Tiny Llama"),
    "general.file_type": (Type.UINT32, 15),
    "general.license": (Type.STRING, "apache-2.0"),
    "llama.context_length": (Type.UINT32, 4096),
    "llama.embedding_length": (Type.UINT64, 2048),
    "llama.block_count": (Type.UINT16, 22),
    "llama.attention.head_count": (Type.INT32, 32),
    "general.quantized_by": (Type.STRING, "acme"),
    "llama.rope.freq_base": (Type.FLOAT32, 10000.0),
    "general.quick": (Type.BOOL, True),
}
HEADER = Gguf(
    file_version=3,
    tensor_count=201,
    architecture="llama",
    name="Tiny Llama",
    quantization="Q4_K_M",
    license="apache-2.0",
    context_length=4096,
    embedding_length=2048,
    block_count=22,
    head_count=32,
)
FORMS = {
    Type.UINT16: "H",
    Type.UINT32: "I",
    Type.INT32: "i",
    Type.UINT64: "Q",
    Type.FLOAT32: "f",
    Type.BOOL: "?",
}


class Writer:
    """Writes headers, bad ones too."""

    def __init__(self, version: int = 3, order: str = "<") -> None:
        self.order, self.version = order, version
        self.length = "I" if version == 1 else "Q"

    def pack(self, form: str, value: float) -> bytes:
        return struct.pack(self.order + form, value)

    def text(self, text: str | bytes) -> bytes:
        data = text.encode() if isinstance(text, str) else text
        return self.pack(self.length, len(data)) + data

    def pair(self, key: str, kind: int, value: bytes) -> bytes:
        return self.text(key) + self.pack("I", kind) + value

    def array(self, kind: int, count: int, values: bytes = b"") -> bytes:
        return self.pack("I", kind) + self.pack(self.length, count) + values

    def pairs(self, values: dict[str, tuple[Type, object]]) -> list[bytes]:
        return [
            self.pair(key, kind, self.text(str(value)) if kind is Type.STRING else self.pack(FORMS[kind], value))  # type: ignore[arg-type]
            for key, (kind, value) in values.items()
        ]

    def file(self, pairs: list[bytes], tensors: int = 201, keys: int | None = None) -> bytes:
        counts = self.pack(self.length, tensors) + self.pack(self.length, len(pairs) if keys is None else keys)
        return b"GGUF" + self.pack("I", self.version) + counts + b"".join(pairs)


def good(version: int = 3, order: str = "<") -> bytes:
    writer = Writer(version, order)
    return writer.file(writer.pairs(LLAMA))


@pytest.mark.parametrize(("version", "order"), [(1, "<"), (2, "<"), (3, "<"), (3, ">")])
def test_a_header_of_every_version_and_byte_order_says_the_same(version: int, order: str) -> None:
    header = parse(Bytes(good(version, order)))
    assert header == Gguf(
        **{field: getattr(HEADER, field) for field in HEADER.__struct_fields__} | {"file_version": version}
    )


def test_files_of_the_real_library_are_read(tmp_path: Path) -> None:
    library = pytest.importorskip("gguf")
    target = tmp_path / "tiny.gguf"
    subprocess.run([sys.executable, SCRIPT, target], check=True, timeout=60)
    assert parse(Bytes(target.read_bytes())) == Gguf(
        file_version=3,
        tensor_count=21,
        architecture="llama",
        name="tiny-random",
        quantization="F32",
        context_length=4096,
        embedding_length=64,
        block_count=2,
        head_count=4,
    )
    names = {kind.value: kind.name.removeprefix("ALL_").removeprefix("MOSTLY_") for kind in library.LlamaFileType}
    names.pop(library.LlamaFileType.GUESSED.value)
    assert {number: name for number, name in names.items() if number in QUANTIZATIONS} == dict(QUANTIZATIONS)


def listed(writer: Writer, shapes: list[tuple[int, ...]]) -> bytes:
    """The list of tensors, which follows the header."""
    return b"".join(
        writer.text(f"blk.{number}.weight")
        + writer.pack("I", len(shape))
        + b"".join(writer.pack(writer.length, extent) for extent in shape)
        + writer.pack("I", 0)
        + writer.pack("Q", 64 * number)
        for number, shape in enumerate(shapes)
    )


@pytest.mark.parametrize(("version", "order"), [(1, "<"), (2, "<"), (3, "<"), (3, ">")])
def test_parameters_are_counted_where_that_is_asked_for(version: int, order: str) -> None:
    writer = Writer(version, order)
    whole = writer.file(writer.pairs(LLAMA), tensors=3) + listed(writer, [(64, 512), (64,), (7, 5, 3, 2)])
    assert parse(Bytes(whole), count=True).parameters == 64 * 512 + 64 + 210
    assert parse(Bytes(whole)).parameters == 0


def test_the_real_librarys_tensors_are_counted(tmp_path: Path) -> None:
    library = pytest.importorskip("gguf")
    target = tmp_path / "tiny.gguf"
    subprocess.run([sys.executable, SCRIPT, target], check=True, timeout=60)
    expected = sum(int(tensor.n_elements) for tensor in library.GGUFReader(target).tensors)
    assert parse(Bytes(target.read_bytes()), count=True).parameters == expected > 0


@pytest.mark.parametrize(
    ("tensors", "shapes", "fault"),
    [
        (1 << 40, [], "it declares 1099511627776 tensors"),
        (2, [(1,)], "the name of a tensor"),
        (1, [(1,) * 9], "a tensor has 9 dimensions"),
        (1, [(1 << 32, 1 << 32)], "larger than a file can be"),
    ],
)
def test_a_list_of_tensors_that_is_none_is_refused(tensors: int, shapes: list[tuple[int, ...]], fault: str) -> None:
    writer = Writer()
    whole = writer.file(writer.pairs(LLAMA), tensors=tensors) + listed(writer, shapes)
    with pytest.raises(MalformedFileError, match=fault):
        parse(Bytes(whole), count=True)


def test_long_arrays_of_numbers_are_passed_over_without_being_read() -> None:
    writer, count = Writer(), 1 << 40
    pairs = writer.pairs(LLAMA)
    scores = writer.pair("tokenizer.ggml.scores", Type.ARRAY, writer.array(Type.FLOAT32, count))
    start, behind = writer.file([scores], keys=len(pairs) + 1), b"".join(pairs)

    def read(offset: int, size: int) -> bytes:
        if offset < len(start):
            return start[offset : offset + size]
        position = offset - len(start) - 4 * count
        return behind[position : position + size] if position >= 0 else bytes(size)

    assert parse(read) == HEADER


def test_a_tokenizer_of_many_pieces_is_passed_over() -> None:
    writer = Writer()
    pieces = [b"x" * (number % 23) for number in range(50_000)]
    tokens = writer.array(Type.STRING, len(pieces), b"".join(map(writer.text, pieces)))
    nested = writer.array(Type.ARRAY, 3, writer.array(Type.UINT16, 2, b"\1\0\2\0") * 3)
    lists = [writer.pair("tokenizer.ggml.tokens", Type.ARRAY, tokens), writer.pair("odd", Type.ARRAY, nested)]
    assert parse(Bytes(writer.file([*lists, *writer.pairs(LLAMA)]))) == HEADER


@pytest.mark.parametrize(("version", "order"), [(1, "<"), (3, "<"), (3, ">")])
def test_the_tokenizer_of_a_large_vocabulary_is_passed_over(version: int, order: str) -> None:
    """256 Ki pieces and twice as many merges: more than ten megabytes."""
    writer, pieces = Writer(version, order), 1 << 18
    tokens = b"".join(writer.text(f"\u0120token{number}") for number in range(pieces))
    merges = b"".join(writer.text(f"\u0120ab {number}") for number in range(2 * pieces))
    lists = [
        writer.pair("tokenizer.ggml.tokens", Type.ARRAY, writer.array(Type.STRING, pieces, tokens)),
        writer.pair("tokenizer.ggml.scores", Type.ARRAY, writer.array(Type.FLOAT32, pieces, bytes(4 * pieces))),
        writer.pair("tokenizer.ggml.merges", Type.ARRAY, writer.array(Type.STRING, 2 * pieces, merges)),
    ]
    whole = writer.file([*lists, *writer.pairs(LLAMA)])
    assert len(whole) > 10_000_000
    assert parse(Bytes(whole)).context_length == HEADER.context_length


@pytest.mark.parametrize(("kind", "most"), [(Type.STRING, MOST_TEXTS), (Type.ARRAY, MOST_LISTS)])
@pytest.mark.parametrize("lists", [1, 4])
def test_more_values_than_any_header_has_are_refused_before_they_are_read(kind: Type, most: int, lists: int) -> None:
    """Each costs time however short it is; so neither one list has more, nor all together."""
    empty = bytes(8) if kind is Type.STRING else WRITER.array(Type.UINT8, 0)
    count = most // lists + 1
    file = Bytes(WRITER.file([WRITER.pair("k", Type.ARRAY, WRITER.array(kind, count, empty * count))] * lists))
    before = (lists - 1) * count * len(empty)
    with pytest.raises(MalformedFileError, match="longer than a header can be"):
        parse(file)
    assert file.taken <= before + 2 * PIECE


def test_a_text_that_would_end_beyond_all_files_is_refused() -> None:
    texts = WRITER.array(Type.STRING, 2, WRITER.pack("Q", (1 << 62) + 5))
    with pytest.raises(MalformedFileError, match="beyond the largest possible file"):
        parse(Bytes(WRITER.file([WRITER.pair("k", Type.ARRAY, texts)])))


def test_the_weights_behind_the_header_are_not_read() -> None:
    file = Bytes(good(), size=1 << 40)
    assert parse(file) == HEADER
    assert file.taken <= PIECE


def test_every_header_that_is_cut_off_is_refused() -> None:
    whole = good()
    for length in range(len(whole)):
        with pytest.raises(MalformedFileError):
            parse(Bytes(whole[:length]))


def test_a_list_at_the_end_that_is_cut_off_is_refused() -> None:
    writer = Writer()
    pairs = [writer.pair("last", Type.ARRAY, writer.array(Type.FLOAT32, 10, b"\0" * 39))]
    with pytest.raises(MalformedFileError, match="ends in"):
        parse(Bytes(writer.file(pairs)))


HUGE = (1 << 64) - 1
WRITER = Writer()
HOSTILE = {
    "empty": b"",
    "other magic": b"GGML" + good()[4:],
    "a page of the web": b"<!DOCTYPE html><html>" * 99,
    "version 0": WRITER.pack("I", 0).join([b"GGUF", b"\0" * 16]),
    "version 4": b"GGUF" + WRITER.pack("I", 4) + b"\0" * 16,
    "countless keys": WRITER.file([], keys=HUGE),
    "more keys than there are": WRITER.file(WRITER.pairs(LLAMA), keys=len(LLAMA) + 1),
    "key without end": WRITER.file([WRITER.pack("Q", HUGE)]),
    "key longer than keys are": WRITER.file([WRITER.text("k" * 70_000)]),
    "text without end": WRITER.file([WRITER.pair("k", Type.STRING, WRITER.pack("Q", HUGE))]),
    "text of an exbibyte": WRITER.file([WRITER.pair("k", Type.STRING, WRITER.pack("Q", 1 << 60))]),
    "unknown type": WRITER.file([WRITER.pair("k", 13, b"\0" * 64)]),
    "unknown type of elements": WRITER.file([WRITER.pair("k", Type.ARRAY, WRITER.array(77, 3, b"\0" * 64))]),
    "numbers without end": WRITER.file([WRITER.pair("k", Type.ARRAY, WRITER.array(Type.UINT64, HUGE))] * 2),
    "texts without end": WRITER.file([WRITER.pair("k", Type.ARRAY, WRITER.array(Type.STRING, HUGE))]),
    "arrays in arrays in arrays": WRITER.file(
        [WRITER.pair("k", Type.ARRAY, WRITER.array(Type.ARRAY, 1) * 999 + WRITER.array(Type.UINT8, 0))]
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_an_invalid_header_is_rejected_at_once(case: str) -> None:
    file = Bytes(HOSTILE[case])
    with pytest.raises(MalformedFileError):
        parse(file)
    assert file.taken <= 2 * PIECE


@pytest.mark.parametrize("case", ["countless keys", "key longer than keys are", "arrays in arrays in arrays"])
def test_a_header_beyond_our_limits_may_be_sound(case: str) -> None:
    with pytest.raises(UnreadableError):
        parse(Bytes(HOSTILE[case]))


def test_a_list_of_long_texts_ends_at_the_bound() -> None:
    """Each takes another piece of the file."""
    long = WRITER.text(bytes(PIECE))
    file = Bytes(WRITER.file([WRITER.pair("k", Type.ARRAY, WRITER.array(Type.STRING, 64, long * 64))]))
    with pytest.raises(MalformedFileError, match="longer than a header can be"):
        parse(file)
    assert file.taken <= MOST_BYTES


def test_values_of_wrong_types_and_sizes_are_taken_for_missing() -> None:
    pairs = [
        WRITER.pair("general.architecture", Type.UINT32, WRITER.pack("I", 5)),
        WRITER.pair("general.file_type", Type.STRING, WRITER.text("Q4")),
        WRITER.pair("general.name", Type.STRING, WRITER.text(b"\xff\x1b[31m  two\nlines" + b"x" * 5000)),
        WRITER.pair(".context_length", Type.UINT64, WRITER.pack("Q", HUGE)),
        WRITER.pair(".block_count", Type.INT32, WRITER.pack("i", -1)),
        WRITER.pair(".attention.head_count", Type.ARRAY, WRITER.array(Type.INT32, 2, b"\0" * 8)),
    ]
    header = parse(Bytes(WRITER.file(pairs)))
    assert (header.architecture, header.quantization, header.context_length, header.block_count) == ("", "", 0, 0)
    assert header.name.startswith("\N{REPLACEMENT CHARACTER}[31m two lines")
    assert len(header.name) == 128


def refusal(file: Bytes) -> str:
    """What is said of a file; empty: it is taken for a good one."""
    try:
        parse(file)
    except MalformedFileError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("seed", range(8))
def test_damaged_bytes_never_do_more_than_being_refused(seed: int) -> None:
    dice = random.Random(seed)
    whole = good(dice.choice((1, 2, 3)))
    for _unused in range(400):
        damaged = bytearray(whole)
        for _place in range(dice.randint(1, 8)):
            damaged[dice.randrange(4, len(damaged))] = dice.choice((0, 1, 127, 255, dice.randrange(256)))
        file = Bytes(bytes(damaged), size=dice.choice((0, 0, 1 << 20)))
        assert len(refusal(file)) < 400
        assert file.taken <= 4 * PIECE
