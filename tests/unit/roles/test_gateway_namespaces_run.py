"""The gateway limited to namespaces, run against an API server: its rights there go when it needs them no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cluster_api import ClusterApi
from .role_run import run_role

pytestmark = pytest.mark.plays


def test_rights_in_namespaces_go_when_no_api_needs_them(tmp_path: Path, api: ClusterApi) -> None:
    api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
    given = {"controller_namespaces": ["team-a"], "gateway_wait_timeout": 10, "gateway_allow_anonymous": True}
    run_role(tmp_path, api, "gateway", "main", gateway_apis=["kubeai"], **given)
    assert {key for key in api.objects if key[1] == "team-a"} == {
        ("Role", "team-a", "slipway-gateway-tenant"),
        ("RoleBinding", "team-a", "slipway-gateway-tenant"),
    }
    run_role(tmp_path, api, "gateway", "main", gateway_apis=["krypton"], **given)
    assert not {key for key in api.objects if key[1] == "team-a"}
