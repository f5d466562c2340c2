"""The page on security has a row for each attack, and what it names is there."""

from __future__ import annotations

import re

import pytest

from ...docs.pages import ROOT
from .test_expectations import is_there

PAGE = (ROOT / "docs/explain/security.md").read_text()
OTHERS = ("attacker ", "`make demo`")
ACTORS = set(re.findall(r"^\| \*\*([a-z ]+)\*\* \|", PAGE, re.MULTILINE)) - {"operator"}
ATTACKS = [
    [cell.strip() for cell in line[1:-1].split("|")]
    for line in PAGE.partition("## Attacks")[2].partition("\n## ")[0].splitlines()
    if line.startswith("| ") and not line.startswith(("| attacker |", "| --- |"))
]


def test_every_attack_that_the_review_found_has_a_row() -> None:
    assert len(ATTACKS) >= 27
    assert all(len(row) == 5 and row[0] and row[1] and row[2] for row in ATTACKS)


def test_attackers_are_those_of_the_threat_model() -> None:
    assert {"tenant", "model author", "pod", "client", "writer of a repository"} == ACTORS
    assert [row[0] for row in ATTACKS if row[0] not in ACTORS and not row[0].startswith(OTHERS)] == []
    assert {row[0] for row in ATTACKS} >= ACTORS


@pytest.mark.parametrize("row", ATTACKS, ids=lambda row: re.sub(r"\W+", "-", row[1])[:60])
def test_what_shows_that_it_holds_is_there(row: list[str]) -> None:
    assert [proof for proof in re.findall(r"`([^`]+)`", row[4]) if not is_there(proof)] == []


def test_who_reports_finds_the_page_and_the_page_the_way_to_report() -> None:
    assert "(docs/explain/security.md" in (ROOT / "SECURITY.md").read_text()
    assert "(../../SECURITY.md)" in PAGE
    assert "(docs/explain/security.md)" in (ROOT / "README.md").read_text()
