"""Who is told that an id leads elsewhere."""

from __future__ import annotations

from slipway.gateway.routing.handovers import Handover, Handovers, Holder
from slipway.gateway.routing.table import Backend, RoutingTable
from slipway.serving.routing.route import Route

UIDS = {"bank:advisor": "1", "tenant:thief": "2"}


def table(*asking: str, **models: str) -> RoutingTable:
    """`asking`: backends, all of which ask for ``advisor``; models: id -> backend."""
    backends = {name: Backend(*name.split(":"), (), Route(("advisor",))) for name in asking}
    return RoutingTable(backends, models, {}, ())


BOTH = ("bank:advisor", "tenant:thief")
THEFT = Handover(Holder("bank", "advisor", "1"), Holder("tenant", "thief", "2"), ("advisor",))


def test_the_first_table_and_an_unchanged_one_tell_nothing() -> None:
    seen = Handovers()
    for _unused in range(2):
        assert seen.observe(table(*BOTH, advisor="bank:advisor"), UIDS) == []


def test_an_id_that_passes_to_another_service_is_told_of_both() -> None:
    seen = Handovers()
    seen.observe(table(*BOTH, advisor="bank:advisor"), UIDS)
    moved = seen.observe(table("tenant:thief", advisor="tenant:thief"), {"tenant:thief": "2"})
    assert moved == [THEFT]
    assert "advisor are now routed to Service tenant/thief" in moved[0].message_to_loser()
    assert "instead of Service bank/advisor" in moved[0].message_to_winner()


def test_an_id_that_nobody_had_for_a_while_is_remembered() -> None:
    seen = Handovers()
    seen.observe(table("bank:advisor", advisor="bank:advisor"), UIDS)
    assert seen.observe(table(), {}) == []
    assert seen.observe(table("tenant:thief", advisor="tenant:thief"), UIDS) == [THEFT]


def test_a_service_that_is_made_again_and_finds_its_id_taken_is_told_once() -> None:
    seen = Handovers()
    seen.observe(table("bank:advisor", advisor="bank:advisor"), UIDS)
    seen.observe(table("tenant:thief", advisor="tenant:thief"), UIDS)
    again = UIDS | {"bank:advisor": "3"}
    moved = seen.observe(table(*BOTH, advisor="tenant:thief"), again)
    assert moved == [THEFT._replace(loser=Holder("bank", "advisor", "3"))]
    assert seen.observe(table(*BOTH, advisor="tenant:thief"), again) == []
    back = seen.observe(table(*BOTH, advisor="bank:advisor"), again)
    assert [(handover.loser.key, handover.winner.key) for handover in back] == [("tenant/thief", "bank/advisor")]


def test_a_service_that_is_made_again_and_has_its_id_back_is_no_news() -> None:
    seen = Handovers()
    seen.observe(table("bank:advisor", advisor="bank:advisor"), UIDS)
    seen.observe(table(), {})
    assert seen.observe(table("bank:advisor", advisor="bank:advisor"), {"bank:advisor": "9"}) == []


def test_many_ids_of_one_pair_are_one_handover_whose_message_is_bounded() -> None:
    seen = Handovers()
    names = [f"m{number}" for number in range(64)]
    seen.observe(table(*BOTH, **dict.fromkeys(names, "bank:advisor")), UIDS)
    moved = seen.observe(table(*BOTH, **dict.fromkeys(names, "tenant:thief")), UIDS)
    assert len(moved) == 1
    assert "m0, m1, m2 and 61 more" in moved[0].message_to_loser()


def test_a_namespace_that_takes_and_leaves_ids_cannot_have_those_of_others_forgotten() -> None:
    seen = Handovers()
    seen.observe(table("bank:advisor", advisor="bank:advisor"), UIDS)
    for start in range(0, 30_000, 1000):
        names = [f"x{number}" for number in range(start, start + 1000)]
        seen.observe(table("tenant:thief", **dict.fromkeys(names, "tenant:thief")), UIDS)
    assert len(seen._last) < 3000
    assert seen.observe(table("tenant:thief", advisor="tenant:thief"), UIDS) == [THEFT]
