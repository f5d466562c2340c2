"""Whether tokens of service accounts are still valid: what the API server is asked, and what is kept of it."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry

from slipway.gateway import reviews
from slipway.gateway.jwks import JwksError
from slipway.gateway.reviews import Reviewer, UnknownError, application
from slipway.kube.errors import ApiError, ConnectionFailedError, ForbiddenError

SUBJECT = "system:serviceaccount:search:indexer"
NOW = 1_000_000.0


def token(name: str = "", **claims: Any) -> str:
    payload = {"sub": SUBJECT, "exp": NOW + 3600, "jti": name} | claims
    return f"h.{base64.urlsafe_b64encode(json.dumps(payload).encode()).decode().rstrip('=')}.s"


def of(namespace: str, name: str) -> str:
    """A token of an account of this namespace, which the API server does not know."""
    return token(name, sub=f"system:serviceaccount:{namespace}:someone")


class World:
    """A reviewer, a clock, and an API server that answers as a test wants."""

    def __init__(self) -> None:
        self.now = NOW
        self.asked: list[Mapping[str, Any]] = []
        self.status: Any = {"authenticated": True, "user": {"username": SUBJECT}, "audiences": ["slipway"]}
        self.error: ApiError | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.registry = CollectorRegistry()
        self.reviewer = Reviewer(self._ask, "slipway", self.registry, lambda: self.now)

    async def _ask(self, review: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(review["spec"])
        await self.answers.wait()
        if self.error:
            raise self.error
        return {**review, "status": self.status}

    async def valid(self, shown: str) -> bool:
        return (await self.reviewer.review(shown)).valid

    def counted(self, result: str) -> float | None:
        return self.registry.get_sample_value("slipway_gateway_token_reviews_total", {"result": result})


@pytest.fixture
def world() -> World:
    return World()


async def test_the_api_server_is_asked_for_the_audience_and_its_yes_is_kept_a_minute(world: World) -> None:
    shown = token()
    assert await world.valid(shown)
    world.now += reviews.YES_SECONDS - 1
    assert await world.valid(shown)
    assert world.asked == [{"token": shown, "audiences": ["slipway"]}]
    world.now += 1
    assert await world.valid(shown)
    assert len(world.asked) == 2
    assert world.counted("valid") == 2


async def test_an_account_that_is_gone_is_refused_a_minute_later_at_most(world: World) -> None:
    assert await world.valid(token())
    world.status = {"error": "the token has been invalidated"}
    world.now += reviews.YES_SECONDS
    assert not await world.valid(token())


async def test_a_no_is_kept_for_a_few_seconds(world: World) -> None:
    world.status = {"error": "the token has been invalidated"}
    for _unused in range(5):
        assert not await world.valid(token())
    assert len(world.asked) == 1
    world.now += reviews.NO_SECONDS
    assert not await world.valid(token())
    assert len(world.asked) == 2


async def test_a_yes_ends_with_the_token(world: World) -> None:
    shown = token(exp=NOW + 20.5)
    assert (await world.reviewer.review(shown)).ends == NOW + 20.5
    assert not await world.valid(token(exp=NOW)), "the clock of the API server is late"


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": False, "user": {"username": SUBJECT}, "audiences": ["slipway"]},
        {"authenticated": True, "user": {"username": "system:serviceaccount:search:other"}, "audiences": ["slipway"]},
        {"authenticated": True, "user": {"username": SUBJECT}, "audiences": ["https://kubernetes.default.svc"]},
        {"authenticated": True, "user": {"username": SUBJECT}},
    ],
    ids=["nothing", "not authenticated", "somebody else", "another audience", "no audience"],
)
async def test_what_is_not_the_yes_that_was_asked_for_is_a_no(world: World, status: Any) -> None:
    world.status = status
    assert not await world.valid(token())


@pytest.mark.parametrize("status", [None, [], {"authenticated": "yes"}, {"user": 5}])
async def test_an_answer_that_cannot_be_read_says_nothing(world: World, status: Any) -> None:
    world.status = status
    with pytest.raises(UnknownError):
        await world.valid(token())


@pytest.mark.parametrize("error", [ConnectionFailedError("away"), ForbiddenError("tokenreviews is forbidden")])
async def test_an_api_server_that_does_not_say_is_asked_again_and_told_of_once(
    world: World, error: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    world.error = error
    for _unused in range(3):
        with pytest.raises(UnknownError):
            await world.valid(token())
    assert len(world.asked) == 3
    assert world.counted("failed") == 3
    assert len([line for line in caplog.messages if str(error) in line]) == 1
    assert not any(part in caplog.text for part in token().split(".") if len(part) > 1)
    world.error = None
    assert await world.valid(token())


async def test_an_api_server_that_is_silent_says_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews, "ASK_SECONDS", 0.0)
    world.answers.clear()
    with pytest.raises(UnknownError):
        await world.valid(token())


async def test_requests_that_come_together_with_one_token_have_it_reviewed_once(world: World) -> None:
    world.answers.clear()
    together = [asyncio.create_task(world.valid(token())) for _unused in range(50)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    together.pop().cancel()  # one of the clients leaves
    world.answers.set()
    assert await asyncio.gather(*together) == [True] * 49
    assert len(world.asked) == 1


async def test_the_api_server_is_asked_of_a_few_tokens_at_once_and_of_no_more_than_may_wait(world: World) -> None:
    world.answers.clear()
    most = reviews.MOST_AT_ONCE + reviews.MOST_ASKED
    waiting = [asyncio.create_task(world.valid(of(f"n{number % 2}", str(number)))) for number in range(most)]
    for _unused in range(5):
        await asyncio.sleep(0)
    assert len(world.asked) == reviews.MOST_AT_ONCE
    with pytest.raises(UnknownError):
        await world.valid(of("another", "one more"))
    world.answers.set()
    await asyncio.gather(*waiting)
    assert len(world.asked) == most


async def test_one_namespace_has_half_of_the_places_and_keeps_no_other_waiting(world: World) -> None:
    world.answers.clear()
    half = (reviews.MOST_AT_ONCE + reviews.MOST_ASKED) // 2
    waiting = [asyncio.create_task(world.valid(of("greedy", str(number)))) for number in range(half)]
    for _unused in range(5):
        await asyncio.sleep(0)
    assert len(world.asked) == reviews.MOST_AT_ONCE // 2
    with pytest.raises(UnknownError):
        await world.valid(of("greedy", "one more"))
    other = asyncio.create_task(world.valid(token()))
    for _unused in range(5):
        await asyncio.sleep(0)
    assert world.asked[-1]["token"] == token()
    world.answers.set()
    assert await other
    await asyncio.gather(*waiting)
    await world.valid(of("greedy", "one more"))


async def test_what_was_found_out_longest_ago_is_forgotten_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews, "MOST_KNOWN", 2)
    for name in ("a", "b", "c", "c", "b", "a"):
        assert await world.valid(token(name))
    asked = [json.loads(base64.urlsafe_b64decode(one["token"].split(".")[1] + "=="))["jti"] for one in world.asked]
    assert asked == ["a", "b", "c", "a"]


@pytest.mark.parametrize("shown", ["", "word", "a.b.c", "a.!.c", "a." + "W10" + ".c", token(exp="later"), token(sub=5)])
async def test_what_is_no_token_of_an_account_is_not_asked_of(world: World, shown: str) -> None:
    with pytest.raises(UnknownError):
        await world.valid(shown)
    assert world.asked == []


async def test_haproxy_is_told_for_how_long_a_verdict_may_be_believed(world: World) -> None:
    async with TestClient(TestServer(application(world.reviewer.review, lambda: world.now))) as client:

        async def said(shown: str) -> tuple[int, str]:
            answer = await client.post("/review", data=shown)
            return answer.status, await answer.text()

        assert await said(token(exp=NOW + 30.9)) == (200, "1 30")
        world.status = {}
        assert await said(token()) == (200, "0 10")
        world.error = ConnectionFailedError("away")
        assert (await said(token("other")))[0] == 503
        assert (await said("a" * 10_000))[0] == 413


async def test_keys_that_the_api_server_does_not_give_are_told() -> None:
    class Api:
        async def read(self, path: str) -> dict[str, Any]:
            assert path == "/openid/v1/jwks"
            raise ForbiddenError("forbidden")

    with pytest.raises(JwksError, match="forbidden"):
        await reviews.keys_of(Api())()  # type: ignore[arg-type]
