"""Which backends have a canary, and what their Services are told."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.gateway.split import CANARIES_MAP, SHARES_MAP, maps
from slipway.gateway.table import build
from tests.unit.gateway.test_table import service


def split(*services: dict[str, Any]) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """How many numbers of 997, and the canary, of each backend that has one; and the Services with a fault."""
    table, faults = build(services, [])
    found = maps(table)
    assert found[SHARES_MAP].keys() == found[CANARIES_MAP].keys()
    shares = {name: (numbers, found[CANARIES_MAP][name]) for name, numbers in found[SHARES_MAP].items()}
    return shares, [fault.service for fault in faults]


def with_canary(percent: int, canary: str = "new") -> dict[str, Any]:
    return service("m1", canary={"service": canary, "percent": percent})


@pytest.mark.parametrize(("percent", "numbers"), [(1, "10"), (50, "498"), (99, "987"), (100, "997")])
def test_a_canary_gets_its_share(percent: int, numbers: str) -> None:
    shares, faults = split(with_canary(percent), service("new", internal=True))
    assert shares == {"default:m1": (numbers, "default:new")}
    assert faults == []


def test_a_canary_may_have_ids_of_its_own() -> None:
    shares, faults = split(with_canary(10), service("new"))
    assert shares == {"default:m1": ("100", "default:new")}
    assert faults == []


def test_with_zero_percent_nothing_is_split_and_nobody_is_missed() -> None:
    assert split(with_canary(0)) == split(with_canary(0), service("new", internal=True)) == ({}, [])


@pytest.mark.parametrize("canary", ["missing", "m1", "elsewhere"])
def test_a_canary_that_is_no_other_service_of_the_namespace_is_a_fault_and_all_requests_stay(canary: str) -> None:
    assert split(with_canary(10, canary), service("elsewhere", "bank")) == ({}, ["m1"])


def test_a_canary_whose_own_route_is_broken_is_a_fault_of_both() -> None:
    assert split(with_canary(10), service("new", port="none")) == ({}, ["m1", "new"])
