"""Limits that gateways enforce together: counts, reservations and reports, without a network."""

from __future__ import annotations

import random

import msgspec
import pytest

from slipway.gateway.routing.keys import Limits
from slipway.gateway.shared_limits import ledger, usage
from slipway.gateway.shared_limits.holders import Grant, Saved
from slipway.gateway.shared_limits.ledger import Ledger
from slipway.gateway.shared_limits.usage import Peer, Record, Report, Used, Window

MIDNIGHT = 86400.0
TODAY, TOMORROW = 1000.0, MIDNIGHT + 1000
DAY = "1970-01-01"


class Gateway:
    """A gateway with a ledger, and a fake HAProxy that works like limits.lua."""

    def __init__(self, number: int, limits: dict[str, Limits]) -> None:
        self.name = f"10.0.0.{number}:8082"
        self.ledger = Ledger(self.name, f"{number:032x}", f"epoch{number}")
        self.ledger.limits = limits
        self.ledger.begin_day(TODAY)
        self.requests: dict[str, int] = {}
        self.wants: dict[str, bool] = {}
        self.grants: dict[str, Grant] = {}

    def ask(self, now: float, others: list[Gateway]) -> None:
        """Requests the reports of all others, page by page."""
        for other in others:
            while True:
                peer = self.ledger.gateways.peers.get(other.name)
                epoch, since, complete = (peer.epoch, peer.version, peer.complete) if peer else ("", 0, False)
                asker = {"asker": self.ledger.epoch, "address": self.name}
                report = other.ledger.build_report(now, epoch, since, **asker, complete=not complete)
                self.ledger.merge_report(now, other.name, report)
                if not report.more:
                    break

    def observe(self, now: float) -> None:
        for holder, waiting in self.wants.items():
            grant = self.grants.get(holder)
            until = grant.until if grant else (0, 0)
            self.ledger.observe(now, holder, "b1", self.requests.get(holder, 0), waiting=waiting, until=until)
        self.wants = {}
        self.ledger.expire(now, self.ledger.next_holders())

    def grant(self, now: float, addresses: list[str]) -> None:
        self.ledger.set_gateways(now, addresses)
        granted = self.ledger.build_grants(now, MIDNIGHT, list(self.ledger.holders))
        self.grants |= {holder: grant for holder, _birth, grant in granted}
        self.ledger.confirm_grants(granted)

    def round(self, now: float, others: list[Gateway]) -> None:
        self.observe(now)
        self.ask(now, others)
        self.grant(now, [one.name for one in others])

    def send(self, holder: str) -> bool | None:
        """Sends a request. Returns whether it passes; None: it would wait."""
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
    """Observing, requesting reports and granting are steps of a round. Other gateways' steps may come between them."""
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
        elif len(one.ledger.gateways.peers) == 2:
            one.grant(clock, [gateway.name for gateway in others(gateways, one)])
    assert accepted == (limits.requests or limits.requests_day)


def settle(gateways: list[Gateway], now: float, rounds: int = 6) -> float:
    for _unused in range(rounds):
        now += 0.1
        for one in gateways:
            one.round(now, others(gateways, one))
    return now


def spend(gateways: list[Gateway], holder: str, now: float, tries: int = 40) -> tuple[int, float]:
    """Sends to each gateway in turn. Returns how many requests pass, and the time."""
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
        one.ledger.begin_day(MIDNIGHT - 10)  # a clock goes back
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
    rest = [gateways[0], second]
    gateways[0].ledger.set_gateways(now, [second.name])
    now = settle(rest, now)
    assert second.ledger.days.total("a") == Used(5)
    assert spend(rest, "a", now)[0] == 0


def restarted(old: Gateway, now: float) -> Ledger:
    """Returns the ledger of a new control process that has not read HAProxy's entries."""
    saved = msgspec.json.decode(msgspec.json.encode(old.ledger.save(now)), type=Saved)
    again = Ledger(old.name, "f" * 32, "epoch9")
    again.limits = old.ledger.limits
    again.begin_day(now)
    again.restore(now, saved)
    return again


def test_a_restarted_process_restores_its_counts_and_counts_nothing_twice() -> None:
    gateways = three({"a": Limits(requests=9, requests_day=5)})
    _passed, now = spend(gateways, "a", 1000.0)
    old = gateways[0]
    again = restarted(old, now)
    again.observe(now, "a", "b1", old.requests["a"])
    assert again.days.total("a") == Used(5)
    gateways[1].ledger.merge_report(now, old.name, again.build_report(now, "", 0, complete=True))
    assert gateways[1].ledger.days.total("a") == Used(5)
    other = gateways[1].ledger
    used = other.gateways.peers[old.name].used_last_minute(now, "a")
    assert used.requests == old.requests["a"]
    assert not other.gateways._retired


def test_requests_while_no_control_process_ran_count_after_it() -> None:
    one = Gateway(1, {"a": Limits(requests_day=50)})
    one.send("a")
    one.round(1000.0, [])
    assert [one.send("a") for _unused in range(3)] == [True] * 3
    one.round(1001.0, [])
    again = restarted(one, 1001.0)
    assert [one.send("a") for _unused in range(20)] == [True] * 20
    again.observe(1030.0, "a", "b1", one.requests["a"])
    assert (one.requests["a"], again.days.total("a")) == (23, Used(23))


def test_a_restarted_process_reports_what_haproxy_may_still_accept() -> None:
    gateways = three({"a": Limits(requests_day=300)})
    gateways[0].send("a")
    now = settle(gateways, 1000.0)
    held = gateways[0].grants["a"].until[1]
    assert held == 100
    again = restarted(gateways[0], now)
    again.observe(now, "a", "b1", 0, until=(0, held))
    (record,) = again.build_report(now, "", 0, complete=True).records
    assert record.reserved == (0, held)
    gateways[0].ledger = again
    passed, _now = spend(gateways, "a", now, 400)
    assert passed == 300


def test_the_last_minute_of_a_restarted_process_is_reported() -> None:
    one = Gateway(1, {"a": Limits(requests=50, tokens=1000)})
    one.ledger.count(1000.0, "a", Used(3, 70))
    again = restarted(one, 1010.0)
    (record,) = again.build_report(1010.0, "", 0, complete=True).records
    assert record.minute == (3, 70)


def test_a_silent_gateway_is_assumed_to_use_its_equal_part() -> None:
    gateways = three({"a": Limits(requests=30)})
    now = settle(gateways, 1000.0)
    for one in gateways[:2]:
        one.ledger.mark_silent(gateways[2].name)
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
    drops = one.ledger.expire(1070.0, list(one.ledger.holders))
    assert sorted(drops) == sorted((f"jwt:{number}", "b1", 1) for number in range(500))
    one.ledger.confirm_drops((holder, birth) for holder, birth, _requests in drops)
    one.ledger.expire(1075.0, list(one.ledger.holders))
    assert not one.ledger.holders
    assert one.ledger.days.size == 0


def test_a_holder_is_kept_until_haproxy_has_dropped_it() -> None:
    """A request may arrive after HAProxy's entries are read, and before one is dropped."""
    one = Gateway(1, {"a": Limits(requests_day=1000)})
    one.ledger.observe(1000.0, "a", "b1", 400)
    assert one.ledger.expire(1061.0, ["a"]) == [("a", "b1", 400)]
    one.ledger.observe(1061.1, "a", "b1", 401)
    assert one.ledger.days.total("a") == Used(401)
    assert one.ledger.expire(1061.2, ["a"]) == []
    assert one.ledger.expire(1130.0, ["a"]) == [("a", "b1", 401)]
    one.ledger.confirm_drops([("a", "b1")])
    one.ledger.observe(1131.0, "a", "b2", 1)
    assert one.ledger.days.total("a") == Used(402)
    one.ledger.confirm_drops([("a", "b1")])
    assert one.ledger.holders["a"].birth == "b2"


def test_with_many_holders_idle_ones_are_removed_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MOST_HOLDERS", 10)
    one = Gateway(1, {"jwt:*": Limits(requests=5)})
    for number in range(6):
        one.ledger.observe(1000.0, f"jwt:{number}", "b1", 1)
    assert len(one.ledger.expire(1011.0, list(one.ledger.holders))) == 6


def test_uses_of_a_day_are_bounded_and_the_least_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MOST_DAILY", 100)
    one = Gateway(1, {"jwt:*": Limits(requests_day=50)})
    one.ledger.observe(1000.0, "jwt:heavy", "b1", 50)
    for number in range(300):
        one.ledger.observe(1000.0, f"jwt:{number}", "b1", 1)
        one.ledger.expire(1000.0, [])
    assert one.ledger.days.size <= 101
    assert one.ledger.days.total("jwt:heavy") == Used(50)


def test_a_peer_is_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MOST_HOLDERS", 10)
    peer = Peer("a" * 32, "e")
    for number in range(50):
        peer.add_record(1000.0, Record("a" * 32, f"h{number}", 1, (1, 0), (1, 0)))
    assert len(peer.records) == 10
    peer.make_room(2000.0, 1)
    peer.add_record(2000.0, Record("a" * 32, "new", 1, (1, 0), (1, 0)))
    assert list(peer.records) == ["new"]


def test_a_report_searches_for_room_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MOST_HOLDERS", 10)
    looks = 0

    def minute(_peer: Peer, _now: float, _holder: str) -> Used:
        nonlocal looks
        looks += 1
        return Used(1)

    one, name = Gateway(1, {}), "b" * 32
    records = [Record(name, f"h{number}", 1, (1, 0), (1, 0)) for number in range(500)]
    one.ledger.merge_report(1000.0, "x:1", Report(name, "e", DAY, 1, 0, False, tuple(records[:10])))
    monkeypatch.setattr(Peer, "used_last_minute", minute)
    one.ledger.merge_report(1000.0, "x:1", Report(name, "e", DAY, 2, 0, False, tuple(records)))
    assert looks == 10


def test_a_total_that_began_again_is_not_taken_for_the_old_one() -> None:
    """Two streams end, with more than a minute between them, and no request."""
    gateways = [Gateway(number, {"a": Limits(tokens=1000)}) for number in (1, 2)]
    for now in (1000.0, 1061.5):
        gateways[0].ledger.count(now, "a", Used(0, 900))
        gateways[1].ask(now, [gateways[0]])
        assert gateways[1].ledger.gateways.peers[gateways[0].name].used_last_minute(now, "a") == Used(0, 900)
        for later in (now + 61.1, now + 61.2):
            gateways[0].ledger.expire(later, gateways[0].ledger.next_holders())


def test_records_that_cannot_be_right_are_ignored_and_the_others_count() -> None:
    one = Gateway(1, {"a": Limits(requests_day=5)})
    other = "b" * 32
    names = ["", "with space", "ä", "x" * 301, "line\nbreak", "a=b,c;d", "\\"]
    records = [Record(other, name, day=(1, 0)) for name in names] + [Record("../x", "a", day=(1, 0))]
    report = Report(other, "e", DAY, 1, 0, False, (*records, Record(other, "a", day=(2, 0))))
    one.ledger.merge_report(1000.0, "10.0.0.9:8082", report)
    assert one.ledger.days.total("a") == Used(2)
    assert dict(one.ledger.days.holders(other)) == {"a": Used(2), "a=b,c;d": Used(1), "\\": Used(1)}


def test_a_gateway_that_answers_as_this_one_is_refused() -> None:
    one = Gateway(1, {})
    with pytest.raises(ValueError, match="itself"):
        one.ledger.merge_report(1000.0, "x:1", Report(one.ledger.instance, "e", DAY, 1, 0, False, ()))
    assert not one.ledger.gateways.peers


def test_a_long_report_has_pages() -> None:
    limits = {"jwt:*": Limits(requests_day=5)}
    first, second = Gateway(1, limits), Gateway(2, limits)
    for number in range(5000):
        first.ledger.observe(1000.0, f"jwt:{number}", "b1", 1)
    second.ask(1000.0, [first])
    assert second.ledger.days.size == 5000
    assert second.ledger.gateways.peers[first.name].complete
    assert not first.ledger.build_report(1000.0, first.ledger.epoch, first.ledger.version, complete=False).records


def test_a_window_adds_use_in_the_same_second() -> None:
    window = Window()
    window.add(10.2, Used(1, 5))
    window.add(10.9, Used(2, 0))
    window.add(9.0, Used(1, 1))  # a clock went back
    assert (tuple(window.slots), window.used(70.9), window.used(71.0)) == (((10, Used(4, 6)),), Used(4, 6), Used())


@pytest.mark.parametrize(("back", "total"), [(MIDNIGHT - 10, Used()), (MIDNIGHT - 3601, Used(3))])
def test_a_clock_that_was_a_day_ahead_spoils_the_day_only_until_it_is_set(back: float, total: Used) -> None:
    first, second = (Gateway(number, {"a": Limits(requests_day=5)}) for number in (1, 2))
    first.ledger.count(1000.0, "a", Used(3))
    second.ask(1000.0, [first])
    first.ledger.begin_day(TOMORROW)
    assert first.ledger.days.total("a") == Used()
    first.ledger.begin_day(back)
    first.ask(1001.0, [second])
    assert first.ledger.days.total("a") == total


def test_a_saved_day_that_has_not_begun_is_not_restored() -> None:
    one = Gateway(1, {"a": Limits(requests_day=5)})
    one.ledger.begin_day(TOMORROW)
    one.ledger.count(1000.0, "a", Used(3))
    again = restarted(one, 1001.0)
    assert (again.days.day, again.days.total("a")) == (DAY, Used())


def one_sided(limit: Limits) -> tuple[Gateway, Gateway, float]:
    """Two gateways. The second can no longer reach the first, but the first still reaches the second."""
    first, second = Gateway(1, {"a": limit}), Gateway(2, {"a": limit})
    for one in (first, second):
        one.send("a")
    now = settle([first, second], 1000.0)
    second.ledger.mark_silent(first.name)
    return first, second, now


@pytest.mark.parametrize("limit", [Limits(requests=30), Limits(requests=3), Limits(requests_day=30)])
@pytest.mark.parametrize("seed", range(10))
def test_a_gateway_that_is_not_heard_accepts_its_equal_part(limit: Limits, seed: int) -> None:
    first, second, now = one_sided(limit)
    chance = random.Random(seed)
    passed = {first.name: 0, second.name: 0}
    for _unused in range(400):
        now += 0.05
        one = chance.choice([first, second])
        passed[one.name] += one.send("a") is True
        one.observe(now)
        if one is first:
            first.ask(now, [second])
        one.grant(now, [first.name if one is second else second.name])
    number = limit.requests or limit.requests_day or 0
    assert passed == {first.name: number - number // 2, second.name: number // 2}


@pytest.mark.parametrize("seed", [*range(15), 174, 282])
@pytest.mark.parametrize("limit", [Limits(requests_day=60), Limits(requests_day=7)])
def test_links_that_fail_and_return_in_each_direction_let_no_request_pass_twice(limit: Limits, seed: int) -> None:
    chance = random.Random(seed)
    gateways = three({"a": limit})
    now, passed = settle(gateways, 1000.0), 0
    broken: set[tuple[str, str]] = set()
    for step in range(2500):
        now += 0.002
        if step % 97 == 0:
            broken = {(a.name, b.name) for a in gateways for b in gateways if chance.random() < 0.3}
        one = chance.choice(gateways)
        other, action = chance.choice(others(gateways, one)), chance.random()
        if action < 0.5:
            passed += one.send("a") is True
        elif action < 0.75 and (one.name, other.name) in broken:
            one.ledger.mark_silent(other.name)
        elif action < 0.75:
            one.ask(now, [other])
        else:
            one.observe(now)
            one.grant(now, [gateway.name for gateway in others(gateways, one)])
    assert passed <= (limit.requests_day or 0)


def test_separated_gateways_accept_no_more_than_the_limit_also_if_it_is_smaller_than_their_number() -> None:
    for limit in (1, 2, 3, 5, 31):
        gateways = three({"a": Limits(requests=limit)})
        passed = 0
        for step in range(100):
            for one in gateways:
                passed += one.send("a") is True
                now = 1000.0 + step / 10
                one.observe(now)
                one.grant(now, [other.name for other in others(gateways, one)])
        assert passed == limit


def test_a_terminated_gateway_reserves_nothing() -> None:
    gateways = three({"a": Limits(requests_day=30)})
    for one in gateways:
        one.send("a")
    now = settle(gateways, 1000.0)
    assert gateways[2].send("a")
    now = settle(gateways, now)
    rest = gateways[:2]
    for one in rest:
        one.ledger.mark_silent(gateways[2].name)
    passed, _now = spend(rest, "a", now, 60)
    assert passed == 29


def test_a_report_during_grants_is_not_acknowledged_before_the_next_ones() -> None:
    first, second = (Gateway(number, {"a": Limits(requests=30)}) for number in (1, 2))
    first.send("a")
    settle([first, second], 1000.0)
    granted = first.ledger.build_grants(1001.0, MIDNIGHT, ["a"])
    before = first.ledger.gateways.peers[second.name].version
    second.ledger.count(1001.0, "a", Used(1))
    first.ask(1001.0, [second])
    first.ledger.confirm_grants(granted)
    assert first.ledger.build_report(1001.0, "", 0, asker=second.ledger.epoch, complete=True).acknowledged == before


def test_a_grant_that_may_be_lost_is_sent_again() -> None:
    one = Gateway(1, {"a": Limits(requests=30)})
    one.send("a")
    one.round(1000.0, [])
    one.ledger.limits = {"a": Limits(requests=20)}
    lost = one.ledger.build_grants(1000.0, MIDNIGHT, ["a"])
    one.ledger.limits = {"a": Limits(requests=30)}
    assert lost
    assert one.ledger.holders["a"].until == (30, 0), "HAProxy may have the old one or the new one"
    assert one.ledger.build_grants(1000.0, MIDNIGHT, ["a"])


def test_a_round_processes_changed_holders_and_some_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_MOST_CHANGED", 10)
    monkeypatch.setattr(ledger, "_MOST_OTHERS", 3)
    one = Gateway(1, {"jwt:*": Limits(requests=5)})
    for number in range(30):
        one.ledger.observe(1000.0, f"jwt:{number}", "b1", 1)
    first = [one.ledger.next_holders() for _unused in range(3)]
    assert max(map(len, first)) <= 13
    assert {f"jwt:{number}" for number in range(30)} <= set().union(*first), (
        "the changed ones of a round wait no longer"
    )
    one.ledger.observe(1000.1, "jwt:7", "b1", 2)
    later = [one.ledger.next_holders() for _unused in range(10)]
    assert "jwt:7" in later[0]
    assert max(map(len, later[1:])) <= 3
    assert len(set().union(*later)) == 30


def test_holders_of_other_gateways_take_no_turn() -> None:
    one, other = Gateway(1, {"jwt:*": Limits(requests=5)}), Gateway(2, {"jwt:*": Limits(requests=5)})
    for number in range(9):
        other.ledger.observe(1000.0, f"jwt:{number}", "b1", 1)
    one.ledger.observe(1000.0, "jwt:3", "b1", 1)
    one.ask(1000.0, [other])
    assert list(one.ledger._touched) == ["jwt:3"]


def test_the_use_of_a_silent_gateway_is_relayed_to_the_others() -> None:
    gateways = three({"a": Limits(requests_day=50)})
    one, two, silent = gateways
    for gateway in gateways:
        gateway.send("a")
    now = settle(gateways, 1000.0)
    used = one.ledger.days.total("a").requests
    assert silent.send("a")
    silent.observe(now)
    two.ask(now, [silent])
    one.ask(now, [two])
    assert one.ledger.days.total("a").requests == used
    two.ledger.mark_silent(silent.name)
    one.ask(now, [two])
    assert one.ledger.days.total("a").requests == used + 1


def test_a_refused_request_is_processed_but_not_reported_to_other_gateways() -> None:
    one = Gateway(1, {"a": Limits(requests=5)})
    one.ledger.observe(1000.0, "a", "b1", 5, until=(5, 0))
    one.ledger.next_holders()
    version = one.ledger.version
    one.ledger.observe(1000.1, "a", "b1", 5, until=(5, 0))
    assert one.ledger.version == version
    assert list(one.ledger._touched) == ["a"]


def test_a_full_minute_shows_when_it_has_room_again() -> None:
    one = Gateway(1, {"a": Limits(requests=2)})
    one.send("a")
    one.round(1000.0, [])
    assert one.send("a")
    one.round(1000.1, [])
    assert one.send("a")
    assert one.grants["a"].minute_frees == 1061


def test_a_restarted_haproxy_holds_nothing() -> None:
    one, other = (Gateway(number, {"a": Limits(requests=30)}) for number in (1, 2))
    one.send("a")
    settle([one, other], 1000.0)
    assert one.ledger.holders["a"].reserved[0] > 0
    one.ledger.observe(1001.0, "a", "b2", 0)
    assert one.ledger.holders["a"].reserved == (0, 0)
