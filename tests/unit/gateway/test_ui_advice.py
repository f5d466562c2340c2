"""The advice for each reason, which comes from the troubleshooting page."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from slipway.engines import ENGINES
from slipway.engines.definition.log_patterns import LogPattern
from slipway.gateway.ui.advice import advise

ROOT = Path(__file__).parents[3]


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("advice_script", ROOT / "scripts/advice.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = _script()


def test_the_file_matches_the_troubleshooting_page() -> None:
    written = json.loads((ROOT / "src/slipway/gateway/ui/advice.json").read_text())
    assert written == SCRIPT.advice(SCRIPT.PAGE.read_text()), "run: make generate"


def test_a_heading_of_several_reasons_speaks_for_each() -> None:
    section = "# T\n\n## One, Two\n\n**Means.** A.\n\n**Do.** See [there](x.md), `now`:\n\n```bash\nls\n```\n"
    page = f"{section}\n## Three\n\n**Do.** Nothing.\n"
    assert SCRIPT.advice(page) == {"One": {"do": "See there, `now`."}, "Two": {"do": "See there, `now`."}}


def test_a_part_of_the_advice_may_be_for_some_reasons_of_the_heading() -> None:
    page = "# T\n\n## One, Two, Three, Four\n\n**Do.** `One`: see `Four`. `Two`, `Three`: wait. Then look.\n"
    assert SCRIPT.advice(page) == {
        "One": {"do": "See `Four`."},
        "Two": {"do": "Wait. Then look."},
        "Three": {"do": "Wait. Then look."},
    }


def test_the_advice_for_a_reason_names_no_other_reason_of_its_heading() -> None:
    page = SCRIPT.PAGE.read_text()
    groups = [names.split(", ") for names in SCRIPT._HEADING.findall(page)]
    advised = {reason: json.dumps(entry) for reason, entry in SCRIPT.advice(page).items()}
    foreign = [
        (reason, other)
        for names in groups
        for reason in names
        for other in names
        if other != reason and f"`{other}`" in advised.get(reason, "")
    ]
    assert foreign == []


def test_rows_of_a_table_are_cases() -> None:
    rows = ("| message | do |", "| --- | --- |", "| cannot write ...: denied | Be root. |", "| gone | Wait. |")
    page = "\n".join(("## One\n\n**Means.** A:\n", *rows, ""))
    assert SCRIPT.advice(page) == {"One": {"cases": {"denied": "Be root.", "gone": "Wait."}}}


def test_a_table_may_have_advice_for_all_other_messages() -> None:
    page = "## One\n\n| message | do |\n| --- | --- |\n| gone | Wait. |\n\n**Do.** Look.\n"
    assert SCRIPT.advice(page) == {"One": {"do": "Look.", "cases": {"gone": "Wait."}}}


def test_a_message_is_compared_without_case() -> None:
    assert advise("DownloadFailed", "THE HUB cannot be reached from the pod") == advise(
        "DownloadFailed", "the hub cannot be reached from the pod"
    )
    missing = "acme/tiny has no file 'tinny.gguf'. It has tiny.gguf."
    assert "one that the repository contains" in advise("DownloadFailed", missing)


@pytest.mark.parametrize(
    "row",
    list(dict.fromkeys(row for engine in ENGINES.values() for row in engine.log_patterns)),
    ids=lambda row: row.meaning,
)
def test_every_failure_that_an_engine_explains_has_advice(row: LogPattern) -> None:
    assert advise(row.reason, row.meaning)


def test_an_unknown_reason_has_no_advice() -> None:
    assert advise("Ready", "") == ""
    assert advise("SomethingNew", "") == ""
