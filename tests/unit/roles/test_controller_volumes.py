"""What the API server holds the controller, and all others, to where pods read OME's models by volumes. That it does is
shown on a cluster, in tests/cluster/test_ome.py."""

from __future__ import annotations

from typing import Any

from slipway.apis.ome.models.volumes import PREFIX, ModelClaim, build_volume
from slipway.weights.nodes import RECORDS

from .rendering import Rendered

ACCOUNT = "system:serviceaccount:models-system:slipway-controller"


def policies(**variables: Any) -> dict[str, Any]:
    objects = Rendered("controller", controller_namespace="models-system", **variables)[
        "__controller_volumes_policy_objects"
    ]
    bindings = [one for one in objects if one["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert all(one["spec"]["validationActions"] == ["Deny"] for one in bindings)
    found = {one["metadata"]["name"]: one["spec"] for one in objects if one not in bindings}
    assert [one["spec"]["policyName"] for one in bindings] == [*found]
    assert {one["failurePolicy"] for one in found.values()} == {"Fail"}
    return {name.removeprefix("slipway-controller-volumes-"): spec for name, spec in found.items()}


def expressions(spec: Any) -> list[str]:
    return [one["expression"] for one in spec["validations"]]


def test_the_controller_makes_volumes_of_directories_for_models_only() -> None:
    spec = policies(controller_ome_roots=["/raid/models/"], controller_ome_shared_roots=["/mnt/shared"])["volumes"]
    assert spec["matchConditions"][0]["expression"] == f'request.userInfo.username == "{ACCOUNT}"'
    ours, below, modes, claim, nodes = expressions(spec)
    assert f'object.metadata.name.startsWith("{PREFIX}")' in ours
    assert 'object.spec.local.path.startsWith("/raid/models/") ||' in below
    assert 'object.spec.local.path.startsWith("/mnt/shared/")' in below
    assert below.startswith("has(object.spec.local) && (")
    assert '["ReadOnlyMany"]' in modes
    assert "claimRef.?name" in claim
    assert 'claimRef.?uid.orValue("") != ""' in claim
    assert f'one.key.startsWith("{RECORDS}")' in nodes


def test_without_directories_for_models_the_controller_makes_no_volume() -> None:
    _ours, below, *_others = expressions(policies(controller_ome_roots=[])["volumes"])
    assert below == "has(object.spec.local) && (false)"


def test_the_policy_allows_the_controllers_plans() -> None:
    claim = {"metadata": {"name": f"{PREFIX}abc", "namespace": "chat", "uid": "u"}}
    made = build_volume("uid", ModelClaim("/raid/models/tiny", claim))
    [term] = made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert [(one["key"].startswith(RECORDS), one["operator"]) for one in term["matchExpressions"]] == [(True, "Exists")]
    assert made["spec"]["claimRef"]["name"] == made["metadata"]["name"]
    assert made["spec"]["claimRef"]["uid"]
    assert made["spec"]["mountOptions"] == ["ro"]
    assert (made["spec"]["accessModes"], made["spec"]["persistentVolumeReclaimPolicy"]) == (["ReadOnlyMany"], "Retain")


def test_pods_mount_claims_of_models_read_only() -> None:
    spec = policies()["mounts"]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE"])
    assert "username" not in str(spec), "it is for all"
    (only,) = expressions(spec)
    assert f'startsWith("{PREFIX}") || one.persistentVolumeClaim.?readOnly.orValue(false)' in only


def test_others_neither_make_nor_change_nor_delete_claims_of_models() -> None:
    spec = policies()["claims"]
    (condition,) = spec["matchConditions"]
    assert f'username != "{ACCOUNT}"' in condition["expression"]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["persistentvolumeclaims"], ["CREATE", "UPDATE", "DELETE"])
    create, change, delete = expressions(spec)
    assert create == 'request.operation != "CREATE"'
    assert delete.startswith(
        'request.operation != "DELETE" || request.userInfo.username == "system:kube-controller-manager"'
    )
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        assert f"object.metadata.?{field} == oldObject.metadata.?{field}" in change
