"""How the role recognizes the cluster that it created earlier."""

from __future__ import annotations

from typing import Any

import pytest

from .rendering import Rendered


def inspected(port: str) -> dict[str, Any]:
    """The part of ``docker inspect`` that the role reads, for a node whose gateway has this port."""
    ports = {"6443/tcp": [{"HostPort": "40001"}], "30080/tcp": [{"HostIp": "127.0.0.1", "HostPort": port}]}
    return {
        "Name": "/slipway-control-plane",
        "Config": {"Image": "kindest/node:v1.34.4"},
        "HostConfig": {"Binds": ["/lib/modules:/lib/modules:ro"], "PortBindings": ports},
    }


@pytest.mark.parametrize(("requested", "bound", "kept"), [(8080, "8080", True), (8080, "8090", False), (-1, "0", True)])
def test_a_cluster_with_the_same_port_is_kept(requested: int, bound: str, kept: bool) -> None:
    role = Rendered(
        "local_cluster",
        local_cluster_gateway_port=requested,
        local_cluster_containers=[inspected(bound)],
        local_cluster_kubernetes_version="1.34.4",
    )

    assert (role["local_cluster_is"] == role["local_cluster_asked"]) is kept
