"""What the applier could not do becomes one sentence of the status."""

from __future__ import annotations

from slipway.controller.reconciling.reconciler import _rejection
from slipway.kube.api.errors import ServerError
from slipway.kube.writes.outcomes import Applied, Failure
from slipway.serving.contract.api import Rejection

TAKEN = Failure("Service", "tiny", "NameTaken", "Service tiny exists and was made by someone else")


def test_nothing_wrong_is_no_refusal() -> None:
    assert _rejection(Applied()) is None


def test_permanent_failures_come_before_temporary_ones() -> None:
    rejection = _rejection(Applied(failures=(TAKEN,), waiting=("Deployment tiny",), errors=(ServerError("busy"),)))
    assert rejection == Rejection("NameTaken", f"Service tiny: {TAKEN.message}", of_object=True)


def test_an_overloaded_server_and_an_earlier_owner_pass() -> None:
    for applied in (Applied(errors=(ServerError("busy"),)), Applied(waiting=("Deployment tiny",))):
        rejection = _rejection(applied)
        assert rejection is not None
        assert rejection.retryable
