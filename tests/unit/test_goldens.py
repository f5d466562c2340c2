"""The text form of expected outcomes: it loses nothing, and differences follow their base."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.goldens import GoldenFile, Section, flatten, parse, render, replace, unflatten

TEXTS = [
    "",
    " ",
    "a",
    " a",
    "a ",
    "1",
    "true",
    "null",
    "{}",
    '{"a": 1}',
    "[1]",
    "|",
    "|a",
    "- a",
    "## a",
    "a = b",
    "a\nb",
]
TEXTS += ["a\n", "\n", "a\n\nb", "a\r\nb", "a\u2028b\nc", "NaN", '"a"', "ä", "a\tb", "web", "web-1 of web"]
VALUES: list[Any] = [
    *TEXTS,
    *(0, 1, 1.5, True, False, None, {}, [], [[]], [{}], [[1], [2]], [1, "1", None]),
    *([{"name": "a"}], [{"name": "b"}, {"name": "a", "value": "1"}], [{"name": "a"}, {"name": "a"}]),
    *([{"name": ""}], [{"name": "7"}], [{"name": "a b"}], [{"name": 1}], [{"name": "a"}, 1], [{"type": "A"}]),
    [{"name": "a", "items": [{"name": "b", "items": [{"x": 1}, {"y": [2]}]}]}],
    *({"a.b/c": {"d": 1}}, {"": 1}, {'a"]': {"b": [{}]}}, {"[0]": 1}, {"a = b": "c"}, {"name": "a"}, {"7": 1}),
]


def condition(**fields: Any) -> dict[str, Any]:
    return {"type": "Ready", "status": "True", "reason": "Ready", "message": "", **fields}


CONDITIONS: list[list[dict[str, Any]]] = [
    [condition()],
    [condition(lastTransitionTime="", observedGeneration=1), condition(type="Routed", reason="")],
    [condition(message="a\nb")],
    [condition(message=message) for message in ("1",)],
    [condition(other=1)],
    [{"type": "Ready", "status": "True"}],
    [condition(), condition()],
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_every_value_is_read_as_it_was_written(value: Any) -> None:
    outcome = {"status": {"field": value}, "top": value, "children": [child("web", value), child("other", value)]}
    text = write({"web": outcome})
    assert unflatten(parse(text)["web"].lines, "web") == outcome


@pytest.mark.parametrize("conditions", CONDITIONS, ids=repr)
def test_every_condition_is_read_as_it_was_written(conditions: list[dict[str, Any]]) -> None:
    outcome = {"status": {"conditions": conditions}}
    assert unflatten(parse(write({"web": outcome}))["web"].lines, "web") == outcome


def child(name: str, value: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": value}


def write(outcomes: dict[str, Any]) -> str:
    """The text of a file with these outcomes; the resource of each example has the example's name."""
    sections: dict[str, Section] = {}
    for example, outcome in outcomes.items():
        sections = replace(sections, example, flatten(outcome, example), set(outcomes))
    return render(sections)


def service(name: str, port: int) -> dict[str, Any]:
    return {"kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"name": "http", "port": port}]}}


def outcome(name: str, port: int, *others: dict[str, Any]) -> dict[str, Any]:
    return {"children": [service(name, port), *others], "status": {"phase": "Ready", "ready": True, "all": 1}}


def test_an_example_is_written_as_its_differences_from_the_nearest() -> None:
    text = write({"a": outcome("a", 1, child("b", {"x": 1})), "b": outcome("b", 2), "c": {"status": {"phase": "No"}}})
    assert text == (
        "## a\n"
        "children[] = Service/<name> ConfigMap/b\n"
        "Service/<name> metadata.name = <name>\n"
        "Service/<name> spec.ports[http].port = 1\n"
        "ConfigMap/b apiVersion = v1\n"
        "ConfigMap/b metadata.name = b\n"
        "ConfigMap/b data.x = 1\n"
        "status.phase = Ready\n"
        "status.ready = true\n"
        "status.all = 1\n"
        "\n"
        "## b of a\n"
        "- ConfigMap/b\n"
        "children[] = Service/<name>\n"
        "Service/<name> spec.ports[http].port = 2\n"
        "\n"
        "## c\n"
        "status.phase = No\n"
    )


def test_a_name_that_is_part_of_a_word_stays() -> None:
    lines = flatten({"status": {"message": "a is a model, not another-a"}}, "a")
    assert lines == {"status.message": "<name> is <name> model, not another-<name>"}
    assert unflatten(lines, "a") == {"status": {"message": "a is a model, not another-a"}}


def test_two_children_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match="two children have the same kind and name: Service/a Service/a"):
        flatten({"children": [service("a", 1), service("a", 2)]}, "a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("## a of b\n\n## b\n", "the base must stand above it"),
        ("## a\nstatus.phase: Ready\n", "'status.phase: Ready' is neither FIELD = VALUE nor - FIELD"),
        ("## a\nx = 1\n\n## b of a\n- y\n", "## b has no field y to remove"),
    ],
)
def test_a_file_that_is_not_valid_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GoldenFile:
    """A file of a, b of a, and c of b."""
    golden = GoldenFile(tmp_path / "expected.txt")
    monkeypatch.setenv("SLIPWAY_WRITE_GOLDEN", "1")
    for name, port in (("a", 1), ("b", 2), ("c", 3)):
        golden.check(name, name, outcome(name, port), ["a", "b", "c"])
    return golden


def test_a_new_outcome_of_a_base_changes_no_other_outcome(file: GoldenFile) -> None:
    file.check("a", "a", outcome("a", 9), ["a", "b", "c"])
    assert [file.read(name, name) for name in "abc"] == [outcome("a", 9), outcome("b", 2), outcome("c", 3)]
    assert [section.base for section in file.sections().values()] == ["", "a", "a"]


def test_an_example_whose_base_is_deleted_keeps_its_outcome(file: GoldenFile) -> None:
    file.check("c", "c", outcome("c", 4), ["b", "c"])
    assert {name: section.base for name, section in file.sections().items()} == {"b": "", "c": "b"}
    assert [file.read(name, name) for name in "bc"] == [outcome("b", 2), outcome("c", 4)]


def test_without_the_variable_a_difference_fails_and_the_file_stays(
    file: GoldenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLIPWAY_WRITE_GOLDEN")
    before = file.path.read_text()

    file.check("b", "b", outcome("b", 2), ["a", "b", "c"])
    for name, port, examples in (("b", 3, "abc"), ("b", 2, "ab"), ("d", 2, "abcd")):
        with pytest.raises(AssertionError):
            file.check(name, name, outcome(name, port), examples)
    assert file.path.read_text() == before
