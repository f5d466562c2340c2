"""Whatever ends a load early, the next one brings the right bytes: kills, full disks, signals, a second loader."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from slipway.loader.disk.folder import Folder
from slipway.loader.transport.errors import LoadError, StoppedError
from slipway.serving.wire.proof import HEADER, SigningKey
from tests.ports import reserved_port

from .conftest import FILES, PATIENCE, WEIGHTS, Loading, Service, content, write

URL = "hf://acme/tiny"
HERE = Path(__file__).parent


def environment(hub: Service) -> dict[str, str]:
    """Of a container: no HOME, the sources on PYTHONPATH."""
    return {"PYTHONPATH": str(HERE.parents[2] / "src"), "HF_ENDPOINT": hub.url, "PATH": os.environ["PATH"]}


def start_loader(hub: Service, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "slipway", "loader", *arguments]
    return subprocess.Popen(command, env=environment(hub), stderr=subprocess.PIPE, text=True, **options)


def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit status and last line."""
    _output, errors = process.communicate(timeout=2 * PATIENCE)
    return process.returncode, errors.strip().splitlines()[-1]


def test_a_kill_at_any_touch_of_the_disk_costs_nothing_but_time(hub: Service, root: Path, tmp_path: Path) -> None:
    write(root / "acme/small", {"weights.gguf": WEIGHTS[:200_000], "config.json": b"{}", "sub/empty.txt": b""})
    command = [sys.executable, str(HERE / "killed.py"), "hf://acme/small", str(tmp_path), str(root / "acme/small")]
    done = subprocess.run(
        command, env=environment(hub), capture_output=True, text=True, check=False, timeout=4 * PATIENCE
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 20


def test_a_resumed_load_asks_only_for_what_is_missing(from_hub: Loading, hub: Service) -> None:
    async def interfere(request: web.Request) -> web.StreamResponse | None:
        if not request.path.endswith("tiny.gguf"):
            return None
        response = web.StreamResponse(headers={"Content-Length": str(len(WEIGHTS))})
        await response.prepare(request)
        await response.write(WEIGHTS[:500_000])
        async with asyncio.timeout(PATIENCE):
            while from_hub.meter.progress().done_bytes < 1000:  # noqa: ASYNC110  # a thread counts
                await asyncio.sleep(0.01)
        from_hub.stop.set()
        await response.write(WEIGHTS[500_000:])
        return response

    hub.interfere = interfere
    with pytest.raises(StoppedError):
        from_hub(URL)
    hub.interfere, count = None, len(hub.seen)
    from_hub(URL)
    assert from_hub.content == FILES
    ranges = [seen.range for seen in hub.seen[count:] if seen.path.endswith("tiny.gguf")]
    assert len(ranges) == 1
    assert int(ranges[0].removeprefix("bytes=").removesuffix("-")) > 0


def test_a_full_disk_is_reported_before_a_byte_is_asked_for(
    from_hub: Loading, hub: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = SimpleNamespace(f_bavail=10, f_frsize=4096, f_blocks=100)
    monkeypatch.setattr(os, "statvfs", lambda _path: volume)
    with pytest.raises(LoadError, match=r"1\.5 MiB are needed and .* has 40\.0 KiB free: use a larger volume"):
        from_hub(URL)
    assert not [seen for seen in hub.seen if "/resolve/" in seen.path]


def test_a_disk_that_fills_up_is_reported_and_what_came_is_kept(hub: Service, tmp_path: Path) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, 700_000))

    folder = tmp_path / "model"
    process = start_loader(hub, "load", URL, str(folder), "--listen", "127.0.0.1:0", preexec_fn=limited)
    status, line = end_of(process)
    assert (status, "the disk is full" in line, "use a larger volume" in line) == (3, True, True)
    assert "tiny.gguf" not in content(folder)
    assert end_of(start_loader(hub, "load", URL, str(folder), "--listen", "127.0.0.1:0"))[0] == 0
    assert content(folder) == FILES
    assert [seen.range for seen in hub.seen if seen.path.endswith("tiny.gguf")] == ["", "bytes=700000-"]


@pytest.mark.parametrize("step", ["begin", "finish"])
def test_a_disk_that_is_full_at_the_edges_is_reported_as_well(
    from_hub: Loading, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Folder, step, full)
    with pytest.raises(LoadError, match=r"the disk is full: .* use a larger volume"):
        from_hub(URL)


def test_a_folder_that_cannot_be_written_is_reported(from_hub: Loading, tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file where a folder should be")
    with pytest.raises(LoadError, match=r"cannot write .*: Not a directory: check the volume and its owner"):
        from_hub(URL)


def test_a_term_signal_ends_it_at_once_and_progress_is_reported_meanwhile(hub: Service, tmp_path: Path) -> None:
    reached, port = threading.Event(), reserved_port()
    hub.interfere = _stalls(reached)
    key, place = SigningKey.generate(), ("--listen", f"127.0.0.1:{port}")
    process = start_loader(
        hub, "load", URL, str(tmp_path / "model"), *place, f"--controller-key={key.public}", "--pod=mine"
    )
    assert reached.wait(PATIENCE)
    deadline, done = time.monotonic() + PATIENCE, 0
    while done < 1000 and time.monotonic() < deadline:
        headers = {HEADER: key.proof("GET", "/v1/state", b"", "mine", time.time_ns())}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/state", headers=headers)
        state = json.load(urllib.request.urlopen(request, timeout=PATIENCE))
        assert state["progress"]["totalBytes"] == sum(map(len, FILES.values()))
        done = state["progress"]["doneBytes"]
    assert 1000 <= done < len(WEIGHTS)
    process.send_signal(signal.SIGTERM)
    status, line = end_of(process)
    assert (status, line) == (143, "slipway loader: stopped")


def _stalls(reached: threading.Event) -> Callable[[web.Request], Any]:
    async def interfere(request: web.Request) -> web.StreamResponse | None:
        if not request.path.endswith("tiny.gguf"):
            return None
        response = web.StreamResponse(headers={"Content-Length": str(len(WEIGHTS))})
        await response.prepare(request)
        await response.write(WEIGHTS[:1000])
        reached.set()
        await asyncio.sleep(100 * PATIENCE)
        return response

    return interfere


def test_a_second_loader_waits_and_fetches_nothing(hub: Service, from_hub: Loading) -> None:
    first, second = (threading.Thread(target=from_hub, args=(URL,)) for _unused in range(2))
    first.start()
    second.start()
    first.join(PATIENCE)
    second.join(PATIENCE)
    assert from_hub.content == FILES
    assert len([seen for seen in hub.seen if "/resolve/" in seen.path]) == len(FILES) - 1  # one is empty
