"""What gateways tell each other: only those with the key are heard, each report once, and nothing without end."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from slipway.gateway.exchange import PATH, Demand, Exchange, Followed, Known, Report, Seal, read_seal
from slipway.gateway.keys import ALL, Limits, Rights
from slipway.gateway.limits import UNUSED, Counted
from slipway.gateway.settings import Settings
from slipway.gateway.sharing import LAST, NOTHING, Share, Standing
from slipway.gateway.spent import Day, budgets, is_news

KEY = b"k" * 64
RIGHTS = {"team": Rights(requests_per_minute=90, tokens_per_day=1000)}


class DataPlane:
    """As much of one as the exchange uses: keeps what it is told."""

    def __init__(self) -> None:
        self.counted: dict[str, Counted] = {}
        self.written: dict[str, Share] = {}

    async def shares(self, _day: str) -> tuple[dict[str, Counted], dict[str, Share]]:
        return self.counted, dict(self.written)

    async def share(self, new: Mapping[str, Share], _written: Mapping[str, Share], gone: Iterable[str] = ()) -> None:
        self.written |= new
        for key in gone:
            del self.written[key]


class Store:
    """A store in memory."""

    def __init__(self, day: Day | None = None) -> None:
        self.day = day or Day()
        self.writes = 0

    async def read(self) -> Day:
        return self.day

    async def write(self, day: Day) -> bool:
        self.day, self.writes = day, self.writes + 1
        return True


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
    (tmp_path / "key").write_bytes(KEY)
    settings = Settings(share_listen="127.0.0.1:8082", share_key_file=str(tmp_path / "key"))
    return Exchange(settings, DataPlane(), lambda: Known(RIGHTS, ("127.0.0.1:8082", "10.0.0.2:8082")))  # type: ignore[arg-type]


def report(**changed: Any) -> bytes:
    standing = Standing(NOTHING, NOTHING, (0, 0), 1.0)
    given = {"sender": "10.0.0.2:8082", "to": "127.0.0.1:8082", "at": time.time_ns(), "day": "20261123", "spent": {}}
    return msgspec.json.encode(Report(**{**given, "standings": {"team": standing}, **changed}))


async def ask(client: TestClient[web.Request, web.Application], body: bytes, key: bytes = KEY) -> tuple[int, bytes]:
    headers = {"x-slipway-signature": Seal(key).of(b"report", body)}
    async with client.post(PATH, data=body, headers=headers) as answer:
        return answer.status, await answer.read()


async def test_a_report_is_heard_once_from_those_with_the_key_and_for_this_gateway(exchange: Exchange) -> None:
    async with TestClient(TestServer(exchange.application())) as client:
        good = report()
        status, text = await ask(client, good)
        assert (status, set(msgspec.json.decode(text)[0])) == (200, {"team"})
        for refused in (
            good,
            report(at=time.time_ns() - 60 * 10**9),
            report(at=time.time_ns() + 60 * 10**9),
            report(to="10.0.0.9:8082"),
        ):
            assert (await ask(client, refused))[0] == 403
        assert (await ask(client, report(), b"x" * 64))[0] == 403
        for nonsense in (b"", b"[]", b"{}", b"[" * 100_000, b"\xff"):
            assert (await ask(client, nonsense))[0] == 400
        async with client.post(PATH, data=report()) as unsigned:
            assert unsigned.status == 403
        assert (await ask(client, report()))[0] == 200


async def test_a_report_that_is_too_large_is_not_read_to_its_end(exchange: Exchange) -> None:
    async with TestClient(TestServer(exchange.application())) as client:
        assert (await ask(client, b" " * (5 << 20)))[0] == 413


@pytest.mark.parametrize("text", [b"", b"short", None])
def test_without_a_proper_key_a_gateway_is_on_its_own(tmp_path: Path, text: bytes | None) -> None:
    if text is not None:
        (tmp_path / "key").write_bytes(text)
    assert read_seal(str(tmp_path / "key")) is None
    assert read_seal("") is None


def test_the_first_that_answers_leads() -> None:
    followed = Followed("b")
    assert followed.choose(0.0, ("c", "b", "a")) == "a"
    followed.failed(0.0, "a")
    assert followed.choose(5.0, ("a", "b", "c")) == "a", "it may be away for a moment"
    followed.failed(5.0, "a")
    assert followed.choose(6.5, ("a", "b", "c")) == "b"
    assert followed.choose(10.5, ("a", "b", "c")) == "a", "it is asked again now and then"
    followed.answered("a")
    assert followed.choose(10.6, ("a", "b", "c")) == "a"
    assert followed.choose(10.6, ()) == "b"


def test_demand_is_what_came_of_late_also_when_counters_begin_anew() -> None:
    demand = Demand()
    assert demand.look({"k": UNUSED._replace(asked=10)}) == {"k": 10}
    assert demand.look({"k": UNUSED._replace(asked=10)}) == {"k": 8}
    assert demand.look({"k": UNUSED._replace(asked=3)})["k"] == pytest.approx(9.4)
    assert demand.look({}) == {}


LIMITS = {"team": Limits(tokens_day=1000), "free": Limits(requests=1)}


def test_budgets_are_written_when_a_good_part_is_spent_and_never_at_rest() -> None:
    def spent(tokens: int, day: str = "20261123") -> Day:
        return Day(day, budgets({"team": (5, tokens), "free": (9, 9), "gone": (9, 9)}, LIMITS))

    assert spent(500).spent == {"team": (5, 500)}, "others have no budget"
    assert is_news(Day(), spent(1), LIMITS)
    assert not is_news(spent(500), spent(500), LIMITS, all_of_it=True)
    assert not is_news(spent(500), spent(509), LIMITS)
    assert is_news(spent(500), spent(509), LIMITS, all_of_it=True)
    assert is_news(spent(500), spent(510), LIMITS)
    assert is_news(spent(999), spent(1000), LIMITS), "the budget is gone"
    assert not is_news(spent(500), Day("20261124"), LIMITS), "a new day costs nothing by itself"


async def test_a_days_budget_outlives_all_gateways(tmp_path: Path) -> None:
    store, plane = Store(), DataPlane()
    known = Known(RIGHTS, ())
    first = Exchange(Settings(), plane, lambda: known, store)  # type: ignore[arg-type]
    plane.counted = {"team": Counted((0, 0, 0, 3, 600, 0), (3, 600), 3)}
    await first.exchange_once()
    assert (store.writes, store.day.spent) == (1, {"team": (3, 600)})
    await first.exchange_once()
    assert store.writes == 1, "nothing is written while nothing is spent"
    fresh = DataPlane()
    second = Exchange(Settings(), fresh, lambda: known, store)  # type: ignore[arg-type]
    await second.recall()
    await second.exchange_once()
    assert fresh.written["team"].share[LAST - 1] == 400
    assert store.writes == 1


def used(requests: int, short: int = 0) -> Counted:
    return Counted((requests, *NOTHING[1:]), (0, 0), requests + short, short)


OWNERS = Known({ALL: Rights(requests_per_minute=90), "jwt:free": Rights()}, (), frozenset({"jwt:gone"}))


async def test_an_owner_gets_a_share_of_his_own_when_that_of_all_is_soon_too_small() -> None:
    plane = DataPlane()
    exchange = Exchange(Settings(), plane, lambda: OWNERS)  # type: ignore[arg-type]
    plane.counted = {"jwt:alice": used(44), "jwt:free": used(80), "jwt:gone": used(80)}
    await exchange.exchange_once()
    await exchange.exchange_once()
    assert set(plane.written) == {ALL}, "his requests are few"
    plane.counted = {"jwt:alice": used(45), "jwt:bob": used(0, short=1)}
    await exchange.exchange_once()
    assert {key: share.share[0] for key, share in plane.written.items()} == {ALL: 90, "jwt:alice": 90, "jwt:bob": 90}


async def test_owners_beyond_those_that_gateways_can_tell_of_keep_the_share_of_all() -> None:
    plane = DataPlane()
    exchange = Exchange(Settings(), plane, lambda: OWNERS)  # type: ignore[arg-type]
    await exchange.exchange_once()
    plane.counted = {f"jwt:{number}": used(80) for number in range(1500)}
    await exchange.exchange_once()
    assert len(plane.written) == 1 + 1000
    await exchange.exchange_once()
    assert len(plane.written) == 1 + 1000


def heard_by(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Of whom the gateway tells its leader, each time."""
    told: list[set[str]] = []
    ask_leader = exchange._ask

    async def ask(http: Any, standings: dict[str, Standing], *rest: Any) -> dict[str, Share] | None:
        told.append(set(standings))
        return await ask_leader(http, standings, *rest)

    monkeypatch.setattr(exchange, "_ask", ask)
    return told


async def test_all_that_a_gateway_keeps_to_is_told_again_now_and_then_as_there_may_be_a_new_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exchange = Exchange(Settings(), DataPlane(), lambda: Known(RIGHTS, ()))  # type: ignore[arg-type]
    told = heard_by(exchange, monkeypatch)
    for _unused in range(3):
        await exchange.exchange_once()
    assert told[1:] == [{"team"}, set()]
    exchange._told_all -= 10
    await exchange.exchange_once()
    assert told[-1] == {"team"}


async def test_an_owner_with_a_share_of_his_own_is_told_each_time_and_loses_it_when_the_leader_no_longer_names_him(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plane = DataPlane()
    exchange = Exchange(Settings(), plane, lambda: OWNERS)  # type: ignore[arg-type]
    plane.counted = {"jwt:alice": used(60)}
    for _unused in range(2):
        await exchange.exchange_once()
    assert "jwt:alice" in plane.written
    plane.counted = {}
    told = heard_by(exchange, monkeypatch)
    for _unused in range(3):
        await exchange.exchange_once()
    assert all("jwt:alice" in names for names in told)

    async def answer(*_unused: Any) -> dict[str, Share] | None:
        return answers.pop()

    answers: list[dict[str, Share] | None] = [{}, None]
    monkeypatch.setattr(exchange, "_ask", answer)
    await exchange.exchange_once()
    assert "jwt:alice" in plane.written, "the leader did not answer"
    await exchange.exchange_once()
    assert set(plane.written) == {ALL}
