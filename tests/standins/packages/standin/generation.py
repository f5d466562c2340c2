"""Generation without a model: a scheduler that takes the time that real hardware would, and a prefix cache.

Prompts are filled one after another, as one accelerator would; the time for it depends on the tokens that the cache
does not hold. Environment, all optional:

- ``STANDIN_PREFILL_SECONDS``  for each token that is not cached (0)
- ``STANDIN_DECODE_SECONDS``   for each token of an answer (0)
- ``STANDIN_SLOTS``            requests that are under way at once; the others wait (256)
- ``STANDIN_CACHE_BLOCKS``     blocks of 16 tokens that the cache holds (4096)
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

BLOCK = 16
"""Tokens of one block of the cache."""
CHARACTERS = 4
"""Of one token: about what English text has."""


def tokens_of(text: str) -> list[str]:
    return [text[at : at + CHARACTERS] for at in range(0, len(text), CHARACTERS)]


class PrefixCache:
    """Hashes of whole blocks, each over all that comes before it too; the least recently used go first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.queries = 0
        """Tokens that were looked up."""
        self.hits = 0
        """Tokens of them that were there."""
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self._lock = threading.Lock()

    def usage(self) -> float:
        """The share of the blocks that hold something."""
        with self._lock:
            return len(self._blocks) / self.capacity

    def take(self, salt: str, tokens: list[str]) -> int:
        """How many tokens at the start are cached; afterwards all whole blocks are. Adapters differ by ``salt``."""
        chain, hashes = hash(salt), []
        for at in range(0, len(tokens) - BLOCK + 1, BLOCK):
            chain = hash((chain, *tokens[at : at + BLOCK]))
            hashes.append(chain)
        with self._lock:
            block_count = 0
            for block in hashes:
                if block not in self._blocks:
                    break
                block_count += 1
            for block in reversed(hashes):  # the start of a prompt is the last to go
                self._blocks[block] = None
                self._blocks.move_to_end(block)
            while len(self._blocks) > self.capacity:
                self._blocks.popitem(last=False)
            # The last token is always computed: its result is the first token of the answer.
            cached = min(block_count * BLOCK, max(len(tokens) - 1, 0) // BLOCK * BLOCK)
            self.queries += len(tokens)
            self.hits += cached
            return cached


class Generator:
    """One engine's hardware."""

    def __init__(self) -> None:
        self.prefill_seconds = float(os.environ.get("STANDIN_PREFILL_SECONDS", "0"))
        self.decode_seconds = float(os.environ.get("STANDIN_DECODE_SECONDS", "0"))
        self.slots = int(os.environ.get("STANDIN_SLOTS", "256"))
        self.cache = PrefixCache(int(os.environ.get("STANDIN_CACHE_BLOCKS", "4096")))
        self.running = 0
        self.waiting = 0
        self.generated = 0
        """Tokens, ever."""
        self.stopped = threading.Event()
        """Nothing is generated any more: answers end with what they have."""
        self._free = threading.Condition()
        self._prefill = threading.Lock()

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Waits for room among the requests that are under way."""
        with self._free:
            self.waiting += 1
            self._free.wait_for(lambda: self.running < self.slots)
            self.waiting -= 1
            self.running += 1
        try:
            yield
        finally:
            with self._free:
                self.running -= 1
                self._free.notify()

    def prefill(self, salt: str, tokens: list[str]) -> int:
        """Takes a prompt in; returns how many of its tokens were cached."""
        with self._prefill:
            cached = self.cache.take(salt, tokens)
            if self.prefill_seconds:
                time.sleep(self.prefill_seconds * (len(tokens) - cached))
        return cached

    def decode(self, mark: str, count: int) -> Iterator[str]:
        """The words of an answer, each a token: the pod, the mark of who answers, then filling. A stopped one
        gives fewer than ``count``."""
        words = [socket.gethostname(), mark]
        for at in range(count):
            if self.decode_seconds:
                time.sleep(self.decode_seconds)
            if self.stopped.is_set():
                return
            self.generated += 1
            yield words[at] if at < len(words) else f"word{at}"
