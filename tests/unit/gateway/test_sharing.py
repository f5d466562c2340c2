"""Shares of limits: together never more than the limit, and where they are needed."""

from __future__ import annotations

import random

import pytest

from slipway.gateway.keys import ALL, Limited, Limits
from slipway.gateway.sharing import LAST, LEASE_SECONDS, NOTHING, Leader, Share, Standing

THREE = ("a", "b", "c")
LIMITS = Limited({"k": Limits(requests=300)})
LONG = LEASE_SECONDS + 1


def standing(used: int = 0, share: int = 0, demand: float = 0.0, last: int = 0) -> Standing:
    return Standing((used, *NOTHING[1:]), (share, *NOTHING[1:LAST], last), (0, 0), demand)


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
        told = leader.hear(now, self.name, {"k": own}, LIMITS, gateways)["k"]
        self.share, self.rest = told.share, told.rest[0]


def settled(*names: str) -> tuple[Leader, list[Gateway], float]:
    """Gateways that have told each other where they stand."""
    leader, gateways, now = Leader(0.0), [Gateway(name) for name in names], 0.0
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


@pytest.mark.parametrize("seed", range(20))
def test_whoever_is_asked_and_whenever_they_report_no_more_is_used_than_the_limit(seed: int) -> None:
    chance = random.Random(seed)
    leader, gateways, now = settled(*THREE)
    for _unused in range(600):
        now += 0.05
        gateway = chance.choice(gateways)
        if chance.random() < 0.6:
            gateway.use(chance.randint(1, 40))
        else:
            gateway.report(leader, now)
        assert sum(one.used for one in gateways) <= 300
    for _unused in range(30):
        for one in gateways:
            now += 0.1
            one.use(40)
            one.report(leader, now)
    assert sum(one.used for one in gateways) == 300, "nothing of it is lost"


def test_a_gateway_is_told_of_keys_that_others_have_even_where_it_has_nothing_to_say_of_them() -> None:
    leader = Leader(0.0)
    leader.hear(0.1, "a", {}, LIMITS, ("a", "b"))
    leader.hear(0.2, "b", {"k": standing()}, LIMITS, ("a", "b"))
    leader.hear(0.3, "b", {"k": standing(share=150)}, LIMITS, ("a", "b"))
    assert leader.hear(0.4, "a", {}, LIMITS, ("a", "b"))["k"].rest[0] == 150


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
    leader = Leader(0.0)
    mine = standing(share=40, demand=9)
    first = leader.hear(0.1, "b", {"k": mine}, LIMITS, THREE)["k"]
    assert (first.share[0], first.rest[0]) == (40, 1), "a request waits rather than that it is refused"
    leader.hear(0.2, "a", {"k": standing(share=250)}, LIMITS, THREE)
    leader.hear(0.3, "c", {"k": standing(share=10)}, LIMITS, THREE)
    assert leader.hear(0.4, "b", {"k": mine}, LIMITS, THREE)["k"].share[0] <= 300 - 250


def day(used: int, spent: int, share: int = 0) -> Standing:
    return Standing((0, 0, 0, 0, used, 0), (0, 0, 0, 0, share, 0), (0, spent), 0.0)


def test_what_a_day_has_spent_outlives_the_counters_of_a_gateway_and_its_leader() -> None:
    limits = Limited({"k": Limits(tokens_day=1000)})
    leader = Leader(0.0)
    leader.remember("20261123", {})
    told = leader.hear(0.1, "a", {"k": day(700, 600)}, limits, ("a",))["k"]
    assert told.spent == (0, 600), "what is only reserved is not spent"
    told = leader.hear(0.2, "a", {"k": day(0, 0)}, limits, ("a",))["k"]
    assert told.share[4] == 400, "its HAProxy has started anew"
    following = Leader(10.0)
    following.remember(*("20261123", {"k": told.spent}))
    assert following.hear(10.1, "b", {"k": day(0, 0)}, limits, ("b",))["k"].share[4] == 400
    following.remember("20261122", {"k": (0, 999)})
    assert following.spent() == ("20261123", {"k": (0, 600)}), "an older day is over"
    following.remember("20261124", {})
    assert following.hear(10.2, "b", {"k": day(0, 0)}, limits, ("b",))["k"].share[4] == 1000


def test_a_share_is_written_as_the_rules_read_it() -> None:
    assert Share((1, 2, 3, 4, 5, 1), (6, 7, 8, 9, 10)).text == "1:2:3:4:5:1:6:7:8:9:10"


OWNERS = Limited({ALL: Limits(requests=61)}, {"jwt:named"})
OWNER = "jwt:alice"


class OwnersGateway:
    """One that knows an owner's share, or else that of all owners; it tells of him while it has one or needs more."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.used = 0
        self.demand = 0.0
        self.shares = {ALL: NOTHING}

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
        told = leader.hear(now, self.name, said, OWNERS, gateways)
        self.shares = {ALL: self.shares[ALL]} | {key: one.share for key, one in told.items()}
        self.demand = 0.0


def owners_gateways() -> tuple[Leader, list[OwnersGateway], float]:
    leader, gateways, now = Leader(0.0), [OwnersGateway(name) for name in THREE], 0.0
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
    for _unused in range(300):
        now += 0.05
        gateway = chance.choice(gateways)
        if chance.random() < 0.6:
            gateway.use(chance.randint(1, 8))
        else:
            gateway.report(leader, now)
        assert sum(one.used for one in gateways) <= 61
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


def test_an_owner_with_a_record_of_his_own_has_no_part_in_the_limits_of_all() -> None:
    told = Leader(0.0).hear(0.1, "a", {"jwt:named": standing(demand=1.0)}, OWNERS, ("a",))
    assert told == {}


def test_an_owner_who_needs_more_than_the_share_of_all_is_told_what_the_others_have_left_of_theirs() -> None:
    leader, gateways, now = owners_gateways()
    said = Standing((20, *NOTHING[1:]), gateways[1].share, (0, 0), 1.0)
    told = leader.hear(now + 0.1, "b", {OWNER: said}, OWNERS, THREE)[OWNER]
    assert (told.share[0], told.rest[0]) == (20, 41), "so his request waits rather than that it is refused"
    assert OWNER in leader.hear(now + 0.2, "c", {}, OWNERS, THREE), "and the others are told to keep to less"
