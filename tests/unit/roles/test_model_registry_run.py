"""The role model_registry: that it makes the keys first, installs, keeps what it has to and removes the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slipway.kube.objects import Object

from .cluster_api import ClusterApi
from .rendering import Rendered
from .role_run import run_role

NAME, COLLECTION, KEYS = "slipway-registry", "slipway-registry-collection", "slipway-depot-keys"
NAMESPACE = "slipway-system"
KEPT = Rendered("model_registry")["__model_registry_kept"]
LABELS = {"app.kubernetes.io/name": "slipway-depot", "app.kubernetes.io/part-of": "slipway"}
OF_KEYS = {(kind, NAMESPACE, KEYS) for kind in ("ServiceAccount", "Role", "RoleBinding", "CronJob")}
OF_COLLECTION = {
    (kind, NAMESPACE, COLLECTION) for kind in ("CronJob", "ConfigMap", "ServiceAccount", "Role", "RoleBinding")
}
INSTALLED = {
    ("Namespace", "", NAMESPACE),
    ("PersistentVolumeClaim", NAMESPACE, NAME),
    ("ServiceAccount", NAMESPACE, NAME),
    ("ConfigMap", NAMESPACE, NAME),
    ("Deployment", NAMESPACE, NAME),
    ("Service", NAMESPACE, NAME),
    ("PodDisruptionBudget", NAMESPACE, NAME),
    ("NetworkPolicy", NAMESPACE, NAME),
    ("Role", NAMESPACE, NAME),
    ("RoleBinding", NAMESPACE, NAME),
    ("ClusterRole", "", NAME),
    ("ClusterRoleBinding", "", NAME),
} | OF_KEYS | OF_COLLECTION  # fmt: skip


def play(folder: Path, api: ClusterApi, entry: str, *flags: str, **variables: object) -> str:
    """Output of a play that runs an entry point of the role, in one line."""
    return run_role(folder, api, "model_registry", entry, *flags, model_registry_wait=False, **variables)


def put_keys(api: ClusterApi) -> None:
    """As the program leaves them."""
    for kept in KEPT:
        metadata = kept["metadata"] | {"labels": LABELS}
        api.put(kept | {"metadata": metadata, "data": {"a": "aGlkZGVu"}})


def pod(api: ClusterApi, kind: str, name: str) -> Object:
    spec = api.objects[kind, NAMESPACE, name]["spec"]
    return dict((spec["jobTemplate"]["spec"] if kind == "CronJob" else spec)["template"]["spec"])


@pytest.mark.plays
def test_keys_come_first_and_a_second_run_changes_nothing(tmp_path: Path, api: ClusterApi) -> None:
    play(tmp_path, api, "main")
    assert set(api.objects) == INSTALLED
    assert api.writes.index(f"apply Job {KEYS}") < api.writes.index(f"apply Deployment {NAME}")
    assert api.writes.count(f"delete Job {KEYS}") == 1
    put_keys(api)
    written = [*api.writes]
    assert "aGlkZGVu" not in play(tmp_path, api, "main", "-vvv", "--diff")
    assert api.writes == written


@pytest.mark.plays
def test_a_missing_key_and_another_name_are_made_and_what_fails_ends_it(tmp_path: Path, api: ClusterApi) -> None:
    play(tmp_path, api, "main")
    put_keys(api)
    play(tmp_path, api, "main", model_registry_names=["models.example.com"])
    assert api.writes.count(f"apply Job {KEYS}") == 2
    assert "--registry-name=models.example.com" in pod(api, "CronJob", KEYS)["containers"][0]["args"]
    del api.objects["Secret", NAMESPACE, "slipway-depot-key"]
    api.failing = "no"
    output = run_role(tmp_path, api, "model_registry", "main", failing=True, model_registry_wait=False)
    assert "The keys of the registry and the depot were not created" in output


@pytest.mark.plays
def test_the_collector_has_what_the_registry_has_and_holds_it_read_only(tmp_path: Path, api: ClusterApi) -> None:
    s3 = {"bucket": "b", "secret": "s", "endpoint": "https://s3.example.com", "ca_secret": "authority"}
    for given in ({}, {"model_registry_s3": s3}):
        play(tmp_path, api, "main", **given)
        registry, collector = pod(api, "Deployment", NAME), pod(api, "CronJob", COLLECTION)
        [serving], [collecting], [window] = (
            registry["containers"], collector["containers"], collector["initContainers"],
        )  # fmt: skip
        assert serving["args"][1] == collecting["args"][-1]
        assert {"--delete-untagged", "garbage-collect"} <= {*collecting["args"]}
        shared = [one for one in serving["volumeMounts"] if one["name"] != "keys"]
        assert collecting["volumeMounts"] == shared
        assert [one for one in serving["env"] if one["name"] != "REGISTRY_HTTP_SECRET"] == collecting["env"]
        named = {one["name"] for one in collector["volumes"]}
        assert {one["name"] for one in (*collecting["volumeMounts"], *window["volumeMounts"])} <= named
        assert window["restartPolicy"] == "Always"
        config = json.loads(window["args"][0])
        assert (config["deployment"], config["container"]) == (NAME, serving["name"])
        assert bool(config["folders"]) is not bool(given)
    assert api.objects["Deployment", NAMESPACE, NAME]["spec"]["strategy"] == {"type": "Recreate"}


@pytest.mark.plays
def test_the_artifacts_and_the_keys_stay_unless_they_are_to_go_too(tmp_path: Path, api: ClusterApi) -> None:
    play(tmp_path, api, "main")
    put_keys(api)
    play(tmp_path, api, "uninstall")
    kept = {(one["kind"], NAMESPACE, one["metadata"]["name"]) for one in KEPT}
    kept |= {("PersistentVolumeClaim", NAMESPACE, NAME), ("Namespace", "", NAMESPACE)}
    assert set(api.objects) == kept
    play(tmp_path, api, "uninstall", model_registry_purge=True)
    assert set(api.objects) == {("Namespace", "", NAMESPACE)}


@pytest.mark.plays
def test_with_a_registry_only_the_keys_are_created(tmp_path: Path, api: ClusterApi) -> None:
    play(tmp_path, api, "main")
    play(tmp_path, api, "main", model_registry_external="registry.example.com:5000")
    assert (
        set(api.objects)
        == {
            ("Namespace", "", NAMESPACE),
            ("PersistentVolumeClaim", NAMESPACE, NAME),
        }
        | OF_KEYS
    )


@pytest.mark.plays
def test_check_mode_names_the_keys_and_writes_nothing(tmp_path: Path, api: ClusterApi) -> None:
    assert "would be created: Secret slipway-registry-tls" in play(tmp_path, api, "main", "--check")
    assert api.writes == []


@pytest.mark.plays
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"model_registry_s3": {"bucket": "b"}}, "model_registry_s3 has no secret"),
        ({"model_registry_external": "https://x"}, "which is not the address of a registry"),
        ({"model_registry_claim": "c", "model_registry_external": "x"}, "Set at most one of them"),
        ({"model_registry_replicas": 2}, "a ReadWriteOnce volume can be mounted on one node only"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    tmp_path: Path, api: ClusterApi, given: dict[str, Any], expected: str
) -> None:
    assert expected in run_role(tmp_path, api, "model_registry", "check", failing=True, **given)


def test_the_key_renewal_reads_and_writes_only_its_keys() -> None:
    for rule in Rendered("model_registry")["__model_registry_keys_rules"]:
        assert ("resourceNames" in rule) != (rule["verbs"] == ["create"])
        assert set(rule["verbs"]) <= {"create", "get", "update"}
