"""Threads for blocking work beside an event loop, which do not delay the end of the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """What ``work`` returns or raises. Unlike asyncio's own threads this one keeps no process from ending: it may wait
    for a silent server, and a load is right on the disk at every moment."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if result.done():
            return  # cancelled meanwhile
        if error is None:
            result.set_result(value)  # type: ignore[arg-type] # of T, as no error came
        else:
            result.set_exception(error)

    def run() -> None:
        value, fault = None, None
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            fault = error
        with suppress(RuntimeError):  # the loop is gone: nobody waits
            loop.call_soon_threadsafe(settle, value, fault)

    threading.Thread(target=run, daemon=True).start()
    return await result
