"""How many replicas a model's requests ask for: the steady formula, bursts, the way down."""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest

from slipway.serving.routing.scaling import Load, Scaling, add_sample, begin, intervals

SECONDS = 2.0


def scaling(**changed: object) -> Scaling:
    usual = Scaling(
        replicas=0,
        min_replicas=0,
        max_replicas=None,
        target_requests=100,
        interval=10,
        window=600,
        scale_down_delay=30,
    )
    return msgspec.structs.replace(usual, **changed)


class Model:
    """A simulated model, which gets its desired replicas immediately."""

    def __init__(self, average: float = 0, **changed: object) -> None:
        self.scaling, self.now = scaling(**changed), 0.0
        self.load: Load = begin(self.scaling, average, self.now)

    def look(self, requests: float, *, complete: bool = True) -> int:
        self.now += SECONDS
        self.load, replicas = add_sample(self.load, self.scaling, requests, self.now, complete=complete)
        self.scaling = msgspec.structs.replace(self.scaling, replicas=replicas)
        return replicas

    def during(self, seconds: float, requests: float, *, complete: bool = True) -> list[int]:
        return [self.look(requests, complete=complete) for _unused in range(round(seconds / SECONDS))]

    def until(self, replicas: int, requests: float) -> float:
        """Seconds until the model has so many."""
        began = self.now
        while self.look(requests) != replicas:
            assert self.now - began < 3600
        return self.now - began


@pytest.mark.parametrize(
    ("window", "interval", "expected"), [(30, 10, 3), (600, 10, 60), (3, 2, 2), (5, 2, 3), (1, 10, 1)]
)
def test_the_window_has_so_many_intervals(window: float, interval: float, expected: int) -> None:
    assert intervals(scaling(window=window, interval=interval)) == expected


@pytest.mark.parametrize(
    ("seeded", "samples", "average"),
    [
        (0, [], 0),
        (0, [3], 1),
        (0, [3, 3, 3], 3),
        (0, [1, 2, 3, 4, 5], 4),
        (6, [0], 4),
    ],
)
def test_the_average_moves_with_the_window(seeded: float, samples: list[float], average: float) -> None:
    parameters = scaling(interval=2, window=6)
    load = begin(parameters, seeded, 0)
    for number, sample in enumerate(samples, 1):
        load, _unused = add_sample(load, parameters, sample, 2.0 * number)
    assert load.average == pytest.approx(average)


def test_a_burst_from_zero_wants_ten_replicas_within_15_seconds() -> None:
    assert Model().until(10, 1000) <= 15


def test_a_single_odd_sample_starts_no_replicas() -> None:
    model = Model(replicas=2, average=150)
    model.during(60, 150)
    assert model.look(5000) == 2
    assert set(model.during(60, 150)) == {2}


def test_hardly_more_than_the_replicas_are_made_for_is_no_burst() -> None:
    model = Model(average=400, replicas=5)
    assert set(model.during(60, 590)) == {5}
    assert model.during(6, 650)[-1] == 7


def test_the_first_waiting_request_wants_a_replica_at_once() -> None:
    assert Model().look(1) == 1


def test_a_constant_load_ends_where_the_mean_says() -> None:
    model = Model()
    model.during(1200, 950)
    assert model.scaling.replicas == 10
    model = Model(target_requests=1)
    model.during(1200, 2)
    assert model.scaling.replicas == 2


def test_back_to_zero_takes_the_window_and_the_delay() -> None:
    model = Model(average=300, replicas=3)
    model.during(60, 300)
    assert 600 + 30 - SECONDS <= model.until(0, 0) <= 600 + 30 + 2 * model.scaling.interval


def test_a_burst_that_ends_goes_down_after_the_delay_to_what_the_mean_wants() -> None:
    model = Model()
    model.during(20, 1000)
    assert model.scaling.replicas == 10
    assert model.until(1, 0) == pytest.approx(30, abs=SECONDS * 2)


def test_without_a_delay_replicas_go_at_once() -> None:
    model = Model(window=10, scale_down_delay=0)
    model.during(20, 1000)
    assert model.until(0, 0) <= 12


def test_a_dip_shorter_than_the_delay_costs_no_replica() -> None:
    model = Model(window=10)
    model.during(60, 1000)
    assert set(model.during(20, 0)) == {10}
    assert set(model.during(20, 1000)) == {10}


def test_a_long_dip_does_not_end_lower_than_what_was_wanted_within_the_delay() -> None:
    model = Model(window=10)
    model.during(60, 1000)
    replicas = [model.look(requests) for requests in [850] * 18 + [100] * 5]
    assert min(replicas) == 9


@pytest.mark.parametrize(
    ("bounds", "requests", "expected"),
    [
        ({"min_replicas": 2}, 0, 2),
        ({"max_replicas": 4}, 1000, 4),
        ({"min_replicas": 5, "max_replicas": 4}, 1000, 5),
        ({}, 1000, 10),
    ],
)
def test_the_bounds_hold(bounds: dict[str, int], requests: float, expected: int) -> None:
    model = Model(replicas=expected, **bounds)
    model.during(1800, requests)
    assert model.scaling.replicas == expected


def test_nothing_goes_down_while_a_gateway_cannot_be_asked_nor_right_after() -> None:
    model = Model(window=10, replicas=3)
    assert set(model.during(300, 0, complete=False)) == {3}
    assert model.until(0, 0) == pytest.approx(30, abs=SECONDS * 2)


def test_missing_numbers_do_not_keep_a_burst_from_being_met() -> None:
    model = Model()
    assert model.during(6, 1000, complete=False)[-1] == 10


def test_a_restart_with_the_kept_average_changes_nothing() -> None:
    model = Model(average=300, replicas=3)
    assert set(model.during(120, 300)) == {3}


def test_a_restart_without_an_average_keeps_what_the_requests_need() -> None:
    model = Model(average=0, replicas=3)
    assert set(model.during(1200, 300)) == {3}


def test_replicas_that_a_person_asked_for_stay_for_the_delay() -> None:
    model = Model(window=10)
    model.during(300, 0)
    model.scaling = msgspec.structs.replace(model.scaling, replicas=5)
    assert model.until(0, 0) == pytest.approx(30, abs=SECONDS * 2)


def test_row_34_three_zero_three_ends_as_the_last_one_says() -> None:
    model = Model(window=10, replicas=3)
    model.look(0)
    for replicas in (0, 3):
        model.scaling = msgspec.structs.replace(model.scaling, replicas=replicas)
        assert model.look(0) == replicas


def test_a_noisy_load_does_not_flap() -> None:
    source, model = random.Random(4), Model(average=500, replicas=5)
    replicas = [model.look(max(0, source.gauss(500, 60))) for _unused in range(900)]
    assert {5, 6} >= set(replicas)
    assert sum(one != other for one, other in itertools.pairwise(replicas)) <= 6
