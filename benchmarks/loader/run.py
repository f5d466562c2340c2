"""Measures loads from a hub on loopback beside their peers: one large file, many small ones, and a load that is done.

    run.py [--quick]

Contestants take turns, in a folder in memory where there is one, so that no disk is measured. Only ours and `curl+sha`
check content: the hub's own client checks sizes. The best round counts, as whatever else the machine does only adds to
the others. Exit status 1: a goal was missed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from outcome import Goal, Outcome, finish  # noqa: E402 - found by the line before

MEMORY = Path("/dev/shm")  # noqa: S108 - a file system, not a file
PARALLEL = 8
"""Files at a time, for each contestant."""
CLIENT = """
import sys
from huggingface_hub import snapshot_download
snapshot_download(sys.argv[1], local_dir=sys.argv[2], max_workers=int(sys.argv[3]))
"""
GOALS = {"large": 1.0, "small": 1.0, "again": 1.0}
"""Our time in parts of the hub's own client's."""


@dataclass
class Taken:
    """By one program, children included."""

    seconds: float
    cpu_seconds: float
    peak_mebibytes: float


class Bench:
    def __init__(self, place: Path, endpoint: str) -> None:
        self._place, self._endpoint = place, endpoint
        self._turn = 0

    def target(self) -> Path:
        self._turn += 1
        return self._place / f"target-{self._turn}"

    def ours(self, repository: str, target: Path) -> list[str]:
        command = [sys.executable, "-m", "slipway", "loader", "load", f"hf://{repository}", str(target)]
        return [*command, "--listen", "127.0.0.1:0", "--parallel", str(PARALLEL)]

    def client(self, repository: str, target: Path) -> list[str]:
        return [sys.executable, "-c", CLIENT, repository, str(target), str(PARALLEL)]

    def curl(self, repository: str, target: Path) -> list[str]:
        with urllib.request.urlopen(f"{self._endpoint}/api/models/{repository}") as answer:
            files = [row["rfilename"] for row in json.load(answer)["siblings"]]
        rows = [
            f'url = "{self._endpoint}/{repository}/resolve/main/{file}"\noutput = "{target}/{file}"' for file in files
        ]
        plan = self._place / "curl.conf"
        plan.write_text("\n".join(rows))
        options = ["--silent", "--fail", "--create-dirs", "--parallel", "--parallel-max", str(PARALLEL)]
        return ["curl", *options, "--config", str(plan)]

    def checked_curl(self, repository: str, target: Path) -> list[str]:
        words = " ".join(self.curl(repository, target))
        return [
            "sh",
            "-c",
            f"{words} && find {target} -type f -print0 | xargs -0 -P {PARALLEL} -n 64 sha256sum > /dev/null",
        ]

    def run(self, command: list[str]) -> Taken:
        env = {**os.environ, "HF_ENDPOINT": self._endpoint, "PYTHONPATH": str(ROOT / "src")}
        env |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        started = time.monotonic()
        log = self._place / "errors.log"
        with log.open("wb") as errors:
            process = subprocess.Popen(command, env=env, stderr=errors)
        _pid, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - started
        if status:
            raise SystemExit(f"{' '.join(command[:4])} ended with {status}: {log.read_text()[-500:]}")
        return Taken(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


@contextmanager
def hub(folder: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [sys.executable, "-m", "slipway", "hub", "--root", str(folder), "--listen", f"127.0.0.1:{port}"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _unused in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5)
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def fill(folder: Path, mebibytes: int, files: int) -> None:
    (folder / "bench/large").mkdir(parents=True)
    block, size = os.urandom(1 << 20), mebibytes << 20
    header = json.dumps({"t": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with (folder / "bench/large/model.safetensors").open("wb") as stream:
        stream.write(struct.pack("<Q", len(header)) + header)
        for number in range(mebibytes):
            stream.write(number.to_bytes(8, "big") + block[8:])
    (folder / "bench/small").mkdir()
    for number in range(files):
        (folder / f"bench/small/part-{number:04d}.json").write_bytes(os.urandom(2048).hex().encode())


def measure(place: Path, mebibytes: int, files: int, rounds: int) -> dict[str, dict[str, Taken]]:
    fill(place / "hub", mebibytes, files)
    taken: dict[tuple[str, str], list[Taken]] = {}
    with hub(place / "hub") as endpoint:
        bench = Bench(place, endpoint)
        contestants = {"ours": bench.ours, "client": bench.client, "curl": bench.curl, "curl+sha": bench.checked_curl}
        for _unused in range(rounds):
            for work in ("large", "small"):
                for name, command in contestants.items():
                    target = bench.target()
                    words = command(f"bench/{work}", target)
                    taken.setdefault((work, name), []).append(bench.run(words))
                    if work == "large" and name in ("ours", "client"):
                        taken.setdefault(("again", name), []).append(bench.run(words))
                    shutil.rmtree(target)
    best: dict[str, dict[str, Taken]] = {}
    for (work, name), all_of_them in taken.items():
        best.setdefault(work, {})[name] = Taken(
            min(one.seconds for one in all_of_them),
            min(one.cpu_seconds for one in all_of_them),
            max(one.peak_mebibytes for one in all_of_them),
        )
    return best


def table(best: dict[str, dict[str, Taken]], gigabytes: float) -> str:
    lines = ["work    by         seconds  to client   CPU s  CPU s/GB  peak MiB"]
    for work, all_of_them in best.items():
        for name, one in all_of_them.items():
            ratio = one.seconds / all_of_them["client"].seconds
            per = f"{one.cpu_seconds / gigabytes:8.2f}" if work == "large" else " " * 8
            times = f"{one.seconds:8.2f} {ratio:9.2f}x {one.cpu_seconds:7.2f}"
            lines.append(f"{work:<7} {name:<9} {times}  {per} {one.peak_mebibytes:9.0f}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the loader beside its peers.")
    parser.add_argument("--quick", action="store_true", help="smaller and once")
    quick = parser.parse_args().quick
    mebibytes, files, rounds = (256, 100, 1) if quick else (1024, 500, 3)
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as place:
        best = measure(Path(place), mebibytes, files, rounds)
    print(table(best, mebibytes * (1 << 20) / 1e9))
    goals = [
        Goal(
            f"{work}: seconds in parts of the client's",
            times["ours"].seconds / times["client"].seconds,
            GOALS[work],
            "times",
        )
        for work, times in best.items()
    ]
    figures = {"mebibytes": mebibytes, "files": files, "rounds": rounds}
    figures["best"] = {work: {name: asdict(one) for name, one in those.items()} for work, those in best.items()}
    versions = {"huggingface_hub": importlib.metadata.version("huggingface_hub"), "curl": curl_version()}
    return finish(Outcome("loader", quick, goals, figures, versions=versions))


def curl_version() -> str:
    done = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=False)
    return done.stdout.split()[1]


if __name__ == "__main__":
    sys.exit(main())
