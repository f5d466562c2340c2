"""The role runtime_class, run against an API server: it makes, replaces, leaves others alone, and removes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .cluster_api import ClusterApi
from .role_run import run_role

pytestmark = pytest.mark.plays

SANDBOXED = {
    "name": "sandboxed",
    "handler": "kata",
    "overhead": {"memory": "160Mi"},
    "node_selector": {"example.com/sandboxes": "true"},
    "tolerations": [{"key": "example.com/sandboxes", "operator": "Exists"}],
}


def play(folder: Path, api: ClusterApi, entry: str, *flags: str, failing: bool = False, **variables: object) -> str:
    return run_role(folder, api, "runtime_class", entry, *flags, failing=failing, **variables)


def of_another(name: str, handler: str) -> dict[str, Any]:
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "gpu-operator"}},
        "handler": handler,
    }


def node(name: str, *handlers: str, **labels: str) -> dict[str, Any]:
    status = {"runtimeHandlers": [{"name": handler} for handler in ("", "runc", *handlers)]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def handlers(api: ClusterApi) -> dict[str, str]:
    return {
        name: runtime_class["handler"]
        for (kind, _namespace, name), runtime_class in api.objects.items()
        if kind == "RuntimeClass"
    }


def test_a_class_of_ones_own_has_handler_overhead_and_nodes(tmp_path: Path, api: ClusterApi) -> None:
    play(tmp_path, api, "main", runtime_class_list=[SANDBOXED])
    runtime_class = api.objects["RuntimeClass", "", "sandboxed"]

    assert runtime_class["handler"] == "kata"
    assert runtime_class["overhead"] == {"podFixed": {"memory": "160Mi"}}
    assert runtime_class["scheduling"] == {
        "nodeSelector": {"example.com/sandboxes": "true"},
        "tolerations": [{"key": "example.com/sandboxes", "operator": "Exists"}],
    }


def test_another_handler_recreates_a_class_of_ours(tmp_path: Path, api: ClusterApi) -> None:
    play(tmp_path, api, "main", runtime_class_list=[{"name": "nvidia"}])
    api.writes.clear()
    changed = [{"name": "nvidia", "handler": "nvidia-cdi"}]
    assert "changed=1 " in play(tmp_path, api, "main", "--check", runtime_class_list=changed)
    assert api.writes == []

    play(tmp_path, api, "main", runtime_class_list=changed)
    assert api.writes == ["delete RuntimeClass nvidia", "apply RuntimeClass nvidia"]
    assert handlers(api) == {"nvidia": "nvidia-cdi"}


def test_a_class_of_another_is_named_and_left_alone(tmp_path: Path, api: ClusterApi) -> None:
    api.put(of_another("nvidia", "nvidia"))
    output = play(tmp_path, api, "main")
    play(tmp_path, api, "uninstall")

    assert "Not changed, because another installation owns it: RuntimeClass nvidia." in output
    assert handlers(api) == {"nvidia": "nvidia"}
    assert api.writes == ["apply RuntimeClass nvidia-cdi", "delete RuntimeClass nvidia-cdi"]


def test_a_class_of_another_with_another_handler_ends_it_before_anything_changes(
    tmp_path: Path, api: ClusterApi
) -> None:
    api.put(of_another("nvidia-cdi", "elsewhere"))
    output = play(tmp_path, api, "main", failing=True)

    assert (
        "RuntimeClass nvidia-cdi belongs to another installation and has the handler elsewhere, not nvidia-cdi"
        in output
    )
    assert api.writes == []


def test_verify_names_what_is_missing_and_handlers_that_no_node_knows(tmp_path: Path, api: ClusterApi) -> None:
    assert "RuntimeClass nvidia is missing." in play(tmp_path, api, "verify", failing=True)

    play(tmp_path, api, "main")
    play(tmp_path, api, "verify")
    api.put(node("one", "nvidia"))
    api.put(node("two", "nvidia"))
    output = play(tmp_path, api, "verify", failing=True)
    assert "No node has the handler nvidia-cdi of RuntimeClass nvidia-cdi. Checked: one, two." in output
    assert "handler nvidia of" not in output

    api.put(node("two", "nvidia-cdi"))
    play(tmp_path, api, "verify")


def test_only_the_nodes_that_a_class_selects_have_to_know_its_handler(tmp_path: Path, api: ClusterApi) -> None:
    api.put(node("plain"))
    play(tmp_path, api, "main", runtime_class_list=[SANDBOXED])
    play(tmp_path, api, "verify", runtime_class_list=[SANDBOXED])

    api.put(node("sandbox", **{"example.com/sandboxes": "true"}))
    output = play(tmp_path, api, "verify", failing=True, runtime_class_list=[SANDBOXED])
    assert "No node has the handler kata of RuntimeClass sandboxed. Checked: sandbox." in output


def test_on_openshift_nothing_is_done(tmp_path: Path, api: ClusterApi) -> None:
    output = play(tmp_path, api, "main", slipway_openshift=True)

    assert "OpenShift: the vendors' operators create RuntimeClasses" in output
    assert api.objects == {}
