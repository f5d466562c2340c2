"""Streams arrive event by event, and end upstream when the client leaves."""

from __future__ import annotations

import time
from typing import Any

import pytest
import requests

from tests.gateway.conftest import wait_for

CHAT = "/v1/chat/completions"


def test_events_arrive_as_they_are_made_and_in_order(client: requests.Session) -> None:
    body = {"model": "m1", "stream": True, "x": {"events": 10, "gap": 0.1}}
    began = time.monotonic()
    with client.post(CHAT, json=body, stream=True) as answer:
        lines = [(time.monotonic() - began, line) for line in answer.iter_lines() if line]
    contents = [line.decode().partition('"content": "')[2].partition(" ")[0] for _unused, line in lines[:-1]]
    assert contents == [str(number) for number in range(10)]
    assert lines[0][0] < 0.5
    assert lines[-1][0] > 0.9
    assert lines[-1][1] == b"data: [DONE]"


def test_a_client_that_leaves_ends_the_work_upstream(client: requests.Session, engine: Any) -> None:
    before = engine.cancelled
    body = {"model": "m1", "stream": True, "x": {"events": 1000, "gap": 0.05}}
    answer = client.post(CHAT, json=body, stream=True)
    next(answer.iter_lines())
    answer.close()
    wait_for(lambda: engine.cancelled > before, 3)


def test_a_client_that_leaves_before_the_answer_ends_the_work_upstream(client: requests.Session, engine: Any) -> None:
    before = engine.cancelled
    with pytest.raises(requests.Timeout):
        client.post(CHAT, json={"model": "m1", "x": {"delay": 4}}, timeout=0.3)
    client.close()
    wait_for(lambda: engine.cancelled > before, 3)
