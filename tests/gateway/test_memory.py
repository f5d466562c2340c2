"""No client can fill the gateway's memory: an attack fails its own requests and does not affect other clients.

HAProxy runs with a small limit, so that small attacks would do.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.conftest import Api, Engine, ask_haproxy, port_of, settle, wait_for
from tests.gateway.http2 import Connection
from tests.gateway.standalone import PATIENCE, Standalone

MIB = 1 << 20
CHAT = "/v1/chat/completions"
LIMIT = 128 * MIB
BODY = 1 * MIB
BODIES = 8 * MIB
BEGIN = b'{"model":"m1","p":"'


@pytest.fixture
def small(make_gateway: Callable[..., Standalone], engine: Engine) -> Iterator[Standalone]:
    """Takes bodies of 1 MiB, 8 of them at a time, 4 of one client; HAProxy may reserve 128 MiB."""
    gateway = make_gateway(memoryBytes=LIMIT, maxBodyBytes=BODY, bodyBytes=BODIES)
    gateway.route({"m1": [engine.endpoint]})
    with gateway:
        settle(gateway)
        yield gateway


def resident(gateway: Standalone, field: str = "VmRSS") -> int:
    """Bytes that HAProxy's processes have in memory; with VmHWM, the most that they ever had."""
    return sum(
        int(line.split()[1]) * 1024
        for pid in gateway.haproxy_pids()
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith(field)
    )


def bodies(gateway: Standalone) -> tuple[int, int]:
    """Large bodies that are being read, and their bytes, as the gateway counts them."""
    count, size, _refused = map(int, ask_haproxy(gateway, "show slipway bodies").split())
    return count, size


class Bystander(threading.Thread):
    """Another client with another address that constantly sends small requests, on new and on reused connections."""

    def __init__(self, gateway: Standalone) -> None:
        super().__init__(daemon=True)
        self._port = port_of(gateway)
        self._over = threading.Event()
        self.answers: list[int | str] = []

    def run(self) -> None:
        kept = self._connect()
        while not self._over.is_set():
            for connection in (kept, self._connect()):
                try:
                    connection.request("POST", CHAT, json.dumps({"model": "m1"}))
                    answer = connection.getresponse()
                    answer.read()
                    self.answers.append(answer.status)
                except (OSError, http.client.HTTPException) as error:
                    self.answers.append(repr(error))
                    kept = self._connect()
            time.sleep(0.02)

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._port, PATIENCE, source_address=("127.0.0.2", 0))

    def finish(self) -> set[int | str]:
        """The different outcomes of all its requests."""
        wait_for(lambda: len(self.answers) >= 20)
        self._over.set()
        self.join(PATIENCE)
        return set(self.answers)


@contextmanager
def unharmed(gateway: Standalone, most_bytes: int) -> Iterator[None]:
    """Checks that the block harms no other client, ends no process, and uses no more memory than this."""
    before, processes = resident(gateway), gateway.haproxy_pids()
    bystander = Bystander(gateway)
    bystander.start()
    yield
    grown = resident(gateway) - before
    assert bystander.finish() == {200}
    assert gateway.haproxy_pids() == processes
    assert grown < most_bytes


def begin(port: int, size: int, sent: int) -> socket.socket:
    """A request of `size` bytes of which the first `sent` are sent."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\ncontent-length: {size}\r\n\r\n".encode()
    with suppress(OSError):  # it may be refused before all is sent
        connection.sendall(head + (BEGIN + b"a" * size)[:sent])
    return connection


def status(connection: socket.socket) -> int:
    """The status of the answer."""
    connection.settimeout(PATIENCE)
    return int(connection.recv(64).split(b" ")[1])


def test_streams_of_one_connection_that_never_end_take_only_their_share(small: Standalone) -> None:
    with unharmed(small, 24 * MIB):
        connection = Connection(port_of(small), PATIENCE)
        assert connection.limit <= 32
        remaining = {connection.post(CHAT, BODY): BODY - 10 for _stream in range(connection.limit)}
        deadline = time.monotonic() + 4
        while remaining and not connection.ended and time.monotonic() < deadline:
            for stream in remaining:
                remaining[stream] -= connection.send(stream, (BEGIN + b"a" * remaining[stream])[: remaining[stream]])
            connection.read(0.01)
        count, size = bodies(small)
        assert 0 < count <= 4
        assert size <= BODIES // 2
    connection.close()
    wait_for(lambda: bodies(small) == (0, 0))


def test_unfinished_bodies_beyond_the_limit_get_a_429_and_their_bytes_are_free_when_they_leave(
    small: Standalone,
) -> None:
    with unharmed(small, 24 * MIB):
        connections = [begin(port_of(small), BODY, BODY - 10) for _body in range(30)]
        refused: list[socket.socket] = []

        def refuses() -> bool:
            refused[:] = [connection for connection in connections if answered(connection, 0.01)]
            return len(refused) >= 26

        wait_for(refuses)
        assert [status(connection) for connection in refused] == [429] * 26
        assert bodies(small) == (4, 4 * BODY)
    for connection in connections:
        connection.close()
    wait_for(lambda: bodies(small) == (0, 0))
    with Api(small.url) as api:
        assert api.post(CHAT, data=BEGIN + b"a" * (BODY - 25) + b'"}').status_code == 200


def answered(connection: socket.socket, seconds: float) -> bool:
    """Whether an answer, or the end of the connection, comes within that time."""
    connection.settimeout(seconds)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def test_the_refusal_is_an_openai_error(small: Standalone) -> None:
    held = [begin(port_of(small), BODY, 100_000) for _body in range(4)]
    wait_for(lambda: bodies(small)[0] == 4)
    with Api(small.url) as api:
        answer = api.post(CHAT, data=BEGIN + b"a" * 100_000 + b'"}')
    assert answer.status_code == 429
    assert answer.json()["error"]["code"] == "too_many_bodies"
    assert int(answer.headers["retry-after"]) > 0
    assert answer.headers["x-request-id"]
    for connection in held:
        connection.close()


def test_one_client_cannot_take_all_of_the_room_for_bodies(small: Standalone) -> None:
    held = [begin(port_of(small), BODY, 100_000) for _body in range(20)]
    wait_for(lambda: bodies(small)[0] == 4)
    other = http.client.HTTPConnection("127.0.0.1", port_of(small), PATIENCE, source_address=("127.0.0.2", 0))
    other.request("POST", CHAT, BEGIN + b"a" * 500_000 + b'"}')
    assert other.getresponse().status == 200
    for connection in held:
        connection.close()


def test_a_chunked_body_counts_as_the_largest_that_is_allowed(small: Standalone) -> None:
    connection = socket.create_connection(("127.0.0.1", port_of(small)), timeout=PATIENCE)
    chunk = BEGIN + b"a" * 60_000
    connection.sendall(f"POST {CHAT} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n".encode())
    connection.sendall(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
    wait_for(lambda: bodies(small) == (1, BODY))
    connection.sendall(b'2\r\n"}\r\n0\r\n\r\n')
    assert status(connection) == 200
    wait_for(lambda: bodies(small) == (0, 0))


@pytest.mark.parametrize("rest", [b"zz\r\n", b'2\r\n""\r\n0\r\n\r\n'], ids=["broken chunk", "broken JSON"])
def test_a_body_that_ends_in_an_error_is_no_longer_counted(small: Standalone, rest: bytes) -> None:
    connection = socket.create_connection(("127.0.0.1", port_of(small)), timeout=PATIENCE)
    connection.sendall(f"POST {CHAT} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n".encode())
    connection.sendall(f"{60_000:x}\r\n".encode() + b"a" * 60_000 + b"\r\n")
    wait_for(lambda: bodies(small)[0] == 1)
    connection.sendall(rest)
    assert answered(connection, PATIENCE), "refused, or cut off"
    wait_for(lambda: bodies(small) == (0, 0))


def test_many_large_requests_at_once_are_all_answered(small: Standalone) -> None:
    """They take turns: there is room for four at a time, and large buffers for few more."""
    results: list[int] = []

    def ask() -> None:
        with Api(small.url) as api:
            results.append(api.post(CHAT, data=BEGIN + b"a" * 300_000 + b'"}').status_code)

    threads = [threading.Thread(target=ask) for _request in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert results == [200] * 40


@pytest.mark.parametrize("model", ["hashed", "static/named"])
def test_a_large_body_only_fills_its_part_of_the_buffer(
    make_gateway: Callable[..., Standalone], make_engine: Callable[..., Engine], model: str
) -> None:
    """HAProxy copies the whole buffer when a rule reads the body after another one changed a header."""
    gateway = make_gateway(maxBodyBytes=64 * MIB, threads=1)
    hashing = {"strategy": "PrefixHash", "prefixHash": {}}
    routes = {"hashed": hashing, "named": {"name": "named", "models": ["n"]}}
    endpoints = [make_engine(f"e{number}").endpoint for number in range(2)]
    gateway.route({name: {"endpoints": endpoints, "route": route} for name, route in routes.items()})
    with gateway:
        settle(gateway)
        before = resident(gateway, "VmHWM")
        messages = [{"role": "user", "content": "x" * MIB}]
        with Api(gateway.url) as api:
            assert api.post(CHAT, json={"model": model, "messages": messages}).status_code == 200
        assert resident(gateway, "VmHWM") - before < 32 * MIB


def test_unfinished_headers_take_little_and_are_gone_after_ten_seconds(small: Standalone) -> None:
    """Before any key is looked at."""
    head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\n".encode() + b"".join(
        b"x-%d: %b\r\n" % (i, b"a" * 900) for i in range(40)
    )
    with unharmed(small, 60 * MIB):
        connections: list[socket.socket] = []
        for _connection in range(1100):
            with suppress(OSError):  # one too many
                connections.append(socket.create_connection(("127.0.0.1", port_of(small)), timeout=PATIENCE))
                connections[-1].sendall(head)
    assert all(answered(connection, PATIENCE / 2) for connection in connections[:50]), "closed, or told 408"
    for connection in connections:
        connection.close()


def test_headers_of_http2_that_do_not_end_are_given_up_too(small: Standalone) -> None:
    connection = Connection(port_of(small), PATIENCE)
    connection._socket.sendall(Connection._frame(1, 0, 1, b"\x00"))  # HEADERS without END_HEADERS
    deadline = time.monotonic() + PATIENCE / 2
    while not connection.ended:
        connection.read(1)
        assert time.monotonic() < deadline


def test_a_body_may_take_longer_than_the_headers(small: Standalone) -> None:
    body = BEGIN + b'a"}'
    connection = begin(port_of(small), len(body), 5)
    time.sleep(11)
    connection.sendall(body[5:])
    assert status(connection) == 200


def test_one_address_cannot_exceed_its_connections(make_gateway: Callable[..., Standalone], engine: Engine) -> None:
    gateway = make_gateway(maxConnectionsPerAddress=10)
    gateway.route({"m1": [engine.endpoint]})
    with gateway, ExitStack() as stack:
        settle(gateway)
        opened: list[socket.socket] = []
        for _connection in range(30):
            with suppress(OSError):  # closed already
                opened.append(socket.create_connection(("127.0.0.1", port_of(gateway)), timeout=PATIENCE))
                stack.enter_context(opened[-1])

        def remaining() -> int:
            return sum(not answered(connection, 0.01) for connection in opened)

        wait_for(lambda: remaining() <= 10)
        assert remaining() >= 5, "connections of the start may still be there"
        bystander = Bystander(gateway)
        bystander.start()
        assert bystander.finish() == {200}


def test_a_trusted_proxy_may_have_any_number_of_connections(
    make_gateway: Callable[..., Standalone], engine: Engine
) -> None:
    gateway = make_gateway(maxConnectionsPerAddress=5, trustedProxies=["127.0.0.1/32"])
    gateway.route({"m1": [engine.endpoint]})
    with gateway, ExitStack() as stack:
        settle(gateway)
        for _unused in range(30):
            api: Any = stack.enter_context(Api(gateway.url))
            assert api.post(CHAT, json={"model": "m1"}).status_code == 200
