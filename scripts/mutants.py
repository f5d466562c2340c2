#!/usr/bin/env python3
"""Changes one thing at a time in src/slipway, in a copy of the latest commit, and reports whether the tests notice.

usage: scripts/mutants.py [--number N] [--seed S] [--file PATTERN]... [--lane PATTERN]... [--record FILE]

CI's tests of the changed package run first. Lanes that need no cluster run for mutants that survive CI and touch their
inputs. A mutant that survives is a question: is a test missing, is the code needed, or does the change not matter?
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from runner import checkout
from runner.machine import CannotStartError, only_run
from runner.mutation import Mutant, choose_mutants, room_of
from runner.process import InterruptedRunError, describe_interrupt, ended_with_all_it_starts, interruptible
from runner.table import Lane, Table, lane_tests, stage_tests, touched

ROOM_TESTS = {
    "": ["tests/unit/test_"],
    "artifacts": ["tests/unit/artifacts/", "tests/unit/apis/", "tests/unit/loader/"],
    "controller": ["tests/unit/controller/"],
    "depot": ["tests/unit/depot/"],
    "engines": ["tests/unit/engines/", "tests/unit/apis/"],
    "gateway": ["tests/unit/gateway/", "tests/gateway/"],
    "hub": ["tests/unit/hub/"],
    "kube": ["tests/unit/kube/", "tests/unit/controller/"],
    "loader": ["tests/unit/loader/"],
    "serving": ["tests/unit/serving/", "tests/unit/apis/", "tests/unit/controller/"],
    "weights": ["tests/unit/weights/", "tests/unit/apis/", "tests/unit/controller/"],
}
"""Package -> where its tests are. Every package of ``apis`` has those in tests/unit/apis and the controller's."""
API_TESTS = ["tests/unit/apis/", "tests/unit/controller/"]
CI_MARKS = "not full and not plays"
PARALLEL = ("-n", "2", "--dist", "loadfile")
SECONDS = 1200
"""A mutant that makes the tests run longer counts as killed."""
PASSED, FAILED, STOPPED = 0, 1, 2
"""Exit statuses of pytest. Others mean that it could not run the tests."""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(usage=(__doc__ or "").partition("usage: ")[2])
    parser.add_argument("--number", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--file", action="append", metavar="PATTERN", help="only files such as 'src/slipway/kube/*'")
    parser.add_argument("--lane", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--record", type=Path, help="append a JSON line for each mutant to this file")
    return parser.parse_args(arguments)


class Trial:
    """Runs tests in a copy of the checkout in which one file is changed at a time."""

    def __init__(self, folder: Path, lanes: Sequence[Lane], table: Table) -> None:
        self.folder = folder
        self._lanes = lanes
        self._table = table
        self._files = checkout.present()
        self._sound: set[tuple[str, ...]] = set()

    def decide(self, mutant: Mutant) -> str:
        """Returns what killed a mutant: ``ci``, ``timeout`` or the name of a lane; empty if it survived.

        Raises:
            CannotStartError: The tests fail without the mutant, or pytest could not run them.
        """
        path = self.folder / mutant.path
        original, times = path.read_bytes(), path.stat()
        for name, arguments in self._selections(mutant.path):
            self._check_unchanged(arguments)
            try:
                path.write_bytes(mutant.apply(original))
                status = self._run(arguments)
            except subprocess.TimeoutExpired:
                return "timeout"
            finally:
                path.write_bytes(original)
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            if status in (FAILED, STOPPED):
                return name
        return ""

    def _selections(self, path: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yields (``ci`` or a lane's name, arguments of pytest), in the order in which they run."""
        folders = tuple(ROOM_TESTS.get(room_of(path), API_TESTS))
        units = next(stage for stage in self._table.stages if stage.name == "units")
        yield "ci", ("-m", CI_MARKS, *filter_files(stage_tests(units, self._table, self._files), folders))
        for lane in touched(self._table, [path]):
            if lane in self._lanes:
                yield lane.name, tuple(lane_tests(lane, self._files))

    def _check_unchanged(self, arguments: tuple[str, ...]) -> None:
        if arguments in self._sound:
            return
        if status := self._run(arguments):
            raise CannotStartError(
                f"the tests do not pass on the unchanged code (pytest ended with {status}), so they would kill every "
                f"mutant. Fix them first: pytest {' '.join(arguments)}"
            )
        self._sound.add(arguments)

    def _run(self, arguments: tuple[str, ...]) -> int:
        command = [sys.executable, "-m", "pytest", "-x", "-q", *PARALLEL, "-p", "no:cacheprovider", *arguments]
        pytest = partial(
            subprocess.Popen,
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # A changed file of the same size and second would be taken from the cache of compiled files.
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            start_new_session=True,
            text=True,
        )
        with ended_with_all_it_starts(pytest) as started:
            status = started.wait(SECONDS)
        if status not in (PASSED, FAILED, STOPPED):
            raise CannotStartError(f"pytest ended with {status}: {' '.join(command)}")
        return status


def filter_files(files: Sequence[str], folders: tuple[str, ...]) -> list[str]:
    return [path for path in files if path.startswith(folders)]


def choose_lanes(table: Table, patterns: Sequence[str]) -> list[Lane]:
    """Raises CannotStartError if a pattern fits no lane without a cluster."""
    lanes = [lane for lane in table.lanes.values() if lane.needs == "nothing" and lane.tests]
    for pattern in patterns:
        if not fnmatch.filter([lane.name for lane in lanes], pattern):
            names = ", ".join(lane.name for lane in lanes)
            raise CannotStartError(
                f"--lane: {pattern!r} fits no lane with tests that need no cluster. Choose from {names}."
            )
    return [lane for lane in lanes if any(fnmatch.fnmatchcase(lane.name, pattern) for pattern in patterns)]


def read_sources(patterns: Sequence[str]) -> dict[str, bytes]:
    """Returns path -> content of the committed Python and Lua files.

    Raises:
        CannotStartError: No file fits the patterns.
    """
    paths = [
        path
        for path in checkout.committed()
        if path.startswith("src/slipway/")
        and path.endswith((".py", ".lua"))
        and any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)
    ]
    if not paths:
        raise CannotStartError(f"--file: no file of src/slipway fits {' '.join(patterns)}.")
    return {path: checkout.git("show", f"HEAD:{path}").encode() for path in paths}


@contextlib.contextmanager
def copied_checkout() -> Iterator[Path]:
    """A clone of the latest commit, deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="slipway-mutants-") as folder:
        checkout.git("clone", "--quiet", "--shared", str(checkout.ROOT), folder)
        yield Path(folder)


def try_mutants(options: argparse.Namespace) -> int:
    table = Table.read((checkout.ROOT / "tests/lanes.toml").read_text())
    lanes = choose_lanes(table, options.lane)
    mutants = choose_mutants(read_sources(options.file or ["*"]), options.number, options.seed)
    counts: Counter[str] = Counter()
    with copied_checkout() as folder:
        trial = Trial(folder, lanes, table)
        for mutant in mutants:
            killer = trial.decide(mutant)
            counts[killer] += 1
            change = f"{mutant.old[:60]} -> {mutant.new[:60]}"
            print(f"{killer or 'SURVIVED':10} {mutant.path}:{mutant.line}  {change}", flush=True)
            if options.record:
                with options.record.open("a") as record:
                    record.write(json.dumps({**asdict(mutant), "killer": killer}) + "\n")
    killers = ", ".join(f"{number} by {name}" for name, number in sorted(counts.items()) if name)
    print(f"{sum(counts.values()) - counts['']} of {sum(counts.values())} killed: {killers}")
    return 0


def main() -> int:
    options = parse()
    try:
        with interruptible(), only_run():
            return try_mutants(options)
    except (CannotStartError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except InterruptedRunError as error:
        print(describe_interrupt(error), file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
