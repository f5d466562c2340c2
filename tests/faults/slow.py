"""Two controllers, and connections that only look alive: rows 5, 12 and 38 of the table in README.md.

These take as long as leases and bookmarks do, so they run at the same time, after all other tests: controllers that
start meanwhile could delay the renewal of a lease.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Awaitable, Callable

from .harness import Controller, Run, model
from .proxy import Fault, Proxy, black_hole


async def row_5_a_terminated_leader_hands_over_at_once(run: Run) -> None:
    first, second, other = await pair(run)
    names = [f"m{number}" for number in range(12)]
    for name in names[:6]:
        await run.create("Model", model(name))
    await run.until(run.always(lambda: run.proxy.writes), what="the leader does not write")
    first.signal(signal.SIGTERM)
    for name in names[6:]:
        await run.create("Model", model(name))
    assert await first.ended(60) == 0
    ended = time.monotonic()
    await run.until(run.always(lambda: other.writes), what="the successor does not write")
    assert holders(run.proxy)[-1] == "", "the Lease was not given back"
    await run.settled(*names)
    assert max(write.at for write in run.proxy.writes) <= ended, "written after the end"
    run.no_child_was_deleted()
    assert second.exits == []


async def row_12_a_half_open_connection_is_noticed_within_90_seconds(run: Run) -> None:
    await run.started_with("m")
    run.proxy.silence()
    began = time.monotonic()
    await run.patch("Model", "m", {"spec": {"port": 9090}})
    await run.settled(seconds=160)
    assert time.monotonic() - began > 5
    assert run.controller.exits == []


async def row_38_a_leader_that_cannot_renew_ends_and_never_writes_beside_its_successor(run: Run) -> None:
    first, _unused, other = await pair(run)
    await run.create("Model", model())
    await run.settled()
    run.proxy.faults.append(Fault(lambda one: one.resource == "leases", black_hole, 10**6))
    await never_two(run, first, other)


async def row_38_a_leader_that_was_frozen_never_writes_when_it_wakes(run: Run) -> None:
    first, _unused, other = await pair(run)
    await run.create("Model", model())
    await run.settled()
    first.signal(signal.SIGSTOP)
    for number in range(5):
        await run.patch("Model", "m", {"spec": {"port": 9000 + number}})
    await run.until(run.always(lambda: other.writes), what="the successor does not write")
    first.signal(signal.SIGCONT)
    await never_two(run, first, other)


def holders(proxy: Proxy) -> list[str]:
    """Returns the holders in the successful writes of a Lease, in order."""
    written = [one for one in proxy.log if one.resource == "leases" and one.method == "PUT" and one.status == 200]
    return [json.loads(one.body)["spec"]["holderIdentity"] for one in written]


async def never_two(run: Run, first: Controller, other: Proxy) -> None:
    """Makes work until the first controller ended; I8: what it wrote, it wrote before its successor began."""
    port = 9100
    while first.exits == [] or not other.writes:
        port += 1
        await run.patch("Model", "m", {"spec": {"port": port}})
        await asyncio.sleep(0.5)
        assert port < 9400, f"no process took over: exits {first.exits}\n{run.describe()}"
    assert first.exits == [1]
    passed = [write.at for write in run.proxy.writes if write.forwarded]
    assert max(passed) < other.writes[0].at
    await run.settled()


async def pair(run: Run) -> tuple[Controller, Controller, Proxy]:
    """A leader behind ``run.proxy``, a follower, and the follower's proxy. Neither is started again when it ends."""
    other = await run.new_proxy()
    first = run.new_controller(run.proxy, "first", restart=False)
    second = run.new_controller(other, "second", restart=False)
    await first.start()
    await run.leads()
    await second.start()
    await run.follows(other)
    return first, second, other


SLOW: dict[str, Callable[[Run], Awaitable[None]]] = {
    test.__name__: test
    for test in (
        row_5_a_terminated_leader_hands_over_at_once,
        row_38_a_leader_that_cannot_renew_ends_and_never_writes_beside_its_successor,
        row_38_a_leader_that_was_frozen_never_writes_when_it_wakes,
        row_12_a_half_open_connection_is_noticed_within_90_seconds,
    )
}
