"""What tests/lanes.toml says: the stages of CI and the lanes, and which test files belong to which."""

from __future__ import annotations

import difflib
import fnmatch
import shlex
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NEEDS = ("nothing", "definitions", "images", "installation")
"""What a lane needs of the test cluster. A cluster with definitions alone runs no controller."""


@dataclass(frozen=True)
class Stage:
    """One step of CI."""

    name: str
    run: list[str]
    """Commands, as a shell would read them; ``{tests}`` stands for the test files."""
    tests: list[str] = field(default_factory=list)
    """Patterns of test files. A file of a lane that is not ``sampled`` belongs to that lane alone."""
    cluster: str = ""
    """``creates`` the test cluster, ``uses`` it, or empty."""
    seconds: int = 1200
    """The stage is ended after this time."""


@dataclass(frozen=True)
class Lane:
    """Tests that run apart from CI."""

    name: str
    run: list[str]
    inputs: list[str]
    """Patterns of the files that the result depends on, without those in ``tests``."""
    tests: list[str] = field(default_factory=list)
    needs: str = "nothing"
    parts: list[str] = field(default_factory=list)
    """What is installed beyond the usual, in the words of scripts/cluster.sh."""
    sampled: bool = False
    """CI runs the tests of its files that are not marked ``full`` or ``plays``."""
    by_name: bool = False
    """Takes so long that ``run --all`` leaves it out."""
    seconds: int = 2700


@dataclass(frozen=True)
class Table:
    """The whole file."""

    stages: list[Stage]
    lanes: dict[str, Lane]

    @classmethod
    def read(cls, text: str) -> Table:
        """Raises ValueError if a lane or stage has a field that does not exist, or lacks one."""
        data = tomllib.loads(text)
        groups: dict[str, list[str]] = data.get("groups", {})
        try:
            stages = [Stage(**entry) for entry in data["stage"]]
            lanes = [_read_lane(name, entry, groups) for name, entry in data["lane"].items()]
        except (KeyError, TypeError) as error:
            raise ValueError(f"tests/lanes.toml: {error}") from error
        return cls(stages, {lane.name: lane for lane in lanes})


def _read_lane(name: str, entry: Mapping[str, Any], groups: Mapping[str, list[str]]) -> Lane:
    inputs = [pattern for word in entry["inputs"] for pattern in (groups[word[1:]] if word.startswith("@") else [word])]
    lane = Lane(name=name, **{**entry, "inputs": inputs})
    if lane.needs not in NEEDS:
        raise ValueError(f"tests/lanes.toml: lane {name}: needs is {lane.needs!r}, not one of {', '.join(NEEDS)}")
    return lane


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether a path is one of the files.

    A pattern that ends in ``/`` is a folder, ``*`` also matches ``/``, and one that begins with ``!`` excludes files.
    """
    fitting = [pattern for pattern in patterns if _fits(path, pattern.removeprefix("!"))]
    return bool(fitting) and not any(pattern.startswith("!") for pattern in fitting)


def _fits(path: str, pattern: str) -> bool:
    return path.startswith(pattern) if pattern.endswith("/") else fnmatch.fnmatchcase(path, pattern)


def is_test(path: str) -> bool:
    """Whether pytest collects this file."""
    return path.startswith("tests/") and fnmatch.fnmatchcase(path.rpartition("/")[2], "test_*.py")


def lanes_of(path: str, table: Table) -> list[Lane]:
    return [lane for lane in table.lanes.values() if matches(path, lane.tests)]


def stage_tests(stage: Stage, table: Table, files: Iterable[str]) -> list[str]:
    """The test files of a stage: what its patterns match, without the files of lanes that CI does not sample."""
    return [
        path
        for path in files
        if is_test(path) and matches(path, stage.tests) and all(lane.sampled for lane in lanes_of(path, table))
    ]


def lane_tests(lane: Lane, files: Iterable[str]) -> list[str]:
    return [path for path in files if is_test(path) and matches(path, lane.tests)]


def touched(table: Table, changed: Iterable[str]) -> list[Lane]:
    """The lanes whose inputs are among the changed files."""
    paths = list(changed)
    return [lane for lane in table.lanes.values() if any(matches(path, [*lane.inputs, *lane.tests]) for path in paths)]


def commands(run_lines: Sequence[str], tests: Sequence[str]) -> list[list[str]]:
    """Arguments of each command, with the test files in place of ``{tests}``."""
    return [
        [part for word in shlex.split(line) for part in (tests if word == "{tests}" else [word])] for line in run_lines
    ]


def choose(table: Table, names: Sequence[str], everything: bool) -> list[Lane]:
    """Lanes by name or pattern, or all that do not run by name only, ordered so that the cluster is made rarely.

    Raises:
        ValueError: A name fits no lane.
    """
    chosen = {lane.name: lane for lane in table.lanes.values() if everything and not lane.by_name}
    for name in names:
        lane_names = fnmatch.filter(table.lanes, name)
        if not lane_names:
            near = difflib.get_close_matches(name, table.lanes, n=1)
            hint = f"Did you mean {near[0]}?" if near else "`lanes.py list` shows them."
            raise ValueError(f"there is no lane {name}. {hint}")
        chosen |= {key: table.lanes[key] for key in lane_names}
    return sorted(chosen.values(), key=lambda lane: NEEDS.index(lane.needs))
