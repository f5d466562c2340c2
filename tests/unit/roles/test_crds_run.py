"""The role crds applies the definitions that differ from its files, and no others."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest

from .api_server import Object
from .cluster_api import ClusterApi
from .role_run import run_role

APIS = ["krypton", "kubeai"]
KUBEAI = "models.kubeai.org"
RECORD = "slipway.inference/applied"


def definition(api: ClusterApi, name: str = KUBEAI) -> Object:
    return api.objects["CustomResourceDefinition", "", name]


def written(api: ClusterApi, folder: Path, *flags: str) -> list[str]:
    """The definitions that the role applies. Each time, it then records what it has applied."""
    api.writes.clear()
    run_role(folder, api, "crds", "main", *flags, crds_apis=APIS)
    return sorted({write.removeprefix("apply CustomResourceDefinition ") for write in api.writes})


@pytest.fixture
def installed(tmp_path: Path, api: ClusterApi) -> ClusterApi:
    assert written(api, tmp_path) == ["models.krypton.ai", KUBEAI]
    return api


def edit_spec(api: ClusterApi) -> None:
    edited = copy.deepcopy(definition(api))
    edited["spec"]["names"]["singular"] = "other"
    api.apply(("CustomResourceDefinition", "", KUBEAI), edited, rehearsed=False)


def apply_another_file(api: ClusterApi) -> None:
    annotations = definition(api)["metadata"]["annotations"]
    annotations[RECORD] = f"{'0' * 64} {annotations[RECORD].split()[1]}"


def lose_the_record(api: ClusterApi) -> None:
    del definition(api)["metadata"]["annotations"][RECORD]


def remove(api: ClusterApi) -> None:
    del api.objects["CustomResourceDefinition", "", KUBEAI]


@pytest.mark.plays
def test_definitions_that_have_not_changed_are_left_alone(tmp_path: Path, installed: ClusterApi) -> None:
    assert written(installed, tmp_path) == []


@pytest.mark.plays
@pytest.mark.parametrize("change", [edit_spec, apply_another_file, lose_the_record, remove])
def test_a_definition_that_differs_is_applied_alone(
    tmp_path: Path, installed: ClusterApi, change: Callable[[ClusterApi], None]
) -> None:
    change(installed)
    assert written(installed, tmp_path) == [KUBEAI]
    assert definition(installed)["spec"]["names"]["singular"] == "model"
    assert written(installed, tmp_path) == []


@pytest.mark.plays
def test_check_mode_writes_nothing(tmp_path: Path, api: ClusterApi) -> None:
    assert written(api, tmp_path, "--check") == []


class KeptUntilAllAreDeleted(dict[tuple[str, str, str], Object]):
    """Definitions stay until the deletion of each has begun."""

    def __init__(self, objects: dict[tuple[str, str, str], Object]) -> None:
        super().__init__(objects)
        self.left = {*objects}

    def __delitem__(self, key: tuple[str, str, str]) -> None:
        self.left.discard(key)
        if not self.left:
            self.clear()


@pytest.mark.plays
def test_definitions_are_removed_together_and_only_if_asked(tmp_path: Path, installed: ClusterApi) -> None:
    installed.writes.clear()
    run_role(tmp_path, installed, "crds", "uninstall")
    run_role(tmp_path, installed, "crds", "uninstall", "--check", crds_purge=True)
    assert installed.writes == []

    installed.objects = KeptUntilAllAreDeleted(installed.objects)
    run_role(tmp_path, installed, "crds", "uninstall", crds_purge=True, crds_wait_timeout=1)
    deletions = ["delete CustomResourceDefinition models.krypton.ai", f"delete CustomResourceDefinition {KUBEAI}"]
    assert sorted(installed.writes) == deletions

    run_role(tmp_path, installed, "crds", "uninstall", crds_purge=True)
    assert sorted(installed.writes) == deletions


@pytest.mark.plays
def test_each_definition_that_stays_is_named_with_its_reason(tmp_path: Path, installed: ClusterApi) -> None:
    terminating = {"type": "Terminating", "status": "True", "message": "some instances are still in deletion"}
    definition(installed)["status"]["conditions"].append(terminating)
    installed.objects = KeptUntilAllAreDeleted({**installed.objects, ("Pod", "a", "keeps"): {}})

    output = run_role(tmp_path, installed, "crds", "uninstall", failing=True, crds_purge=True, crds_wait_timeout=1)
    assert "These definitions still exist after 1 s" in output
    assert f"{KUBEAI}: some instances are still in deletion" in output
    assert "models.krypton.ai: no reason was given" in output
