"""Which of several Services answers for an id."""

from __future__ import annotations

from slipway.serving.routing.claims import alias_holders, winners
from slipway.serving.routing.route import Route, RoutedService


def test_the_oldest_service_wins_a_name_despite_claimed_ages_and_names_decide_between_equals() -> None:
    young = RoutedService("a", "x", Route(models=("m", "only-young"), created=1), since=2)
    old = RoutedService("z", "x", Route(models=("m",), created=9), since=1)
    twin = RoutedService("y", "x", Route(models=("m",), created=9), since=1)
    assert winners([young, old, twin]) == {"m": twin, "only-young": young}


def test_the_oldest_service_answers_for_an_alias_that_is_no_services_name() -> None:
    young = RoutedService("a", "x", Route(aliases=("free", "named", "only-young")), since=2)
    old = RoutedService("b", "x", Route(aliases=("free", "named")), since=1)
    assert alias_holders([young, old], {"named"}) == {"free": old, "only-young": young}
