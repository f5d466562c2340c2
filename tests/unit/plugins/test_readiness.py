# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a Krypton Model's status means."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.slipway.inference.plugins.module_utils._apis import MODELS
from ansible_collections.slipway.inference.plugins.module_utils._readiness import judge, summary
from krypton_models import FAILED, PENDING, READY, conditions


def model(status: dict[str, Any] | None, generation: int = 3, observed: int = 3) -> dict[str, Any]:
    resource: dict[str, Any] = {"metadata": {"name": "a", "namespace": "models", "generation": generation}, "spec": {}}
    if status is not None:
        resource["status"] = {"observedGeneration": observed, **status}
    return resource


REFUSED = {"phase": "Pending", "conditions": conditions(Accepted=("False", "InvalidSpec", "--port is set for you."))}
ROLLING = {
    **READY,
    "conditions": conditions(Available=("True", "Ready", ""), Progressing=("True", "RollingOut", "On their way.")),
}
STUCK = {
    **READY,
    "conditions": conditions(Available=("True", "Ready", ""), Progressing=("False", "Unschedulable", "No node.")),
}


@pytest.mark.parametrize(
    ("resource", "state", "reason"),
    [
        (model(READY), "ready", ""),
        (model(READY, generation=4), "waiting", "Outdated"),
        (model(None), "waiting", "NoStatus"),
        (model(PENDING), "waiting", "WaitingForPods"),
        (model(ROLLING), "waiting", "RollingOut"),
        (model(FAILED), "failed", "ImagePullBackOff"),
        (model(FAILED, generation=4), "waiting", "Outdated"),
        (model(REFUSED), "failed", "InvalidSpec"),
        (model(STUCK), "failed", "Unschedulable"),
    ],
)
def test_a_status_is_judged(resource: dict[str, Any], state: str, reason: str) -> None:
    verdict = judge(MODELS["krypton"], resource)
    assert (verdict.state, verdict.reason) == (state, reason)


def test_the_message_is_that_of_the_condition_that_tells_most() -> None:
    assert judge(MODELS["krypton"], model(FAILED)).message == "The image nope:1 cannot be pulled."


def test_a_summary_of_a_model_that_was_never_reconciled_is_complete() -> None:
    assert summary(MODELS["krypton"], model(None)) == {
        "kind": "Model",
        "name": "a",
        "namespace": "models",
        "ready": False,
        "phase": "",
        "reason": "NoStatus",
        "message": "No controller has reconciled it yet.",
        "url": "",
        "conditions": [],
    }
