"""Measures publications from a hub and pulls by digest beside `oras`, the reference client, on one registry and disk.

    run.py [--quick] [--mebibytes N] [--directory DIR]

`oras push` sends a file that lies on the disk; ours comes from the hub, without one. `oras pull` checks what it writes;
ours is on the disk for good when it ends. Contestants take turns, each with an empty registry, and the best round
counts. `oras` 1.2 is the program on PATH, or the one that ORAS names; the registry the one that SLIPWAY_REGISTRY names,
else the public image. Exit status 1: a goal was missed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT)]

from outcome import Goal, Outcome, finish  # noqa: E402 - found by the line before

from tests.ports import reserved_port  # noqa: E402 - found by the line before
from tests.registry.real import RealRegistry  # noqa: E402

FILE = "model.safetensors"
REPOSITORY = "bench/model"
SPEEDS = {"publish": 0.75, "pull": 0.8}
"""Our speed in parts of oras'."""
MEBIBYTES = {"publish": 128.0, "pull": 128.0}
"""Of memory, at most."""


@dataclass
class Taken:
    """By one program."""

    seconds: float
    cpu_seconds: float
    peak_mebibytes: float


def run(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> tuple[Taken, str]:
    """What it took, and what it wrote to its standard error or output. Raises SystemExit where it failed."""
    log = folder / "output.log"
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(command, env={**os.environ, **env}, cwd=folder, stdout=output, stderr=output)
        _pid, status, usage = os.wait4(process.pid, 0)
    seconds, text = time.monotonic() - started, log.read_text()
    if status:
        raise SystemExit(f"{' '.join(command[:4])} ended with {status}: {text[-500:]}")
    return Taken(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024), text


@contextmanager
def hub(folder: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "slipway", "hub", "--root", str(folder), "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, env=ours(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _unused in range(6000):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5)
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def ours(endpoint: str = "") -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HF_ENDPOINT": endpoint}


def fill(folder: Path, mebibytes: int) -> None:
    """A model of one file."""
    folder.mkdir(parents=True)
    size = mebibytes << 20
    header = json.dumps({"t": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    block = os.urandom(1 << 20)
    with (folder / FILE).open("wb") as stream:
        stream.write(struct.pack("<Q", len(header)) + header)
        for number in range(mebibytes):
            stream.write(number.to_bytes(8, "big") + block[8:])
    (folder / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')


class Bench:
    def __init__(self, place: Path, endpoint: str, oras: str) -> None:
        self._place, self._endpoint, self._oras = place, endpoint, oras
        self._turn = 0

    def turn(self, name: str) -> tuple[Taken, Taken]:
        """Into an empty registry, and out of it."""
        self._turn += 1
        folder = self._place / f"turn-{self._turn}"
        folder.mkdir()
        with RealRegistry(folder / "registry", reserved_port()) as registry:
            reference = f"{registry.host}/{REPOSITORY}"
            times = (self._our_turn if name == "ours" else self._oras_turn)(folder, reference)
        shutil.rmtree(folder)
        return times

    def _our_turn(self, folder: Path, reference: str) -> tuple[Taken, Taken]:
        program = [sys.executable, "-m", "slipway", "loader"]
        words = [*program, "publish", "hf://bench/model", reference]
        sent, text = run(words, folder, ours(self._endpoint))
        digest = json.loads(text.rpartition("slipway loader: ")[2])["digest"]
        os.sync()
        got, _said = run([*program, "pull", f"{reference}@{digest}", str(folder / "out")], folder, ours())
        return sent, got

    def _oras_turn(self, folder: Path, reference: str) -> tuple[Taken, Taken]:
        source = self._place / "hub/bench/model"
        words = [self._oras, "push", "--plain-http", "--disable-path-validation", f"{reference}:published", FILE]
        sent, _said = run(words, source, {})
        (source / "output.log").unlink()
        os.sync()
        words = [self._oras, "pull", "--plain-http", f"{reference}:published", "--output", str(folder / "out")]
        return sent, run(words, folder, {})[0]


def measure(place: Path, mebibytes: int, rounds: int, oras: str) -> dict[str, dict[str, Taken]]:
    fill(place / "hub/bench/model", mebibytes)
    taken: dict[tuple[str, str], list[Taken]] = {}
    with hub(place / "hub") as endpoint:
        bench = Bench(place, endpoint, oras)
        for number in range(rounds):
            for name in ("ours", "oras")[:: 1 if number % 2 else -1]:
                for work, one in zip(("publish", "pull"), bench.turn(name), strict=True):
                    taken.setdefault((work, name), []).append(one)
    figures: dict[str, dict[str, Taken]] = {}
    for (work, name), turns in taken.items():
        best = min(turns, key=lambda one: one.seconds)
        peak = max(one.peak_mebibytes for one in turns)
        figures.setdefault(work, {})[name] = Taken(best.seconds, best.cpu_seconds, peak)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the loader at a registry beside oras.")
    parser.add_argument("--quick", action="store_true", help="smaller and once")
    parser.add_argument("--mebibytes", type=int, default=0, help="size of the model")
    parser.add_argument("--directory", type=Path, help="where everything lies; by default that of temporary files")
    options = parser.parse_args()
    mebibytes = options.mebibytes or (512 if options.quick else 4096)
    oras = os.environ.get("ORAS") or shutil.which("oras")
    if not oras:
        reason = "oras is not here: install Debian trixie's package, or name the program in ORAS"
        goals = [Goal(f"{work}: speed in parts of oras'", None, part, at_least=True) for work, part in SPEEDS.items()]
        return finish(Outcome("registry", options.quick, goals, {}, missing={"oras": reason}))
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        figures = measure(Path(place), mebibytes, 1 if options.quick else 3, oras)
    print("work     by    seconds   MiB/s  of oras   CPU s  peak MiB")
    goals = []
    for work, both in figures.items():
        for name, one in both.items():
            part = both["oras"].seconds / one.seconds
            speed = f"{one.seconds:8.2f} {mebibytes / one.seconds:7.0f} {part:8.2f}"
            print(f"{work:<8} {name:<5} {speed} {one.cpu_seconds:7.2f} {one.peak_mebibytes:9.0f}")
        part = both["oras"].seconds / both["ours"].seconds
        goals.append(Goal(f"{work}: speed in parts of oras'", part, SPEEDS[work], "times", at_least=True))
        goals.append(Goal(f"{work}: memory", both["ours"].peak_mebibytes, MEBIBYTES[work], "MiB"))
    best = {work: {name: asdict(one) for name, one in both.items()} for work, both in figures.items()}
    return finish(
        Outcome(
            "registry",
            options.quick,
            goals,
            {"mebibytes": mebibytes, "best": best},
            versions={"oras": oras_version(oras)},
        )
    )


def oras_version(program: str) -> str:
    done = subprocess.run([program, "version"], capture_output=True, text=True, check=False)
    return done.stdout.split()[1] if len(done.stdout.split()) > 1 else "unknown"


if __name__ == "__main__":
    sys.exit(main())
