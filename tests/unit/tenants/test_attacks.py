"""The attacks of the lane `tenants`, and the tests of the threat model."""

from __future__ import annotations

import re
from pathlib import Path

from tests.tenants.test_tenants import ATTACKS, MODULES

PAGE = (Path(__file__).parents[3] / "docs/explain/security-tests.md").read_text()


def test_every_attack_is_in_a_row_of_the_threat_model() -> None:
    attacks = {f"{module.__name__.rpartition('.')[2]}.py::{one.name}" for module in MODULES for one in module.ATTACKS}
    assert set(re.findall(r"`tests/tenants/(\w+\.py::\w+)`", PAGE)) == attacks


def test_every_attack_has_its_own_name() -> None:
    assert len({one.name for one in ATTACKS}) == len(ATTACKS)
