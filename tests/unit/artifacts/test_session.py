"""Sessions of uploads: as manifests and back, and what a stranger may have put in their place."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
from typing import Any

import pytest

from slipway.artifacts.documents import session
from slipway.artifacts.documents.session import Piece, Session
from slipway.decoding import DecodingError

PIECES = tuple(Piece(f"sha256:{number:064x}", size) for number, size in enumerate((64 << 20, 5, 1), 1))
WHOLE = Session(file_name="a b.gguf", length=(64 << 20) + 6, pieces=PIECES)


@pytest.mark.parametrize("there", [0, 1, 3])
def test_a_session_comes_back_as_it_was(there: int) -> None:
    given = Session(file_name="a b.gguf", length=WHOLE.length, pieces=PIECES[:there])
    assert session.parse_session(session.encode_session(given)) == given
    assert given.complete is (there == 3)
    assert ("slipway.inference/complete" in json.loads(session.encode_session(given))["annotations"]) is (there == 3)


def test_the_longest_session_fits_into_a_manifest() -> None:
    piece = Piece(f"sha256:{1:064x}", 64 << 20)
    longest = Session(file_name="x" * 200, length=session.MOST_PIECES << 26, pieces=(piece,) * session.MOST_PIECES)
    assert len(session.encode_session(longest)) < session.MANIFEST_BYTES
    assert session.parse_session(session.encode_session(longest)) == longest


def changed(**fields: Any) -> bytes:
    return json.dumps({**json.loads(session.encode_session(WHOLE)), **fields}).encode()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b"[" * 5000,
        changed(artifactType="application/other"),
        changed(mediaType="application/vnd.oci.image.index.v1+json"),
        changed(schemaVersion=1),
        changed(annotations={}),
        changed(annotations={"slipway.inference/length": "-1"}),
        changed(annotations={"slipway.inference/length": "\u0661"}),
        changed(annotations={"slipway.inference/length": "9" * 19}),
        changed(annotations={"slipway.inference/length": "5"}),
        changed(layers=[{"mediaType": "a", "digest": "md5:1", "size": 1}]),
        changed(layers=[{"mediaType": "a", "digest": PIECES[0].digest, "size": -1}]),
        changed(layers=[{"mediaType": "a", "digest": PIECES[0].digest, "size": 0}]),
    ],
    ids=[str(number) for number in range(15)],
)
def test_an_invalid_session_is_rejected(text: bytes) -> None:
    with pytest.raises(DecodingError):
        session.parse_session(text)


def tar_gz() -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("config.json"))
    return raw.getvalue()


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"GGUF\x03", "gguf"),
        (b"PK\x03\x04", "zip"),
        (b"PK\x05\x06", ""),
        (b"\x28\xb5\x2f\xfd", "tar.zst"),
        (bytes(257) + b"ustar", "tar"),
        (bytes(257) + b"usta", ""),
        (tar_gz(), "tar.gz"),
        (tar_gz()[:30], "tar.gz"),
        (gzip.compress(bytes(600)), ""),
        (b"\x1f\x8b\x00\x00", ""),
        (b"", ""),
    ],
    ids=[str(number) for number in range(11)],
)
def test_kinds(head: bytes, kind: str) -> None:
    assert session.kind_of(head) == kind


def test_random_first_bytes_have_a_known_kind_or_none() -> None:
    chance = random.Random(5)
    for _unused in range(2000):
        start = chance.choice([b"\x1f\x8b\x08", b"", tar_gz()[: chance.randrange(40)]])
        assert session.kind_of(start + chance.randbytes(chance.randrange(500))) in (*session.KINDS, "")


@pytest.mark.parametrize("given", ["", ".", "..", "/", "a/..", "\x00", "\n", "  ", "..\\..", "\u202e.gguf", "\ud800"])
def test_a_name_is_always_one_of_a_file(given: str) -> None:
    name = session.name_for(given, "gguf")
    assert name.endswith(".gguf")
    assert not name.startswith(".")
    assert name.isprintable()
    assert "/" not in name
    assert "\\" not in name
    assert name.encode()
