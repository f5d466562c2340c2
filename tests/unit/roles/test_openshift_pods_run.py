"""On a cluster that looks like OpenShift, every part of Slipway is let in by its restricted-v2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .cluster_api import OPENSHIFT, ClusterApi
from .role_run import run_tasks

IDS = ("runAsUser", "runAsGroup", "fsGroup")
ROLES = ("controller", "gateway", "hub", "metrics_server")
TASKS = [
    {"ansible.builtin.import_role": {"name": "slipway.inference.preflight", "tasks_from": "reach"}},
    *({"ansible.builtin.import_role": {"name": f"slipway.inference.{role}"}} for role in ROLES),
]

pytestmark = pytest.mark.plays


def pods(api: ClusterApi) -> dict[str, dict[str, Any]]:
    return {
        key[2]: deployment["spec"]["template"]["spec"]
        for key, deployment in api.objects.items()
        if key[0] == "Deployment"
    }


def settings(api: ClusterApi) -> str:
    text: str = api.objects["ConfigMap", "slipway-system", "slipway-controller"]["data"]["controller.yaml"]
    return text


def test_pods_have_fixed_ids_if_slipway_openshift_is_false(tmp_path: Path, api: ClusterApi) -> None:
    api.kinds += OPENSHIFT
    run_tasks(tmp_path, api, TASKS[:2], slipway_openshift="false")

    context = pods(api)["slipway-controller"]["securityContext"]
    assert {field: context[field] for field in IDS} == dict.fromkeys(IDS, 65532)
    assert "assignedIds: false" in settings(api)
