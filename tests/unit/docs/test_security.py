"""The threat model has a protection for each attack, and a test that exists."""

from __future__ import annotations

import re

import pytest

from ...docs.pages import ROOT
from .test_expectations import is_there

PAGE = (ROOT / "docs/explain/security.md").read_text()
ACTORS = set(re.findall(r"^\| \*\*([a-z ]+)\*\* \|", PAGE, re.MULTILINE)) - {"operator"}
NUMBERED = re.compile(r"^\| ([A-Z]\d+) \|(.+)\|$", re.MULTILINE)
ATTACKS = {number: [cell.strip() for cell in rest.split("|")] for number, rest in NUMBERED.findall(PAGE)}
TESTS = {
    number: re.findall(r"`([^`]+)`", names)
    for number, names in NUMBERED.findall((ROOT / "docs/explain/security-tests.md").read_text())
}


def test_every_attack_has_a_protection() -> None:
    assert len(ATTACKS) >= 27
    assert [number for number, row in ATTACKS.items() if len(row) != 4 or not all(row[:3])] == []


def test_attackers_are_those_of_the_threat_model() -> None:
    attackers = {attacker for attacker, *_rest in ATTACKS.values()}
    assert {"tenant", "model author", "pod", "client", "writer of a repository"} == ACTORS
    assert {attacker for attacker in attackers if not attacker.startswith("attacker ")} == ACTORS


def test_every_attack_has_tests() -> None:
    assert list(TESTS) == list(ATTACKS)
    assert [number for number, tests in TESTS.items() if not tests] == []


@pytest.mark.parametrize("number", TESTS)
def test_the_tests_of_an_attack_exist(number: str) -> None:
    assert [name for name in TESTS[number] if not is_there(name)] == []


def test_reporters_find_the_page_and_the_page_links_to_the_report() -> None:
    assert "(docs/explain/security.md" in (ROOT / "SECURITY.md").read_text()
    assert "(../../SECURITY.md)" in PAGE
    assert "(docs/explain/security.md)" in (ROOT / "README.md").read_text()
