"""The work queue: no key is lost, none is processed twice at a time, none starves another."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from slipway.kube.objects import Key
from slipway.kube.runtime.workqueue import CAP_SECONDS, WorkQueue

from .conftest import PATIENCE

A, B = Key("ns", "a"), Key("ns", "b")


@pytest.fixture
def queue(metrics):
    return WorkQueue("test", metrics)


async def test_a_waiting_key_is_not_added_twice(queue, metrics):
    for _unused in range(5):
        queue.add(A)
    assert len(queue) == 1
    assert b'workqueue_depth{name="test"} 1.0' in metrics.text()
    assert await queue.get() == A


async def test_a_key_added_while_it_is_processed_waits_for_the_end_of_its_turn(queue):
    queue.add(A)
    await queue.get()
    queue.add(A)
    queue.add(A)
    assert len(queue) == 0
    queue.done(A)
    assert len(queue) == 1


async def test_failures_wait_twice_as_long_each_time_until_forgotten(queue):
    delays = [queue.add_rate_limited(A) for _unused in range(30)]
    assert delays[:4] == [0.005, 0.01, 0.02, 0.04]
    assert max(delays) == CAP_SECONDS
    queue.forget(A)
    assert queue.add_rate_limited(A) == 0.005


async def test_of_several_times_the_first_counts_and_a_turn_covers_them_all(queue):
    queue.add_after(A, 900)
    queue.add_after(A, 0.01)
    queue.add_after(A, 600)
    assert await asyncio.wait_for(queue.get(), PATIENCE) == A
    queue.done(A)
    queue.add_after(A, 0.05)
    queue.add(A)
    await queue.get()
    queue.done(A)
    queue.add_after(B, 0.1)
    assert await asyncio.wait_for(queue.get(), PATIENCE) == B, "no other item comes before it"
    assert len(queue) == 0


async def test_row_20_a_held_key_waits_even_if_it_is_added_again(queue):
    queue.add(A)
    await queue.get()
    queue.add(A)
    queue.hold(A, 1)
    began = time.monotonic()
    queue.done(A)
    queue.add(A)
    queue.add(B)
    assert await queue.get() == B
    assert await asyncio.wait_for(queue.get(), PATIENCE) == A
    assert time.monotonic() - began > 0.9


async def test_row_17_a_key_that_never_stops_changing_starves_no_other_key(queue):
    turns = {A: 0, B: 0}
    queue.add(A)
    for _unused in range(100):
        key = await queue.get()
        turns[key] += 1
        queue.add(A)
        queue.add(A)
        if key == A and turns[A] == 50:
            queue.add(B)
        queue.done(key)
    assert turns[B] == 1
    assert turns[A] == 99


async def served(queue, most=10**6):
    """The keys in the order in which they come, at most so many."""
    taken = []
    while len(queue) and len(taken) < most:
        taken.append(await queue.get())
        queue.done(taken[-1])
    return taken


async def test_a_namespace_with_ten_thousand_keys_delays_anothers_key_by_one_turn(queue):
    for number in range(10_000):
        queue.add(Key("crowd", str(number)))
    before = await served(queue, 3)
    queue.add(Key("calm", "new"))
    assert (await served(queue, 2))[1] == Key("calm", "new")
    queue.add(Key("calm", "new"))
    queue.add(Key("quiet", "new"))
    assert {key.namespace for key in await served(queue, 3)} == {"crowd", "calm", "quiet"}
    rest = await served(queue)
    assert len(queue) == 0
    crowd = [key for key in before + rest if key.namespace == "crowd"]
    assert crowd[:3] == [Key("crowd", str(number)) for number in range(3)]
    assert rest == sorted(rest, key=lambda key: int(key.name)), "within a namespace the first comes first"
    assert len(rest) == 10_000 - 5


async def test_ten_thousand_failures_that_come_back_at_once_delay_anothers_key_by_one_turn(queue):
    for number in range(10_000):
        queue.add_after(Key("crowd", str(number)), 0)
    queue.add_after(Key("calm", "new"), 0)
    await asyncio.sleep(0.05)
    assert len(queue) == 10_001
    assert Key("calm", "new") in await served(queue, 2)


async def test_namespaces_take_turns_regardless_of_their_backlogs(queue):
    waiting = {"": 4, "a": 1, "b": 2, "c": 4}
    for namespace, count in waiting.items():
        for number in range(count):
            queue.add(Key(namespace, str(number)))
    turns = [key.namespace for key in await served(queue)]
    assert turns == ["", "a", "b", "c", "", "b", "c", "", "c", "", "c"]


async def test_a_key_that_is_added_again_in_its_turn_waits_behind_the_other_namespaces(queue):
    queue.add(Key("a", "1"))
    queue.add(Key("b", "1"))
    taken = await queue.get()
    queue.add(taken)
    queue.done(taken)
    assert [key.namespace for key in await served(queue)] == ["b", "a"]


async def test_random_work_is_never_lost_and_never_doubled(queue, eventually):
    """Many producers and workers: after a key's last addition there is a turn that began later, one at a time."""
    dice = random.Random(7)
    keys = [Key("ns" * (number % 3), str(number)) for number in range(10)]
    added: dict[Key, float] = {}
    began: dict[Key, float] = {}
    busy: set[Key] = set()

    async def work():
        while True:
            key = await queue.get()
            assert key not in busy
            busy.add(key)
            began[key] = time.monotonic()
            await asyncio.sleep(dice.random() / 500)
            busy.discard(key)
            if dice.random() < 0.3:
                queue.add_rate_limited(key)
            else:
                queue.forget(key)
            queue.done(key)

    workers = [asyncio.create_task(work()) for _unused in range(4)]
    for _unused in range(1000):
        key = dice.choice(keys)
        added[key] = time.monotonic()
        dice.choice([queue.add, lambda key: queue.add_after(key, dice.random() / 100)])(key)
        if dice.random() < 0.2:
            await asyncio.sleep(dice.random() / 500)
    await eventually(lambda: not busy and all(began.get(key, 0) >= added[key] for key in keys))
    for worker in workers:
        assert not worker.done()
        worker.cancel()
