"""A campaign counts each turn of each attack, and an attack that did not run is no success."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.tenants.campaign import Attack, Campaign, Outcome

World = list[tuple[str, int]]


def harmless(world: World, turn: int) -> None:
    world.append(("harmless", turn))


def successful(world: World, turn: int) -> None:
    world.append(("successful", turn))
    assert turn != 1, "the second tenant lost a file"


def impossible(_world: World, _turn: int) -> None:
    raise LookupError("there is no such server")


def ticking(turns: int) -> Callable[[], float]:
    """A clock whose time is up after so many looks; the first is that of the start."""
    times = itertools.chain([0.0] * (turns + 1), itertools.repeat(2.0))
    return lambda: next(times)


def run(*attacks: Attack[World], turns: int = 3, at_once: int = 1) -> tuple[dict[str, Outcome], World]:
    world: World = []
    with Campaign(attacks, world, seconds=1.0, at_once=at_once, clock=ticking(turns)) as campaign:
        pass
    assert not campaign.active
    return campaign.outcomes, world


def test_attacks_are_repeated_until_the_time_is_up() -> None:
    outcomes, world = run(Attack("S1", harmless))
    assert outcomes == {"S1-harmless": Outcome(turns=4)}
    assert world == [("harmless", turn) for turn in range(4)]


def test_each_attack_has_one_turn_though_the_time_is_up() -> None:
    attacks = [Attack(f"S{number}", harmless) for number in range(5)]
    for at_once in (1, 2, 8):
        outcomes, _world = run(*attacks, turns=0, at_once=at_once)
        assert {outcome.turns for outcome in outcomes.values()} == {1}


@pytest.mark.parametrize(("attack", "words"), [(successful, "lost a file"), (impossible, "no such server")])
def test_one_turn_that_did_not_fail_as_it_should_is_a_fault(attack: Callable[[World, int], None], words: str) -> None:
    outcomes, _world = run(Attack("S1", attack), Attack("S2", harmless))
    assert words in outcomes[f"S1-{attack.__name__}"].fault
    assert outcomes["S2-harmless"].fault == ""
    assert outcomes["S2-harmless"].turns > 1, "the others go on"


def test_an_attack_that_never_ran_is_a_fault() -> None:
    assert Outcome().fault == "it never ran"


def test_two_attacks_of_one_name_are_refused() -> None:
    with pytest.raises(AssertionError, match="same name"):
        Campaign([Attack("S1", harmless), Attack("S1", harmless)], [], seconds=1.0)
