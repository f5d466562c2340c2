"""The role hub reports wrong settings before it changes anything, and removes the files that it served."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cluster_api import ClusterApi
from .role_run import run_role

pytestmark = pytest.mark.plays


@pytest.mark.parametrize("gate", ["../x", "acme", "acme/tiny/x"])
def test_a_gate_that_means_no_repository_is_refused(tmp_path: Path, api: ClusterApi, gate: str) -> None:
    given = {"hub_volume": {"emptyDir": {}}, "hub_gated": ["acme/*", gate]}
    output = run_role(tmp_path, api, "hub", "check", failing=True, **given)
    assert f"hub_gated: '{gate}' is not a repository" in output


def test_gates_are_names_and_patterns(tmp_path: Path, api: ClusterApi) -> None:
    run_role(tmp_path, api, "hub", "check", hub_volume={"emptyDir": {}}, hub_gated="acme/*,closed/tiny")


def test_files_are_removed_and_other_config_maps_stay(tmp_path: Path, api: ClusterApi) -> None:
    labels = {"slipway.inference/hub-file": "true"}
    for name, namespace in (("one", "hub"), ("two", "hub"), ("of-others", "hub"), ("elsewhere", "a")):
        own = {} if name == "of-others" else labels
        metadata = {"name": name, "namespace": namespace, "labels": own}
        api.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": {"content": "AAAA"}})
    before = {*api.objects}

    assert "changed=1 " in run_role(tmp_path, api, "hub", "uninstall", "--check", hub_namespace="hub")
    assert {*api.objects} == before
    assert "changed=1 " in run_role(tmp_path, api, "hub", "uninstall", hub_namespace="hub")
    assert before - {*api.objects} == {("ConfigMap", "hub", "one"), ("ConfigMap", "hub", "two")}
    assert "changed=0 " in run_role(tmp_path, api, "hub", "uninstall", hub_namespace="hub")
