# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module model_upload: what it sends, does not send again, and rejects. It never reveals a token."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.slipway.inference.plugins.module_utils import _uploading
from ansible_collections.slipway.inference.plugins.module_utils._content import content
from fake_api import FakeApi
from fake_depot import DIGEST, MODELS, TOKEN, FakeDepot, put_model, put_secret, waiting
from module_run import Run

SLICE = 250_000
DATA = b"GGUF" + os.urandom(600_000)


@pytest.fixture
def depot(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDepot]:
    monkeypatch.setattr(_uploading, "SLICE", SLICE)
    monkeypatch.setattr(_uploading, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(_uploading.Backoff, "pause", lambda _self: 0.01)
    server = FakeDepot()
    yield server
    server.stop()


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(DATA)
    return str(path)


def task(file: str, **more: Any) -> dict[str, Any]:
    return {"name": "tiny", "namespace": "models", "src": file, **more}


def test_a_file_is_sent_in_requests_of_bounded_size_and_waited_for(
    api: FakeApi, run: Run, depot: FakeDepot, file: str
) -> None:
    put_model(api, depot)
    result = run("model_upload", **task(file))
    assert not result.failed, result.data
    assert (result["changed"], result["phase"], result["digest"]) == (True, "Ready", DIGEST)
    assert (result["sent"], result["resumed_at"], result["size"]) == (len(DATA), 0, len(DATA))
    assert (depot.there, depot.name) == (DATA, "tiny.gguf")


def test_no_token_is_reported(api: FakeApi, run: Run, depot: FakeDepot, file: str) -> None:
    put_model(api, depot)
    depot.refusals = [(400, f"what is {TOKEN}")]
    assert TOKEN not in json.dumps(run("model_upload", **task(file)).data)
    assert TOKEN not in json.dumps(run("model_upload", **task(file)).data)


def test_a_model_that_was_uploaded_is_left_as_it_is(api: FakeApi, run: Run, depot: FakeDepot, file: str) -> None:
    put_model(api, depot)
    changed = [run("model_upload", check=check, **task(file))["changed"] for check in (True, False, True, False)]
    assert changed == [True, True, False, False]
    assert depot.received == len(DATA)


def test_an_upload_that_was_cut_goes_on(api: FakeApi, run: Run, depot: FakeDepot, file: str) -> None:
    put_model(api, depot)
    depot.refusals, depot.cut_after = [(0, ""), (503, "the registry is away"), (0, "")], 70_000
    result = run("model_upload", **task(file))
    assert not result.failed, result.data
    assert depot.there == DATA
    assert depot.received == len(DATA)


def test_an_earlier_tasks_data_is_not_sent_again(api: FakeApi, run: Run, depot: FakeDepot, file: str) -> None:
    put_model(api, depot)
    depot.keep(DATA[:300_000], len(DATA))
    result = run("model_upload", **task(file))
    assert (result["resumed_at"], result["sent"]) == (300_000, len(DATA) - 300_000)
    assert depot.there == DATA


def test_two_files_are_never_put_together(api: FakeApi, run: Run, depot: FakeDepot, file: str) -> None:
    put_model(api, depot)
    depot.keep(DATA[:200_000] + b"other", len(DATA))
    result = run("model_upload", **task(file))
    assert (result["resumed_at"], result["sent"]) == (0, len(DATA))
    assert depot.there == DATA


def test_another_file_that_is_complete_is_no_success(run: Run, depot: FakeDepot, file: str) -> None:
    depot.keep(bytes(len(DATA)), len(DATA))
    result = run("model_upload", node=True, url=depot.url, token=TOKEN, src=file)
    assert result["error_code"] == "failed"


def test_an_address_and_a_token_are_enough(run: Run, depot: FakeDepot, file: str) -> None:
    results = [run("model_upload", node=True, url=depot.url, token=TOKEN, src=file) for _time in range(2)]
    assert [result["changed"] for result in results] == [True, False]
    assert depot.there == DATA


def test_a_token_that_expires_is_taken_again_from_the_secret(
    api: FakeApi, run: Run, depot: FakeDepot, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_model(api, depot)
    depot.expired.add(TOKEN)
    depot.token = "the-new-token"
    original = _uploading.Cluster.session

    def session(self: Any, *given: Any, **more: Any) -> Any:
        response = original(self, *given, **more)
        put_secret(api, depot)  # As the controller does meanwhile.
        return response

    monkeypatch.setattr(_uploading.Cluster, "session", session)
    old = depot.token
    depot.token = TOKEN
    put_secret(api, depot)
    depot.token = old
    result = run("model_upload", **task(file))
    assert not result.failed, result.data
    assert depot.there == DATA


@pytest.mark.parametrize(
    ("status", "code"), [(413, "denied"), (415, "denied"), (507, "denied"), (404, "not_found"), (401, "unauthorized")]
)
def test_a_refusal_ends_it_with_what_the_depot_says(
    api: FakeApi, run: Run, depot: FakeDepot, file: str, status: int, code: str
) -> None:
    put_model(api, depot)
    depot.refusals = [(status, "this file type is not supported")]
    result = run("model_upload", **task(file))
    assert (result["error_code"], result["status"]) == (code, status)
    assert "this file type is not supported" in result["msg"]


def test_an_upload_that_is_opened_late_is_waited_for(api: FakeApi, run: Run, depot: FakeDepot, file: str) -> None:
    put_model(api, depot, phase="Pending", upload={})
    api.once("get", lambda: put_model(api, depot))
    assert run("model_upload", **task(file))["phase"] == "Ready"


def test_an_upload_that_never_opens_fails_with_the_reason(api: FakeApi, run: Run, depot: FakeDepot, file: str) -> None:
    put_model(api, depot, phase="Pending", upload={}, **waiting("NoRegistry", "There is no registry."))
    result = run("model_upload", **task(file, wait_timeout=0))
    assert result["error_code"] == "timeout"
    assert "NoRegistry: There is no registry." in result["msg"]


def test_a_source_that_cannot_be_published_fails_with_the_reason(
    api: FakeApi, run: Run, depot: FakeDepot, file: str
) -> None:
    put_model(api, depot)
    failed = waiting("UnsupportedSource", "run.exe is a program.")
    depot.full = lambda: api.set_status(MODELS + "tiny", phase="Failed", **failed)
    result = run("model_upload", **task(file))
    assert result["error_code"] == "failed"
    assert "UnsupportedSource: run.exe is a program." in result["msg"]


def test_a_wrong_checksum_sends_nothing(api: FakeApi, run: Run, depot: FakeDepot, file: str) -> None:
    put_model(api, depot)
    result = run("model_upload", **task(file, checksum=f"sha256:{'0' * 64}"))
    assert result["error_code"] == "invalid_input"
    assert depot.received == 0
    right = hashlib.sha256(DATA).hexdigest()
    assert run("model_upload", **task(file, checksum=right))["checksum"] == f"sha256:{right}"


@pytest.mark.parametrize("src", ["none", "empty", "folder"])
def test_missing_or_empty_values_are_rejected(run: Run, depot: FakeDepot, tmp_path: Path, src: str) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "folder/.git").mkdir(parents=True)
    (tmp_path / "folder/.git/config").write_text("x")
    result = run("model_upload", node=True, url=depot.url, token=TOKEN, src=str(tmp_path / src))
    assert result["error_code"] == "invalid_input"


def test_a_folder_is_a_tar_from_any_offset_on(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / ".cache").mkdir()
    files = {"config.json": b"{}", "sub/model.safetensors": os.urandom(70_000), f"{'long/' * 30}x.json": b"[]"}
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "link.json").symlink_to(folder / "config.json")
    (folder / ".cache/hidden").write_text("x")
    what = content(str(folder))
    whole = b"".join(what.chunks(0, what.size))
    assert len(whole) == what.size
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        members = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    assert members == {**files, "link.json": b"{}"}
    for offset in (0, 1, 511, 512, 1500, 40_000, what.size - 3):
        assert b"".join(what.chunks(offset, 3)) == whole[offset : offset + 3]
    os.utime(folder / "config.json", (1, 1))
    assert content(str(folder)).digest(0, what.size) == what.digest(0, what.size)
    assert what.name == "model.tar"
