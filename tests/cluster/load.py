"""Requests without pause, as clients of the gateway send them while something happens behind it."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from .cluster import PATIENCE, wait


@dataclass
class Load:
    """``with Load(url, model) as load:`` runs ``clients`` threads; each sends one short chat after the other.

    A client tries each request once, on a new connection, so that nothing hides a request that was lost; it stops when
    one fails.
    """

    url: str
    model: str
    clients: int = 3
    headers: dict[str, str] = field(default_factory=dict)
    settings: dict[str, object] = field(default_factory=dict)
    """Further keys of the body, or other values."""
    held: bool = False
    """Do not wait for the first answers: the gateway holds the requests at first."""
    answered: int = 0
    failures: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._threads = [threading.Thread(target=self._run, daemon=True) for _client in range(self.clients)]
        for thread in self._threads:
            thread.start()
        if not self.held:
            self.more(self.clients)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=PATIENCE)

    def more(self, count: int) -> None:
        """Waits until this many further requests were answered, or one failed."""
        target = self.answered + count
        wait(
            f"{count} more answers",
            PATIENCE,
            lambda: (self.answered, self.failures),
            lambda seen: seen[0] >= target or bool(seen[1]),
        )

    def _run(self) -> None:
        body = {"model": self.model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
        data = json.dumps(body | self.settings).encode()
        headers = {"Content-Type": "application/json", **self.headers}
        while not self._stop.is_set():
            started = time.time()
            failure = _send(urllib.request.Request(f"{self.url}/v1/chat/completions", data, headers))
            with self._lock:
                if failure:
                    timestamp = time.strftime("%H:%M:%S", time.localtime(started))
                    self.failures.append(f"sent at {timestamp}, after {time.time() - started:.1f} s: {failure}")
                    return
                self.answered += 1


def _send(request: urllib.request.Request) -> str:
    """What went wrong; empty where an answer came."""
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return "" if "choices" in json.load(answer) else "an answer without choices"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read()[:300]!r}"
    except (OSError, ValueError) as error:
        return repr(error)
