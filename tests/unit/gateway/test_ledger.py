"""Limits that gateways keep together: counted, reserved and exchanged without a network."""

from __future__ import annotations

import random

import pytest

from slipway.gateway.routing.keys import Limits
from slipway.gateway.shared_limits import usage
from slipway.gateway.shared_limits.ledger import Grant, Ledger
from slipway.gateway.shared_limits.usage import Peer, Record, Report, Used, Window

TODAY, TOMORROW = "2026-01-31", "2026-02-01"
MIDNIGHT = 10_000.0


class Gateway:
    """A gateway with a ledger, and a HAProxy that does what limits.lua does."""

    def __init__(self, number: int, limits: dict[str, Limits], day: str = TODAY) -> None:
        self.name = f"10.0.0.{number}:8082"
        self.ledger = Ledger(f"{number:032x}", f"epoch{number}")
        self.ledger.limits = limits
        self.ledger.begin_day(day)
        self.requests: dict[str, int] = {}
        self.wants: dict[str, bool] = {}
        self.grants: dict[str, Grant] = {}

    def ask(self, now: float, others: list[Gateway]) -> None:
        """Asks all others, page by page."""
        for other in others:
            while True:
                peer = self.ledger.peers.get(other.name)
                epoch, since, complete = (peer.epoch, peer.version, peer.complete) if peer else ("", 0, False)
                report = other.ledger.report(now, epoch, since, asker=self.ledger.epoch, complete=not complete)
                self.ledger.hear(now, other.name, report)
                if not report.more:
                    break

    def observe(self, now: float) -> None:
        for holder, waiting in self.wants.items():
            self.ledger.observe(now, holder, "b1", self.requests.get(holder, 0), waiting=waiting)
        self.wants = {}
        self.ledger.age(now)

    def grant(self, now: float, addresses: list[str]) -> None:
        for holder in self.ledger.entries:
            grant = self.ledger.grant(now, MIDNIGHT, holder, addresses)
            if grant:
                self.ledger.promise(holder, grant)
                self.grants[holder] = grant
                self.ledger.settle(holder, "b1", grant)
        self.ledger.finish()

    def round(self, now: float, others: list[Gateway]) -> None:
        self.observe(now)
        self.ask(now, others)
        self.grant(now, [one.name for one in others])

    def send(self, holder: str) -> bool | None:
        """Whether a request passes; None: it would wait."""
        grant, number = self.grants.get(holder), self.requests.get(holder, 0)
        pairs = [(grant.minute_until, grant.minute_zero), (grant.day_until, grant.day_zero)] if grant else []
        self.wants[holder] = False
        if any(zero is not None and number >= zero for _until, zero in pairs):
            return False
        if not grant or any(until is not None and number >= until for until, _zero in pairs):
            self.wants[holder] = True
            return None
        self.requests[holder] = number + 1
        return True


def three(limits: dict[str, Limits]) -> list[Gateway]:
    return [Gateway(number, limits) for number in (1, 2, 3)]


def others(gateways: list[Gateway], one: Gateway) -> list[Gateway]:
    return [gateway for gateway in gateways if gateway is not one]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("limits", [Limits(requests=61), Limits(requests=2), Limits(requests_day=40)])
def test_gateways_whose_rounds_overlap_in_any_way_accept_exactly_the_limit(seed: int, limits: Limits) -> None:
    """Observing, asking each other gateway, and granting are steps of a round that others' steps come between."""
    chance = random.Random(seed)
    gateways = three({"a": limits})
    accepted = 0
    clock = 1000.0
    steps: dict[str, list[Gateway | None]] = {one.name: [] for one in gateways}
    for _unused in range(3000):
        clock += 0.005
        one = chance.choice(gateways)
        if chance.random() < 0.5:
            accepted += one.send("a") is True
            continue
        plan = steps[one.name]
        if not plan:
            one.observe(clock)
            plan.extend([*chance.sample(others(gateways, one), 2), None])
            continue
        other = plan.pop(0)
        if other is not None:
            one.ask(clock, [other])
        elif len(one.ledger.peers) == 2:
            one.grant(clock, [gateway.name for gateway in others(gateways, one)])
    assert accepted == (limits.requests or limits.requests_day)


def settle(gateways: list[Gateway], now: float, rounds: int = 6) -> float:
    for _unused in range(rounds):
        now += 0.1
        for one in gateways:
            one.round(now, others(gateways, one))
    return now


def spend(gateways: list[Gateway], holder: str, now: float, tries: int = 40) -> tuple[int, float]:
    """Sends to each gateway in turn; returns how many requests pass, and the time."""
    passed = 0
    for number in range(tries):
        one = gateways[number % len(gateways)]
        for _unused in range(20):  # rounds that a request waits
            verdict = one.send(holder)
            now = settle(gateways, now, 1)
            if verdict is not None:
                break
        passed += verdict is True
    return passed, now


def test_a_spent_day_stays_spent_minute_after_minute_and_ends_once() -> None:
    gateways = three({"a": Limits(requests_day=5)})
    passed, now = spend(gateways, "a", 1000.0)
    assert passed == 5
    for _minute in range(4):
        now += 61
        passed, now = spend(gateways, "a", now, 6)
        assert passed == 0
    for one in gateways:
        one.ledger.begin_day(TOMORROW)
    passed, now = spend(gateways, "a", now)
    assert passed == 5
    for one in gateways:
        one.ledger.begin_day(TODAY)  # a clock goes back
        one.ledger.begin_day(TOMORROW)
    assert spend(gateways, "a", now, 12)[0] == 0


def test_midnight_comes_at_different_times_to_gateways() -> None:
    gateways = three({"a": Limits(requests_day=5)})
    _passed, now = spend(gateways, "a", 1000.0)
    gateways[0].ledger.begin_day(TOMORROW)
    now = settle(gateways, now)
    assert gateways[0].ledger.days.total("a") == Used()
    assert gateways[1].ledger.days.total("a") == Used(5)
    passed = sum(gateways[1].send("a") is True for _unused in range(3))
    assert passed == 0
    for one in gateways[1:]:
        one.ledger.begin_day(TOMORROW)
    assert spend(gateways, "a", now)[0] == 5


def test_a_restarted_gateway_learns_the_day_also_of_one_that_has_gone() -> None:
    limits = {"a": Limits(requests_day=5)}
    gateways = three(limits)
    _passed, now = spend(gateways, "a", 1000.0)
    second = Gateway(9, limits)
    left = [gateways[0], second]
    gateways[0].ledger.keep(now, [second.name])
    now = settle(left, now)
    assert second.ledger.days.total("a") == Used(5)
    assert spend(left, "a", now)[0] == 0


def test_a_restarted_process_continues_with_what_was_saved_and_counts_nothing_twice() -> None:
    gateways = three({"a": Limits(requests=9, requests_day=5)})
    _passed, now = spend(gateways, "a", 1000.0)
    old = gateways[0]
    again = Ledger("f" * 32, "epoch9")
    again.limits = old.ledger.limits
    saved = old.ledger.save(now)
    again.instance = saved.instance
    again.restore(now, saved)
    again.observe(now, "a", "b1", old.requests["a"])
    assert again.days.total("a") == Used(5)
    gateways[1].ledger.hear(now, old.name, again.report(now, "", 0, complete=True))
    assert gateways[1].ledger.days.total("a") == Used(5)
    other = gateways[1].ledger
    used = other.peers[old.name].minute(now, "a")
    assert used.requests == old.requests["a"]
    assert not other._gone


def test_a_silent_gateway_is_assumed_to_use_its_equal_part() -> None:
    gateways = three({"a": Limits(requests=30)})
    now = settle(gateways, 1000.0)
    for one in gateways[:2]:
        one.ledger.fail(gateways[2].name)
    passed = 0
    for number in range(300):
        one = gateways[number % 2]
        passed += one.send("a") is True
        now += 0.1
        for gateway in gateways[:2]:
            gateway.observe(now)
            gateway.ask(now, [other for other in gateways[:2] if other is not gateway])
            gateway.grant(now, [other.name for other in others(gateways, gateway)])
    assert passed == 20


def test_a_gateway_that_is_alone_gets_all_at_once() -> None:
    one = Gateway(1, {"a": Limits(requests=30)})
    one.send("a")
    one.round(1000.0, [])
    assert [one.send("a") for _unused in range(31)] == [True] * 30 + [False]


def test_requests_leave_the_last_minute_and_the_time_of_that_is_known() -> None:
    one = Gateway(1, {"a": Limits(requests=2)})
    one.send("a")
    one.round(1000.0, [])
    assert [one.send("a"), one.send("a"), one.send("a")] == [True, True, False]
    one.round(1001.0, [])
    assert one.grants["a"].minute_frees == 1062
    one.send("a")
    one.round(1061.9, [])
    assert one.send("a") is False
    one.round(1062.0, [])
    assert one.send("a") is True


def test_tokens_of_all_gateways_count() -> None:
    gateways = three({"a": Limits(tokens=100, tokens_day=1000)})
    gateways[0].send("a")
    now = settle(gateways, 1000.0)
    gateways[1].ledger.count(now, "a", Used(0, 400))
    now = settle(gateways, now)
    grant = gateways[0].grants["a"]
    assert (grant.tokens_rest, grant.day_tokens_rest) == (-300, 600)


def test_a_holder_that_does_not_return_leaves_only_its_day() -> None:
    one = Gateway(1, {"jwt:*": Limits(requests=5)})
    for number in range(500):
        one.ledger.observe(1000.0, f"jwt:{number}", "b1", 1)
    dropped = one.ledger.age(1070.0)
    assert len(dropped) == 500
    assert not one.ledger.entries
    one.ledger.age(1075.0)
    assert (one.ledger._windows, one.ledger._totals) == ({}, {})
    assert one.ledger.days.size == 0


def test_uses_of_a_day_are_bounded_and_the_least_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MOST_DAILY", 100)
    one = Gateway(1, {"jwt:*": Limits(requests_day=50)})
    one.ledger.observe(1000.0, "jwt:heavy", "b1", 50)
    for number in range(300):
        one.ledger.observe(1000.0, f"jwt:{number}", "b1", 1)
        one.ledger.age(1000.0)
    assert one.ledger.days.size <= 101
    assert one.ledger.days.total("jwt:heavy") == Used(50)


def test_a_peer_is_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MOST_HOLDERS", 10)
    peer = Peer("a" * 32, "e")
    for number in range(50):
        peer.take(1000.0, Record("a" * 32, f"h{number}", (1, 0), (1, 0)))
    assert len(peer.records) == 10
    peer.take(2000.0, Record("a" * 32, "new", (1, 0), (1, 0)))
    assert list(peer.records) == ["new"]


def test_records_that_cannot_be_right_are_ignored_and_the_others_count() -> None:
    one = Gateway(1, {"a": Limits(requests_day=5)})
    other = "b" * 32
    names = ["", "with space", "ä", "x" * 301, "line\nbreak", "a=b,c;d", "\\"]
    records = [Record(other, name, day=(1, 0)) for name in names] + [Record("../x", "a", day=(1, 0))]
    report = Report(other, "e", TODAY, 1, 0, False, (*records, Record(other, "a", day=(2, 0))))
    one.ledger.hear(1000.0, "10.0.0.9:8082", report)
    assert one.ledger.days.total("a") == Used(2)
    assert dict(one.ledger.days.holders(other)) == {"a": Used(2), "a=b,c;d": Used(1), "\\": Used(1)}


def test_a_gateway_that_answers_as_this_one_is_refused() -> None:
    one = Gateway(1, {})
    with pytest.raises(ValueError, match="itself"):
        one.ledger.hear(1000.0, "x:1", Report(one.ledger.instance, "e", TODAY, 1, 0, False, ()))
    assert not one.ledger.peers


def test_a_long_report_has_pages() -> None:
    limits = {"jwt:*": Limits(requests_day=5)}
    first, second = Gateway(1, limits), Gateway(2, limits)
    for number in range(5000):
        first.ledger.observe(1000.0, f"jwt:{number}", "b1", 1)
    second.ask(1000.0, [first])
    assert second.ledger.days.size == 5000
    assert second.ledger.peers[first.name].complete
    assert not first.ledger.report(1000.0, first.ledger.epoch, first.ledger.version, complete=False).records


def test_a_window_adds_what_comes_in_the_same_second() -> None:
    window = Window()
    window.add(10.2, Used(1, 5))
    window.add(10.9, Used(2, 0))
    window.add(9.0, Used(1, 1))  # a clock went back
    assert (window.slots(), window.used(70.9), window.used(71.0)) == (((10, Used(4, 6)),), Used(4, 6), Used())
