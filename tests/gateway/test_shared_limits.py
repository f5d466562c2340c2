"""Limits of keys and subjects hold for three gateways together: per minute, per day, and over restarts."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from slipway.gateway.control.exchange import FILE
from tests.gateway.conftest import Api, Engine, settle, wait_for
from tests.gateway.standalone import PATIENCE, Standalone
from tests.ports import reserved_port

CHAT = "/v1/chat/completions"
RIGHTS: dict[str, dict[str, Any]] = {
    "burst": {"requestsPerMinute": 60},
    "few": {"requestsPerMinute": 4},
    "last": {"requestsPerDay": 2},
    "daily": {"requestsPerDay": 10},
    "tokens": {"tokensPerMinute": 1000, "tokensPerDay": 5000},
    "crash": {"requestsPerDay": 6},
    "hang": {"requestsPerMinute": 30},
    "noise": {"requestsPerMinute": 6},
    "odd.name_-x": {"requestsPerMinute": 3},
}


@pytest.fixture(scope="module")
def three(
    make_gateway: Callable[..., Standalone], engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Standalone]]:
    key = tmp_path_factory.mktemp("key") / "key"
    key.write_text("k" * 64)
    ports = [reserved_port() for _unused in range(3)]
    gateways = [
        make_gateway(
            apiKeysSecret="keys",
            countTokens=True,
            exchangeListen=f"127.0.0.1:{port}",
            exchangeKeyFile=str(key),
        )
        for port in ports
    ]
    with ExitStack() as stack:
        for gateway in gateways:
            gateway.route(
                {"m1": [engine.endpoint]},
                {name: f"sk-{name}" for name in ("free", *RIGHTS)},
                rights=RIGHTS,
                gateways=[f"127.0.0.1:{port}" for port in ports],
            )
            stack.enter_context(gateway)
            settle(gateway)
        yield gateways


def send(gateway: Standalone, name: str, **steer: Any) -> requests.Response:
    with Api(gateway.url, f"sk-{name}") as api:
        return api.post(CHAT, json={"model": "m1", "x": steer})


def send_all(gateways: list[Standalone], name: str, number: int) -> Counter[int]:
    """Sends so many requests to each gateway, all at once; returns how many answers have each status."""
    with ThreadPoolExecutor(32) as pool:
        answers = list(
            pool.map(lambda index: send(gateways[index % len(gateways)], name), range(number * len(gateways)))
        )
    return Counter(answer.status_code for answer in answers)


def refusal(gateway: Standalone, name: str) -> str:
    """The code of the error that a request gets. It must not be answered."""
    answer = send(gateway, name)
    assert answer.status_code in (429, 503)
    return str(answer.json()["error"]["code"])


def saved(gateway: Standalone) -> dict[str, Any]:
    file = gateway.run / FILE
    return dict(json.loads(file.read_bytes())) if file.exists() else {}


def spent(gateway: Standalone, name: str) -> list[int]:
    """Requests and tokens of the day at all gateways, as this one knows and has saved them."""
    counts = [used[name] for used in saved(gateway).get("days", {}).values() if name in used]
    return [sum(column) for column in zip(*counts, strict=True)] if counts else [0, 0]


def test_a_burst_at_all_gateways_gets_no_more_than_the_limit(three: list[Standalone]) -> None:
    statuses = send_all(three, "burst", 40)
    assert statuses == {200: 60, 429: 60}


def test_a_client_of_one_gateway_gets_all_of_the_limit(three: list[Standalone]) -> None:
    assert [send(three[0], "few").status_code for _unused in range(5)] == [200] * 4 + [429]
    refused = send(three[2], "few")
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert 1 < int(refused.headers["retry-after"]) <= 62


def test_the_gateway_of_a_days_last_request_names_the_day_at_once(three: list[Standalone]) -> None:
    assert [send(three[0], "last").status_code, send(three[1], "last").status_code] == [200, 200]
    for gateway in (three[1], three[0], three[2]):
        refused = send(gateway, "last")
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "insufficient_quota")


def test_tokens_of_one_gateway_count_at_the_others(three: list[Standalone]) -> None:
    usage = json.dumps({"usage": {"prompt_tokens": 300, "completion_tokens": 700}})
    assert send(three[0], "tokens", pieces=[usage]).status_code == 200
    wait_for(lambda: spent(three[1], "tokens")[1] == 1000)
    wait_for(lambda: send(three[2], "tokens").status_code == 429)
    assert "1000 tokens per minute" in send(three[1], "tokens").json()["error"]["message"]


def test_what_a_gateway_used_of_the_day_outlives_each_of_its_processes(three: list[Standalone]) -> None:
    first = three[0]
    assert [send(first, "crash").status_code for _unused in range(3)] == [200] * 3
    wait_for(lambda: all(spent(gateway, "crash")[0] == 3 for gateway in three))
    first.kill_haproxy()
    first.start_haproxy()
    first.wait_ready()
    wait_for(lambda: send(first, "crash").status_code == 200)
    wait_for(lambda: all(spent(gateway, "crash")[0] == 4 for gateway in three))
    assert first.control
    first.control.kill()
    first.control.wait()
    first.start_control()
    wait_for(lambda: send(first, "crash").status_code == 200)
    wait_for(lambda: all(spent(gateway, "crash")[0] == 5 for gateway in three))


def test_a_new_pod_in_the_place_of_one_learns_what_that_had_spent(three: list[Standalone]) -> None:
    third = three[2]
    assert [send(third, "daily").status_code for _unused in range(10)] == [200] * 10
    wait_for(lambda: spent(three[0], "daily")[0] == 10)
    third.stop(third.control)
    third.kill_haproxy()
    before = saved(third)["instance"]
    (third.run / FILE).unlink()
    third.start_haproxy()
    third.start_control()
    third.wait_ready()
    settle(third)
    for gateway in three:
        wait_for(lambda gateway=gateway: refusal(gateway, "daily") == "insufficient_quota")
    wait_for(lambda: spent(third, "daily")[0] == 10)
    assert saved(third)["instance"] != before


def test_a_gateway_that_hangs_keeps_its_part_and_stops_no_other(three: list[Standalone]) -> None:
    control = three[2].control
    assert control
    os.kill(control.pid, signal.SIGSTOP)
    try:
        statuses = send_all(three[:2], "hang", 30)
        assert 18 <= statuses[200] <= 20, "a third of the limit is kept for the third gateway"
        assert statuses[429] == 60 - statuses[200]
        assert send(three[0], "free").status_code == 200
    finally:
        os.kill(control.pid, signal.SIGCONT)
    wait_for(lambda: send(three[2], "hang").status_code == 200)


@pytest.mark.parametrize(
    "bytes_",
    [b"", b"x", b"\n", b"x" * 5000, b"GET / HTTP/1.1\r\n\r\n", b"0" * 64 + b'{"to":"x"}\n', b"\xff\x00\n" * 200],
)
def test_strangers_at_the_exchange_get_nothing_and_stop_nothing(three: list[Standalone], bytes_: bytes) -> None:
    host, port = str(three[0].settings["exchangeListen"]).split(":")
    with ExitStack() as stack:
        lines = [stack.enter_context(socket.create_connection((host, int(port)), PATIENCE)) for _unused in range(20)]
        for line in lines:
            with suppress(OSError):
                line.sendall(bytes_)
        for line in lines:
            with suppress(ConnectionResetError):
                assert line.recv(1000) == b""


def test_the_exchange_goes_on_while_strangers_hold_connections(three: list[Standalone]) -> None:
    host, port = str(three[0].settings["exchangeListen"]).split(":")
    with ExitStack() as stack:
        for number in range(300):
            line = stack.enter_context(socket.socket())
            line.bind((f"127.1.{number % 60}.1", 0))
            line.settimeout(PATIENCE)
            line.connect((host, int(port)))
        assert [send(gateway, "noise").status_code for gateway in three * 2] == [200] * 6
        assert [send(gateway, "noise").status_code for gateway in three] == [429] * 3


def test_the_key_of_the_exchange_and_names_of_keys_are_in_no_log(three: list[Standalone]) -> None:
    for gateway in three:
        assert "k" * 64 not in (gateway.directory / "control.log").read_text()
        assert "Traceback" not in (gateway.directory / "control.log").read_text()


def test_holders_of_any_name_are_counted(three: list[Standalone]) -> None:
    statuses = [send(gateway, "odd.name_-x").status_code for gateway in three]
    began = time.monotonic()
    assert statuses == [200] * 3
    assert send(three[0], "odd.name_-x").status_code == 429
    assert time.monotonic() > began


def test_files_of_a_gateway_contain_no_key(three: list[Standalone]) -> None:
    for gateway in three:
        files = [path for path in Path(gateway.run).rglob("*") if path.is_file()]
        assert not [path for path in files if "sk-daily" in path.read_text(errors="replace")]
