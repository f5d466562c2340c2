"""What the gateway answers to common mistakes, in the words of tests/unit/mistakes.yml."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.gateway.conftest import KEY, Api, Engine, settle
from tests.gateway.standalone import Standalone

ROWS: list[dict[str, Any]] = [
    row
    for row in yaml.safe_load((Path(__file__).parents[1] / "unit/mistakes.yml").read_text())
    if row["reported"].startswith("gateway")
]


@pytest.fixture(scope="module")
def mistaken(make_gateway: Callable[..., Standalone], engine: Engine) -> Iterator[Standalone]:
    """Serves the model tiny, and has one that failed."""
    gateway = make_gateway(apiKeysSecret="keys")
    broken = {"unready": {"reason": "DownloadFailed", "final": True}}
    gateway.route({"tiny": [engine.endpoint], "broken": broken}, {"tester": KEY})
    with gateway:
        settle(gateway)
        yield gateway


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["mistake"])
def test_a_mistake_is_answered_in_these_words(mistaken: Standalone, row: dict[str, Any]) -> None:
    request = row["request"]
    sent = {"data": request["text"]} if "text" in request else {"json": request["body"]}
    with Api(mistaken.url, request.get("key", KEY)) as api:
        answer = api.post(request["path"], **sent)
    assert f"gateway {answer.status_code}" == row["reported"]
    assert answer.json()["error"]["message"] == row["message"]
