"""The role leader_worker_set: what it may do; and that it installs, leaves others alone and removes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slipway.kube.objects import Object
from slipway.serving.pods.groups import LEADER_WORKER_SET
from tests import documents

from ..ansible_files import role_variables
from .cluster_api import ClusterApi
from .role_run import run_role

ROLE = Path(__file__).parents[3] / "roles/leader_worker_set"
VARS = role_variables(ROLE)
FILES = ("leaderworkersets", "disaggregatedsets")
DEFINITIONS = [documents.read(ROLE / f"files/{name}.yaml") for name in FILES]
DEFINITION = "leaderworkersets.leaderworkerset.x-k8s.io"
NAME, NAMESPACE = "slipway-leader-worker-set", "lws-system"
INSTALLED = {
    ("Namespace", "", NAMESPACE),
    ("CustomResourceDefinition", "", DEFINITION),
    ("CustomResourceDefinition", "", "disaggregatedsets.disaggregatedset.x-k8s.io"),
    ("ServiceAccount", NAMESPACE, NAME),
    ("ConfigMap", NAMESPACE, NAME),
    ("Deployment", NAMESPACE, NAME),
    ("PodDisruptionBudget", NAMESPACE, NAME),
    ("NetworkPolicy", NAMESPACE, NAME),
    ("Role", NAMESPACE, NAME),
    ("RoleBinding", NAMESPACE, NAME),
    ("ClusterRole", "", NAME),
    ("ClusterRoleBinding", "", NAME),
    ("Secret", NAMESPACE, "lws-webhook-server-cert"),
    ("Service", NAMESPACE, "lws-webhook-service"),
    ("MutatingWebhookConfiguration", "", "lws-mutating-webhook-configuration"),
    ("ValidatingWebhookConfiguration", "", "lws-validating-webhook-configuration"),
}


def play(folder: Path, api: ClusterApi, entry: str, *flags: str, **variables: object) -> str:
    """Output of a play that runs an entry point of the role, in one line."""
    return run_role(folder, api, "leader_worker_set", entry, *flags, leader_worker_set_wait=False, **variables)


def webhooks(kind: str) -> list[Object]:
    (configuration,) = [one for one in VARS["__leader_worker_set_webhooks"] if one["kind"] == kind]
    return list(configuration["webhooks"])


def test_the_definition_is_of_the_kind_that_groups_are_made_of() -> None:
    spec = DEFINITIONS[0]["spec"]
    kind = LEADER_WORKER_SET
    assert (spec["group"], spec["names"]["kind"], spec["names"]["plural"]) == (kind.group, kind.kind, kind.plural)
    assert [version["name"] for version in spec["versions"]] == [kind.version]


@pytest.mark.parametrize("kind", ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"])
def test_nothing_but_groups_and_their_pods_waits_for_it(kind: str) -> None:
    """A controller that is down must not keep other pods from being made."""
    for webhook in webhooks(kind):
        (rule,) = webhook["rules"]
        of_groups = webhook.get("objectSelector") == "{{ __leader_worker_set_of_groups }}"
        assert of_groups != (rule == "{{ __leader_worker_set_groups }}")
    assert VARS["__leader_worker_set_groups"]["resources"] == ["leaderworkersets"]
    selector = VARS["__leader_worker_set_of_groups"]["matchExpressions"]
    assert selector == [{"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}]


def test_secrets_are_read_in_its_own_namespace_alone() -> None:
    everywhere = [resource for rule in VARS["__leader_worker_set_cluster_rules"] for resource in rule["resources"]]
    assert "secrets" not in everywhere
    written = [rule for rule in VARS["__leader_worker_set_namespace_rules"] if "update" in rule["verbs"]]
    assert [rule.get("resourceNames") for rule in written if rule["resources"] == ["secrets"]] == [
        ["lws-webhook-server-cert"]
    ]


@pytest.mark.plays
def test_it_is_installed_and_a_second_run_changes_nothing(tmp_path: Path, api: ClusterApi) -> None:
    play(tmp_path, api, "main")
    assert set(api.objects) == INSTALLED
    written = [*api.writes]
    assert written.index(f"apply CustomResourceDefinition {DEFINITION}") < written.index(f"apply Deployment {NAME}")
    play(tmp_path, api, "main")
    assert api.writes == written


@pytest.mark.plays
def test_the_certificate_that_it_has_made_stays(tmp_path: Path, api: ClusterApi) -> None:
    play(tmp_path, api, "main")
    secret = api.objects["Secret", NAMESPACE, "lws-webhook-server-cert"]
    secret["data"] = {"tls.key": "aGlkZGVu"}
    for kind in ("Mutating", "Validating"):
        configuration = api.objects[f"{kind}WebhookConfiguration", "", f"lws-{kind.lower()}-webhook-configuration"]
        assert all(one["clientConfig"]["service"]["namespace"] == NAMESPACE for one in configuration["webhooks"])
    play(tmp_path, api, "main")
    assert api.objects["Secret", NAMESPACE, "lws-webhook-server-cert"]["data"] == {"tls.key": "aGlkZGVu"}


@pytest.mark.plays
def test_a_foreign_installation_stays_unchanged(tmp_path: Path, api: ClusterApi) -> None:
    of_another: dict[str, Any] = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": DEFINITION},
        "spec": {},
    }
    api.put(of_another)
    assert "belongs to another installation" in play(tmp_path, api, "main")
    play(tmp_path, api, "uninstall", leader_worker_set_purge=True)
    assert api.writes == []


@pytest.mark.plays
def test_it_is_removed_without_the_definitions_unless_they_are_to_go_too(tmp_path: Path, api: ClusterApi) -> None:
    play(tmp_path, api, "main")
    play(tmp_path, api, "uninstall")
    assert {kind for kind, _namespace, _name in api.objects} == {"CustomResourceDefinition"}
    first = next(one for one in api.writes if one.startswith("delete"))
    assert first == "delete MutatingWebhookConfiguration lws-mutating-webhook-configuration"
    play(tmp_path, api, "uninstall", leader_worker_set_purge=True)
    assert "CustomResourceDefinition" not in {kind for kind, _namespace, _name in api.objects}
