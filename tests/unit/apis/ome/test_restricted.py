"""What the controller adds to pods in tenants' namespaces meets the restricted Pod Security Standard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipway.kube.objects import key
from slipway.serving.containers.freedoms import templates
from tests.unit.apis.test_golden import EXAMPLES, api_of, planned, world_of

JOBS = "ome"
"""The operator's namespace."""
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
OWN = {"pd": {"hostNetwork"}, "two-nodes": {"hostIPC"}}
"""Example -> what its runtime says."""
KEPT = ("canary",)
"""Examples that keep the pods of an earlier spec."""
OF_OME = [path for path in EXAMPLES if path.parent.name == "ome"]


def violations(pod: dict[str, Any]) -> Iterator[str]:
    """The rules of the standard, but for the user: that is the image's, or the runtime's."""
    for volume in pod.get("volumes", ()):
        if not volume.keys() & VOLUMES:
            yield f"volume {volume['name']}"
    yield from (field for field in ("hostNetwork", "hostPID", "hostIPC") if pod.get(field))
    if pod.get("securityContext", {}).get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "seccompProfile"
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        context = container.get("securityContext", {})
        if context.get("privileged") or context.get("allowPrivilegeEscalation") is not False:
            yield f"privileges of {container['name']}"
        if "ALL" not in context.get("capabilities", {}).get("drop", ()):
            yield f"capabilities of {container['name']}"
        yield from (f"hostPort of {container['name']}" for port in container.get("ports", ()) if port.get("hostPort"))


def pods_of(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Those of a tenant's namespace, with the kind of what makes them."""
    api, world = api_of(path), world_of(path)
    plan, _rejection = planned(api, world)
    children = [one for one in (plan.children if plan else ()) if key(one).namespace not in ("", JOBS)]
    return [(one["kind"], pod["spec"]) for one in children for _place, pod in templates(one)]


@pytest.mark.parametrize("path", OF_OME, ids=lambda path: path.stem)
def test_additions_to_pods_meet_the_restricted_standard(path: Path) -> None:
    for kind, pod in pods_of(path):
        assert path.stem in KEPT or set(violations(pod)) <= OWN.get(path.stem, set())
        if kind == "Job":  # nothing of it is of a runtime
            assert pod["securityContext"]["runAsNonRoot"] is True


def test_the_examples_have_pods_with_models_of_nodes() -> None:
    pods = [pod for path in OF_OME for _kind, pod in pods_of(path)]
    claims = [one for pod in pods for one in pod.get("volumes", ()) if "persistentVolumeClaim" in one]
    assert len([one for one in claims if one["persistentVolumeClaim"]["claimName"].startswith("slipway.ome.")]) > 9


@pytest.mark.parametrize("path", OF_OME, ids=lambda path: path.stem)
def test_only_the_operators_namespace_has_pods_with_folders_of_nodes(path: Path) -> None:
    plan, _rejection = planned(api_of(path), world_of(path))
    for child in plan.children if plan else ():
        volumes = [one for _place, pod in templates(child) for one in pod["spec"].get("volumes", ())]
        assert key(child).namespace == JOBS or not any("hostPath" in one for one in volumes)
