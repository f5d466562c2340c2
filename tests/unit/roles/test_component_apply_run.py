"""Applying objects with the role component: what counts as a change, and what --diff shows of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .cluster_api import ClusterApi
from .role_run import run_role

pytestmark = pytest.mark.plays
POLICY = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "policy"},
    "spec": {"failurePolicy": "Fail"},
}


def config(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "a"}, "data": data}


def play(folder: Path, api: ClusterApi, *manifests: dict[str, Any], flags: tuple[str, ...] = ()) -> str:
    return run_role(
        folder, api, "component", "apply", *flags, component_name="own", component_manifests=list(manifests)
    )


@pytest.mark.parametrize("manifests", [(POLICY,), (POLICY, config(a="1"))], ids=["one object", "several objects"])
def test_another_order_of_managers_is_not_a_change(
    tmp_path: Path, api: ClusterApi, manifests: tuple[dict[str, Any], ...]
) -> None:
    """API servers write the status of admission policies by apply, which reorders the managers at the next apply."""
    api.reordered = {"ValidatingAdmissionPolicy"}
    assert "changed=1 " in play(tmp_path, api, *manifests)

    assert "changed=0 " in play(tmp_path, api, *manifests)
    assert "changed=0 " in play(tmp_path, api, *manifests, flags=("--check", "--diff"))
    assert api.writes.count("apply ValidatingAdmissionPolicy policy") > 1


def test_each_changed_object_is_shown(tmp_path: Path, api: ClusterApi) -> None:
    play(tmp_path, api, POLICY, config(a="before"))

    output = play(tmp_path, api, POLICY, config(a="after"), flags=("--diff",))
    assert "changed=1 " in output
    assert "ConfigMap a/settings" in output
    assert '"a": "before"' in output
    assert "ValidatingAdmissionPolicy policy" not in output


def test_a_single_object_is_shown(tmp_path: Path, api: ClusterApi) -> None:
    output = play(tmp_path, api, config(a="new"), flags=("--check", "--diff"))

    assert "changed=1 " in output
    assert "ConfigMap a/settings" in output
    assert api.writes == []


def test_a_single_object_is_applied_once(tmp_path: Path, api: ClusterApi) -> None:
    api.reordered = {"ValidatingAdmissionPolicy"}
    play(tmp_path, api, POLICY)

    assert api.writes == ["apply ValidatingAdmissionPolicy policy"]


def test_only_the_changed_fields_of_a_single_object_are_shown(tmp_path: Path, api: ClusterApi) -> None:
    play(tmp_path, api, config(a="before", b="same"))

    output = play(tmp_path, api, config(a="after", b="same"), flags=("--diff",))
    assert '"before": { "data": { "a": "before" }' in output
    assert '"b": "same"' not in output


def test_without_diff_nothing_of_a_single_object_is_shown(tmp_path: Path, api: ClusterApi) -> None:
    assert "text-of-the-object" not in play(tmp_path, api, config(a="text-of-the-object"))


def test_the_live_data_of_a_secret_is_never_shown(tmp_path: Path, api: ClusterApi) -> None:
    place = {"name": "webhook-cert", "namespace": "a"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": place}
    api.put({**secret, "data": {"tls.key": "bGl2ZS1rZXk="}})

    output = play(tmp_path, api, config(a="1"), secret, flags=("--diff", "-vvv"))
    assert "bGl2ZS1rZXk=" not in output
    assert "ConfigMap a/settings" in output
    assert api.objects["Secret", "a", "webhook-cert"]["data"] == {"tls.key": "bGl2ZS1rZXk="}

    written = {**secret, "data": {"tls.key": "bmV3LWtleQ=="}}
    output = play(tmp_path, api, config(a="1"), written, flags=("--diff", "-vvv"))
    assert "changed=1 " in output
    assert "changed=0 " in play(tmp_path, api, config(a="1"), written)
