"""The namespace in which models of the whole cluster are loaded for OME: made, kept, left alone and removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .api_server import Kind
from .cluster_api import ClusterApi
from .role_run import run_role

pytestmark = pytest.mark.plays

OURS = {"app.kubernetes.io/part-of": "slipway"}
ENFORCE = "pod-security.kubernetes.io/enforce"
OME = ("Namespace", "", "ome")


def play(folder: Path, api: ClusterApi, entry: str, *flags: str, failing: bool = False, **variables: Any) -> str:
    return run_role(folder, api, "controller", entry, *flags, failing=failing, controller_wait_timeout=10, **variables)


def put(api: ClusterApi, kind: str, name: str, namespace: str = "", **fields: Any) -> None:
    metadata = {"name": name, "labels": fields.pop("labels", {}), **({"namespace": namespace} if namespace else {})}
    api.put({"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields})


def level(api: ClusterApi) -> str | None:
    """Pod Security level that the namespace enforces."""
    labels: dict[str, str] = api.objects[OME]["metadata"]["labels"]
    return labels.get(ENFORCE)


def test_it_is_made_for_pods_that_have_folders_of_nodes_and_goes_with_the_controller(
    tmp_path: Path, api: ClusterApi
) -> None:
    play(tmp_path, api, "main")
    assert level(api) == "privileged"
    assert api.writes.index("apply Namespace ome") < api.writes.index("apply Deployment slipway-controller")
    api.writes.clear()
    assert "changed=0" in play(tmp_path, api, "main")
    # Kubernetes creates these objects in every namespace, so they have no owner.
    put(api, "Secret", "default-token", "ome", type="kubernetes.io/service-account-token")
    play(tmp_path, api, "uninstall")
    assert OME not in api.objects


@pytest.mark.parametrize(("labels", "enforced"), [({**OURS, ENFORCE: "restricted"}, "privileged"), ({}, None)])
def test_an_own_namespace_gets_its_labels_back_and_a_foreign_one_stays_as_it_is(
    tmp_path: Path, api: ClusterApi, labels: dict[str, str], enforced: str | None
) -> None:
    put(api, "Namespace", "ome", labels=labels)
    play(tmp_path, api, "main")
    assert level(api) == enforced
    play(tmp_path, api, "uninstall")
    assert (OME in api.objects) is (enforced is None)


@pytest.mark.parametrize(
    "variables",
    [{"controller_apis": ["krypton"]}, {"controller_namespaces": ["team-a"]}, {"controller_ome_namespace": "team-a"}],
)
def test_none_is_created_without_need_or_for_a_foreign_manager(
    tmp_path: Path, api: ClusterApi, variables: dict[str, Any]
) -> None:
    put(api, "Namespace", "team-a")
    play(tmp_path, api, "main", **variables)
    assert OME not in api.objects
    assert "apply Namespace team-a" not in api.writes


@pytest.mark.parametrize("kind", ["Secret", "PersistentVolumeClaim", "Pod"])
def test_it_stays_while_it_holds_what_people_have_put_there(tmp_path: Path, api: ClusterApi, kind: str) -> None:
    put(api, "Namespace", "ome", labels=OURS)
    put(api, kind, "precious", "ome", **({"type": "Opaque"} if kind == "Secret" else {}))
    output = play(tmp_path, api, "uninstall")
    assert f"The namespace ome stays, as it holds {kind} precious." in output
    assert OME in api.objects


def test_check_mode_makes_none(tmp_path: Path, api: ClusterApi) -> None:
    play(tmp_path, api, "main", "--check")
    assert api.writes == []


def base_model(api: ClusterApi, name: str, key: str) -> None:
    kind = Kind("ome.io/v1beta1", "BaseModel", "basemodels", namespaced=True)
    api.kinds = (*(one for one in api.kinds if one != kind), kind)
    storage = {"storageUri": "hf://acme/tiny", "key": key}
    metadata = {"name": name, "namespace": "team-a"}
    api.put({"apiVersion": "ome.io/v1beta1", "kind": "BaseModel", "metadata": metadata, "spec": {"storage": storage}})


def test_base_models_need_the_namespace_in_the_list_before_anything_changes(tmp_path: Path, api: ClusterApi) -> None:
    put(api, "Namespace", "team-a")
    base_model(api, "tiny", "")
    output = play(tmp_path, api, "main", controller_namespaces=["team-a"], failing=True)
    assert "controller_namespaces: ome is missing" in output
    assert api.writes == []


def test_base_models_without_their_secret_are_named(tmp_path: Path, api: ClusterApi) -> None:
    base_model(api, "tiny", "hf-token")
    base_model(api, "other", "s3")
    put(api, "Secret", "team-a.s3", "ome", type="Opaque")
    output = play(tmp_path, api, "main")
    assert "there is no Secret team-a.hf-token in the namespace ome" in output
    assert "team-a.s3" not in output


@pytest.mark.parametrize("volumes", [True, False])
def test_models_stay_read_only_while_there_are_volumes(tmp_path: Path, api: ClusterApi, volumes: bool) -> None:
    play(tmp_path, api, "main")
    if volumes:
        put(api, "PersistentVolume", "slipway.ome.x", labels={"slipway.inference/volume": "slipway.ome.x"})
    play(tmp_path, api, "uninstall")
    policies = {name for kind, _namespace, name in api.objects if kind == "ValidatingAdmissionPolicyBinding"}
    expected = {"slipway-controller-volumes-claims", "slipway-controller-volumes-mounts"} if volumes else set()
    assert policies == expected
