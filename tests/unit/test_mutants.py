"""The mutants that scripts/mutants.py tries, and what it reports about them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import mutants
import pytest
from runner import checkout
from runner.machine import CannotStartError
from runner.mutation import Mutant, choose_mutants, list_mutants, room_of
from runner.table import Lane, Stage, Table

SOURCES = {path: (checkout.ROOT / path).read_bytes() for path in checkout.present() if path.startswith("src/slipway/")}
CODE = {path: source for path, source in SOURCES.items() if path.endswith((".py", ".lua"))}


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("a = b < c\n", "a = (b <= c)\n"),
        ("a = b in c\n", "a = (b not in c)\n"),
        ("a = b is None\n", "a = (b is not None)\n"),
        ("a = b and c\n", "a = (b or c)\n"),
        ("a = not b\n", "a = (b)\n"),
        ("a = 3\n", "a = (4)\n"),
        ("def f():\n    return g()\n", "def f():\n    return (None)\n"),
        ("while a:\n    b()\n", "while (not a):\n    b()\n"),
        ("ä = 'ü'; a = b == c\n", "ä = 'ü'; a = (b != c)\n"),
    ],
)
def test_a_change_of_python(source: str, changed: str) -> None:
    results = [mutant.apply(source.encode()).decode() for mutant in list_mutants("a.py", source.encode())]
    assert results == [changed]


@pytest.mark.parametrize(
    "source",
    ["a = True\n", "a = 0\n", "def f():\n    return None\n", '"""a < b"""\n', "a = f'{b < c:3}'\n", "# a < b\n"],
)
def test_constants_comments_and_strings_have_no_python_mutants(source: str) -> None:
    assert list_mutants("a.py", source.encode()) == []


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("if a == b then\n", ["if a ~= b then\n"]),
        ("return a and not b\n", ["return a or not b\n", "return a and  b\n"]),
        ('local a = "b < c" -- b < c\n', []),
        ("-- a and b\n", []),
        ("local name = x\n", []),
    ],
)
def test_changes_of_lua(source: str, changed: list[str]) -> None:
    assert [mutant.apply(source.encode()).decode() for mutant in list_mutants("a.lua", source.encode())] == changed


def test_every_python_mutant_compiles() -> None:
    for mutant in choose_mutants(CODE, number=200, seed=7):
        if mutant.path.endswith(".py"):
            ast.parse(mutant.apply(CODE[mutant.path]))


def test_the_same_seed_gives_the_same_mutants_in_every_room() -> None:
    rooms = {room_of(path) for path in CODE}
    mutants_of_all = choose_mutants(CODE, number=40, seed=1)

    assert choose_mutants(dict(reversed(CODE.items())), number=40, seed=1) == mutants_of_all
    assert choose_mutants(CODE, number=40, seed=2) != mutants_of_all
    assert {room_of(mutant.path) for mutant in mutants_of_all} >= rooms - {"apis", ""}


def test_every_room_has_tests() -> None:
    files = checkout.present()
    for room in {room_of(path) for path in CODE}:
        for folder in mutants.ROOM_TESTS.get(room, mutants.API_TESTS):
            assert mutants.filter_files(files, (folder,)), f"{room}: no tests in {folder}"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of one module, with a test of its sign and, in a lane, one of its limit."""
    files = {
        "src/slipway/kube/limits.py": "def is_over(value):\n    return value > 3\n",
        "tests/unit/kube/test_sign.py": (
            "from slipway.kube.limits import is_over\n\n\ndef test_sign():\n    assert is_over(9) is True\n"
        ),
        "tests/lanes/test_limit.py": (
            "from slipway.kube.limits import is_over\n\n\ndef test_limit():\n    assert not is_over(3)\n"
        ),
        "pytest.ini": "[pytest]\npythonpath = src\naddopts = --import-mode=importlib\n",
    }
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    return tmp_path


def trial(project: Path, monkeypatch: pytest.MonkeyPatch, *lanes: str) -> mutants.Trial:
    limit = Lane("limit", run=[], inputs=["src/"], tests=["tests/lanes/"])
    table = Table([Stage("units", run=[], tests=["tests/unit/*"])], {"limit": limit})
    files = [path.relative_to(project).as_posix() for path in project.rglob("*.py")]
    monkeypatch.setattr(checkout, "present", lambda: files)
    return mutants.Trial(project, [lane for name, lane in table.lanes.items() if name in lanes], table)


def mutants_of(project: Path) -> dict[str, Mutant]:
    path = "src/slipway/kube/limits.py"
    return {mutant.new: mutant for mutant in list_mutants(path, (project / path).read_bytes())}


def test_the_test_that_kills_a_mutant_is_reported(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "PARALLEL", ())  # workers take longer to start than these tests take
    changes = mutants_of(project)
    both = trial(project, monkeypatch, "limit")
    source = (project / "src/slipway/kube/limits.py").read_text()

    assert both.decide(changes["(None)"]) == "ci"
    assert both.decide(changes["(value >= 3)"]) == "limit"
    assert both.decide(changes["(4)"]) == ""
    assert trial(project, monkeypatch).decide(changes["(value >= 3)"]) == ""
    assert (project / "src/slipway/kube/limits.py").read_text() == source


def test_tests_that_fail_without_a_mutant_are_an_error(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "tests/unit/kube/test_sign.py").write_text("def test_red():\n    assert False\n")

    with pytest.raises(CannotStartError, match="do not pass on the unchanged code"):
        trial(project, monkeypatch).decide(mutants_of(project)["(4)"])


def test_tests_that_take_too_long_are_distinguished(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = trial(project, monkeypatch)
    assert short.decide(mutants_of(project)["(4)"]) == ""

    monkeypatch.setattr(mutants, "SECONDS", 0)
    assert short.decide(mutants_of(project)["(4)"]) == "timeout"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lane", "gatway"], "--lane: 'gatway' fits no lane with tests that need no cluster"),
        (["--file", "src/slipway/cube/*"], "--file: no file of src/slipway fits src/slipway/cube/*"),
    ],
)
def test_wrong_arguments(arguments: list[str], message: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, mutants; sys.exit(mutants.try_mutants(mutants.parse(sys.argv[1:])))",
            *arguments,
        ],
        cwd=checkout.ROOT / "scripts",
        capture_output=True,
        text=True,
        check=False,
    )
    assert message in done.stderr
