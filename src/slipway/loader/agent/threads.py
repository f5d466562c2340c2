"""Threads for blocking calls in asyncio code, which do not keep the process alive."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Run ``work`` in a thread, and return its result or raise its exception. If the caller is cancelled, the thread
    continues. Unlike asyncio's threads, the thread does not keep the process alive: ``work`` may hang on a silent
    server, and it may end at any time, because a load is always consistent on the disk."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if result.done():
            return  # cancelled in the meantime
        if error is None:
            result.set_result(value)  # type: ignore[arg-type] # a T, because there was no error
        else:
            result.set_exception(error)

    def run() -> None:
        value, fault = None, None
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 - raised again by the future
            fault = error
        with suppress(RuntimeError):  # the loop has ended, so nothing waits for the result
            loop.call_soon_threadsafe(settle, value, fault)

    threading.Thread(target=run, daemon=True).start()
    return await result
