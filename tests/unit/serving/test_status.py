"""Status: which rejection counts, and what every status has."""

from __future__ import annotations

import msgspec
import pytest

from slipway.kube.schemas.conditions import Condition
from slipway.serving.contract.api import InvalidSpecError, Rejection
from slipway.serving.status.builder import build_status, first_rejection, permanent, verdict

RETRIED, OTHER = Rejection("Retrying", "429", retryable=True), Rejection("Retrying", "503", retryable=True)
REFUSED = Rejection("Forbidden", "quota", of_object=True)
INVALID = InvalidSpecError("InvalidSpec", "spec.url")
READ = Rejection("InvalidSpec", "spec.url")
VALID = object()


@pytest.mark.parametrize(
    ("causes", "first", "status"),
    [
        ((), None, "True"),
        ((None, VALID), None, "True"),
        ((RETRIED,), RETRIED, "Unknown"),
        ((RETRIED, OTHER), RETRIED, "Unknown"),
        ((None, VALID, OTHER), OTHER, "Unknown"),
        ((REFUSED,), REFUSED, "False"),
        ((INVALID,), READ, "False"),
        ((REFUSED, INVALID), REFUSED, "False"),
        ((INVALID, REFUSED), READ, "False"),
        ((RETRIED, INVALID), READ, "False"),
        ((INVALID, RETRIED), READ, "False"),
        ((VALID, RETRIED, None, REFUSED), REFUSED, "False"),
    ],
)
def test_a_permanent_rejection_goes_before_one_that_is_retried(
    causes: tuple[object, ...], first: Rejection | None, status: str
) -> None:
    rejection = first_rejection(*causes)
    assert rejection == first
    assert verdict(rejection, "All is in place.").status == status
    assert permanent(rejection) == (first if status == "False" else None)


@pytest.mark.parametrize(
    ("rejection", "expected"),
    [
        (None, ("Available", "True", "Loaded", "It is loaded.")),
        (RETRIED, ("Available", "Unknown", "Retrying", "429.")),
        (REFUSED, ("Available", "False", "Forbidden", "quota.")),
    ],
)
def test_the_condition_of_a_plan_has_the_words_of_its_rejection(
    rejection: Rejection | None, expected: tuple[str, ...]
) -> None:
    assert verdict(rejection, "It is loaded.", type_="Available", reason="Loaded") == Condition(*expected)


@pytest.mark.parametrize(
    ("rechecks", "first"), [((), None), ((None,), None), ((None, 30.0, 5.0), 5.0), ((0.0, None), 0.0)]
)
def test_a_status_says_which_spec_it_is_of_and_when_it_may_change(
    rechecks: tuple[float | None, ...], first: float | None
) -> None:
    resource = {"metadata": {"generation": 7}}
    conditions = (verdict(None, "Fine."), Condition("Ready", "False", "NotYet", "Soon."))
    result = build_status(
        resource,
        {"phase": "Pending"},
        conditions,
        trailing={"cache": 1},
        rechecks=rechecks,
        passed_through=frozenset({"NotYet"}),
    )
    assert list(result.status) == ["phase", "observedGeneration", "conditions", "cache"]
    assert result.status["observedGeneration"] == 7
    read = msgspec.convert(result.status["conditions"], tuple[Condition, ...])
    assert [(one.type, one.observed_generation) for one in read] == [("Accepted", 7), ("Ready", 7)]
    assert (result.recheck_seconds, result.passed_through) == (first, {"NotYet"})
