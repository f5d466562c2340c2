"""The role hub says what is wrong with its settings before anything is changed."""

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
