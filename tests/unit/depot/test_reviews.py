"""Reviews of tokens: a refused one is remembered, and no address has more than its share."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from slipway.depot.http import reviews as reviews_module
from slipway.depot.http.app import RefusedError
from slipway.depot.http.reviews import MOST, MOST_OF_ONE, MOST_REFUSED, REFUSED_SECONDS, Refusals, Reviews

from .conftest import knows, review_answer

POD = "system:serviceaccount:team:default"
TOKEN = "a.b.c"


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def reviews(client: Any, clock: Clock) -> Reviews:
    return Reviews(client, "slipway-depot", clock)


def sent(server: Any) -> int:
    return len(server.requests("POST", "tokenreviews"))


async def status(reviews: Reviews, token: str = TOKEN, address: str = "10.0.0.1") -> int:
    """200, or that of the refusal."""
    try:
        await reviews.caller(token, address)
    except RefusedError as refused:
        return refused.status
    return 200


class Held:
    """An API server that answers no review before the event."""

    def __init__(self, server: Any) -> None:
        self.go, self._answer = asyncio.Event(), review_answer(POD, "slipway-depot")
        server.fault("POST", "tokenreviews", self.answer, times=10**9)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        await self.go.wait()
        response: web.StreamResponse = await self._answer(request)
        return response


async def test_a_refused_token_costs_one_review(reviews, server, clock):
    knows(server, POD, authenticated=False)
    assert [await status(reviews) for _unused in range(20)] == [401] * 20
    assert sent(server) == 1
    clock.time += REFUSED_SECONDS + 1
    assert await status(reviews) == 401
    assert sent(server) == 2


async def test_a_refused_token_is_refused_for_every_address(reviews, server):
    knows(server, POD, authenticated=False)
    assert [await status(reviews, address=f"10.0.0.{number}") for number in range(20)] == [401] * 20
    assert sent(server) == 1


async def test_a_refusal_is_forgotten_when_the_token_becomes_valid(reviews, server, clock):
    knows(server, POD, authenticated=False)
    assert await status(reviews) == 401
    server.faults.clear()
    knows(server, POD, "slipway-depot")
    assert await status(reviews) == 401
    clock.time += REFUSED_SECONDS + 1
    assert await status(reviews) == 200


async def test_many_refused_tokens_of_one_address_leave_others_their_reviews(reviews, server, monkeypatch):
    monkeypatch.setattr(reviews_module, "PENALTY_SECONDS", 3600)
    knows(server, POD, authenticated=False)
    answers = [await status(reviews, f"a.b.c{number}") for number in range(50)]
    assert answers == [401] * MOST_OF_ONE + [503] * (50 - MOST_OF_ONE)
    assert sent(server) == MOST_OF_ONE
    server.faults.clear()
    knows(server, POD, "slipway-depot")
    assert await status(reviews, address="10.0.0.2") == 200


async def test_a_penalty_ends(reviews, server, eventually, monkeypatch):
    monkeypatch.setattr(reviews_module, "PENALTY_SECONDS", 0.01)
    knows(server, POD, authenticated=False)
    for number in range(MOST_OF_ONE):
        await status(reviews, f"a.b.c{number}")
    await eventually(lambda: not reviews._outstanding)


async def test_an_address_that_uses_its_share_does_not_delay_others(reviews, server, eventually):
    held = Held(server)
    busy = [asyncio.create_task(status(reviews, f"a.b.c{number}")) for number in range(30)]
    await eventually(lambda: reviews._outstanding.total() == MOST_OF_ONE)
    other = asyncio.create_task(status(reviews, address="10.0.0.2"))
    await eventually(lambda: reviews._outstanding.total() == MOST_OF_ONE + 1)
    held.go.set()
    assert await other == 200
    answers = await asyncio.gather(*busy)
    assert sorted(answers) == [200] * MOST_OF_ONE + [503] * (30 - MOST_OF_ONE)
    await eventually(lambda: not reviews._outstanding)


async def test_the_same_token_that_is_sent_many_times_at_once_is_reviewed_once_after_a_refusal(
    reviews, server, eventually
):
    held = Held(server)
    held._answer = review_answer(POD, authenticated=False)
    count = 40
    tasks = [asyncio.create_task(status(reviews, address=f"10.0.0.{number}")) for number in range(count)]
    await eventually(lambda: reviews._outstanding.total() == count)
    held.go.set()
    assert await asyncio.gather(*tasks) == [401] * count
    assert sent(server) <= reviews_module.AT_ONCE


async def test_all_addresses_together_have_so_many_and_no_more(reviews, server, eventually):
    held = Held(server)
    tasks = [asyncio.create_task(status(reviews, address=f"10.0.{number}.1")) for number in range(MOST + 20)]
    await eventually(lambda: sum(task.done() for task in tasks) == 20)
    held.go.set()
    assert sorted(await asyncio.gather(*tasks)) == [200] * MOST + [503] * 20


async def test_a_cluster_that_does_not_answer_is_remembered_of_no_token(reviews, server, script):
    server.fault("POST", "tokenreviews", script.refuse(500, "InternalError"))
    with pytest.raises(Exception, match="InternalError"):
        await reviews.caller(TOKEN, "10.0.0.1")
    knows(server, POD, "slipway-depot")
    assert await status(reviews) == 200


async def test_the_answer_busy_is_not_cached_for_a_token(reviews, server, eventually):
    held = Held(server)
    busy = [asyncio.create_task(status(reviews, f"a.b.c{number}")) for number in range(MOST_OF_ONE)]
    await eventually(lambda: reviews._outstanding.total() == MOST_OF_ONE)
    assert await status(reviews) == 503
    held.go.set()
    await asyncio.gather(*busy)
    await eventually(lambda: not reviews._outstanding)
    assert await status(reviews) == 200


def test_refusals_take_a_bounded_memory(clock):
    refusals = Refusals(clock)
    for number in range(MOST_REFUSED + 10):
        refusals.add(f"{number}")
    assert len(refusals._until) == MOST_REFUSED
    assert "0" not in refusals
    assert f"{MOST_REFUSED}" in refusals
