"""Three gateways enforce limits of keys and subjects together: per minute, per day, and across restarts."""

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
ODD = "jwt:x=y,z@w/+%25~|"
RIGHTS: dict[str, dict[str, Any]] = {
    "burst": {"requestsPerDay": 60},
    "few": {"requestsPerMinute": 4},
    "last": {"requestsPerDay": 2},
    "daily": {"requestsPerDay": 10},
    "tokens": {"tokensPerMinute": 1000, "tokensPerDay": 5000},
    "crash": {"requestsPerDay": 600},
    "hang": {"requestsPerDay": 30},
    "strangers": {"requestsPerDay": 10000},
    "noise": {"requestsPerDay": 6},
    ODD: {"requestsPerDay": 3},
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
                {name: key_of(name) for name in ("free", *RIGHTS)},
                rights=RIGHTS,
                gateways=[f"127.0.0.1:{port}" for port in ports],
            )
            stack.enter_context(gateway)
            settle(gateway)
        yield gateways


def key_of(name: str) -> str:
    return f"sk-{name.encode().hex()}"


def send(gateway: Standalone, name: str, **steer: Any) -> requests.Response:
    with Api(gateway.url, key_of(name)) as api:
        return api.post(CHAT, json={"model": "m1", "x": steer})


def insist(gateway: Standalone, name: str) -> str:
    """Sends a request until it is certain whether it may pass. Returns the error's code, or nothing if it passes."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        answer = send(gateway, name)
        code = "" if answer.status_code == 200 else str(answer.json()["error"]["code"])
        if code not in ("limit_reserved", "limits_unknown"):
            return code
    raise TimeoutError(name)


def insist_all(gateways: list[Standalone], name: str, number: int) -> Counter[str]:
    """Sends this many requests to each gateway concurrently. Returns how many get each answer."""
    with ThreadPoolExecutor(32) as pool:
        targets = [gateways[index % len(gateways)] for index in range(number * len(gateways))]
        return Counter(pool.map(lambda gateway: insist(gateway, name), targets))


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


def test_without_limits_no_port_is_open_until_there_are_some(
    make_gateway: Callable[..., Standalone], engine: Engine, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 64)
    host, port = "127.0.0.1", reserved_port()
    gateway = make_gateway(apiKeysSecret="keys", exchangeListen=f"{host}:{port}", exchangeKeyFile=str(key))
    silent = f"127.0.0.1:{reserved_port()}"

    def route(**rights: Any) -> None:
        gateway.route({"m1": [engine.endpoint]}, {"a": key_of("a")}, rights=rights, gateways=[f"{host}:{port}", silent])

    def is_open() -> bool:
        with suppress(ConnectionRefusedError), socket.create_connection((host, port), PATIENCE):
            return True
        return False

    route(a={"requestsAtOnce": 5})
    with gateway:
        settle(gateway)
        assert send(gateway, "a").status_code == 200
        assert not is_open()
        assert silent not in (gateway.directory / "control.log").read_text()
        route(a={"requestsPerMinute": 5})
        wait_for(is_open)
        assert insist(gateway, "a") == ""
        wait_for(lambda: silent in (gateway.directory / "control.log").read_text())


def test_a_burst_at_all_gateways_gets_no_more_than_the_limit(three: list[Standalone]) -> None:
    assert insist_all(three, "burst", 40) == {"": 60, "insufficient_quota": 60}


def test_a_client_of_one_gateway_gets_all_of_the_limit(three: list[Standalone]) -> None:
    assert [insist(three[0], "few") for _unused in range(5)] == [""] * 4 + ["rate_limit_exceeded"]
    refused = send(three[2], "few")
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert 1 < int(refused.headers["retry-after"]) <= 62


def test_the_gateway_of_a_days_last_request_names_the_day_at_once(three: list[Standalone]) -> None:
    assert [insist(three[0], "last"), insist(three[1], "last")] == ["", ""]
    for gateway in (three[1], three[0], three[2]):
        refused = send(gateway, "last")
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "insufficient_quota")


def test_tokens_of_one_gateway_count_at_the_others(three: list[Standalone]) -> None:
    usage = json.dumps({"usage": {"prompt_tokens": 300, "completion_tokens": 700}})
    assert send(three[0], "tokens", pieces=[usage]).status_code == 200
    wait_for(lambda: spent(three[1], "tokens")[1] == 1000)
    wait_for(lambda: send(three[2], "tokens").status_code == 429)
    assert "1000 tokens per minute" in send(three[1], "tokens").json()["error"]["message"]


def test_the_use_of_the_day_survives_restarts_of_each_process(three: list[Standalone]) -> None:
    first = three[0]
    assert [insist(first, "crash") for _unused in range(3)] == [""] * 3
    wait_for(lambda: all(spent(gateway, "crash")[0] == 3 for gateway in three))
    first.kill_haproxy()
    first.start_haproxy()
    first.wait_ready()
    wait_for(lambda: send(first, "crash").status_code == 200)
    wait_for(lambda: all(spent(gateway, "crash")[0] == 4 for gateway in three))
    assert first.control
    first.control.kill()
    first.control.wait()
    meanwhile = [send(first, "crash").status_code for _unused in range(5)].count(200)
    first.start_control()
    wait_for(lambda: all(spent(gateway, "crash")[0] == 4 + meanwhile for gateway in three))
    assert insist(first, "crash") == ""
    wait_for(lambda: all(spent(gateway, "crash")[0] == 5 + meanwhile for gateway in three))


def test_a_replacement_pod_gets_the_use_of_the_old_one(three: list[Standalone]) -> None:
    third = three[2]
    assert [insist(third, "daily") for _unused in range(10)] == [""] * 10
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
    passed = 0

    def has_rest() -> bool:
        nonlocal passed
        passed += sum(send(gateway, "hang").status_code == 200 for gateway in three[:2])
        return passed < 20

    try:
        wait_for(lambda: not has_rest())
        assert [refusal(gateway, "hang") for gateway in three[:2]] == ["limit_reserved"] * 2
        assert passed == 20, "a third of the limit is kept for the third gateway"
        assert send(three[0], "free").status_code == 200
    finally:
        os.kill(control.pid, signal.SIGCONT)
    assert insist(three[2], "hang") == ""


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
        used = spent(three[0], "strangers")[0]
        assert insist(three[0], "strangers") == ""
        wait_for(lambda: all(spent(gateway, "strangers")[0] == used + 1 for gateway in three))


def test_the_exchange_goes_on_while_strangers_hold_connections(three: list[Standalone]) -> None:
    host, port = str(three[0].settings["exchangeListen"]).split(":")
    with ExitStack() as stack:
        for number in range(300):
            line = stack.enter_context(socket.socket())
            line.bind((f"127.1.{number % 60}.1", 0))
            line.settimeout(PATIENCE)
            line.connect((host, int(port)))
        assert [insist(gateway, "noise") for gateway in three * 3] == [""] * 6 + ["insufficient_quota"] * 3


def test_holders_of_any_name_are_counted(three: list[Standalone]) -> None:
    assert [insist(gateway, ODD) for gateway in [*three, three[0]]] == ["", "", "", "insufficient_quota"]
    wait_for(lambda: all(spent(gateway, ODD)[0] == 3 for gateway in three))


def test_the_key_of_the_exchange_and_names_of_keys_are_in_no_log(three: list[Standalone]) -> None:
    assert insist(three[0], ODD) == "insufficient_quota"
    for gateway in three:
        text = (gateway.directory / "control.log").read_text()
        assert not [secret for secret in ("k" * 64, ODD, "sk-", "Traceback") if secret in text]


def test_files_of_a_gateway_contain_no_key(three: list[Standalone]) -> None:
    for gateway in three:
        files = [path for path in Path(gateway.run).rglob("*") if path.is_file()]
        assert not [path for path in files if key_of("daily") in path.read_text(errors="replace")]
