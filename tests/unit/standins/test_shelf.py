"""The shelf gives its file by ranges, slowly or changed as it is told, and remembers who asked."""

from __future__ import annotations

import hashlib
import time

import pytest

from .conftest import Start, ask

CONTENT = bytes(range(256)) * 8


@pytest.fixture(scope="module")
def url(start: Start, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("shelf") / "weights"
    file.write_bytes(CONTENT)
    return start("standin.shelf", "--port={port}", str(file))


def test_every_path_is_the_file_and_is_counted_for_itself(url: str) -> None:
    whole = ask(f"{url}/counted/a.gguf")
    assert (whole.status, whole.body) == (200, CONTENT)
    part = ask(f"{url}/counted/a.gguf", headers={"Range": "bytes=2000-", "If-Range": whole.headers["ETag"]})
    assert (part.status, part.body) == (206, CONTENT[2000:])
    report = ask(f"{url}/-/counted/a.gguf").json
    assert report["requests"] == [{"range": "", "status": 200}, {"range": "bytes=2000-", "status": 206}]
    assert (report["size"], report["sha256"]) == (len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
    assert ask(f"{url}/-/counted/b.gguf").json["requests"] == []


def test_another_edition_has_another_tag_and_comes_whole_to_who_has_a_part(url: str) -> None:
    before = ask(f"{url}/changed")
    assert ask(f"{url}/-/changed", {"edition": 2}, method="PUT").status == 200
    headers = {"Range": "bytes=100-", "If-Range": before.headers["ETag"]}
    after = ask(f"{url}/changed", headers=headers)
    assert (after.status, after.body) == (200, CONTENT + b"edition 2")
    assert after.headers["ETag"] != before.headers["ETag"]
    assert ask(f"{url}/-/changed").json["sha256"] == hashlib.sha256(after.body).hexdigest()


def test_a_slow_file_comes_whole_all_the_same(url: str) -> None:
    ask(f"{url}/-/slow", {"bytesPerSecond": 2048}, method="PUT")
    started = time.monotonic()
    answer = ask(f"{url}/slow")
    assert time.monotonic() - started > 0.5
    assert (answer.body, answer.headers["Content-Length"]) == (CONTENT, str(len(CONTENT)))
