"""LLMKube's ModelPools: members take turns at one slot, and no request is lost."""

from __future__ import annotations

from .cluster import PATIENCE, unique, wait
from .kubeai import chat
from .llmkube import LLMKube
from .load import Load

POOL = "ModelPool.inference.llmkube.dev"
BUDGET = "150s"
"""A busy member has the slot for thirty seconds; what is left is for the start on a busy machine."""


def test_members_of_a_pool_take_turns_and_no_request_is_lost(
    llmkube: LLMKube, llmkube_namespace: str, gateway_url: str
) -> None:
    """One is asked without pause while a request comes for the other, and has the slot again after that."""
    one, other, pool = unique("one"), unique("other"), unique("slot")
    members = [{"inferenceServiceRef": {"name": name}} for name in (one, other)]
    metadata = {"name": pool, "namespace": llmkube_namespace}
    llmkube.create({"kind": POOL, "metadata": metadata, "spec": {"members": members, "swapBudget": BUDGET}})
    llmkube.make_model(llmkube_namespace, "tiny")
    for name in (one, other):
        llmkube.make_service(llmkube_namespace, name, "tiny", resources={"cpu": "50m", "memory": "64Mi"})
    for name in (one, other):
        llmkube.wait_told(llmkube_namespace, name, "SlotGranted", "False", "Asleep")
        llmkube.wait_phase(llmkube_namespace, name, "Stopped")
    llmkube.wait_routed(llmkube_namespace, one, other)

    with Load(gateway_url, one, clients=2) as load:
        assert chat(gateway_url, other, seconds=PATIENCE).status == 200
        load.more(2)
    assert load.failures == []

    def ready() -> bool:
        found = llmkube.get(POOL, llmkube_namespace, pool)
        assert found
        return (found["status"]["phase"], found["status"]["residentMember"]) == ("Ready", one)

    wait(f"{one} has the slot", PATIENCE, ready)
    assert llmkube.pods(llmkube_namespace, other) == []
