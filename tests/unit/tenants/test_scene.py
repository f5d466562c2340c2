"""Jobs of the operator's namespace, by the BaseModel that they are for."""

from __future__ import annotations

import pytest

from slipway.apis.ome import names
from slipway.kube.objects import Kind
from slipway.kube.writes.owners import OWNER_ELSEWHERE, owner_text
from tests.tenants.scene import Owner, owner_of


def job(owner_kind: Kind, namespace: str = "") -> dict:
    owner = {"metadata": {"name": "endless-0", "namespace": namespace, "uid": "u-1"}}
    return {"metadata": {"name": "j", "annotations": {OWNER_ELSEWHERE: owner_text(owner_kind, owner)}}}


def test_the_model_of_a_namespace_is_read_as_the_controller_writes_it() -> None:
    assert owner_of(job(names.BASE_MODEL, "mallory")) == Owner("mallory", "u-1")


@pytest.mark.parametrize("other", [job(names.CLUSTER_BASE_MODEL), {"metadata": {"name": "j"}}])
def test_other_jobs_are_of_no_namespace(other: dict) -> None:
    assert owner_of(other) == Owner()
