"""Handovers of IDs between Services, and their Events."""

from __future__ import annotations

from slipway.gateway.routing.handovers import Handover, Handovers, Holder
from slipway.gateway.routing.table import Backend, RoutingTable
from slipway.serving.routing.route import Route

UIDS = {"bank:advisor": "1", "tenant:thief": "2"}


def table(*asking: str, **models: str) -> RoutingTable:
    """`asking`: backends that all claim ``advisor``; `models`: ID -> backend."""
    backends = {name: Backend(*name.split(":"), (), Route(("advisor",))) for name in asking}
    return RoutingTable(backends, models, {}, ())


BOTH = ("bank:advisor", "tenant:thief")
THEFT = Handover(Holder("bank", "advisor", "1"), Holder("tenant", "thief", "2"), ("advisor",))


def test_the_first_table_and_an_unchanged_one_have_no_handovers() -> None:
    handovers = Handovers()
    for _unused in range(2):
        assert handovers.observe(table(*BOTH, advisor="bank:advisor"), UIDS) == []


def test_an_id_that_moves_to_another_service_is_reported_for_both() -> None:
    handovers = Handovers()
    handovers.observe(table(*BOTH, advisor="bank:advisor"), UIDS)
    moved = handovers.observe(table("tenant:thief", advisor="tenant:thief"), {"tenant:thief": "2"})
    assert moved == [THEFT]
    assert "advisor are now routed to Service tenant/thief" in moved[0].message_to_loser()
    assert "instead of Service bank/advisor" in moved[0].message_to_winner()


def test_an_id_without_a_service_is_remembered() -> None:
    handovers = Handovers()
    handovers.observe(table("bank:advisor", advisor="bank:advisor"), UIDS)
    assert handovers.observe(table(), {}) == []
    assert handovers.observe(table("tenant:thief", advisor="tenant:thief"), UIDS) == [THEFT]


def test_a_recreated_service_whose_id_was_taken_is_reported_once() -> None:
    handovers = Handovers()
    handovers.observe(table("bank:advisor", advisor="bank:advisor"), UIDS)
    handovers.observe(table("tenant:thief", advisor="tenant:thief"), UIDS)
    again = UIDS | {"bank:advisor": "3"}
    moved = handovers.observe(table(*BOTH, advisor="tenant:thief"), again)
    assert moved == [THEFT._replace(loser=Holder("bank", "advisor", "3"))]
    assert handovers.observe(table(*BOTH, advisor="tenant:thief"), again) == []
    back = handovers.observe(table(*BOTH, advisor="bank:advisor"), again)
    assert [(handover.loser.key, handover.winner.key) for handover in back] == [("tenant/thief", "bank/advisor")]


def test_a_recreated_service_with_its_old_id_is_not_reported() -> None:
    handovers = Handovers()
    handovers.observe(table("bank:advisor", advisor="bank:advisor"), UIDS)
    handovers.observe(table(), {})
    assert handovers.observe(table("bank:advisor", advisor="bank:advisor"), {"bank:advisor": "9"}) == []


def test_many_ids_of_one_pair_are_one_handover_with_a_short_message() -> None:
    handovers = Handovers()
    names = [f"m{number}" for number in range(64)]
    handovers.observe(table(*BOTH, **dict.fromkeys(names, "bank:advisor")), UIDS)
    moved = handovers.observe(table(*BOTH, **dict.fromkeys(names, "tenant:thief")), UIDS)
    assert len(moved) == 1
    assert "m0, m1, m2 and 61 more" in moved[0].message_to_loser()


def test_a_namespace_that_takes_and_leaves_ids_cannot_have_those_of_others_forgotten() -> None:
    handovers = Handovers()
    handovers.observe(table("bank:advisor", advisor="bank:advisor"), UIDS)
    for start in range(0, 30_000, 1000):
        names = [f"x{number}" for number in range(start, start + 1000)]
        handovers.observe(table("tenant:thief", **dict.fromkeys(names, "tenant:thief")), UIDS)
    assert len(handovers._last) < 3000
    assert handovers.observe(table("tenant:thief", advisor="tenant:thief"), UIDS) == [THEFT]
