# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What modules say to do is what the page about a reason says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from ansible_collections.slipway.inference.plugins.module_utils._advice_data import ADVICE, CASES
from ansible_collections.slipway.inference.plugins.module_utils._messages import UNEXPLAINED, advise

ROOT = Path(__file__).resolve().parents[3]
SPEC = importlib.util.spec_from_file_location("advice", ROOT / "scripts/advice.py")
assert SPEC is not None
assert SPEC.loader is not None
written = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(written)


def test_the_modules_have_the_pages_words() -> None:
    advice = written.advice(written.PAGE.read_text())
    assert written.in_brief(advice) == ADVICE, "run: make generate"
    assert written.by_message(advice) == CASES, "run: make generate"


def test_a_message_has_the_advice_of_its_row_regardless_of_case() -> None:
    page = "## One\n\n| message | do |\n| --- | --- |\n| The hub has no `x` | Fix `x`. |\n\n**Do.** Wait.\n"
    advice = written.advice(page)
    assert written.in_brief(advice) == {"One": "Wait."}
    assert written.by_message(advice) == {"One": (("the hub has no x", "Fix x."),)}
    assert advise("DownloadFailed", "acme/tiny has no file 'tinny.gguf'. Did you mean tiny.gguf?").startswith(
        "Set the file to one that the repository contains"
    )
    assert advise("DownloadFailed", "something else") == ADVICE["DownloadFailed"]


def test_reasons_of_the_commonest_mistakes_have_advice() -> None:
    common = (
        "ImagePullBackOff",
        "InvalidSpec",
        "OOMKilled",
        "Unschedulable",
        "NoId",
        "UnknownProfile",
    )
    assert [reason for reason in common if not ADVICE.get(reason)] == []


def test_the_log_is_shown_for_reasons_whose_advice_is_to_read_it() -> None:
    advice = [*ADVICE.items(), *((reason, do) for reason, rows in CASES.items() for _text, do in rows)]
    assert {reason for reason, do in advice if "log lines" in do} <= UNEXPLAINED


def test_advice_is_plain_text() -> None:
    page = (
        "## One, Two\n\n**Means.** x\n\n**Do.** See [the page](x.md#y) and `set this`.\n\n## All is well\n\n**Do.** x\n"
    )
    assert written.in_brief(written.advice(page)) == dict.fromkeys(("One", "Two"), "See the page and set this.")
