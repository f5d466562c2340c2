"""Targets of routes: HAProxy's map, and the faults of their Services."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slipway.gateway.routing.table import Fault, build
from slipway.gateway.rules.targets import TARGETS_MAP, maps
from slipway.serving.routing.route import MOST_TARGETS
from tests.unit.gateway.test_table import LABEL, endpoint, piece, service


def entries(*services: dict[str, Any]) -> tuple[dict[str, list[list[str]]], tuple[Fault, ...]]:
    """Returns the fields of each target by backend, and the faults."""
    table, faults = build(services, [])
    texts = maps(table)[TARGETS_MAP]
    return {name: [target.split("&") for target in text.split("|")] for name, text in texts.items()}, faults


def target_fields(*targets: dict[str, Any], **route: Any) -> list[list[str]]:
    """Returns the fields of the targets of ``r``. The Services a and b also exist."""
    by_backend, faults = entries(service("r", targets=targets, **route), service("a", models=["of-a"]), service("b"))
    assert faults == ()
    return by_backend["default:r"]


def test_targets_are_sorted_by_order_and_then_as_written() -> None:
    targets = target_fields({"service": "b", "order": 3}, {"service": "a"}, {"weight": 5})
    assert [(fields[0], fields[1], fields[2]) for fields in targets] == [
        ("default:a", "0", "1"),
        ("default:r", "0", "5"),
        ("default:b", "3", "1"),
    ]


def test_a_target_has_its_waits_and_whether_it_is_exclusive() -> None:
    [fields] = target_fields({"service": "a", "waitSeconds": 7, "answerSeconds": 9, "only": True})
    assert fields[3:6] == ["7", "9", "1"]


def shared(*targets: dict[str, Any], ready: bool = True, **other: Any) -> str:
    """Returns the entry of ``r``. The Service a also exists."""
    pieces = [piece("r", endpoint("10.0.0.1"))] if ready else []
    table, _faults = build([service("r", targets=targets), service("a", **{"internal": True, **other})], pieces)
    return maps(table)[TARGETS_MAP]["default:r"]


@pytest.mark.parametrize(("weight", "numbers"), [(1, 10), (50, 498), (99, 987), (100, 997)])
def test_a_share_for_one_other_is_drawn_by_rules(weight: int, numbers: int) -> None:
    targets = ({"weight": 100 - weight}, {"service": "a", "weight": weight})
    assert shared(*targets) == f"=&{numbers}&default:a"
    assert shared(*targets, ready=False) == "=&997&default:a", "who has no endpoint leaves all to the other"


@pytest.mark.parametrize(
    "targets",
    [
        [{"service": "a"}, {"weight": 9}],
        [{"weight": 9}, {"service": "a", "order": 1}],
        [{"weight": 9}, {"service": "a", "when": {"models": ["r"]}}],
        [{"weight": 9}, {"service": "a", "waitSeconds": 1}],
        [{"weight": 0}, {"service": "a", "weight": 0}],
        [{}, {"service": "a"}, {"service": "a"}],
    ],
)
def test_all_else_is_looked_at_more_closely(targets: list[dict[str, Any]]) -> None:
    assert not shared(*targets).startswith("=")
    assert not shared({}, {"service": "a"}, internal=False).startswith("=")


def test_conditions_hold_any_character_in_one_word() -> None:
    values = ["gold", "a b;c|d&e^f!g=h%", "Grün", ""]
    [fields] = target_fields(
        {"service": "a", "when": {"headers": {"X-Tier": values, "x-a": ["1"]}, "models": ["m1", "m2"]}}
    )
    assert fields[9] == "m1^m2"
    assert fields[10] == "x-a=1!x-tier=gold^a%20b%3Bc%7Cd%26e%5Ef%21g%3Dh%25^Gr%C3%BCn^"


def test_an_engine_gets_its_first_name_unless_it_serves_the_requested_one() -> None:
    [other, own] = target_fields({"service": "a"}, {}, aliases=["of-a", "nobodys"])
    assert (other[6], other[7], other[8]) == ("0", "of-a", "of-a")
    assert (own[6], own[7], own[8]) == ("1", "", "")


def test_an_internal_target_is_like_the_service_itself() -> None:
    by_backend, faults = entries(service("r", targets=[{"service": "a"}]), service("a", internal=True))
    assert by_backend["default:r"][0][6] == "1"
    assert faults == ()


@pytest.mark.parametrize("missing", ["absent", "elsewhere"])
def test_a_target_that_the_namespace_lacks_gets_nothing_and_keeps_its_place(missing: str) -> None:
    """Otherwise its exclusive requests would go to a later target."""
    targets = [{"service": missing, "only": True}, {"order": 1}]
    by_backend, faults = entries(service("r", targets=targets), service("elsewhere", "bank"))
    assert [fields[0] for fields in by_backend["default:r"]] == [f"default:{missing}", "default:r"]
    [fault] = faults
    assert (fault.service, f"no Service '{missing}' with a route" in fault.message) == ("r", True)


def test_a_target_whose_own_route_is_broken_is_a_fault_of_both() -> None:
    _unused, faults = entries(service("r", targets=[{"service": "a"}]), service("a", port="none"))
    assert [fault.service for fault in faults] == ["a", "r"]


@pytest.mark.parametrize(
    "broken",
    [
        {"targets": [{"service": "bank/secret"}]},
        {"targets": [{"service": "a:b"}]},
        {"targets": [{"service": "a", "weight": -1}]},
        {"targets": [{"service": "a", "weight": 10**9}]},
        {"targets": [{"service": "a", "order": 100}]},
        {"targets": [{"service": "a", "waitSeconds": -1}]},
        {"targets": [{"service": "a", "answerSeconds": 1e9}]},
        {"targets": [{"service": "a", "when": {"headers": {"x y": ["1"]}}}]},
        {"targets": [{"service": "a", "when": {"headers": {"x": []}}}]},
        {"targets": [{"service": "a", "when": {"headers": {"x": ["new\nline"]}}}]},
        {"targets": [{"service": "a", "when": {"headers": {f"x{n}": ["1"] for n in range(9)}}}]},
        {"targets": [{"service": "a", "when": {"models": ["a&b"]}}]},
        {"targets": [{"service": "a"}] * (MOST_TARGETS + 1)},
        {"targets": [{"service": "a"}] * 16, "models": ["m" * 200 + str(number) for number in range(10)]},
        {"targets": "a"},
        {"targets": [[]]},
    ],
)
def test_invalid_targets_affect_only_their_own_route(broken: dict[str, Any]) -> None:
    wrong = service("r")
    wrong["metadata"]["annotations"] = {LABEL: json.dumps(broken)}
    table, faults = build([wrong, service("a")], [])
    assert set(table.models) == {"a", "default/a"}
    [fault] = faults
    assert (fault.service, LABEL in fault.message) == ("r", True)
