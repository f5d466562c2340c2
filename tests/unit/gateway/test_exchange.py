"""What gateways tell each other: only those with the key are heard, each report once, and nothing without end."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
import zlib
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from slipway.gateway.exchange import PATH, Demand, Exchange, Followed, Known, Leading, Seal, UsageReport, read_seal
from slipway.gateway.keys import ALL, ALL_ACCOUNTS, Limits, Rights
from slipway.gateway.limits import UNUSED, Counted
from slipway.gateway.settings import Settings
from slipway.gateway.sharing import LAST, NOTHING, Share, Standing, Told
from slipway.gateway.spent import Day, SpentMap, budgets, is_news
from slipway.kube.errors import ApiError, ConnectionFailedError, NotFoundError

KEY = b"k" * 64
PATIENCE = 60.0
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


class Clock:
    """The exchange's clock, which moves only when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = 1000.0
        monkeypatch.setattr("slipway.gateway.exchange.time.monotonic", lambda: self._now)

    def pass_by(self, seconds: float) -> None:
        """Lets time pass."""
        self._now += seconds


class Store:
    """A store in memory."""

    def __init__(self, day: Day | None = None) -> None:
        self.day = day or Day()
        self.writes = 0
        self.failing = 0
        self.answered = asyncio.Event()

    async def read(self) -> Day | None:
        if self.failing:
            self.failing -= 1
            return None
        self.answered.set()
        return self.day

    async def write(self, day: Day) -> bool:
        self.day, self.writes = day, self.writes + 1
        return True


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
    (tmp_path / "key").write_bytes(KEY)
    settings = Settings(share_listen="127.0.0.1:8082", share_key_file=str(tmp_path / "key"))
    return Exchange(settings, DataPlane(), lambda: Known(RIGHTS, ("127.0.0.1:8082", "127.0.0.2:8082")))  # type: ignore[arg-type]


def report(**changed: Any) -> bytes:
    standing = Standing(NOTHING, NOTHING, (0, 0), 1.0)
    given = {"sender": "127.0.0.2:8082", "to": "127.0.0.1:8082", "at": time.time_ns(), "day": "20261123", "spent": {}}
    return msgspec.json.encode(UsageReport(**{**given, "standings": {"team": standing}, **changed}))


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


async def test_a_gateway_that_follows_another_shares_nothing_out(exchange: Exchange) -> None:
    exchange._known = lambda: Known(RIGHTS, ("10.0.0.1:8082", "127.0.0.1:8082"))
    async with TestClient(TestServer(exchange.application())) as client:
        assert await ask(client, report()) == (409, b"")


async def test_a_report_that_is_too_large_is_not_read_to_its_end(exchange: Exchange) -> None:
    async with TestClient(TestServer(exchange.application())) as client:
        assert (await ask(client, b" " * (5 << 20)))[0] == 413


async def test_a_report_that_does_not_say_how_large_it_is_is_refused(exchange: Exchange) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield report()

    packed = zlib.compress(report())
    async with TestClient(TestServer(exchange.application())) as client:
        async with client.post(PATH, data=pieces()) as endless:
            assert endless.status == 411
        async with client.post(PATH, data=packed, headers={"content-encoding": "deflate"}) as answer:
            assert answer.status == 411


async def answered(client: TestClient[web.Request, web.Application], expected: int) -> None:
    """Waits until reports are answered so."""
    for _unused in range(int(PATIENCE / 0.01)):
        if (await ask(client, report()))[0] == expected:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"no report was answered with {expected}")


async def test_what_strangers_send_at_once_takes_little_memory(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipway.gateway.exchange._ASKING_SECONDS", PATIENCE)
    async with TestClient(TestServer(exchange.application())) as client:
        slow = []
        for _unused in range(4):
            reader, writer = await asyncio.open_connection(client.host, client.port)
            writer.write(b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\nx" % (PATH.encode(), 4 << 20))
            slow.append((reader, writer))
        await answered(client, 503)
        for _unused, writer in slow:
            writer.close()
        await answered(client, 200)


@pytest.mark.parametrize("text", [b"", b"short", None])
def test_without_a_proper_key_a_gateway_is_on_its_own(tmp_path: Path, text: bytes | None) -> None:
    if text is not None:
        (tmp_path / "key").write_bytes(text)
    assert read_seal(str(tmp_path / "key")) is None
    assert read_seal("") is None


def test_who_leads_after_another_knows_what_that_had_used() -> None:
    leading = Leading()
    used = (60, *NOTHING[1:])
    leading.follow(0.0, "a", {"long ago": used})
    leading.follow(60.0, "a", {"team": used, "other": used})
    leading.follow(61.0, "a", {"other": NOTHING})
    assert leading.now(70.0).used_by("a", ["long ago", "team", "other"]) == {"team": used}


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


def today() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y%m%d")


async def test_what_is_stored_of_a_day_is_never_replaced_by_less() -> None:
    store, plane = Store(Day(today(), {"team": (9, 900)})), DataPlane()
    store.failing = 3
    exchange = Exchange(Settings(), plane, lambda: Known(RIGHTS, ()), store)  # type: ignore[arg-type]
    await exchange.recall()
    plane.counted = {"team": Counted((0, 0, 0, 1, 50, 0), (1, 50), 1)}
    await exchange.exchange_once()
    await exchange.leave()
    assert store.writes == 0, "it is not known what is stored"
    await exchange.leave()
    assert store.day.spent == {"team": (9, 900)}
    await exchange.exchange_once()
    assert plane.written["team"].share[LAST - 1] == 50 + 1000 - 900


async def test_a_store_that_does_not_answer_at_first_is_asked_until_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipway.gateway.exchange._RECALL_SECONDS", 0.0)
    store = Store(Day(today(), {"team": (9, 900)}))
    store.failing = 3
    exchange = Exchange(Settings(), DataPlane(), lambda: Known({}, ()), store)  # type: ignore[arg-type]
    running = asyncio.create_task(exchange.run())
    await asyncio.wait_for(store.answered.wait(), PATIENCE)
    running.cancel()
    assert exchange.spent == {"team": (9, 900)}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"data": {"spent.json": '{"day": "20261123", "spent": {"team": [1, 2]}}'}}, Day("20261123", {"team": (1, 2)})),
        ({"data": None}, Day()),
        ({"data": {"spent.json": "[]"}}, Day()),
        (NotFoundError("not found"), Day()),
        (ConnectionFailedError("away"), None),
    ],
)
async def test_what_is_stored_is_nothing_or_not_known(answer: dict[str, Any] | ApiError, expected: Day | None) -> None:
    class Api:
        async def get(self, *_unused: Any) -> dict[str, Any]:
            if isinstance(answer, ApiError):
                raise answer
            return answer

    assert await SpentMap(Api(), "here").read() == expected  # type: ignore[arg-type]


async def test_a_limit_that_a_key_gets_is_shared_out_at_once() -> None:
    plane, rights = DataPlane(), {"team": Rights(requests_per_minute=90)}
    exchange = Exchange(Settings(), plane, lambda: Known(rights, ()))  # type: ignore[arg-type]
    await exchange.exchange_once()
    await exchange.exchange_once()
    assert plane.written["team"].text == "90:-:-:-:-:1:0:-:-:-:-"
    rights["team"] = Rights(requests_per_minute=90, tokens_per_day=1000)
    await exchange.exchange_once()
    assert plane.written["team"].text == "90:-:-:-:1000:1:0:-:-:-:0"


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


async def test_service_accounts_have_shares_of_their_own_apart_from_owners_of_tokens() -> None:
    plane = DataPlane()
    rights = {ALL: Rights(requests_per_minute=90), ALL_ACCOUNTS: Rights(requests_per_minute=30)}
    exchange = Exchange(Settings(), plane, lambda: Known(rights, ()))  # type: ignore[arg-type]
    plane.counted = {"jwt:alice": used(20), "serviceaccount:a:b": used(20)}
    await exchange.exchange_once()
    await exchange.exchange_once()
    found = {key: share.share[0] for key, share in plane.written.items()}
    assert found == {ALL: 90, ALL_ACCOUNTS: 30, "serviceaccount:a:b": 30}


def heard_by(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> list[Told]:
    """What the gateway tells its leader, each time."""
    heard: list[Told] = []
    ask_leader = exchange._ask

    async def ask(http: Any, name: str, told: Told, *rest: Any) -> dict[str, Share] | None:
        heard.append(told)
        return await ask_leader(http, name, told, *rest)

    monkeypatch.setattr(exchange, "_ask", ask)
    return heard


async def test_at_rest_nothing_is_told_but_all_that_a_gateway_keeps_to_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plane, now = DataPlane(), Clock(monkeypatch)
    plane.counted = {
        "team": Counted((7, 440, 2, 8, 480, 0), (8, 480), 12),
        "other": Counted((0, 0, 0, 3, 90, 0), (3, 90), 3),
    }
    rights = {name: Rights(requests_per_minute=90, tokens_per_day=1000) for name in ("team", "other", "idle")}
    exchange = Exchange(Settings(), plane, lambda: Known(rights, ()))  # type: ignore[arg-type]
    for _unused in range(60):  # until nobody asks any more, and the leader has told of that
        now.pass_by(await exchange.exchange_once())
    heard, seconds = heard_by(exchange, monkeypatch), 0.0
    while seconds < 60:
        pause = await exchange.exchange_once()
        now.pass_by(pause)
        seconds += pause
    assert {(told.whole, frozenset(told.standings)) for told in heard} == {
        (True, frozenset(rights)),
        (False, frozenset()),
    }
    assert sum(told.whole for told in heard) in (29, 30, 31), "there may be a new leader"


async def test_what_changed_is_told_at_once_and_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    plane, now = DataPlane(), Clock(monkeypatch)
    rights = {name: Rights(requests_per_minute=90) for name in ("team", "other")}
    exchange = Exchange(Settings(), plane, lambda: Known(rights, ()))  # type: ignore[arg-type]
    for _unused in range(3):
        await exchange.exchange_once()
    heard = heard_by(exchange, monkeypatch)
    plane.counted = {"team": used(5)}
    now.pass_by(0.5)
    await exchange.exchange_once()
    assert [(told.whole, set(told.standings)) for told in heard] == [(False, {"team"})]
    assert heard[0].standings["team"].used[0] == 5


async def test_a_gateway_whose_leader_did_not_answer_tells_all_again(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = Exchange(Settings(), DataPlane(), lambda: Known(RIGHTS, ()))  # type: ignore[arg-type]
    heard: list[Told] = []

    async def ask(_http: Any, _name: str, told: Told, *_rest: Any) -> dict[str, Share] | None:
        heard.append(told)
        return answers.pop()

    monkeypatch.setattr(exchange, "_ask", ask)
    share = {"team": Share((90, 0, 0, 0, 1000, 1), (0,) * LAST)}
    answers = [{}, {}, None, {}, share]
    for _unused in range(5):
        await exchange.exchange_once()
    assert [told.whole for told in heard] == [True, False, False, True, False]


async def test_an_owner_loses_his_own_share_when_the_leader_is_told_of_him_and_no_longer_names_him(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plane, now = DataPlane(), Clock(monkeypatch)
    exchange = Exchange(Settings(), plane, lambda: OWNERS)  # type: ignore[arg-type]
    plane.counted = {"jwt:alice": used(60)}
    for _unused in range(2):
        await exchange.exchange_once()
    assert "jwt:alice" in plane.written
    plane.counted = {}
    await exchange.exchange_once()
    heard = heard_by(exchange, monkeypatch)
    for _unused in range(3):
        now.pass_by(2.5)
        await exchange.exchange_once()
    assert all("jwt:alice" in told.standings for told in heard)

    async def answer(*_unused: Any) -> dict[str, Share] | None:
        return answers.pop()

    answers: list[dict[str, Share] | None] = [{}, None, {}]
    monkeypatch.setattr(exchange, "_ask", answer)
    await exchange.exchange_once()
    assert "jwt:alice" in plane.written, "he was not asked about"
    await exchange.exchange_once()
    assert "jwt:alice" in plane.written, "the leader did not answer"
    await exchange.exchange_once()
    assert set(plane.written) == {ALL}
