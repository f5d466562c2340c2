"""ModelPools of LLMKube: members take turns at one slot, and no request is lost."""

from __future__ import annotations

from .cluster import PATIENCE, unique, wait
from .kubeai import chat
from .llmkube import LLMKube
from .load import Load

POOL = "ModelPool.inference.llmkube.dev"
BUDGET = "150s"
"""A busy member keeps the slot for 30 seconds. The rest is for a start on a busy machine."""


def test_members_of_a_pool_take_turns_and_no_request_is_lost(
    llmkube: LLMKube, llmkube_namespace: str, gateway_url: str
) -> None:
    """One member gets requests without a pause while a request arrives for the other, and then has the slot again."""
    one, other, pool = unique("one"), unique("other"), unique("slot")
    members = [{"inferenceServiceRef": {"name": name}} for name in (one, other)]
    metadata = {"name": pool, "namespace": llmkube_namespace}
    llmkube.create({"kind": POOL, "metadata": metadata, "spec": {"members": members, "swapBudget": BUDGET}})
    llmkube.make_model(llmkube_namespace, "tiny")
    for name in (one, other):
        llmkube.make_service(llmkube_namespace, name, "tiny", resources={"cpu": "50m", "memory": "64Mi"})
    for name in (one, other):
        llmkube.wait_for_condition(llmkube_namespace, name, "SlotGranted", "False", "Asleep")
        llmkube.wait_phase(llmkube_namespace, name, "Stopped")
    llmkube.wait_routed(llmkube_namespace, one, other)

    with Load(gateway_url, one, clients=2) as load:
        assert chat(gateway_url, other, seconds=PATIENCE).status == 200
        load.more(2)
    assert load.failures == []

    def is_resident() -> bool:
        status = (llmkube.get(POOL, llmkube_namespace, pool) or {})["status"]
        return (status["phase"], status["residentMember"]) == ("Ready", one)

    wait(f"{one} has the slot", PATIENCE, is_resident)
    assert llmkube.pods(llmkube_namespace, other) == []
