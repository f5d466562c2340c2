"""Streams arrive event by event, and end upstream when the client leaves."""

from __future__ import annotations

import json
import socket

import requests

from tests.gateway.conftest import KEY, Api, Engine, wait_for
from tests.gateway.standalone import PATIENCE

CHAT = "/v1/chat/completions"


def test_events_arrive_as_they_are_made_and_in_order(client: requests.Session, engine: Engine) -> None:
    """The engine makes the next one only when the client has the one before."""
    body = {"model": "m1", "stream": True, "x": {"events": 10, "held": True}}
    contents = []
    with client.post(CHAT, json=body, stream=True) as answer:
        lines = (line for line in answer.iter_lines(chunk_size=1) if line)
        for _unused in range(10):
            contents.append(next(lines).decode().partition('"content": "')[2].partition(" ")[0])
            engine.release()
        assert list(lines) == [b"data: [DONE]"]
    assert contents == [str(number) for number in range(10)]


def test_a_client_that_leaves_ends_the_work_upstream(client: requests.Session, engine: Engine) -> None:
    before = engine.cancelled
    body = {"model": "m1", "stream": True, "x": {"events": 100_000, "gap": 0.05}}
    answer = client.post(CHAT, json=body, stream=True)
    next(answer.iter_lines())
    answer.close()
    wait_for(lambda: engine.cancelled > before)


def test_a_client_that_leaves_before_the_answer_ends_the_work_upstream(client: Api, engine: Engine) -> None:
    before, busy = engine.cancelled, engine.active
    body = json.dumps({"model": "m1", "x": {"delay": 100 * PATIENCE}}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(body)}\r\n\r\n"
    host, port = client.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(head.encode() + body)
        wait_for(lambda: engine.active > busy)
    wait_for(lambda: engine.cancelled > before)
