"""Shares of limits: together never more than the limit, and where they are needed."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from slipway.gateway.keys import ALL, Limited, Limits
from slipway.gateway.sharing import LAST, LEASE_SECONDS, MOST_OWNERS, NOTHING, Leader, Share, Standing, Told

THREE = ("a", "b", "c")
LIMITS = Limited({"k": Limits(requests=300)})
LONG = LEASE_SECONDS + 1
DAY = "20261123"


def standing(used: int = 0, share: int = 0, demand: float = 0.0, last: int = 0) -> Standing:
    return Standing((used, *NOTHING[1:]), (share, *NOTHING[1:LAST], last), (0, 0), demand)


def hear(
    leader: Leader,
    now: float,
    name: str,
    standings: dict[str, Standing],
    limits: Limited,
    gateways: tuple[str, ...],
    day: str = DAY,
) -> dict[str, Share]:
    return leader.hear(now, name, Told(day, standings), limits, gateways)


class Gateway:
    """One that keeps to the share that it was told last, and uses of it what it is asked for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.used = 0
        self.share = NOTHING
        self.demand = 0.0
        self.rest = 0

    def use(self, requests: int) -> None:
        self.demand = requests
        self.used += max(min(requests, self.share[0] - self.used), 0)

    def report(self, leader: Leader, now: float, gateways: tuple[str, ...] = THREE) -> None:
        own = Standing((self.used, *NOTHING[1:]), self.share, (0, 0), self.demand)
        told = hear(leader, now, self.name, {"k": own}, LIMITS, gateways)["k"]
        self.share, self.rest = told.share, told.rest[0]


def settled(*names: str) -> tuple[Leader, list[Gateway], float]:
    """Gateways that have told each other where they stand."""
    leader, gateways, now = Leader(), [Gateway(name) for name in names], 0.0
    for _unused in range(5):
        for one in gateways:
            now += 0.1
            one.report(leader, now, names)
    return leader, gateways, now


def test_without_requests_each_has_an_equal_share_and_knows_what_the_others_have() -> None:
    _leader, gateways, _now = settled(*THREE)
    assert [one.share[0] for one in gateways] == [100] * 3
    assert [one.rest for one in gateways] == [200] * 3
    assert [one.share[LAST] for one in gateways].count(1) == 1, "one alone may take more than is left"


def test_the_one_that_is_asked_gets_what_the_others_do_not_need() -> None:
    leader, gateways, now = settled(*THREE)
    for _unused in range(20):
        gateways[1].use(10)
        for one in gateways:
            now += 0.1
            one.report(leader, now)
    assert gateways[1].used == 200, "it was never short of a share"
    assert gateways[1].share[LAST] == 1


def use_or_report_by_chance(
    chance: random.Random,
    leader: Leader,
    gateways: Sequence[Gateway],
    now: float,
    *,
    times: int,
    most: int,
    limit: int,
) -> float:
    """Each time one gateway is asked for up to ``most`` requests, or reports: never more than the limit is used.
    Returns when it ended."""
    for _unused in range(times):
        now += 0.05
        gateway = chance.choice(gateways)
        if chance.random() < 0.6:
            gateway.use(chance.randint(1, most))
        else:
            gateway.report(leader, now)
        assert sum(one.used for one in gateways) <= limit
    return now


@pytest.mark.parametrize("seed", range(20))
def test_whoever_is_asked_and_whenever_they_report_no_more_is_used_than_the_limit(seed: int) -> None:
    chance = random.Random(seed)
    leader, gateways, now = settled(*THREE)
    now = use_or_report_by_chance(chance, leader, gateways, now, times=600, most=40, limit=300)
    for _unused in range(30):
        for one in gateways:
            now += 0.1
            one.use(40)
            one.report(leader, now)
    assert sum(one.used for one in gateways) == 300, "nothing of it is lost"


def test_a_gateway_is_told_of_keys_that_others_have_even_where_it_has_nothing_to_say_of_them() -> None:
    leader = Leader()
    hear(leader, 0.1, "a", {}, LIMITS, ("a", "b"))
    hear(leader, 0.2, "b", {"k": standing()}, LIMITS, ("a", "b"))
    hear(leader, 0.3, "b", {"k": standing(share=150)}, LIMITS, ("a", "b"))
    assert hear(leader, 0.4, "a", {}, LIMITS, ("a", "b"))["k"].rest[0] == 150


def test_nobody_gets_more_before_the_other_has_said_that_it_keeps_to_less() -> None:
    leader, (a, b), now = settled("a", "b")
    two = ("a", "b")
    a.demand = 50
    a.report(leader, now + 0.1, two)
    assert a.share[0] == 150, "b may have used its share meanwhile"
    b.used = 150
    b.report(leader, now + 0.2, two)
    a.report(leader, now + 0.3, two)
    assert a.share[0] + b.used <= 300


def test_what_was_used_beyond_a_limit_is_taken_from_all() -> None:
    leader, gateways, now = settled(*THREE)
    gateways[0].used = 360
    for _unused in range(3):
        for one in gateways:
            now += 0.1
            one.report(leader, now)
    assert sum(max(one.share[0] - one.used, 0) for one in gateways) == 0


def test_for_one_that_is_silent_its_part_is_kept_and_a_lone_gateway_has_no_more_than_that() -> None:
    leader, gateways, now = settled(*THREE)
    now += LONG
    for _unused in range(4):
        now += 0.1
        gateways[0].demand = 10
        gateways[0].report(leader, now)
    assert gateways[0].share[0] == 100


def test_one_that_went_leaves_its_part_to_the_others_but_what_it_used_counts_on() -> None:
    leader, gateways, now = settled(*THREE)
    gateways[2].use(60)
    gateways[2].report(leader, now)
    now += LONG
    for _unused in range(6):
        for one in gateways[:2]:
            now += 0.1
            one.report(leader, now, ("a", "b"))
    assert sum(one.share[0] for one in gateways[:2]) == 240


def test_a_new_leader_raises_nothing_before_it_knows_what_the_others_have() -> None:
    leader = Leader()
    mine = standing(share=40, demand=9)
    first = hear(leader, 0.1, "b", {"k": mine}, LIMITS, THREE)["k"]
    assert (first.share[0], first.rest[0]) == (40, 1), "a request waits rather than that it is refused"
    hear(leader, 0.2, "a", {"k": standing(share=250)}, LIMITS, THREE)
    hear(leader, 0.3, "c", {"k": standing(share=10)}, LIMITS, THREE)
    assert hear(leader, 0.4, "b", {"k": mine}, LIMITS, THREE)["k"].share[0] <= 300 - 250


def test_for_one_that_appears_no_share_is_raised_before_it_has_told_its_own() -> None:
    leader, (a, _b), now = settled("a", "b")
    hear(leader, now, "b", {"k": standing(share=20)}, LIMITS, THREE)
    for number in range(20):
        a.demand = 50
        a.report(leader, now + 0.1 * number, THREE)
    assert a.share[0] == 150, "the new one may have shares of another leader"
    hear(leader, now + 2, "c", {"k": standing(share=20)}, LIMITS, THREE)
    a.report(leader, now + 2.1, THREE)
    assert a.share[0] == 260


def day(used: int, spent: int, share: int = 0) -> Standing:
    return Standing((0, 0, 0, 0, used, 0), (0, 0, 0, 0, share, 0), (0, spent), 0.0)


def test_what_a_day_has_spent_outlives_the_counters_of_a_gateway_and_its_leader() -> None:
    limits = Limited({"k": Limits(tokens_day=1000)})
    leader = Leader()
    leader.remember(DAY, {})
    told = hear(leader, 0.1, "a", {"k": day(700, 600)}, limits, ("a",))["k"]
    assert told.spent == (0, 600), "what is only reserved is not spent"
    told = hear(leader, 0.2, "a", {"k": day(0, 0)}, limits, ("a",))["k"]
    assert told.share[4] == 400, "its HAProxy has started anew"
    following = Leader()
    following.remember(*(DAY, {"k": told.spent}))
    assert hear(following, 10.1, "b", {"k": day(0, 0)}, limits, ("b",))["k"].share[4] == 400
    following.remember("20261122", {"k": (0, 999)})
    assert following.spent() == (DAY, {"k": (0, 600)}), "an older day is over"
    assert hear(following, 10.2, "b", {"k": day(0, 0)}, limits, ("b",), "20261124")["k"].share[4] == 1000


def test_a_days_use_ends_with_the_day_whoever_notices_first() -> None:
    limits, two, tomorrow = Limited({"k": Limits(tokens_day=1000)}), ("a", "b"), "20261124"
    leader = Leader()
    hear(leader, 0.1, "a", {"k": day(300, 300)}, limits, two)
    hear(leader, 0.2, "b", {"k": day(400, 400)}, limits, two)
    hear(leader, 0.3, "c", {"k": day(200, 200)}, limits, (*two, "c"))
    hear(leader, 4.0, "a", {"k": day(300, 300)}, limits, two)
    told = hear(leader, 4.1, "a", {"k": day(5, 5)}, limits, two, tomorrow)["k"]
    assert told.spent == (0, 5), "neither what others counted of the day before, nor one that is gone"
    late = hear(leader, 4.2, "b", {"k": day(450, 450)}, limits, two)["k"]
    assert late.spent == (0, 5), "its clock is late: what it counted is of the day before"
    shares = [
        hear(leader, 4.2 + number, name, {"k": day(0, 0)}, limits, two, tomorrow)["k"].share[4]
        for number in (1, 2)
        for name in two
    ]
    assert sum(shares[2:]) == 995, "a day begins with all of its budget, of which 5 are spent"


def test_a_budget_is_spent_once_however_often_haproxy_starts_anew() -> None:
    limits = Limited({"k": Limits(tokens_day=1000)})
    leader = Leader()

    def left(*counters: int) -> int:
        """What is left to a gateway that counted these, one after the other."""
        for used in counters:
            told = hear(leader, 0.1, "a", {"k": day(used, used)}, limits, ("a",))["k"]
        return max(told.share[4] - used, 0)

    assert left(600) == 400
    assert left(0, 250) == 150, "a HAProxy that has started anew"
    assert left(0, 100) == 50, "and another"
    assert left(400) == 0
    assert leader.spent() == (DAY, {"k": (0, 1250)})


def test_what_is_spent_is_counted_once_when_gateways_leave_and_come_back_and_leaders_change() -> None:
    limits, two = Limited({"k": Limits(tokens_day=1000)}), ("a", "b")
    leader = Leader()
    hear(leader, 0.1, "a", {"k": day(300, 300)}, limits, two)
    hear(leader, 0.2, "b", {"k": day(200, 200)}, limits, two)
    hear(leader, 9.0, "a", {"k": day(300, 300)}, limits, ("a",))
    hear(leader, 9.1, "b", {"k": day(210, 210)}, limits, two)
    assert leader.spent() == (DAY, {"k": (0, 510)}), "it was gone for a moment"
    following = Leader()
    told = Told(DAY, {"k": day(310, 310)}, {"k": (0, 900)})
    following.hear(20.1, "a", told, limits, two)
    assert following.spent() == (DAY, {"k": (0, 900)}), "the first report to a leader says where counters stand"
    following.hear(20.15, "b", Told(DAY, {"k": day(210, 210)}, {"k": (0, 900)}), limits, two)
    assert following.spent() == (DAY, {"k": (0, 900)}), "of each gateway"
    following.hear(20.2, "a", told._replace(standings={"k": day(320, 320)}), limits, two)
    assert following.spent() == (DAY, {"k": (0, 910)})


def test_what_the_leader_had_used_counts_on_when_it_is_gone() -> None:
    leader, (a, b), now = settled("a", "b")
    a.use(100)
    a.report(leader, now, ("a", "b"))
    following = Leader()
    following.mourn(now, "a", leader.used_by("a", ["k"]))
    for number in range(1, 50):
        b.demand = 50
        b.report(following, now + number, ("b",))
    assert b.share[0] == 200
    b.report(following, now + 61, ("b",))
    assert b.share[0] == 300, "a minute later"


def test_what_a_gateway_does_not_tell_again_still_counts() -> None:
    leader, (a, b), now = settled("a", "b")
    a.use(100)
    a.report(leader, now, ("a", "b"))
    for number in range(1, 50):
        leader.hear(now + number / 10, "a", Told(DAY, {}, whole=False), LIMITS, ("a", "b"))
        b.demand = 50
        b.report(leader, now + number / 10, ("a", "b"))
    assert 0 < b.share[0] <= 300 - a.share[0]


def test_a_gateway_that_has_not_told_all_gets_no_share_and_nobody_gets_what_it_may_have() -> None:
    leader, partial = Leader(), Told(DAY, {"k": standing(used=10, share=150, demand=5.0)}, whole=False)
    for number in range(20):
        now = number / 10
        assert leader.hear(now, "a", partial, LIMITS, ("a", "b")) == {}
        told = hear(leader, now, "b", {"k": standing(share=100, demand=5.0)}, LIMITS, ("a", "b"))["k"]
        assert told.share[0] == 100
    assert leader.hear(2.0, "a", partial._replace(whole=True), LIMITS, ("a", "b"))["k"].share[0] >= 150


def test_an_owners_budget_of_a_day_is_spent_once_though_he_is_told_of_now_and_then() -> None:
    limits = Limited({ALL: Limits(tokens_day=1000)})
    leader, common = Leader(), {ALL: standing()}
    hear(leader, 0.0, "a", {**common, OWNER: day(300, 300)}, limits, ("a",))
    hear(leader, 0.1, "a", common, limits, ("a",))
    assert hear(leader, 0.2, "a", common, limits, ("a",))[OWNER].share[4] == 700, "of what he has spent nothing is left"
    told = hear(leader, 0.3, "a", {**common, OWNER: day(350, 350)}, limits, ("a",))[OWNER]
    assert (told.spent, told.share[4]) == ((0, 350), 1000)


def test_of_a_limit_that_a_key_does_not_have_nothing_is_said() -> None:
    told = hear(Leader(), 0.0, "a", {"k": standing()}, Limited({"k": Limits(requests=9, tokens_day=5)}), ("a",))["k"]
    assert told.text == "9:-:-:-:5:1:0:-:-:-:0"
    assert told.knows(Limits(requests=9))
    assert not told.knows(Limits(requests=9, at_once=1)), "it has just got this limit"


def test_a_share_is_written_as_the_rules_read_it() -> None:
    assert Share((1, 2, 3, 4, 5, 1), (6, 7, 8, 9, 10)).text == "1:2:3:4:5:1:6:7:8:9:10"


OWNERS = Limited({ALL: Limits(requests=61)}, {"jwt:named"})
OWNER = "jwt:alice"


class OwnersGateway:
    """One that knows an owner's share, or else that of all owners; it tells of him while it has one or needs more.

    It tells what changed, and all now and then.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.used = 0
        self.demand = 0.0
        self.shares = {ALL: NOTHING}
        self.told: dict[str, Standing] = {}
        self.told_at = -LONG

    @property
    def share(self) -> tuple[int, ...]:
        return self.shares.get(OWNER, self.shares[ALL])

    def use(self, requests: int) -> None:
        self.demand = requests
        self.used += max(min(requests, self.share[0] - self.used), 0)

    def report(self, leader: Leader, now: float, gateways: tuple[str, ...] = THREE) -> None:
        said = {ALL: Standing(NOTHING, self.shares[ALL], (0, 0), 0.0)}
        if OWNER in self.shares or (self.demand and 2 * self.used >= self.share[0]):
            said[OWNER] = Standing((self.used, *NOTHING[1:]), self.share, (0, 0), self.demand)
        whole = now - self.told_at >= LEASE_SECONDS - 1
        changed = {key: one for key, one in said.items() if whole or self.told.get(key) != one}
        answer = leader.hear(now, self.name, Told(DAY, changed, {}, whole), OWNERS, gateways)
        kept = {key: one for key, one in self.shares.items() if key == ALL or key not in changed}
        self.shares = kept | {key: one.share for key, one in answer.items()}
        self.told, self.demand = said, 0.0
        if whole:
            self.told_at = now


def owners_gateways() -> tuple[Leader, list[OwnersGateway], float]:
    leader, gateways, now = Leader(), [OwnersGateway(name) for name in THREE], 0.0
    for _unused in range(50):
        for one in gateways:
            now += 0.1
            one.report(leader, now)
    return leader, gateways, now


def test_an_owner_whom_no_record_names_has_an_equal_part_at_each_gateway_before_anybody_tells_of_him() -> None:
    _leader, gateways, _now = owners_gateways()
    assert [one.share[0] for one in gateways] == [21, 20, 20]


@pytest.mark.parametrize("seed", range(20))
def test_whichever_gateways_an_owner_asks_he_gets_his_limit_and_no_more(seed: int) -> None:
    chance = random.Random(seed)
    leader, gateways, now = owners_gateways()
    now = use_or_report_by_chance(chance, leader, gateways, now, times=300, most=8, limit=61)
    for _unused in range(30):
        for one in gateways:
            now += 0.1
            gateways[0].use(8)
            one.report(leader, now)
        assert sum(one.used for one in gateways) <= 61
    assert sum(one.used for one in gateways) == 61, "also one that he asks alone"


def test_an_owner_who_is_idle_again_has_the_share_of_all_and_costs_nothing() -> None:
    leader, gateways, now = owners_gateways()
    for _unused in range(20):
        gateways[1].use(3)
        for one in gateways:
            now += 0.1
            one.report(leader, now)
    assert all(OWNER in one.shares for one in gateways)
    assert gateways[1].used > 20
    for one in gateways:
        one.used = 5 * (one is gateways[1])  # most of the minute is over
    for _unused in range(100):
        for one in gateways:
            now += 0.2
            one.report(leader, now)
    assert [one.shares for one in gateways] == [{ALL: one.share} for one in gateways]
    assert [one.share[0] for one in gateways] == [21, 20, 20]
    assert all(one.granted.keys() == {ALL} for one in leader._members.values())


def test_owners_have_shares_of_their_own_up_to_a_number_over_all_gateways_and_others_after_them() -> None:
    leader, said = Leader(), {ALL: standing()}
    first = {f"jwt:{number}": standing(used=30, demand=1.0) for number in range(MOST_OWNERS)}
    hear(leader, 0.0, "a", {**said, **first}, OWNERS, ("a", "b"))
    told = hear(leader, 0.1, "b", {**said, OWNER: standing(used=30, demand=1.0)}, OWNERS, ("a", "b"))
    assert told.keys() == {ALL, *first}
    told = hear(leader, 20.0, "b", {**said, OWNER: standing(used=30, demand=1.0)}, OWNERS, ("a", "b"))
    assert told.keys() == {ALL, OWNER}


def test_an_owner_with_a_record_of_his_own_has_no_part_in_the_limits_of_all() -> None:
    told = hear(Leader(), 0.1, "a", {"jwt:named": standing(demand=1.0)}, OWNERS, ("a",))
    assert told == {}


def test_an_owner_who_needs_more_than_the_share_of_all_is_told_what_the_others_have_left_of_theirs() -> None:
    leader, gateways, now = owners_gateways()
    said = Standing((20, *NOTHING[1:]), gateways[1].share, (0, 0), 1.0)
    told = hear(leader, now + 0.1, "b", {OWNER: said}, OWNERS, THREE)[OWNER]
    assert (told.share[0], told.rest[0]) == (20, 41), "so his request waits rather than that it is refused"
    assert OWNER in hear(leader, now + 0.2, "c", {}, OWNERS, THREE), "and the others are told to keep to less"
