"""A whole gateway on this machine, without Kubernetes: HAProxy and control process, fed from a table file.

For tests and benchmarks. HAProxy is the program that SLIPWAY_HAPROXY names, else the public image.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import yaml

IMAGE = "haproxy:3.4.6"
_START_SECONDS = 90.0
_STOP_SECONDS = 30.0


class Standalone:
    """Starts on entering the context, stops on leaving it. Everything lies below `directory`, logs too.

    `settings` are those of the settings file (camelCase); `listen` and `controlListen` should name loopback ports.
    """

    def __init__(self, directory: Path, settings: Mapping[str, object]) -> None:
        self.directory = directory
        self.run = directory / "run"
        self.config = directory / "gateway.yaml"
        self.table = directory / "table.json"
        self.url = f"http://{settings['listen']}"
        self.control_url = f"http://{settings['controlListen']}"
        self._settings = {"runDirectory": str(self.run), **settings}
        self._container = f"slipway-gateway-{os.getpid()}-{directory.name}"
        self.haproxy: subprocess.Popen[bytes] | None = None
        self.control: subprocess.Popen[bytes] | None = None

    def route(
        self,
        models: Mapping[str, Sequence[str] | Mapping[str, object]],
        keys: Mapping[str, str] | None = None,
        refused: Mapping[str, str] | None = None,
    ) -> None:
        """Writes the table, see file_source.TableFile. Takes effect within 0.2 s."""
        text = json.dumps({"models": dict(models), "keys": dict(keys or {}), "refused": dict(refused or {})})
        new = self.table.with_suffix(".new")
        new.write_text(text)
        new.replace(self.table)

    def __enter__(self) -> Standalone:
        """Starts with the table that `route` wrote before, or with none."""
        self.run.mkdir(parents=True, exist_ok=True)
        self.config.write_text(yaml.safe_dump(self._settings))
        if not self.table.exists():
            self.route({})
        subprocess.run([*self._slipway(), "--init"], check=True, env=self._environment())
        self.start_haproxy()
        self.start_control()
        self.wait_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops both processes."""
        self.kill_haproxy()
        self.stop(self.control)

    def start_control(self, *options: str) -> None:
        """Starts the control process; its log goes to control.log."""
        with (self.directory / "control.log").open("ab") as output:
            command = [*self._slipway(), "--table", str(self.table), *options]
            self.control = subprocess.Popen(command, stderr=output, env=self._environment())

    def start_haproxy(self) -> None:
        """Starts HAProxy as the pod does; access log and messages go to haproxy.log."""
        arguments = ["-W", "-db", "-S", f"{self.run}/master.sock,mode,600", "-f", f"{self.run}/haproxy.cfg"]
        memory = self._settings.get("memoryBytes")
        arguments += ["-m", str(int(str(memory)) >> 20)] if memory else []
        program = os.environ.get("SLIPWAY_HAPROXY")
        command = [program] if program else self._docker()
        with (self.directory / "haproxy.log").open("ab") as output:
            self.haproxy = subprocess.Popen(
                [*command, *arguments], stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )

    def kill_haproxy(self) -> None:
        """Ends HAProxy at once, with all its connections."""
        if not self.haproxy:
            return
        if not os.environ.get("SLIPWAY_HAPROXY"):
            subprocess.run(["docker", "kill", self._container], check=False, capture_output=True)
        self.stop(self.haproxy)

    def wait_ready(self) -> None:
        """Returns when the public /readyz says so. Raises TimeoutError."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", timeout=10):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        raise TimeoutError(f"the gateway is not ready; see the logs in {self.directory}")

    def haproxy_pids(self) -> list[int]:
        """Master first, then its workers: for measuring."""
        if not self.haproxy:
            return []
        master = self.haproxy.pid
        if not os.environ.get("SLIPWAY_HAPROXY"):
            command = ["docker", "inspect", "--format", "{{.State.Pid}}", self._container]
            master = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
        return [master, *map(int, children)]

    @staticmethod
    def stop(process: subprocess.Popen[bytes] | None) -> None:
        """Ends a process by SIGTERM, and by SIGKILL where it does not obey."""
        if process and process.poll() is None:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @staticmethod
    def _environment() -> dict[str, str]:
        """Lets the child find this package where it is not installed."""
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def _slipway(self) -> list[str]:
        return [sys.executable, "-m", "slipway", "gateway", "--config", str(self.config)]

    def _docker(self) -> list[str]:
        user = f"{os.getuid()}:{os.getgid()}"
        directory = f"{self.directory}:{self.directory}"
        options = ["--rm", "--network", "host", "--user", user, "--read-only", "--cap-drop", "ALL", "-v", directory]
        return ["docker", "run", *options, "--name", self._container, IMAGE, "haproxy"]
