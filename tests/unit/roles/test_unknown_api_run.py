"""A role rejects an unknown API name, lists the valid ones, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipway.apis import DESCRIPTIONS

from .cluster_api import ClusterApi
from .role_run import run_role


@pytest.mark.plays
@pytest.mark.parametrize(
    ("role", "entry", "variable"),
    [
        ("crds", "detect", "crds_apis"),
        ("crds", "detect", "crds_adopt"),
        ("gateway", "check", "gateway_apis"),
        ("controller", "check", "controller_apis"),
    ],
)
def test_a_name_that_is_no_api_is_refused(
    tmp_path: Path, api: ClusterApi, role: str, entry: str, variable: str
) -> None:
    output = run_role(tmp_path, api, role, entry, failing=True, **{variable: [DESCRIPTIONS[0].name, "kryptn"]})

    assert "unknown API kryptn" in output
    assert f"Use {', '.join(one.name for one in DESCRIPTIONS)}" in output
    assert api.objects == {}
