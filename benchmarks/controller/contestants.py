"""The controllers that are measured, each a process: Slipway's, and the same work as one writes it with kopf."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from plane import NAMESPACE, environment
from process import cpu_seconds, mebibytes

HERE = Path(__file__).parent
KOPF = ("kopf==1.45.2", "kubernetes==37.0.2")
Command = Callable[[Path, int], Sequence[str]]
"""(folder for its files, free port for health) -> what to run."""


@dataclass(frozen=True)
class Running:
    """A controller that has been started and is ready."""

    process: subprocess.Popen[bytes]
    port: int

    def reconciliations(self) -> int:
        """How many there were so far, of all kinds and whatever their results."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith("reconcile_total{"))

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.process.pid)

    def peak_mebibytes(self) -> float:
        return mebibytes(self.process.pid, "VmHWM")


def slipway(api: str) -> Command:
    """The controller, serving one API."""

    def command(folder: Path, port: int) -> Sequence[str]:
        config = folder / "controller.yaml"
        config.write_text(f"apis: [{api}]\nlisten: 127.0.0.1:{port}\n")
        return [sys.executable, "-m", "slipway", "controller", "--config", str(config)]

    return command


def kopf(_folder: Path, port: int) -> Sequence[str]:
    health = f"http://127.0.0.1:{port}/readyz"
    handlers = str(HERE / "peer_kopf.py")
    return [
        str(_kopf_python()),
        "-m",
        "kopf",
        "run",
        "--quiet",
        "--standalone",
        "-n",
        NAMESPACE,
        "--liveness",
        health,
        handlers,
    ]


def _kopf_python() -> Path:
    """An environment of kopf's own, made once in the cache."""
    cache = os.environ.get("SLIPWAY_CACHE") or Path(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "slipway"
    )
    folder = Path(cache) / "bench" / "-".join(["kopf", *KOPF]).replace("==", "-")
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *KOPF]
        subprocess.run(install, check=True, timeout=600)
        (folder / ".ready").touch()
    return python


CONTESTANTS: dict[str, Command] = {"slipway": slipway("krypton"), "kopf": kopf}
ALONE: dict[str, Command] = {"slipway, KubeAI": slipway("kubeai"), "slipway, LLMKube": slipway("llmkube")}
"""Without a peer here: the original makes no thousand Models in the time that there is."""


@contextlib.contextmanager
def running(command: Command, kubeconfig: Path, folder: Path, port: int) -> Iterator[Running]:
    """Starts a controller, waits until it is ready, and stops it at the end."""
    log = folder / "controller.log"
    with log.open("ab") as stream:
        process = subprocess.Popen(command(folder, port), env=environment(kubeconfig), stdout=stream, stderr=stream)
    try:
        _await_ready(process, port, log)
        yield Running(process, port)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise SystemExit(f"the controller did not become ready:\n{log.read_text()[-3000:]}")
