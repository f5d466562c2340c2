"""The playbook uninstall against an API server: it lists the remaining objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .api_server import Object
from .cluster_api import ClusterApi, Kind
from .role_run import run_play, run_role

pytestmark = [pytest.mark.plays, pytest.mark.timeout(900)]

CACHE = {"app.kubernetes.io/managed-by": "slipway"}
OURS = {"app.kubernetes.io/part-of": "slipway"}


PRIORITY_CLASS = Kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", namespaced=False)


def uninstall(folder: Path, api: ClusterApi, tags: str, **variables: Any) -> str:
    cluster = {"K8S_AUTH_HOST": api.url, "K8S_AUTH_API_KEY": "no-rights"}
    return run_play(
        folder,
        {"import_playbook": "slipway.inference.uninstall"},
        *("--extra-vars", json.dumps({"slipway_environment": cluster, **variables}), "--tags", tags),
    )


def test_the_remaining_objects_are_reported(tmp_path: Path, api: ClusterApi) -> None:
    api.kinds += (PRIORITY_CLASS,)
    definition = {"name": "things.example.com", "labels": OURS}
    api.put(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": definition,
            "spec": {},
        }
    )
    claim = {"name": "cache", "namespace": "models", "labels": CACHE}
    storage = {"resources": {"requests": {"storage": "100Gi"}}}
    api.put({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": claim, "spec": storage})

    output = uninstall(tmp_path, api, "models,crds")
    assert "Remaining definitions: things.example.com" in output
    assert "Remaining PVCs with caches: models/cache (100Gi)" in output
    assert "--extra-vars slipway_purge=true" in output
    assert "Removing" not in output


def test_the_namespace_of_the_demo_s_hub_is_removed(tmp_path: Path, api: ClusterApi) -> None:
    for name, part in (("slipway-hub", "slipway-demo"), ("other", "another-demo"), ("slipway-system", "slipway")):
        labels = {"app.kubernetes.io/part-of": part}
        api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})

    assert "changed=1 " in uninstall(tmp_path, api, "hub")
    assert api.writes == ["delete Namespace slipway-hub"]
    assert "changed=0 " in uninstall(tmp_path, api, "hub")


class HeldByLoadBalancer(dict[tuple[str, str, str], Object]):
    """A deleted Service stays until it was read again, as ``held`` says. ``late``: kinds deleted meanwhile."""

    held = False
    late: tuple[str, ...] = ()

    def __delitem__(self, key: tuple[str, str, str]) -> None:
        if key[0] == "Service":
            self.held = True
            return
        if self.held:
            self.late += (key[0],)
        super().__delitem__(key)

    def get(self, key: tuple[str, str, str], default: Any = None) -> Any:
        resource = super().get(key, default)
        if key[0] == "Service" and self.held:
            self.held = False
            super().__delitem__(key)
        return resource


def test_a_service_is_gone_before_its_component_is(tmp_path: Path, api: ClusterApi) -> None:
    place = {"name": "own", "namespace": "a"}
    for kind in ("Service", "ConfigMap", "ServiceAccount"):
        api.put({"apiVersion": "v1", "kind": kind, "metadata": place})
    objects = api.objects = HeldByLoadBalancer(api.objects)

    run_role(tmp_path, api, "component", "uninstall", component_name="own", component_namespace="a")
    assert objects == {}
    assert objects.late == ()


def test_leftovers_of_models_are_removed(tmp_path: Path, api: ClusterApi) -> None:
    """Caches only if they are to be purged, and nothing of others."""
    api.kinds += (PRIORITY_CLASS,)
    credentials = {"app.kubernetes.io/part-of": "slipway", "app.kubernetes.io/component": "credentials"}
    for name in ("a", "b"):
        for version, kind, labels in (("v1", "PersistentVolumeClaim", CACHE), ("v1", "Secret", credentials)):
            for owner, own in (("ours", labels), ("others", {})):
                metadata = {"name": f"{owner}-{name}", "namespace": "models", "labels": own}
                storage = {"spec": {"resources": {"requests": {"storage": "1Gi"}}}} if own == CACHE else {}
                api.put({"apiVersion": version, "kind": kind, "metadata": metadata, **storage})
        metadata = {"name": f"ours-{name}", "labels": CACHE}
        api.put({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata})
    others = {key for key in api.objects if key[2].startswith("others-")}
    caches = {("PersistentVolumeClaim", "models", f"ours-{name}") for name in ("a", "b")}

    uninstall(tmp_path, api, "models")
    assert {*api.objects} == others | caches
    uninstall(tmp_path, api, "models", slipway_purge=True)
    assert {*api.objects} == others


def test_nothing_of_the_controller_is_left(tmp_path: Path, api: ClusterApi) -> None:
    run_role(tmp_path, api, "controller", "main", controller_wait_timeout=10)
    for version, kind, name in (
        ("v1", "ConfigMap", "slipway-autoscaler"),
        ("v1", "Secret", "slipway-controller-signing"),
        ("coordination.k8s.io/v1", "Lease", "slipway-controller"),
    ):
        metadata = {"name": name, "namespace": "slipway-system"}
        api.put({"apiVersion": version, "kind": kind, "metadata": metadata})

    run_role(tmp_path, api, "controller", "uninstall", controller_wait_timeout=10)
    assert {*api.objects} == {("Namespace", "", "slipway-system")}
    assert "changed=0 " in run_role(tmp_path, api, "controller", "uninstall", controller_wait_timeout=10)
