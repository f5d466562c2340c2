"""HAProxy's map of models whose endpoints are selected by prefix."""

from __future__ import annotations

import pytest

from slipway.gateway.routing.balancing import rings
from slipway.gateway.routing.table import EMPTY, Backend, RoutingTable
from slipway.serving.routing.route import PrefixHash, Route

TWO = ("10.0.0.1:80", "[fd00::1]:80")


def table(endpoints: tuple[str, ...], **prefix_hash: int) -> RoutingTable:
    route = Route(strategy="PrefixHash", prefix_hash=PrefixHash(**prefix_hash))
    return EMPTY._replace(backends={"ns:m": Backend("ns", "m", endpoints, route)})


def test_a_hashed_model_has_its_parameters_and_the_names_of_its_servers() -> None:
    desired = table(TWO, mean_load_factor=150, prefix_char_length=200)
    assert rings(desired) == {"ns:m": "ns:m,150,200,10.0.0.1:80,fd00::1:80"}


def test_only_models_with_prefix_hash_have_a_ring() -> None:
    assert rings(EMPTY._replace(backends={"ns:m": Backend("ns", "m", TWO)})) == {}


@pytest.mark.parametrize("endpoints", [(), ("10.0.0.1:80",)])
def test_there_is_nothing_to_choose_below_two_endpoints(endpoints: tuple[str, ...]) -> None:
    assert rings(table(endpoints)) == {}


def test_parameters_that_cannot_be_met_are_brought_into_their_bounds() -> None:
    assert rings(table(TWO, mean_load_factor=1, prefix_char_length=10**9))["ns:m"].startswith("ns:m,100,10000,")
    assert rings(table(TWO, prefix_char_length=0)) == {}


def test_a_model_with_more_endpoints_than_a_command_can_name_goes_to_the_least_loaded() -> None:
    many = tuple(f"10.0.{number // 250}.{number % 250}:8000" for number in range(500))
    assert len(rings(table(many))) == 1
    assert rings(table(many * 3)) == {}
