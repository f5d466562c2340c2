"""Runs pieces of images/ in bash, with programs of the test's own in place of docker, tar, go and the like."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

IMAGES = Path(__file__).parents[3] / "images"


@dataclass
class Bench:
    """A cache folder and a folder of stand-ins that comes first on PATH."""

    folder: Path

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    @property
    def calls(self) -> list[str]:
        """What was called of the stand-ins, each with its arguments."""
        log = self.folder / "calls"
        return log.read_text().splitlines() if log.exists() else []

    def stand_in(self, program: str, body: str) -> None:
        path = self.folder / "bin" / program
        path.write_text(f'#!/usr/bin/env bash\necho "{program} $*" >> "{self.folder}/calls"\n{body}\n')
        path.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "SLIPWAY_CACHE": str(self.cache),
            "SLIPWAY_DEBIAN_MIRROR": "http://mirror.invalid/debian",
        }

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=180, check=False)

    def start(self, *command: str, stdout: IO[str], stderr: IO[str] | None = None) -> subprocess.Popen[str]:
        """Starts the command without waiting for it."""
        return subprocess.Popen(command, env=self.environment, stdout=stdout, stderr=stderr, text=True)

    def script(self, text: str) -> subprocess.CompletedProcess[str]:
        """Runs lines of bash below ``lib.sh``, with the cache open."""
        return self.run("bash", "-c", f'source "{IMAGES}/closed-network/lib.sh"\nopen_cache\n{text}')


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "the condition was never met"
        time.sleep(0.02)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    (tmp_path / "bin").mkdir()
    return Bench(tmp_path)
