"""How the role recognizes the cluster that it created earlier."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from .rendering import Rendered


def inspected(port: str) -> dict[str, Any]:
    """The part of ``docker inspect`` that the role reads, for a node whose gateway has this port."""
    ports = {"6443/tcp": [{"HostPort": "40001"}], "30080/tcp": [{"HostIp": "127.0.0.1", "HostPort": port}]}
    return {
        "Name": "/slipway-control-plane",
        "Config": {"Image": "kindest/node:v1.36.4"},
        "HostConfig": {"Binds": ["/lib/modules:/lib/modules:ro"], "PortBindings": ports},
    }


@pytest.mark.parametrize(("requested", "bound", "kept"), [(8080, "8080", True), (8080, "8090", False), (-1, "0", True)])
def test_a_cluster_with_the_same_port_is_kept(requested: int, bound: str, kept: bool) -> None:
    role = Rendered(
        "local_cluster",
        local_cluster_gateway_port=requested,
        local_cluster_containers=[inspected(bound)],
        local_cluster_kubernetes_version="1.36.4",
    )

    assert (role["local_cluster_is"] == role["local_cluster_asked"]) is kept


def kind_config(**given: Any) -> dict[str, Any]:
    labels = {"stdout": '{"slipway.inference/inputs": "0123456789abcdef"}'}
    role = Rendered("local_cluster", local_cluster_image_labels=labels, **given)
    return dict(yaml.safe_load(role.text("kind.yml.j2")))


@pytest.mark.parametrize(
    ("version", "patched"), [("1.30.0", False), ("1.34.11", False), ("1.35.0", True), ("1.36.4", True)]
)
def test_the_kubelet_starts_on_cgroup_v1(version: str, patched: bool) -> None:
    """Before 1.31, the kubelet does not know the field."""
    patches = kind_config(local_cluster_kubernetes_version=version).get("kubeadmConfigPatches") or []

    kubelets = [yaml.safe_load(patch) for patch in patches]
    assert kubelets == ([{"kind": "KubeletConfiguration", "failCgroupV1": False}] if patched else [])


def test_etcd_in_memory_is_a_patch_of_its_own() -> None:
    config = kind_config(local_cluster_etcd_in_memory=True)

    (etcd,) = [
        patch
        for patch in map(yaml.safe_load, config["kubeadmConfigPatches"])
        if patch["kind"] == "ClusterConfiguration"
    ]
    assert etcd["etcd"] == {"local": {"dataDir": "/tmp/etcd"}}
    assert len(config["kubeadmConfigPatches"]) == 2
