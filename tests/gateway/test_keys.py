"""API keys change while the gateway runs, and are never written down."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest
import requests
import yaml

from tests.docs.pages import ROOT, blocks, commands
from tests.gateway.conftest import PATIENCE, Engine, wait_for
from tests.gateway.standalone import Standalone


@pytest.fixture
def guarded(make_gateway: Callable[..., Standalone]) -> Iterator[Standalone]:
    made = make_gateway(apiKeysSecret="keys")
    with made:
        yield made


def status(gateway: Standalone, key: str) -> int:
    answer = requests.get(f"{gateway.url}/v1/models", headers={"authorization": f"Bearer {key}"}, timeout=PATIENCE)
    return answer.status_code


def test_keys_come_and_go_at_once_and_only_hashes_are_kept(guarded: Standalone) -> None:
    assert status(guarded, "sk-one-secret") == 401, "without any key nobody is let in"
    guarded.route({}, {"one": "sk-one-secret"})
    wait_for(lambda: status(guarded, "sk-one-secret") == 200)
    guarded.route({}, {"two": "sk-two-secret"})
    wait_for(lambda: status(guarded, "sk-two-secret") == 200)
    wait_for(lambda: status(guarded, "sk-one-secret") == 401)
    written = [path for path in guarded.directory.rglob("*") if path.is_file() and path != guarded.table]
    assert not [path for path in written if "-secret" in path.read_text(errors="replace")]


def test_the_experiment_with_keys_shows_what_its_page_says(guarded: Standalone, engine: Engine) -> None:
    """With the keys of its variables; what ``make demo`` does with these, the demo itself shows."""
    page = blocks(ROOT / "docs/experiments.md")
    place = next(number for number, block in enumerate(page) if "examples/demo.yml" in block.text)
    demo, *asked = commands(page[place])
    assert demo == "make demo VARS=examples/demo.yml"
    keys = yaml.safe_load((ROOT / "examples/demo.yml").read_text())["gateway_api_keys"]
    guarded.route({"my-model": [engine.endpoint]}, keys)
    wait_for(lambda: status(guarded, keys["me"]) == 200)
    refused, listed = (json.loads(printed(command, guarded)) for command in asked)
    shown = commands(page[place + 1])
    assert refused["error"]["message"] in shown[0]
    assert refused["error"]["code"] in shown[0]
    assert (listed["object"], listed["data"][0]["id"]) == ("list", "my-model")
    assert '"id": "my-model"' in shown[1]


def printed(command: str, gateway: Standalone) -> str:
    """What a command of a page prints, where its port leads to this gateway."""
    told = ["bash", "-c", f"{command} --silent --max-time {PATIENCE}".replace("http://127.0.0.1:8080", gateway.url)]
    return subprocess.run(told, capture_output=True, text=True, check=True).stdout
