"""Only the answer that an attack must get proves that it failed."""

from __future__ import annotations

import json

import pytest

from tests.tenants import proofs

POLICY = "slipway-controller-pods"
DENIED = (
    "pods \"x\" is forbidden: ValidatingAdmissionPolicy 'slipway-controller-pods' with binding "
    "'slipway-controller-pods' denied request: The controller may change labels of pods, and no others."
)
LEVEL = (
    'pods "x" is forbidden: violates PodSecurity "restricted:latest": restricted volume types (volume "node" uses '
    'restricted volume type "hostPath")'
)
NO_RIGHT = 'secrets "vault" is forbidden: User "mallory" cannot get resource "secrets" in API group ""'


def body(message: str) -> str:
    """As the API server sends it, and as the client shows it."""
    return json.dumps({"kind": "Status", "message": message})


def test_a_denial_of_the_policy_is_a_proof() -> None:
    proofs.require_policy((403, body(DENIED)), POLICY, "and no others")


@pytest.mark.parametrize(
    "answer",
    [
        (200, body(DENIED)),
        (422, body(DENIED)),
        (404, "not found"),
        (403, body(NO_RIGHT)),
        (403, body(DENIED.replace("and no others", "and x"))),
        (403, body(DENIED.replace("slipway-controller-pods", "others-pods"))),
        (403, body(f"{DENIED} hunter2")),
    ],
)
def test_any_other_answer_is_no_denial_of_the_policy(answer: proofs.Answer) -> None:
    with pytest.raises(AssertionError):
        proofs.require_policy(answer, POLICY, "and no others", ["hunter2"])


@pytest.mark.parametrize("text", [body(NO_RIGHT), NO_RIGHT])
def test_a_missing_right_is_a_proof(text: str) -> None:
    proofs.require_no_right((403, text), "get", "secrets")


@pytest.mark.parametrize(
    "answer",
    [
        (200, body(NO_RIGHT)),
        (403, body(DENIED)),
        (403, body(NO_RIGHT.replace("get", "list"))),
        (403, body(NO_RIGHT.replace('"secrets"', '"pods"'))),
        (403, body(f"{NO_RIGHT} hunter2")),
    ],
)
def test_any_other_answer_is_no_missing_right(answer: proofs.Answer) -> None:
    with pytest.raises(AssertionError):
        proofs.require_no_right(answer, "get", "secrets", ["hunter2"])


@pytest.mark.parametrize("text", [body(LEVEL), LEVEL])
def test_a_rejection_by_the_level_of_the_namespace_is_a_proof(text: str) -> None:
    proofs.require_level((403, text), "restricted", "hostPath")


@pytest.mark.parametrize(
    "answer",
    [
        (201, body(LEVEL)),
        (403, body(NO_RIGHT)),
        (403, body(LEVEL.replace("restricted:", "baseline:"))),
        (403, body(LEVEL.replace("hostPath", "nfs"))),
    ],
)
def test_any_other_answer_is_no_rejection_by_the_level(answer: proofs.Answer) -> None:
    with pytest.raises(AssertionError):
        proofs.require_level(answer, "restricted", "hostPath")


def resource(status: str = "False", reason: str = "NotAllowed", message: str = "not without the operator") -> dict:
    return {"status": {"conditions": [{"type": "Accepted", "status": status, "reason": reason, "message": message}]}}


def test_a_status_that_rejects_is_a_proof() -> None:
    proofs.require_rejected(resource(), "NotAllowed", "operator")


@pytest.mark.parametrize(
    "seen", [{}, resource(status="True"), resource(reason="InvalidSpec"), resource(message="something else")]
)
def test_any_other_status_is_none(seen: dict) -> None:
    with pytest.raises(AssertionError):
        proofs.require_rejected(seen, "NotAllowed", "operator")


def test_a_status_code_that_is_not_expected_is_no_proof() -> None:
    proofs.require_status((400, "bad"), [400])
    with pytest.raises(AssertionError):
        proofs.require_status((200, "ok"), [400])
    with pytest.raises(AssertionError):
        proofs.require_status((400, "bad"), [400], "twice")
