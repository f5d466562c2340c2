"""Pods from users' manifests, and the defaults for fields that these leave open."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.apis.ome.components.manifests import answering, finished
from slipway.kube.objects import Object
from slipway.kube.schemas.core import core_schema
from slipway.serving.containers.drain import Drain
from slipway.serving.containers.freedoms import freedoms
from tests.schemas import faults

BARE: Object = {"name": "engine", "image": "a"}
LAST_WORDS = "FallbackToLogsOnError"


def pod(**fields: Any) -> Object:
    return {"containers": [BARE, {"name": "beside", "image": "b"}], **fields}


def test_a_bare_pod_has_no_privileges_drains_and_leaves_its_last_words() -> None:
    spec = finished(pod(initContainers=[{"name": "before", "image": "c"}]), 8080, Drain(seconds=30))
    deployment = {"kind": "Deployment", "metadata": {"name": "x"}, "spec": {"template": {"spec": spec}}}
    containers = [*spec["initContainers"], *spec["containers"]]
    assert faults(core_schema("PodSpec"), spec) == []
    assert {one.setting for one in freedoms([deployment])} == {"image_prefixes"}
    assert {one["terminationMessagePolicy"] for one in containers} == {LAST_WORDS}
    assert [one["name"] for one in containers if "lifecycle" in one] == ["engine"]
    assert spec["containers"][0]["lifecycle"] == {"preStop": Drain(seconds=30).hook(8080)}
    assert spec["terminationGracePeriodSeconds"] == 45


def test_the_manifest_takes_precedence() -> None:
    spec = {
        "enableServiceLinks": True,
        "terminationGracePeriodSeconds": 5,
        "securityContext": {"seccompProfile": {"type": "Unconfined"}, "runAsUser": 5},
    }
    assert spec.items() <= finished(pod(**spec), 8080, Drain(seconds=30)).items()
    own = {"lifecycle": {"preStop": {"exec": {"command": ["true"]}}, "postStart": {}}, "imagePullPolicy": "Never"}
    (container,) = finished({"containers": [{**BARE, **own}]}, 8080, Drain(seconds=30))["containers"]
    assert own.items() <= container.items()


def test_without_a_time_to_drain_nothing_waits() -> None:
    (container, _beside) = finished(pod(), 8080, Drain(seconds=0))["containers"]
    assert "lifecycle" not in container


def test_a_part_of_a_security_context_is_completed() -> None:
    spec = finished(pod(securityContext={"runAsUser": 5}), 8080, Drain(seconds=30))
    assert spec["securityContext"] == {"runAsUser": 5, "seccompProfile": {"type": "RuntimeDefault"}}


@pytest.mark.parametrize(
    ("port", "text", "expected"),
    [
        (8080, None, {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}),
        (80, {}, {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}),
        (80, {"runAsUser": 5}, {"allowPrivilegeEscalation": False, "runAsUser": 5}),
        (80, {"allowPrivilegeEscalation": True}, {"allowPrivilegeEscalation": True}),
        (80, {"privileged": True}, {"privileged": True}),
        (80, {"capabilities": {"add": ["CAP_SYS_ADMIN"]}}, {"capabilities": {"add": ["CAP_SYS_ADMIN"]}}),
    ],
)
def test_a_container_has_as_little_privilege_as_it_can_do_with(port: int, text: Any, expected: Object) -> None:
    (container,) = finished({"containers": [{**BARE, "securityContext": text}]}, port, Drain(seconds=30))["containers"]
    assert container["securityContext"] == expected


def test_serving_containers_have_a_port_and_a_probe() -> None:
    probe = {"tcpSocket": {"port": 8080}, "periodSeconds": 10}
    port = {"name": "http", "containerPort": 8080, "protocol": "TCP"}
    assert answering(BARE, 8080, on_node=False) == {**BARE, "ports": [port], "readinessProbe": probe}
    assert answering(BARE, 8080, on_node=True) == {**BARE, "readinessProbe": probe}
    own = {**BARE, "ports": [{"containerPort": 1}], "readinessProbe": {"exec": {"command": ["true"]}}}
    assert answering(own, 8080, on_node=False) == own


def test_a_port_without_a_name_gets_the_one_that_prometheus_looks_for() -> None:
    named = answering({**BARE, "ports": [{"containerPort": 1}, {"containerPort": 8080}]}, 8080, on_node=True)
    assert named["ports"] == [{"containerPort": 1}, {"name": "http", "containerPort": 8080}]
    for ports in ([{"name": "api", "containerPort": 8080}], [{"name": "http", "containerPort": 1}]):
        both = [*ports, {"containerPort": 8080}] if ports[0]["name"] == "http" else ports
        assert answering({**BARE, "ports": both}, 8080, on_node=False)["ports"] == both
