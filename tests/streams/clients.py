"""Clients that stream long answers without pause, while something happens behind the gateway."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import aiohttp

from tests.cluster.cluster import wait

from .engine import PATIENCE

LONG = 120.0
"""Seconds that an answer must take, from its first event to its end, to count as a long one."""
MARGIN = 1.3
"""An answer asks for so many more tokens than LONG seconds would have at the speed of the open streams."""
FIRST_TOKENS, FEWEST_TOKENS, MOST_TOKENS = 64, 24, 176


@dataclass
class Stream:
    """One request, and what came of it."""

    client: int
    tokens: int
    opened: float
    status: int = 0
    began: float = 0.0
    """The time of its first event."""
    ended: float = 0.0
    events: int = 0
    finish: str = ""
    done: bool = False
    """Whether ``[DONE]`` came."""
    error: str = ""
    """An error event, or what the HTTP client reported."""

    @property
    def whole(self) -> bool:
        return (self.status, self.finish, self.done, self.error) == (200, "length", True, "")

    @property
    def seconds(self) -> float:
        return self.ended - self.began if self.began else 0.0

    @property
    def long(self) -> bool:
        return self.whole and self.seconds >= LONG

    def read(self, line: bytes) -> None:
        """Takes in a line of the answer."""
        if not line.startswith(b"data:"):
            return
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            self.done = True
            return
        event = json.loads(data)
        self.events += 1
        self.began = self.began or time.monotonic()
        if "error" in event:
            self.error = json.dumps(event["error"])
        for choice in event.get("choices", []):
            self.finish = choice.get("finish_reason") or self.finish


@dataclass
class Clients:
    """``with Clients(url, model, 200) as clients:`` runs so many clients; each opens one stream after the other.

    Each stream is a new connection, and nothing is tried twice. At the end the clients finish their open streams.
    """

    url: str
    model: str
    number: int
    ended: list[Stream] = field(default_factory=list)
    open: dict[int, Stream] = field(default_factory=dict)
    """The open stream of each client."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if not kind:
            wait("the open streams end", 2 * PATIENCE, self._thread.is_alive, lambda alive: not alive)

    @property
    def broken(self) -> list[Stream]:
        return [stream for stream in list(self.ended) if not stream.whole]

    @property
    def long(self) -> list[Stream]:
        return [stream for stream in list(self.ended) if stream.long]

    @property
    def streaming(self) -> int:
        """The number of open streams that have begun."""
        return sum(1 for stream in list(self.open.values()) if stream.began)

    def during(self, began: float, ended: float) -> list[Stream]:
        """The streams that were open at some time of an interval."""
        streams = [*list(self.ended), *list(self.open.values())]
        return [one for one in streams if one.opened < ended and (not one.ended or one.ended > began)]

    async def _run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=60, sock_read=PATIENCE)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(self.url, timeout=timeout, connector=connector) as session:
            await asyncio.gather(*(self._repeat(session, client) for client in range(self.number)))

    async def _repeat(self, session: aiohttp.ClientSession, client: int) -> None:
        # The first streams have different lengths, so that from then on some end at any time.
        tokens = FEWEST_TOKENS + (FIRST_TOKENS - FEWEST_TOKENS) * client // self.number
        while not self._stop.is_set():
            stream = self.open[client] = Stream(client, tokens, time.monotonic())
            await self._follow(session, stream)
            stream.ended = time.monotonic()
            del self.open[client]
            self.ended.append(stream)
            tokens = self._long_enough()

    async def _follow(self, session: aiohttp.ClientSession, stream: Stream) -> None:
        body = {"model": self.model, "prompt": f"Story {stream.client}:", "stream": True}
        body |= {"max_tokens": stream.tokens, "ignore_eos": True}
        try:
            async with session.post("/v1/completions", json=body) as answer:
                stream.status = answer.status
                if answer.status != 200:
                    stream.error = await answer.text()
                async for line in answer.content:
                    stream.read(line)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            stream.error = stream.error or repr(error)

    def _long_enough(self) -> int:
        """The number of tokens that takes LONG seconds at the speed of the open streams."""
        now = time.monotonic()
        begun = [stream for stream in self.open.values() if stream.began]
        seconds = sum(now - stream.began for stream in begun)
        speed = sum(stream.events for stream in begun) / seconds if seconds else 0.0
        return min(max(round(LONG * MARGIN * speed), FEWEST_TOKENS), MOST_TOKENS) if speed else FIRST_TOKENS
