"""Outlier detection: pods that return errors or nothing are passed over while others of their model succeed."""

from __future__ import annotations

from collections.abc import Mapping

from slipway.gateway.routing.outliers import Count, Outliers
from slipway.gateway.routing.table import EMPTY, Backend

NAMES = ("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")
A, B, C = NAMES
TABLE = EMPTY._replace(backends={"ns:m": Backend("ns", "m", NAMES)})


class Pods:
    """Pods of one model with their answers of each five seconds.

    HAProxy does not count pods that are passed over, and those that it has not added again yet.
    """

    def __init__(self, *names: str) -> None:
        self.now = 1000.0
        self._absent: set[str] = set()
        self.outliers = Outliers()
        self._counts = {name: Count(0, 0, 0) for name in names}
        self.look({})

    def look(self, answers: Mapping[str, tuple[int, int]], active: Mapping[str, int] | None = None) -> list[str]:
        """Returns the pods that are now passed over, after (good, bad) further answers."""
        self.now += 5
        self.outliers.expire(self.now)
        for name, (good, bad) in answers.items():
            count = self._counts[name]
            self._counts[name] = Count(count.good + good, count.bad + bad, (active or {}).get(name, 0))
        counts = {name: count for name, count in self._counts.items() if name not in self._absent}
        verdicts = self.outliers.observe(self.now, {"ns:m": counts})
        self._absent = set(self._counts) - set(self.used())
        return [verdict.server for verdict in verdicts]

    def used(self) -> tuple[str, ...]:
        return self.outliers.filter(TABLE).backends["ns:m"].endpoints


def test_a_pod_that_answers_errors_alone_is_passed_over_while_others_answer() -> None:
    pods = Pods(*NAMES)
    assert pods.look({A: (0, 3), B: (9, 0)}) == []
    assert pods.look({A: (0, 2), B: (9, 0)}) == [A]
    assert pods.used() == (B, C)
    assert pods.outliers.count_passed_over() == {"ns:m": 1}


def test_a_pod_with_any_good_answer_between_its_errors_is_not() -> None:
    pods = Pods(A, B)
    for _unused in range(20):
        assert pods.look({A: (1, 4), B: (9, 0)}) == []


def test_errors_that_all_pods_answer_are_the_requests_fault() -> None:
    pods = Pods(*NAMES)
    for _unused in range(20):
        assert pods.look(dict.fromkeys(NAMES, (0, 9))) == []


def test_the_only_pod_is_never_passed_over() -> None:
    pods = Pods(A)
    assert pods.look({A: (0, 99)}) == []


def test_at_most_a_third_is_passed_over_and_of_fewer_one() -> None:
    pods = Pods(*NAMES)
    assert pods.look({A: (0, 9), B: (0, 9), C: (9, 0)}) == [A]
    assert pods.look({B: (0, 9), C: (9, 0)}) == []


def test_a_server_is_readmitted_after_a_time_that_grows_with_each_failure() -> None:
    pods = Pods(*NAMES)
    pods.look({A: (0, 9), B: (9, 0)})
    times = []
    for _unused in range(6):
        began = pods.now
        while pods.outliers.count_passed_over():
            pods.look({B: (9, 0)})
        times.append(pods.now - began)
        assert A in pods.used()
        assert pods.look({A: (0, 1), B: (9, 0)}) == [A], "a single error is enough now"
    assert times == [30, 60, 120, 240, 480, 480]


def test_a_successful_answer_resets_a_server() -> None:
    pods = Pods(A, B)
    pods.look({A: (0, 9), B: (9, 0)})
    while pods.outliers.count_passed_over():
        pods.look({B: (9, 0)})
    pods.look({A: (1, 0), B: (9, 0)})
    assert pods.look({A: (0, 4), B: (9, 0)}) == []


def test_a_pod_that_takes_requests_and_begins_no_answer_is_passed_over() -> None:
    pods = Pods(A, B)
    looks = [pods.look({A: (0, 0), B: (40, 0)}, {A: 5, B: 2}) for _unused in range(14)]
    assert looks == [[]] * 12 + [[A], []]


def test_a_pod_that_works_on_long_answers_like_the_others_is_not() -> None:
    pods = Pods(A, B)
    for _unused in range(40):
        assert pods.look({A: (0, 0), B: (1, 0)}, {A: 5, B: 5}) == []


def test_a_recreated_pod_is_counted_from_zero() -> None:
    pods = Pods(A, B)
    pods.look({A: (50, 4), B: (9, 0)})
    pods._counts[A] = Count(0, 0, 0)
    assert pods.look({A: (0, 4), B: (9, 0)}) == []
    assert pods.look({A: (0, 1), B: (9, 0)}) == [A]


def test_removed_backends_and_endpoints_are_forgotten() -> None:
    pods = Pods(A, B)
    pods.look({A: (0, 9), B: (9, 0)})
    pods.outliers.filter(EMPTY)
    assert pods.outliers.count_passed_over() == {}


def test_no_model_loses_its_last_pod() -> None:
    pods = Pods(A, B)
    pods.look({A: (0, 9), B: (9, 0)})
    table = EMPTY._replace(backends={"ns:m": Backend("ns", "m", (A,))})
    assert pods.outliers.filter(table).backends["ns:m"].endpoints == (A,)
