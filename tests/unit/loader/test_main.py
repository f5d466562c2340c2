"""The program: its commands, exit statuses and last words."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipway.artifacts.locations.redaction import redact_url
from slipway.loader import main as module
from slipway.loader.cli import commands
from slipway.loader.cli.termination import write_termination_message
from slipway.loader.disk.progress import Meter, human
from slipway.loader.main import main
from slipway.serving.pods import job

from .conftest import FILES, Service, content


def test_load_then_evict(
    hub: Service, tmp_path: Path, termination: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    folder = tmp_path / "volume" / "model"
    command = ["load", "hf://acme/tiny", str(folder), "--listen", "127.0.0.1:0"]
    assert main(command) == 0
    assert content(folder) == FILES
    assert (
        capsys.readouterr().err.splitlines()[-1].startswith(f"slipway loader: {folder} is complete: 1.5 MiB of 1.5 MiB")
    )
    assert main(command) == 0
    assert capsys.readouterr().err.splitlines()[-1] == f"slipway loader: {folder} is already complete"
    assert main(["evict", str(folder), "--below", str(folder.parent)]) == 0
    assert main(["evict", str(folder), "--below", str(folder.parent)]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == f"slipway loader: {folder} does not exist"
    assert termination.read_text() == ""


@pytest.mark.parametrize(
    ("url", "status"),
    [("hf://acme/none", module.NEVER), ("ftp://x/y", module.NEVER), ("http://127.0.0.1:9/x", module.LATER)],
)
def test_failures_end_with_one_line_that_kubernetes_shows(
    hub: Service, tmp_path: Path, termination: Path, monkeypatch: pytest.MonkeyPatch, url: str, status: int
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    command = ["load", url, str(tmp_path / "model"), "--listen", "127.0.0.1:0", "--attempts", "1"]
    assert main(command) == status
    words = termination.read_text()
    assert words
    assert "\n" not in words


def test_jobs_know_the_status_that_ends_their_attempts() -> None:
    assert module.NEVER == job.NEVER


def test_last_words_fit_into_what_kubernetes_takes(termination: Path) -> None:
    write_termination_message("much " * 2000)
    assert 3000 < termination.stat().st_size <= 4096


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["load", "hf://a/b"],
        ["load", "hf://a/b", "/x", "--listen", "8001"],
        ["load", "hf://a/b", "/x", "--parallel", "0"],
        ["serve", "--directory", "/x"],
        ["serve", "--directory", "/x", "--engine", "127.0.0.1:8000"],
        ["serve", "--directory", "/x", "--engine", "http://127.0.0.1:8000"],
        ["serve", "--directory", "/x", "--engine", "http://127.0.0.1:8000", f"--controller-key={'x' * 43}"],
        ["load", "hf://a/b", "/x", "--controller-key=short", "--pod=uid"],
        ["load", "hf://a/b", "/x", f"--controller-key={'x' * 43}"],
    ],
)
def test_commands_that_make_no_sense_are_refused(command: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(command)
    assert caught.value.code == 2


def test_without_the_controllers_key_no_request_is_answered(
    hub: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    opened: list[object] = []
    monkeypatch.setattr(commands.web, "TCPSite", lambda *place: opened.append(place))
    assert main(["load", "hf://acme/tiny", str(tmp_path / "model"), "--listen", "127.0.0.1:0"]) == 0
    assert opened == []


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:hush@host/f.gguf?sig=hush#x", "https://host/f.gguf"),
        ("hf://org/repo@main", "hf://org/repo@main"),
        ("s3://bucket/a b?c", "s3://bucket/a b?c"),
    ],
)
def test_addresses_are_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    assert redact_url(url) == shown


def test_progress_is_reported_in_words() -> None:
    now = [0.0]
    meter = Meter(lambda: now[0])
    assert meter.progress().message == "listing files"
    meter.expect(4 << 20, 2)
    meter.reused(1 << 20)
    now[0] = 1.0
    meter.fetched(1 << 20)
    meter.file_done()
    assert meter.line() == "2.0 MiB of 4.0 MiB: 1 of 2 files, 1.0 MiB/s, 2 s left"


@pytest.mark.parametrize(("size", "shown"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 KiB"), (5 << 40, "5.0 TiB")])
def test_sizes_read_well(size: int, shown: str) -> None:
    assert human(size) == shown
