"""Two teams with keys and budgets, as the experiment of the page gives them: both run out, each of its own."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import ROOT, Block, blocks
from tests.gateway.conftest import PATIENCE, Engine, ask_haproxy, wait_for
from tests.gateway.standalone import Standalone

VARIABLES = yaml.safe_load((ROOT / "examples/teams.yml").read_text())
ANSWER = {"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 25}}


def experiment() -> tuple[Block, Block]:
    """Its commands, and what they print."""
    page = blocks(ROOT / "docs/experiments.md")
    place = next(number for number, block in enumerate(page) if "examples/teams.yml" in block.text)
    return page[place], page[place + 1]


@pytest.fixture
def gateway(make_gateway: Callable[..., Standalone], engine: Engine) -> Iterator[Standalone]:
    made = make_gateway(apiKeysSecret="keys", countTokens=VARIABLES["gateway_count_tokens"])
    told = {
        "models": {"my-model": [engine.endpoint]},
        "keys": VARIABLES["gateway_api_keys"],
        "rights": VARIABLES["gateway_key_rights"],
    }
    made.table.write_text(json.dumps(told))
    with made:
        wait_for(lambda: "batch" in ask_haproxy(made, f"show map {made.run}/limits.map"))
        yield made


def test_both_teams_run_out_of_their_own_budget(gateway: Standalone, tmp_path: Path) -> None:
    told, shown = experiment()
    demo, script = told.text.split("\n", 1)
    assert demo == "make demo VARS=examples/teams.yml"
    script = script.replace("http://127.0.0.1:8080", gateway.url).replace(
        '"max_tokens": 8,', f'"max_tokens": 8, "x": {json.dumps({"pieces": [json.dumps(ANSWER)]})},'
    )
    script += "\nask demo-key-operator"
    printed = subprocess.run(
        ["bash", "-ec", script], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=PATIENCE * 4
    ).stdout
    requests_of, tokens_of = re.findall(r"((?:\d{3} )+)(\{.*?\}\})", printed)
    assert printed.endswith("200 "), "the operator's"
    assert requests_of[0].split() == ["200"] * VARIABLES["gateway_key_rights"]["search"]["requestsPerDay"] + ["429"]
    assert set(tokens_of[0].split()) == {"200", "429"}
    for (_statuses, error), page in zip((requests_of, tokens_of), shown.text.splitlines()[1::2], strict=True):
        assert json.loads(error)["error"]["code"] == "insufficient_quota"
        assert json.loads(error)["error"]["message"] in page
