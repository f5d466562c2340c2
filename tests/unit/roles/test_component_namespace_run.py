"""What a component does to the namespace that it is installed in."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cluster_api import ClusterApi
from .role_run import run_role

pytestmark = pytest.mark.plays
OURS = {"app.kubernetes.io/part-of": "slipway"}
ENFORCE = "pod-security.kubernetes.io/enforce"


@pytest.mark.parametrize(
    ("labels", "enforced"), [({**OURS, ENFORCE: "privileged"}, "restricted"), ({ENFORCE: "privileged"}, "privileged")]
)
def test_a_namespace_of_ours_gets_its_labels_back_and_one_of_others_stays_as_it_is(
    tmp_path: Path, api: ClusterApi, labels: dict[str, str], enforced: str
) -> None:
    api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "slipway-system", "labels": labels}})
    run_role(tmp_path, api, "gateway", "main", slipway_network_policies=False)
    assert api.objects["Namespace", "", "slipway-system"]["metadata"]["labels"][ENFORCE] == enforced
    assert "apply Deployment slipway-gateway" in api.writes
