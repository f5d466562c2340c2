"""Conversations over eight engines with prompt caches: how soon answers begin, by the way an engine is chosen.

    replay.py [--quick] [--threads N ...] [--ways WAY ...]

Threads hold conversations of their own, one after another, each turn with all that was said before: 7.4 turns in the
mean, as in KubeAI's benchmark. Ways: `random` (as a Kubernetes Service) and `go` (KubeAI's consistent hashing, as its
source says) choose in this program; `least` and `prefix` are the gateway's strategies. Engines are stand-ins, see
engines.py.
The exit status is 1 where PrefixHash misses a goal.
"""

from __future__ import annotations

import argparse
import asyncio
import bisect
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from statistics import mean

from peers import Place, Running, free_port

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

from outcome import Goal, Outcome, finish

from tests.gateway.standalone import Standalone

ENGINES = 8
TURNS = 7.4
WORDS = ("the", "harbour", "master", "asks", "which", "ship", "goes", "out", "with", "the", "tide", "this", "year")
BETTER = 3.0
"""Times that PrefixHash is to be better than random where caches matter: from JUDGED threads on."""
JUDGED = 80


@dataclass
class Seen:
    """What came of one way at one number of threads."""

    first_bytes: list[float] = field(default_factory=list)
    blocks: int = 0
    held: int = 0
    tokens: int = 0
    failed: int = 0
    seconds: float = 0.0

    @property
    def p99(self) -> float:
        return sorted(self.first_bytes)[int(len(self.first_bytes) * 0.99)]


class Ring:
    """Consistent hashing with bounded load, 256 points an engine, 125 percent: the reference."""

    def __init__(self, ports: list[int]) -> None:
        self._points = sorted((self._hash(f"{port}{number}"), port) for port in ports for number in range(256))
        self.load = dict.fromkeys(ports, 0)

    @staticmethod
    def _hash(text: str) -> int:
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())

    def choose(self, prefix: str) -> int:
        start = bisect.bisect(self._points, (self._hash(prefix), 0))
        bound = (sum(self.load.values()) + 1) / len(self.load) * 1.25
        for _point, port in itertools.islice(itertools.cycle(self._points), start, start + len(self._points)):
            if self.load[port] <= bound:
                return port
        raise AssertionError("the least loaded is always below the bound")


async def ask(port: int, model: str, messages: list[dict[str, str]], seen: Seen, counting: bool) -> str:
    """One request on a connection of its own; returns the answer's text."""
    body = json.dumps({"model": model, "messages": messages}).encode()
    began = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    raw = await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(1)
    first = time.monotonic() - began
    fields = dict(line.lower().split(": ", 1) for line in raw.decode().split("\r\n")[1:] if ": " in line)
    text = raw[-1:] + await reader.readexactly(int(fields["content-length"]) - 1)
    writer.close()
    if counting:
        seen.first_bytes.append(first)
        seen.blocks += int(fields["x-blocks"])
        seen.held += int(fields["x-held"])
        seen.tokens += int(fields["x-blocks"]) * 16 + 40
    return str(json.loads(text)["choices"][0]["message"]["content"])


def say(pick: random.Random, tokens: int) -> str:
    return " ".join(pick.choices(WORDS, k=tokens * 4 // 5))


async def thread(
    number: int,
    send: Callable[[list[dict[str, str]], bool], asyncio.Future[str]],
    seen: Seen,
    times: tuple[float, float],
) -> None:
    """Conversations one after another until the end; counted are requests that began after the warm-up."""
    pick = random.Random(number)
    begin, end = times
    await asyncio.sleep(pick.random() * (begin - time.monotonic()) / 2)
    while True:
        messages = [{"role": "system", "content": "You know everything about ships."}]
        for _turn in range(1 + min(30, int(pick.expovariate(1 / (TURNS - 0.5))))):
            if time.monotonic() > end:
                return
            messages.append({"role": "user", "content": f"{pick.random()} {say(pick, pick.randint(40, 120))}"})
            try:
                answer = await send(messages, time.monotonic() > begin)
            except (OSError, asyncio.IncompleteReadError, KeyError):
                seen.failed += 1
                break
            messages.append({"role": "assistant", "content": answer})


async def replay(way: str, threads: int, ports: list[int], gateway: int, times: tuple[float, float]) -> Seen:
    warm_up, seconds = times
    seen, pick, ring = Seen(), random.Random(1), Ring(ports)

    async def send(messages: list[dict[str, str]], counting: bool) -> str:
        if way in ("least", "prefix"):
            return await ask(gateway, way, messages, seen, counting)
        port = pick.choice(ports) if way == "random" else ring.choose(messages[1]["content"][:100])
        ring.load[port] += 1
        try:
            return await ask(port, way, messages, seen, counting)
        finally:
            ring.load[port] -= 1

    begin = time.monotonic() + warm_up
    window = (begin, begin + seconds)
    await asyncio.gather(*(thread(number, send, seen, window) for number in range(threads)))
    seen.seconds = seconds
    return seen


def measured(folder: Path, way: str, threads: int, times: tuple[float, float]) -> Seen:
    """With engines whose caches are empty, and a gateway of its own where the way is the gateway's."""
    ports = [free_port() for _engine in range(ENGINES)]
    folder.mkdir()
    with ExitStack() as stack:
        program = [sys.executable, Path(__file__).with_name("engines.py"), *map(str, ports)]
        engines = Place(folder, 0, (0, 0)).spawn(program)
        stack.callback(Running(0, [engines]).stop)
        public = free_port()
        addresses = {"listen": f"127.0.0.1:{public}", "controlListen": f"127.0.0.1:{free_port()}"}
        if way in ("least", "prefix"):
            gateway = Standalone(folder, {**addresses, "threads": 1})
            route = {"strategy": "PrefixHash"} if way == "prefix" else {}
            gateway.route({way: {"endpoints": [f"127.0.0.1:{port}" for port in ports], "route": route}})
            stack.enter_context(gateway)
        time.sleep(1.5)
        return asyncio.run(replay(way, threads, ports, public, times))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Replays conversations over engines with prompt caches.")
    parser.add_argument("--quick", action="store_true", help="40 and 80 threads, 8 s each")
    parser.add_argument("--threads", type=int, nargs="+", help="numbers of threads")
    parser.add_argument("--ways", nargs="+", default=["random", "go", "least", "prefix"], help="what to compare")
    return parser.parse_args()


def show(threads: int, by_way: dict[str, Seen]) -> None:
    """Prints the table of one number of threads."""
    print(f"{threads} threads, load {os.getloadavg()[0]:.1f}")
    for way, seen in by_way.items():
        base = mean(by_way["random"].first_bytes) if "random" in by_way else 0.0
        print(
            f"  {way:>7}  hit rate {seen.held / seen.blocks:4.0%}  first byte {mean(seen.first_bytes) * 1000:6.0f} ms"
            f"  p99 {seen.p99 * 1000:6.0f} ms  {seen.tokens / seen.seconds:7,.0f} tokens/s"
            f"  random/this {base / mean(seen.first_bytes):5.1f}  failed {seen.failed}"
        )


def judge(threads: int, by_way: dict[str, Seen]) -> list[Goal]:
    if "random" not in by_way or "prefix" not in by_way:
        return []
    goals = [Goal(f"{threads} threads: failed requests", by_way["prefix"].failed, 0)]
    if threads >= JUDGED:
        ratio = mean(by_way["random"].first_bytes) / mean(by_way["prefix"].first_bytes)
        name = f"{threads} threads: first byte of random choice in parts of PrefixHash's"
        goals.append(Goal(name, ratio, BETTER, "times", at_least=True))
    return goals


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_signal: sys.exit(143))
    times = (5.0, 8.0) if options.quick else (10.0, 20.0)
    goals, rows = [], []
    with tempfile.TemporaryDirectory(prefix="slipway-bench-") as name:
        for threads in options.threads or ([40, 80] if options.quick else [20, 40, 80, 160]):
            by_way = {way: measured(Path(name) / f"{way}{threads}", way, threads, times) for way in options.ways}
            show(threads, by_way)
            goals += judge(threads, by_way)
            for way, seen in by_way.items():
                numbers = {"mean": mean(seen.first_bytes), "p99": seen.p99, "hit_rate": seen.held / seen.blocks}
                rate = {"tokens_per_second": seen.tokens / seen.seconds, "failed": seen.failed}
                rows.append({"threads": threads, "way": way, "load": os.getloadavg()[0], **numbers, **rate})
    return finish(Outcome("gateway-replay", options.quick, goals, {"rows": rows}))


if __name__ == "__main__":
    sys.exit(main())
