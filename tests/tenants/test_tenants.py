"""A hostile tenant attacks a second one for two minutes, on a cluster with all five APIs.

It has `edit` and `model-author` in three restricted namespaces, and `model-author` in one that admits all pods. It does
everything that the reviews of security describe in S1 to S9 and in the findings that they call partly closed.
Meanwhile, models of the second tenant answer requests and new ones load, are published and start.

| finding | module | attacks on |
| --- | --- | --- |
| S1 | folders | other models' files on nodes |
| S2, S3, S8, 14 | queues | the turns of others, the controller's time, room in nodes' annotations |
| S4 | registry | other models' repositories, and the storage |
| S5, 13 | accounts | Secrets, and all that the accounts of Slipway may change |
| S6, S9, 13, 25 | freedoms | what only the operator may allow |
| S7 | volumes | files of nodes by pods, other models' volumes and claims, the operator's Secrets |
| 8, 12, 18 | clients | requests to other models |
| 24 | endings | files of deleted models |
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.cluster.cluster import SYSTEM
from tests.cluster.load import Load

from . import accounts, clients, endings, folders, freedoms, queues, registry, volumes
from .campaign import Attack, Campaign, Outcome
from .scene import Scene, restarts
from .second_tenant import SecondTenant, digest_of_tiny

pytestmark = [pytest.mark.disruptive, pytest.mark.timeout(2400)]

SECONDS = 120.0
MODULES = (folders, queues, registry, accounts, freedoms, volumes, clients, endings)
ATTACKS: list[Attack[Scene]] = [attack for module in MODULES for attack in module.ATTACKS]


@dataclass
class Result:
    outcomes: dict[str, Outcome]
    failed_requests: list[str]
    answered: dict[str, int]
    rounds: int
    """In which the second tenant's new models loaded, were published and answered."""
    fault: str
    """What went wrong in the last round; empty: nothing."""
    restarts: tuple[dict[str, int], dict[str, int]]
    """Before the attacks and after them."""


@pytest.fixture(scope="module")
def result(scene: Scene, second: SecondTenant) -> Result:
    def count() -> dict[str, int]:
        return restarts(scene.cluster, SYSTEM) | restarts(scene.cluster, second.namespace)

    before, rounds, fault = count(), 0, ""
    with ExitStack() as stack:
        loads = [stack.enter_context(Load(second.gateway, model, clients=1)) for model in second.ids]
        with Campaign(ATTACKS, scene, SECONDS) as campaign:
            while campaign.active and not fault:
                fault = second.work()
                rounds += not fault
        for load in loads:
            load.more(5)
    after = {name: restarted for name, restarted in count().items() if name in before}
    return Result(
        outcomes=campaign.outcomes,
        failed_requests=[f"{load.model}: {failure}" for load in loads for failure in load.failures],
        answered={load.model: load.answered for load in loads},
        rounds=rounds,
        fault=fault,
        restarts=(before, after),
    )


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_every_turn_of_an_attack_fails(result: Result, attack: Attack[Scene]) -> None:
    outcome = result.outcomes[str(attack)]
    print(f"{attack}: {outcome.turns} turns")
    assert not outcome.fault, outcome.fault


def test_no_request_of_the_second_tenant_fails(result: Result) -> None:
    print(f"answered: {result.answered}")
    assert result.failed_requests == []
    assert all(result.answered.values())


def test_new_models_of_the_second_tenant_load_are_published_and_answer(result: Result) -> None:
    print(f"{result.rounds} rounds")
    assert not result.fault, result.fault
    assert result.rounds > 0


def test_nothing_restarts(result: Result) -> None:
    before, after = result.restarts
    assert before, "there is something that could restart"
    assert after == before


def test_the_second_tenant_has_no_foreign_bytes(result: Result, second: SecondTenant) -> None:
    assert second.foreign_bytes() == {}
    assert second.delivered("reader") == digest_of_tiny()
    assert second.delivered("late-reader") == digest_of_tiny()


def test_every_finding_has_an_attack() -> None:
    findings = {attack.finding for attack in ATTACKS}
    assert findings == {*(f"S{number}" for number in range(1, 10)), "8", "12", "13", "14", "18", "24", "25"}
