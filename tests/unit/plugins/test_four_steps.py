# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every module, in four steps: check mode predicts, the run does it, and neither finds anything to do after it."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from documented import OWN
from fake_api import FakeApi
from module_run import Run
from situations import SUBJECTS

STEPS = (True, False, True, False)
CHANGING = [(module, what) for module, subject in SUBJECTS.items() for what in subject.changing]
READING = [module for module, subject in SUBJECTS.items() if subject.reading]


def test_every_module_is_tried() -> None:
    assert sorted(SUBJECTS) == OWN
    assert {module for module, _what in CHANGING} | set(READING) == set(OWN)


@pytest.mark.parametrize(("module", "what"), CHANGING)
def test_check_run_check_run(api: FakeApi, run: Run, tmp_path: Path, module: str, what: str) -> None:
    subject = SUBJECTS[module]
    subject.prepare(api, run, tmp_path)
    before = copy.deepcopy(api.objects)
    results = []
    for check in STEPS:
        results.append(run(module, check=check, **subject.changing[what]))
        if len(results) == 1:
            assert api.objects == before, "check mode has changed something"
    assert [result.failed for result in results] == [False] * 4
    assert [result["changed"] for result in results] == [True, True, False, False]
    assert results[0]["diff"] == results[1]["diff"], "check mode has predicted something else"
    assert [result["diff"] for result in results[2:]] == [[], []]


@pytest.mark.parametrize("module", READING)
def test_reading_changes_nothing(api: FakeApi, run: Run, tmp_path: Path, module: str) -> None:
    subject = SUBJECTS[module]
    assert subject.reading
    subject.prepare(api, run, tmp_path)
    before = copy.deepcopy(api.objects)
    results = [run(module, check=check, **subject.reading(tmp_path)) for check in STEPS]
    assert [result["changed"] for result in results] == [False] * 4
    assert results[0].data == results[1].data == results[2].data == results[3].data
    assert api.objects == before
