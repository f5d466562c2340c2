# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What RETURN says is what comes: every key, its type, at every depth, in every situation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from documented import COMMON, OWN, differences, documented_keys, keys, returned
from fake_api import FakeApi
from module_run import Run
from situations import SUBJECTS


@pytest.mark.parametrize("module", OWN)
def test_results_are_as_they_are_documented(api: FakeApi, run: Run, tmp_path: Path, module: str) -> None:
    docs = returned(module)
    situations = dict(SUBJECTS[module].situations(api, run, tmp_path))
    results = {name: {key: value for key, value in result.data.items() if key not in COMMON}
               for name, result in situations.items()}  # fmt: skip
    assert any(result.failed for result in situations.values()) == ("error_code" in docs)

    assert {name: faults for name, result in results.items() if (faults := [*differences(result, docs)])} == {}

    due = {False: _coming(docs, "success", "always", "always, as far as the task came"),
           True: _coming(docs, "on failure", "always")}  # fmt: skip
    missing = {name: due[situations[name].failed] - set(result) for name, result in results.items()}
    assert {name: faults for name, faults in missing.items() if faults} == {}

    came = set().union(*map(keys, results.values()))
    assert documented_keys(docs) - came == set(), "documented, and never there"


def _coming(docs: dict[str, Any], *words: str) -> set[str]:
    return {key for key, value in docs.items() if value["returned"] in words}
