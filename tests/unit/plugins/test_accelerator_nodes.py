# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which nodes lack their plugin, and how many may."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.filter.accelerator_nodes import accelerator_nodes
from ansible_collections.slipway.inference.plugins.plugin_utils._tolerance import tolerated

SETTINGS = {
    "vendors": {"nvidia": {"resources": "^nvidia[.]com/gpu$", "nodes": []}},
    "label": "vendor",
    "manager": "us",
    "served": ["nvidia"],
    "revisions": ["1"],
    "stuck_reasons": ["ImagePullBackOff"],
    "tolerate": "5%",
}


def node(number: int, *, gpus: int = 1, ready: bool = True) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True" if ready else "Unknown"}]
    status = {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": conditions}
    return {"metadata": {"name": f"gpu-{number:03}", "labels": {"vendor": "nvidia"}}, "status": status}


def pod(number: int, reason: str = "") -> dict[str, Any]:
    status: dict[str, Any] = {"conditions": [{"type": "Ready", "status": "True"}]}
    if reason:
        status = {"containerStatuses": [{"state": {"waiting": {"reason": reason}}}]}
    labels = {"slipway.inference/revision": "1"}
    return {"metadata": {"labels": labels}, "spec": {"nodeName": f"gpu-{number:03}"}, "status": status}


def cluster(total: int, *, away: int = 0, empty: int = 0, stuck: int = 0, tolerate: object = "5%") -> dict[str, Any]:
    """Of ``total`` nodes the first are not ready, the next offer nothing, of the next the plugin is stuck."""
    nodes = [node(number, ready=number >= away, gpus=int(number >= away + empty)) for number in range(total)]
    pods = [
        pod(number, "ImagePullBackOff" if away + empty <= number < away + empty + stuck else "")
        for number in range(total)
    ]
    return accelerator_nodes(nodes, pods, SETTINGS | {"tolerate": tolerate})


@pytest.mark.parametrize(
    ("observed", "tolerable", "awaited"),
    [
        (cluster(200), True, 0),
        (cluster(200, away=10), True, 0),
        (cluster(200, away=11), False, 11),  # they may come back in time
        (cluster(200, empty=10), True, 10),
        (cluster(200, empty=11), False, 11),
        (cluster(200, away=5, empty=3, stuck=2), True, 3),
        (cluster(2, away=1), True, 0),
        (cluster(2, stuck=1), False, 0),
        (cluster(2, empty=1), False, 1),
        (cluster(1, away=1), False, 1),  # then nothing is left that could serve
        (cluster(2, away=1, tolerate=0), False, 1),
        (cluster(2, stuck=1, tolerate="1"), True, 0),
        (cluster(0), True, 0),
    ],
)
def test_a_few_nodes_that_offer_nothing_do_not_end_a_run(
    observed: dict[str, Any], tolerable: bool, awaited: int
) -> None:
    assert observed["tolerable"] is tolerable
    assert len(observed["awaited"]) == awaited


def test_nodes_without_the_resource_are_listed_by_name() -> None:
    report = cluster(5, away=1, empty=1, stuck=1)

    assert report["missing"] == ["gpu-000", "gpu-001", "gpu-002"]
    assert report["stuck"] == ["gpu-002"]
    assert report["expected"] == [f"gpu-{number:03}" for number in range(5)]
    assert [name for name, summary in report["nodes"].items() if not summary["ready"]] == ["gpu-000"]


def test_only_pods_of_the_plugins_as_they_were_applied_count() -> None:
    earlier = pod(0)
    earlier["metadata"]["labels"] = {"slipway.inference/revision": "0"}

    assert accelerator_nodes([node(0)], [earlier], SETTINGS)["states"] == {"gpu-000": "pending"}
    assert accelerator_nodes([node(0)], [pod(0, "ImagePullBackOff"), pod(0)], SETTINGS)["states"]["gpu-000"] == "ready"


@pytest.mark.parametrize(
    ("tolerate", "total", "number"),
    [
        ("5%", 200, 10),
        ("5%", 3, 1),
        ("5%", 0, 1),
        ("0%", 200, 0),
        (3, 200, 3),
        ("3", 1, 3),
        (0, 200, 0),
        ("100%", 7, 7),
    ],
)
def test_a_share_is_one_host_at_least(tolerate: object, total: int, number: int) -> None:
    assert tolerated(tolerate, total) == number


@pytest.mark.parametrize("tolerate", ["a few", "-1", "5.5%", "101%", None, ""])
def test_a_value_that_is_neither_a_number_nor_a_percentage_is_rejected(tolerate: object) -> None:
    with pytest.raises(AnsibleFilterError, match="a number or a percentage"):
        tolerated(tolerate, 10)


@pytest.mark.parametrize(("amount", "offers"), [("1k", {"nvidia.com/gpu": "1k"}), ("0k", {}), ("500m", {}), (0, {})])
def test_a_node_offers_amounts_of_at_least_one(amount: object, offers: dict[str, object]) -> None:
    offered = node(1)
    offered["status"]["allocatable"] = {"nvidia.com/gpu": amount}
    assert accelerator_nodes([offered], [], SETTINGS)["nodes"]["gpu-001"]["offers"] == offers
