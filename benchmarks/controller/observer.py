"""Watches from outside: when each object was first seen, and how many changes of each kind there were."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable

from plane import Api, Dialect


class Observer:
    """What the API server tells its watchers, with the time at which it did (``time.monotonic``)."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.seen: dict[tuple[str, str], float] = {}
        """(resource, name) -> first sight."""
        self.changes: Counter[str] = Counter()
        """Resource -> events so far."""
        self._news = asyncio.Event()

    async def children_of(self, names: Iterable[str], seconds: float) -> dict[str, float]:
        """Waits until all children of these models exist; name -> when the last one was seen."""
        prefix, resources = self._dialect.prefix, self._dialect.children
        expected = {name: [(resource, f"{prefix}{name}") for resource in resources] for name in names}
        async with asyncio.timeout(seconds):
            while not all(key in self.seen for keys in expected.values() for key in keys):
                self._news.clear()
                await self._news.wait()
        return {name: max(self.seen[key] for key in keys) for name, keys in expected.items()}

    async def quiet(self, calm: float, seconds: float) -> None:
        """Waits until nothing has changed for ``calm`` seconds."""
        async with asyncio.timeout(seconds):
            while True:
                self._news.clear()
                try:
                    await asyncio.wait_for(self._news.wait(), calm)
                except TimeoutError:
                    return

    async def watch(self, api: Api, resource: str, path: str) -> None:
        async with api.session.get(path, params={"limit": "1"}) as answer:
            version = (await answer.json())["metadata"]["resourceVersion"]
        parameters = {"watch": "1", "resourceVersion": version}
        async with api.session.get(path, params=parameters, read_bufsize=1 << 22) as answer:
            async for line in answer.content:
                now, event = time.monotonic(), json.loads(line)
                if event["type"] == "ERROR":
                    raise RuntimeError(f"watch of {resource}: {event['object']}")
                self.changes[resource] += 1
                if event["type"] != "DELETED":
                    self.seen.setdefault((resource, event["object"]["metadata"]["name"]), now)
                self._news.set()


@contextlib.asynccontextmanager
async def observing(api: Api) -> AsyncIterator[Observer]:
    """An observer of everything that happens from now on."""
    observer, kinds = Observer(api.dialect), api.dialect.kinds
    watches = [asyncio.create_task(observer.watch(api, resource, path)) for resource, path in kinds.items()]
    await asyncio.sleep(0.5)  # the watches are open before the first change that counts
    try:
        yield observer
    finally:
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
