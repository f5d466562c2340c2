"""Stand-in engines with prompt caches, for replay.py: one process, one port each.

    engines.py PORT...

Four bytes of a prompt count as one token, 16 tokens as one block. A block is known by all that stands before it. What
the cache (least recently used goes first) does not hold is computed, one request after another, at PREFILL tokens a
second. Then the answer's first byte goes out, and its end after OUTPUT tokens, of up to SLOTS requests at a time. Its
header says how many blocks the prompt had, and how many of them the cache held.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import blake2b

BLOCK_BYTES = 64
BLOCKS = 1200
PREFILL = 2000.0
OUTPUT, TOKEN_SECONDS = 40, 0.02
SLOTS = 64
ANSWER = "As the tide turns the ship leaves its berth and goes out. "


def blocks_of(text: bytes) -> list[bytes]:
    """A name for each whole block, which depends on all text up to its end."""
    chain, names = blake2b(digest_size=8), []
    for start in range(0, len(text) - BLOCK_BYTES + 1, BLOCK_BYTES):
        chain.update(text[start : start + BLOCK_BYTES])
        names.append(chain.copy().digest())
    return names


def prompt_of(body: bytes) -> bytes:
    messages = json.loads(body)["messages"]
    return "".join(f"<{message['role']}>{message['content']}" for message in messages).encode()


@dataclass
class Engine:
    cache: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    prefill: asyncio.Lock = field(default_factory=asyncio.Lock)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SLOTS))

    def cached(self, names: list[bytes]) -> int:
        """How many of the first blocks are held; these were used now."""
        for count, name in enumerate(names):
            if name not in self.cache:
                return count
            self.cache.move_to_end(name)
        return len(names)

    def keep(self, names: list[bytes]) -> None:
        for name in reversed(names):  # the begin of a prompt is worth most
            self.cache[name] = None
            self.cache.move_to_end(name)
        while len(self.cache) > BLOCKS:
            self.cache.popitem(last=False)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
                await self._answer(await reader.readexactly(length), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, body: bytes, writer: asyncio.StreamWriter) -> None:
        prompt = prompt_of(body)
        names = blocks_of(prompt)
        answer = (ANSWER * 3)[: OUTPUT * 4]
        async with self.slots:
            async with self.prefill:
                held = self.cached(names)
                await asyncio.sleep((len(prompt) - held * BLOCK_BYTES) / 4 / PREFILL)
                self.keep(names)
            text = json.dumps({"choices": [{"message": {"role": "assistant", "content": answer}}]}).encode()
            head = f"x-blocks: {len(names)}\r\nx-held: {held}\r\ncontent-length: {len(text)}\r\n\r\n"
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n" + head.encode() + text[:1])
            await asyncio.sleep(OUTPUT * TOKEN_SECONDS)
            writer.write(text[1:])
            await writer.drain()
        self.keep(blocks_of(prompt + f"<assistant>{answer}".encode()))


async def main() -> None:
    for port in map(int, sys.argv[1:]):
        await asyncio.start_server(Engine().serve, "127.0.0.1", port, limit=1 << 20, backlog=1024)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
