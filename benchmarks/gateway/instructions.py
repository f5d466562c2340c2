"""How many instructions a gateway runs for one request: unlike its time, they stay the same whatever else the machine
does.

A fixed number of requests goes one after another over one connection. `perf` counts where the kernel lets it, else
`valgrind --tool=callgrind` does, which runs a second start of the gateway. Both count the program's own part, not the
kernel's. Below callgrind only the process that carries the requests is counted.

    instructions.py PORT BODY NUMBER        sends the requests, for perf
"""

from __future__ import annotations

import http.client
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from peers import KEY, Peer, Running, start, with_children

PERF, CALLGRIND = "perf", "callgrind"
WARM = 20
"""Requests before the others: the first ones open connections and fill caches."""
PATIENCE = 300


class CountError(Exception):
    """The instructions of a gateway cannot be counted. The message is the reason."""


def method() -> str:
    """The program that can count here; empty: none."""
    if shutil.which("perf"):
        probe = ["perf", "stat", "-x,", "-e", "instructions:u", "true"]
        done = subprocess.run(probe, capture_output=True, text=True, check=False, timeout=30)
        if done.returncode == 0 and _perf_total(done.stderr):
            return PERF
    return CALLGRIND if shutil.which("valgrind") else ""


def under(method_: str, folder: Path) -> tuple[str, ...]:
    """What the gateway's process is to run below."""
    if method_ != CALLGRIND:
        return ()
    options = ["--quiet", "--tool=callgrind", "--instr-atstart=no", "--trace-children=yes"]
    return ("valgrind", *options, f"--callgrind-out-file={folder}/counted.%p")


Requests = Mapping[str, tuple[Path, int]]
"""Case -> the body, and how often it is sent."""


def count(peer: Peer, folder: Path, upstreams: tuple[int, int], requests: Requests) -> dict[str, float]:
    """Starts the peer and returns its instructions per request, by case.

    Raises CountError, BuildError or StartError.
    """
    by = method()
    if not by:
        raise CountError("the kernel lets perf count no instructions, and there is no valgrind")
    first = next(iter(requests.values()))[0]
    running = start(peer, folder, upstreams, first.read_bytes(), under(by, folder))
    try:
        return _counted(by, running, folder, requests)
    except (OSError, http.client.HTTPException, subprocess.SubprocessError) as error:
        raise CountError(f"{by}: {error}") from error
    finally:
        running.stop()


def _counted(by: str, running: Running, folder: Path, requests: Requests) -> dict[str, float]:
    counts = {}
    if by == CALLGRIND:
        pids = with_children(running.processes[0].pid)
        _control(pids, "-i", "on")
    for case, (body, number) in requests.items():
        send(running.port, body.read_bytes(), WARM if number > WARM else 2)
        if by == PERF:
            total = _with_perf(running, body, number)
        else:
            total = _with_callgrind(pids, running, folder, body, number)
        if not total:
            raise CountError(f"{by} counted nothing")
        counts[case] = total / number
    return counts


def send(port: int, body: bytes, number: int) -> None:
    """One request after another. Raises OSError or HTTPException."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    for _request in range(number):
        connection.request("POST", "/v1/chat/completions", body, headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise http.client.HTTPException(f"the gateway answered {answer.status}")
    connection.close()


def _with_perf(running: Running, body: Path, number: int) -> int:
    """perf counts while the program after -- runs."""
    pids = ",".join(map(str, running.pids()))
    program = [sys.executable, __file__, str(running.port), str(body), str(number)]
    command = ["perf", "stat", "-x,", "-e", "instructions:u", "-p", pids, "--", *program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    if done.returncode:
        raise CountError(f"perf: {done.stderr.strip()[-300:]}")
    return _perf_total(done.stderr)


def _perf_total(text: str) -> int:
    """0 where perf counted nothing."""
    values = [line.partition(",")[0] for line in text.splitlines() if "instructions" in line]
    return sum(int(value) for value in values if value.isdecimal())


def _with_callgrind(pids: list[int], running: Running, folder: Path, body: Path, number: int) -> int:
    for file in folder.glob("counted.*"):
        file.unlink()
    _control(pids, "-z")
    send(running.port, body.read_bytes(), number)
    _control(pids, "-d")
    return sum(map(callgrind_total, folder.glob("counted.*")))


def callgrind_total(file: Path) -> int:
    """Of a file that callgrind wrote."""
    lines = file.read_text(errors="replace").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("totals:")), 0)


def _control(pids: list[int], *words: str) -> None:
    for pid in pids:
        command = ["callgrind_control", *words, str(pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
        if done.returncode:
            raise CountError(f"callgrind_control: {(done.stderr or done.stdout).strip()[-300:]}")


if __name__ == "__main__":
    send(int(sys.argv[1]), Path(sys.argv[2]).read_bytes(), int(sys.argv[3]))
