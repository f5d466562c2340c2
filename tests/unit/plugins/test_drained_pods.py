# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a drain moves, and what would be lost by it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.slipway.inference.plugins.filter.drained_pods import MIRROR, drained_pods

FOLDER = {"volumes": [{"name": "data", "emptyDir": {}}]}
REPLICAS = [{"kind": "ReplicaSet"}]


def pod(phase: str = "Running", spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "pod", "namespace": "chat", **metadata},
        "spec": spec or {},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("given", "lists"),
    [
        (pod(ownerReferences=REPLICAS), ["to_go"]),
        (pod(), ["to_go", "bare"]),
        (pod(ownerReferences=None, annotations=None, labels=None), ["to_go", "bare"]),
        (pod(spec=FOLDER, ownerReferences=REPLICAS), ["to_go", "keepers"]),
        (pod(spec=FOLDER, ownerReferences=[{"kind": "DaemonSet"}]), []),
        (pod(annotations={MIRROR: "1"}), []),
        (pod("Succeeded", FOLDER), []),
        (pod("Failed", FOLDER), []),
        (pod(spec=FOLDER, ownerReferences=REPLICAS, labels={"app.kubernetes.io/part-of": "slipway"}), ["to_go"]),
        (pod(spec=FOLDER, ownerReferences=REPLICAS, labels={"app.kubernetes.io/managed-by": "us"}), ["to_go"]),
        (pod(spec=FOLDER, ownerReferences=REPLICAS, labels={"model": "tiny"}), ["to_go"]),
    ],
)
def test_a_pod_is_in_the_lists_that_it_belongs_to(given: dict[str, Any], lists: list[str]) -> None:
    groups = drained_pods([given], labels=["model"], managers=["us"])

    assert groups == {name: ["chat/pod"] if name in lists else [] for name in ("to_go", "bare", "keepers")}


def test_a_pod_without_a_status_counts_as_running() -> None:
    assert drained_pods([{"metadata": {"name": "pod", "namespace": "chat"}, "spec": {}}])["to_go"] == ["chat/pod"]
