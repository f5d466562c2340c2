"""A whole gateway on this machine, without Kubernetes: HAProxy and control process, fed from a table file.

For tests and benchmarks. HAProxy runs as a local program; see haproxy_program.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import yaml

from tests.gateway.haproxy_program import haproxy

PATIENCE = 90
"""Time limit in seconds for operations that are fast on an idle machine."""


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
        self.settings = {"runDirectory": str(self.run), **settings}
        self.haproxy: subprocess.Popen[bytes] | None = None
        self.control: subprocess.Popen[bytes] | None = None

    def route(
        self,
        models: Mapping[str, Sequence[str] | Mapping[str, object]],
        keys: Mapping[str, str] | None = None,
        refused: Mapping[str, str] | None = None,
        rights: Mapping[str, Mapping[str, object]] | None = None,
        gateways: Sequence[str] = (),
    ) -> None:
        """Writes the table (see sources/file.py). It takes effect within 0.2 s."""
        table = {"models": models, "keys": keys or {}, "refused": refused or {}, "rights": rights or {}}
        table |= {"gateways": gateways}
        text = json.dumps(table)
        new = self.table.with_suffix(".new")
        new.write_text(text)
        new.replace(self.table)

    def __enter__(self) -> Standalone:
        """Starts with the table that `route` wrote before, or with none."""
        self.run.mkdir(parents=True, exist_ok=True)
        self.config.write_text(yaml.safe_dump(self.settings))
        if not self.table.exists():
            self.route({})
        subprocess.run([*self._slipway(), "--init"], check=True, env=self._environment())
        try:
            self.start_haproxy()
            self.start_control()
            self.wait_ready()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops both processes."""
        self._stop()

    def _stop(self) -> None:
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
        memory = self.settings.get("memoryBytes")
        arguments += ["-m", str(int(str(memory)) >> 20)] if memory else []
        with (self.directory / "haproxy.log").open("ab") as output:
            self.haproxy = subprocess.Popen(
                [*_as_in_a_pod(), haproxy(), *arguments], stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )

    def kill_haproxy(self) -> None:
        """Kills HAProxy with all its connections."""
        if not self.haproxy:
            return
        pids = self.haproxy_pids()
        self.haproxy.kill()  # first, so that it does not restart its workers
        for pid in pids[1:]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.haproxy.wait()
        # Wait until the sockets are closed, so that HAProxy can be started again.
        deadline = time.monotonic() + PATIENCE
        while any(map(_is_alive, pids)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the HAProxy processes {pids} have not ended")
            time.sleep(0.01)

    def wait_ready(self) -> None:
        """Waits until the public /readyz succeeds. Raises RuntimeError if a process exits first."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", timeout=PATIENCE):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
            for process, log in ((self.haproxy, "haproxy.log"), (self.control, "control.log")):
                if process and process.poll() is not None:
                    text = (self.directory / log).read_text(errors="replace")
                    raise RuntimeError(f"the gateway did not start, {log} ends in: {text[-2000:]}")
        raise TimeoutError(f"the gateway is not ready; see the logs in {self.directory}")

    def haproxy_pids(self) -> list[int]:
        """The PIDs of the master and then its workers; empty if HAProxy has exited."""
        if not self.haproxy or self.haproxy.poll() is not None:
            return []
        master = self.haproxy.pid
        children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
        return [master, *map(int, children)]

    @staticmethod
    def stop(process: subprocess.Popen[bytes] | None) -> None:
        """Ends a process by SIGTERM, and by SIGKILL where it does not obey."""
        if process and process.poll() is None:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @staticmethod
    def _environment() -> dict[str, str]:
        """Returns the environment in which the child finds this package if it is not installed."""
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def _slipway(self) -> list[str]:
        return [sys.executable, "-m", "slipway", "gateway", "--config", str(self.config)]


def _as_in_a_pod() -> list[str]:
    """A command prefix that drops root's capabilities, like the pod's security context.

    Otherwise HAProxy could, for example, raise its own limit on open files.
    """
    return [] if os.getuid() else ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]


def _is_alive(pid: int) -> bool:
    """Whether the process still has its sockets; a zombie has none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
