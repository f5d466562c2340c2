"""What three gateways accept beyond a limit that they keep together, and what the limit costs.

Run it from the repository: ``python -m benchmarks.gateway.limits``. All gateways run on loopback.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import requests

from tests.gateway.standalone import PATIENCE, Standalone
from tests.ports import reserved_port

GATEWAYS = 3
LIMITS = (10, 60, 600, 3000)
CASES = {"at once to all": (48, 0.0), "to one": (16, 0.0), "slowly to all": (6, 0.05)}
"""Clients, and the pause of each after an answer."""


class _Engine(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_unused: object) -> None:
        """Nothing is logged."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_unused: object) -> None:
        """HAProxy resets idle connections."""


def main() -> None:
    """Prints a line for each limit and way of asking."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        gateways = _start(stack, directory)
        for limit in LIMITS:
            for number, (case, (clients, pause)) in enumerate(CASES.items()):
                targets = gateways[:1] if case == "to one" else gateways
                tries = min(3 * limit, limit + 600)
                statuses, times = _ask(targets, f"limit-{limit}-{number}", clients, pause, tries)
                accepted = statuses[200]
                slowest = statistics.quantiles(times, n=100)[98] * 1000
                print(
                    f"limit {limit:5} {case:16} accepted {accepted:5} ({(accepted - limit) / limit:+.1%})"
                    f"  refused {statuses[429]:5}  other {sum(statuses.values()) - accepted - statuses[429]}"
                    f"  answers: median {statistics.median(times) * 1000:.0f} ms, p99 {slowest:.0f} ms",
                    flush=True,
                )


def _start(stack: ExitStack, directory: Path) -> list[Standalone]:
    engine = _Server(("127.0.0.1", 0), _Engine)
    stack.callback(engine.shutdown)
    Thread(target=engine.serve_forever, daemon=True).start()
    key = directory / "key"
    key.write_text("k" * 64)
    names = [f"limit-{limit}-{number}" for limit in LIMITS for number in range(len(CASES))]
    rights = {name: {"requestsPerMinute": int(name.split("-")[1])} for name in names}
    exchanges = [f"127.0.0.1:{reserved_port()}" for _unused in range(GATEWAYS)]
    gateways = []
    for number, exchange in enumerate(exchanges):
        settings = {
            "listen": f"127.0.0.1:{reserved_port()}",
            "controlListen": f"127.0.0.1:{reserved_port()}",
            "apiKeysSecret": "keys",
            "threads": 1,
            "maxConnections": 2000,
            "exchangeListen": exchange,
            "exchangeKeyFile": str(key),
        }
        gateway = Standalone(directory / str(number), settings)
        gateway.directory.mkdir()
        endpoint = f"127.0.0.1:{engine.server_port}"
        gateway.route({"m": [endpoint]}, {name: f"sk-{name}" for name in names}, rights=rights, gateways=exchanges)
        gateways.append(stack.enter_context(gateway))
    time.sleep(3)
    return gateways


def _ask(
    gateways: list[Standalone], name: str, clients: int, pause: float, tries: int
) -> tuple[Counter[int], list[float]]:
    def run(client: int) -> list[tuple[int, float]]:
        answers = []
        with requests.Session() as session:
            for _unused in range(tries // clients + 1):
                began = time.monotonic()
                answer = session.post(
                    f"{gateways[client % len(gateways)].url}/v1/chat/completions",
                    json={"model": "m"},
                    headers={"authorization": f"Bearer sk-{name}"},
                    timeout=PATIENCE,
                )
                answers.append((answer.status_code, time.monotonic() - began))
                time.sleep(pause)
        return answers

    with ThreadPoolExecutor(clients) as pool:
        answers = [answer for one in pool.map(run, range(clients)) for answer in one]
    return Counter(status for status, _seconds in answers), [seconds for _status, seconds in answers]


if __name__ == "__main__":
    main()
