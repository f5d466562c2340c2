"""How a pod finishes what it has begun: the hook is run as the kubelet would run it, beside an engine on loopback."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slipway.engines import ENGINES
from slipway.engines.definition.engine import Engine as AnyEngine
from slipway.engines.programs.generic import GENERIC
from slipway.engines.programs.sglang import SGLANG
from slipway.engines.programs.vllm import VLLM
from slipway.serving.containers.drain import FAILED_SECONDS, FALLBACK_SECONDS, Drain, bounded

PATIENCE = 60
KEEPS_IDLE = msgspec.structs.replace(VLLM.drain(600), closes_idle=False)
METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="a model"}} {running}
vllm:num_requests_running{{engine="1",model_name="a model"}} 0.0
vllm:num_requests_waiting{{engine="0",model_name="a model"}} 0.0
vllm:num_requests_waiting_by_reason{{engine="0"}} 7.0
"""


class Engine:
    """Answers /metrics, unless it is busy, and counts how often it was asked."""

    def __init__(self) -> None:
        self.status, self.running, self.requests = 200, "0.0", 0
        self.answers, self.connections = threading.Event(), list[socket.socket]()
        self.answers.set()
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                engine.requests += 1
                engine.answers.wait()
                self.send_response(engine.status)
                self.end_headers()
                self.wfile.write(METRICS.format(running=engine.running).encode())

            def log_message(self, *_unused: Any) -> None: ...

        class Server(ThreadingHTTPServer):
            def get_request(self) -> tuple[socket.socket, Any]:
                connection, address = super().get_request()
                engine.connections.append(connection)
                return connection, address

            def handle_error(self, *_unused: Any) -> None:
                """A client that left is none."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port: int = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Accepts no connection any more."""
        self.answers.set()
        self.server.shutdown()
        self.server.socket.close()

    def end(self) -> None:
        """Leaves its connections to the kernel, as a process that has ended."""
        self.close()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def engine() -> Iterator[Engine]:
    fake_engine = Engine()
    yield fake_engine
    fake_engine.end()
    fake_engine.server.server_close()


@pytest.fixture
def client(engine: Engine) -> Iterator[socket.socket]:
    """A connected client, with or without a pending request."""
    with socket.create_connection(("127.0.0.1", engine.port)) as connection:
        yield connection


@pytest.fixture
def hook(engine: Engine, tmp_path: Path) -> Iterator[Callable[[Drain], subprocess.Popen[bytes]]]:
    """Starts the hook of a pod, whose seconds are short: an engine is late after one. Each look leaves a line in the
    file ``looks``."""
    real = shutil.which("sleep")
    stub = tmp_path / "sleep"
    stub.write_text(f"#!/bin/sh\necho >> {tmp_path}/looks\nexec {real} 0.02\n")
    stub.chmod(0o755)
    started: list[subprocess.Popen[bytes]] = []

    def start(drain: Drain) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        command = [word.replace("limit=3 ", "limit=1 ") for word in drain.hook(engine.port)["exec"]["command"]]
        process = subprocess.Popen(command, env=environment)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def looks(tmp_path: Path) -> int:
    file = tmp_path / "looks"
    return len(file.read_text()) if file.exists() else 0


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


def assert_it_waits_for(client: socket.socket, process: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """Asserts that the hook makes more looks than would end it, and ends when its last client has left."""
    before = looks(tmp_path)
    wait_for(lambda: looks(tmp_path) > before + 14 or process.poll() is not None)
    assert process.poll() is None
    client.close()
    assert process.wait(PATIENCE) == 0


def with_one_program(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Leaves the hook one program that reads metrics."""
    folder.mkdir()
    for name in ("sh", "grep", "date", program):
        target = sys.executable if name == "python3" else shutil.which(name)
        assert target, f"{name} is not installed"
        (folder / name).symlink_to(target)
    monkeypatch.setenv("PATH", str(folder))


def test_a_pod_without_connections_ends_after_three_checks(engine: Engine, hook: Any, tmp_path: Path) -> None:
    assert hook(VLLM.drain(600)).wait(PATIENCE) == 0
    assert looks(tmp_path) == 3
    assert engine.requests == 0


def test_a_pod_waits_for_its_last_request(engine: Engine, client: socket.socket, hook: Any, tmp_path: Path) -> None:
    engine.running = "1.0"
    process = hook(VLLM.drain(600))
    wait_for(lambda: engine.requests > 14)
    assert process.poll() is None
    client.close()
    assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    ("engine", "bind", "requested"),
    [
        (SGLANG, "::", "http://[::1]:$1/metrics"),
        (SGLANG, "0.0.0.0", "http://127.0.0.1:$1/metrics"),
        (SGLANG, "", "http://127.0.0.1:$1/metrics"),
        (VLLM, "::", "http://127.0.0.1:$1/metrics"),
    ],
)
def test_an_engine_is_asked_at_an_address_on_which_it_listens(engine: AnyEngine, bind: str, requested: str) -> None:
    script = engine.drain(600, bind).hook(8000)["exec"]["command"][2]
    assert requested in script


@pytest.mark.usefixtures("client")
def test_a_pod_whose_engine_has_nothing_to_do_does_not_wait_for_idle_connections(
    engine: Engine, hook: Any, tmp_path: Path
) -> None:
    engine.running = "1.0"
    process = hook(VLLM.drain(600))
    wait_for(lambda: engine.requests > 0)
    assert process.poll() is None
    engine.running = "0.0"
    assert process.wait(PATIENCE) == 0
    assert looks(tmp_path) >= 12


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("drain", [Drain(seconds=600), Drain(seconds=600, metrics=("another:gauge",))])
def test_idle_connections_to_an_engine_that_says_nothing_are_waited_for_some_seconds(
    hook: Any, tmp_path: Path, drain: Drain
) -> None:
    assert hook(drain).wait(PATIENCE) == 0
    assert looks(tmp_path) == 12


@pytest.mark.parametrize("engine_name", ["llamacpp", "vllm", "sglang", "infinity", "fasterwhisper"])
def test_connections_count_where_an_engine_that_says_nothing_closes_idle_ones(
    engine: Engine, client: socket.socket, hook: Any, tmp_path: Path, engine_name: str
) -> None:
    engine.status = 404
    drain = msgspec.structs.replace(ENGINES[engine_name].drain(600), metrics=())
    process = hook(drain)
    assert_it_waits_for(client, process, tmp_path)


def test_an_engine_that_keeps_idle_connections_open_does_not_say_by_them_that_it_has_work() -> None:
    closing = {name for name, one in ENGINES.items() if one.drain(600).closes_idle}
    assert closing == {"llamacpp", "vllm", "sglang", "infinity", "fasterwhisper"}


def test_connections_count_where_an_engine_that_had_work_says_nothing_any_more(
    engine: Engine, client: socket.socket, hook: Any, tmp_path: Path
) -> None:
    engine.running = "1.0"
    process = hook(KEEPS_IDLE)
    wait_for(lambda: engine.requests > 0)
    engine.status = 401
    assert_it_waits_for(client, process, tmp_path)


@pytest.mark.parametrize("program", ["curl", "wget", "python3"])
def test_an_engine_that_is_too_busy_for_its_metrics_has_work(
    engine: Engine, client: socket.socket, hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """Afterwards it says nothing: this would count where it never had work."""
    with_one_program(tmp_path / "programs", monkeypatch, program)
    engine.answers.clear()
    process = hook(KEEPS_IDLE)
    wait_for(lambda: engine.requests > 0)
    assert process.poll() is None
    wait_for(lambda: looks(tmp_path) > 0)
    engine.status = 401
    engine.answers.set()
    assert_it_waits_for(client, process, tmp_path)


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("program", ["curl", "wget", "python3"])
@pytest.mark.parametrize("answer", ["refused", "unreadable"])
def test_an_engine_that_refuses_or_answers_something_else_is_not_busy(
    engine: Engine, hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, answer: str
) -> None:
    with_one_program(tmp_path / "programs", monkeypatch, program)
    if answer == "refused":
        wait_for(lambda: bool(engine.connections))
        engine.close()
    assert hook(Drain(seconds=600, metrics=("another:gauge",))).wait(PATIENCE) == 0
    assert looks(tmp_path) == 12


def test_an_engine_that_finishes_its_answers_and_accepts_no_connection_is_waited_for(
    engine: Engine, client: socket.socket, hook: Any, tmp_path: Path
) -> None:
    engine.running = "1.0"
    process = hook(KEEPS_IDLE)
    wait_for(lambda: engine.requests > 0)
    engine.close()
    assert_it_waits_for(client, process, tmp_path)


@pytest.mark.usefixtures("client")
def test_an_engine_that_has_ended_is_not_waited_for(engine: Engine, hook: Any) -> None:
    engine.answers.clear()
    process = hook(VLLM.drain(600))
    wait_for(lambda: engine.requests > 0)
    engine.end()
    assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("program", ["curl", "wget", "python3"])
def test_an_engine_is_not_asked_through_the_proxy_of_its_container(
    engine: Engine, client: socket.socket, hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    with_one_program(tmp_path / "programs", monkeypatch, program)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    engine.running = "1.0"
    process = hook(KEEPS_IDLE)
    wait_for(lambda: engine.requests > 0 or process.poll() is not None)
    assert process.poll() is None
    client.close()
    assert process.wait(PATIENCE) == 0


@pytest.mark.usefixtures("client")
def test_a_pod_waits_no_longer_than_it_may(engine: Engine, hook: Any) -> None:
    engine.running = "1.0"
    assert hook(VLLM.drain(1)).wait(PATIENCE) == 0


def test_an_image_without_grep_goes_on_as_long_as_one_without_a_shell(tmp_path: Path) -> None:
    sleep = tmp_path / "sleep"
    sleep.write_text("#!/bin/sh\necho $1\n")
    sleep.chmod(0o755)
    shell, *arguments = Drain(seconds=600).hook(80)["exec"]["command"]
    command = [shutil.which(shell) or shell, *arguments]
    ran = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    assert ran.stdout == f"{FALLBACK_SECONDS}\n"


def test_the_pod_has_time_to_stop_when_its_hook_is_done() -> None:
    assert Drain(seconds=600).grace_seconds == 615
    assert GENERIC.drain(600).grace_seconds == 30


def test_an_image_that_may_have_no_shell_goes_on_for_some_seconds() -> None:
    assert GENERIC.drain(600).hook(80) == {"sleep": {"seconds": 15}}
    assert GENERIC.drain(5).hook(80) == {"sleep": {"seconds": 5}}
    assert Drain(seconds=0).hook(80) == {}


def test_every_engine_with_metrics_says_which_of_them_tell_that_it_has_nothing_to_do() -> None:
    metrics = {name: one.drain(600).metrics for name, one in ENGINES.items()}
    assert metrics["vllm"] == ("vllm:num_requests_running", "vllm:num_requests_waiting")
    assert metrics["llamacpp"] == ("llamacpp:requests_processing", "llamacpp:requests_deferred")
    assert metrics["ollama"] == ()


def test_a_container_that_failed_a_probe_is_not_waited_for() -> None:
    bound = {"terminationGracePeriodSeconds": FAILED_SECONDS}
    own = {"terminationGracePeriodSeconds": 5}
    probes = {"startupProbe": {"a": 1}, "livenessProbe": own, "readinessProbe": {"b": 2}}
    assert bounded(probes) == {**probes, "startupProbe": {**bound, "a": 1}}
