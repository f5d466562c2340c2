"""Aliases: IDs that a Service answers for if no Service has them as a name. And Services without any ID."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.gateway.routing.handovers import Handovers
from slipway.gateway.routing.table import RoutingTable, build
from slipway.gateway.sources.file import TableFile
from slipway.serving.routing.claims import Rules
from tests.unit.gateway.test_table import service

HUB = "Qwen/Qwen2.5-0.5B-Instruct"
OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def table(*services: dict[str, Any], rules: Rules | None = None) -> RoutingTable:
    """Returns the table of Services without faults."""
    routing_table, faults = build(services, [], *([rules] if rules else []))
    assert faults == ()
    return routing_table


def test_an_alias_is_answered_and_not_listed() -> None:
    routing_table = table(service("m1", aliases=[HUB]))
    assert routing_table.models == {"m1": "default:m1", "default/m1": "default:m1", HUB: "default:m1"}
    assert routing_table.cards[HUB].id == HUB
    assert routing_table.listed == ("m1",)


def test_a_name_takes_precedence_over_an_older_alias() -> None:
    routing_table = table(service("m1", since=OLD, aliases=[HUB]), service("m2", since=NEW, models=[HUB]))
    assert routing_table.models[HUB] == "default:m2"
    assert routing_table.listed == (HUB, "m1")


def test_a_qualified_id_beats_an_alias() -> None:
    routing_table = table(service("m1", since=OLD, aliases=["default/m2"]), service("m2", since=NEW))
    assert routing_table.models["default/m2"] == "default:m2"


def test_the_oldest_service_with_an_alias_answers_without_an_error() -> None:
    routing_table = table(service("a", since=NEW, aliases=[HUB]), service("b", since=OLD, aliases=[HUB]))
    assert routing_table.models[HUB] == "default:b"


def test_an_alias_needs_the_same_permission_as_a_name() -> None:
    asking = service("m1", aliases=["meta-llama/Llama-3.2-1B", "gpt-4o", "default/other"])
    assert set(table(asking, rules=Rules(owners={"gpt-4o": "bank"})).models) == {"m1", "default/m1", "default/other"}
    allowed = Rules(organizations=frozenset({"meta-llama"}), owners={"gpt-4o": "default"})
    assert {"meta-llama/Llama-3.2-1B", "gpt-4o"} < set(table(asking, rules=allowed).models)


@pytest.mark.parametrize("alias", ["", "a b", "a\nb", "-a", "\u00e9", "a" * 254])
def test_an_alias_that_no_request_can_name_is_left_out(alias: str) -> None:
    assert set(table(service("m1", aliases=[alias, "good"])).models) == {"m1", "default/m1", "good"}


def test_aliases_take_room_in_the_table_as_names_do() -> None:
    crowd = [service(f"s{n:03}", "crowd", aliases=[f"{n}-{i}-" + "a" * 200 for i in range(64)]) for n in range(100)]
    routing_table, faults = build(crowd, [])
    assert 0 < len(routing_table.backends) < 60
    assert "one namespace" in faults[0].message


def test_a_handover_of_a_name_is_reported_but_not_of_an_alias() -> None:
    first, second = service("a", since=OLD, aliases=[HUB]), service("b", since=NEW, aliases=[HUB])
    handovers = Handovers()
    assert handovers.observe(table(first, second), {}) == []
    assert handovers.observe(table(second), {}) == []
    assert handovers.observe(table(second, service("c", models=[HUB])), {}) == []
    moved = handovers.observe(table(second), {})
    assert [(one.loser.service, one.winner.service, one.models) for one in moved] == [("c", "b", (HUB,))]


def test_an_internal_service_answers_for_no_id_and_is_in_the_table() -> None:
    routing_table = table(service("m1"), service("m1-new", internal=True, models=["stolen"], aliases=[HUB]))
    assert set(routing_table.models) == {"m1", "default/m1"}
    assert set(routing_table.backends) == {"default:m1", "default:m1-new"}
    assert routing_table.listed == ("m1",)


def test_a_table_in_a_file_has_aliases_and_internal_models_too() -> None:
    text = b'{"models": {"m1": {"route": {"aliases": ["x", "m2"]}}, "m2": [], "new": {"route": {"internal": true}}}}'
    routing_table = msgspec.json.decode(text, type=TableFile).table()
    assert routing_table.models == {
        "m1": "static:m1",
        "static/m1": "static:m1",
        "m2": "static:m2",
        "static/m2": "static:m2",
        "x": "static:m1",
    }
    assert routing_table.listed == ("m1", "m2")
