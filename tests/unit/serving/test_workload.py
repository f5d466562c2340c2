"""A ModelServer becomes a Deployment: the parts that not every API uses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.serving.containers import volumes
from slipway.serving.containers.diagnosis import TEMPLATE
from slipway.serving.containers.drain import Drain
from slipway.serving.contract.api import InvalidSpecError
from slipway.serving.pods.job import ended
from slipway.serving.pods.server import Container, File, ModelServer, Mount, Probe, Probes, Scale, ServiceSpec
from slipway.serving.pods.workload import (
    Rollout,
    deployment,
    deployment_of,
    keep_deployment,
    pod_template,
    service,
    workload,
)
from slipway.serving.routing.route import Route

HTTP = Probe(path="/health", period=5, timeout=3, failures=3)
SERVER = ModelServer(
    name="tiny",
    namespace="models",
    labels={"model": "tiny"},
    selector={"model": "tiny"},
    engine=Container(name="engine", image="engine:1", mounts=(Mount("data", "/data", "sub", read_only=True),)),
    port=8080,
    probes=Probes(Probe(command=("ready",), initial_delay=2, period=1, timeout=600, failures=10), HTTP, HTTP),
    drain=Drain(seconds=15),
    volumes=(volumes.claim("data", "weights"),),
)


def build_spec(surge: int | None = None, **changes: Any) -> dict[str, Any]:
    spec: dict[str, Any] = deployment(msgspec.structs.replace(SERVER, **changes), Scale(1, surge))["spec"]
    return spec


def pod(**changes: Any) -> dict[str, Any]:
    spec: dict[str, Any] = build_spec(**changes)["template"]["spec"]
    return spec


def mark(**changes: Any) -> str:
    return str(build_spec(**changes)["template"]["metadata"]["annotations"][TEMPLATE])


def test_a_start_may_take_what_its_probe_waits() -> None:
    assert SERVER.startup_seconds == 602
    assert build_spec()["progressDeadlineSeconds"] == 662
    probe = pod()["containers"][0]["startupProbe"]
    assert probe["exec"] == {"command": ["ready"]}
    assert probe["initialDelaySeconds"] == 2


def test_containers_before_and_beside_the_engine_answer_no_probes_but_their_own() -> None:
    spec = pod(init_containers=(Container(name="fetch", image="f"),), sidecars=(Container(name="look", image="l"),))
    assert [one["name"] for one in spec["initContainers"]] == ["fetch"]
    assert [one["name"] for one in spec["containers"]] == ["engine", "look"]
    assert "readinessProbe" not in spec["containers"][1]
    assert {one["terminationMessagePolicy"] for one in spec["containers"]} == {"FallbackToLogsOnError"}
    own = Probe(port=81, path="/well", period=1, timeout=5, failures=1)
    spec = pod(sidecars=(Container(name="look", image="l", readiness=own),))
    assert spec["containers"][1]["readinessProbe"]["httpGet"] == {"path": "/well", "port": 81}
    assert spec["containers"][0]["readinessProbe"]["httpGet"] == {"path": "/health", "port": "http"}


def test_a_mount_may_be_a_part_of_a_volume() -> None:
    mount = {"name": "data", "mountPath": "/data", "subPath": "sub", "readOnly": True}
    assert pod()["containers"][0]["volumeMounts"] == [mount]


@pytest.mark.parametrize(
    ("surge", "strategy"),
    [(None, None), (2, {"maxSurge": 2, "maxUnavailable": 0}), (0, {"maxSurge": 0, "maxUnavailable": 1})],
)
def test_a_rollout_without_surge_takes_away_first(surge: int | None, strategy: dict[str, int] | None) -> None:
    assert build_spec(surge).get("strategy", {}).get("rollingUpdate") == strategy


def test_an_account_is_made_only_where_one_is_wanted_and_none_is_given() -> None:
    def kinds(**changes: Any) -> set[str]:
        return {child["kind"] for child in workload(msgspec.structs.replace(SERVER, **changes), Scale(1), ()).children}

    assert kinds() == {"Deployment"}
    assert kinds(own_account=True) == {"Deployment", "ServiceAccount"}
    assert kinds(own_account=True, service_account="given") == {"Deployment"}
    assert pod()["automountServiceAccountToken"] is False
    assert "automountServiceAccountToken" not in pod(service_account="given")


def test_pods_are_marked_by_all_that_must_replace_them() -> None:
    marks = {
        mark(),
        mark(port=9),
        mark(files=(File("/a", "1"),)),
        mark(files=(File("/a", "2"),)),
        mark(patches=({"op": "add", "path": "/metadata/labels/x", "value": "y"},)),
    }
    assert len(marks) == 5
    assert mark(pod_labels={"other": "label"}) == mark()


@pytest.mark.parametrize(
    "patch",
    [
        {"op": "remove", "path": "/spec"},
        {"op": "replace", "path": "", "value": 1},
        {"op": "replace", "path": "/metadata/labels", "value": {}},
        {"op": "replace", "path": "/metadata", "value": None},
    ],
)
def test_a_patch_that_leaves_no_pod_is_refused(patch: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpecError, match="must keep the pod's spec"):
        build_spec(patches=(patch,))


def test_the_end_of_a_job_is_read_from_its_conditions() -> None:
    failed = {"type": "Failed", "status": "True", "lastTransitionTime": "2026-11-21T09:00:00Z"}
    job = {"status": {"conditions": [{"type": "Complete", "status": "False"}, failed]}}
    assert ended(job, "Complete") is None
    assert ended(job, "Failed") == 1795251600
    assert ended(None, "Failed") is None


def test_a_probe_as_kubernetes_writes_it_stands_in_place_of_ours_and_says_how_long_a_start_may_take() -> None:
    own = {"tcpSocket": {"port": 1}, "initialDelaySeconds": 4, "periodSeconds": 7, "failureThreshold": 2}
    given = {"probe_overrides": {"startupProbe": own, "livenessProbe": {"exec": {"command": ["ok"]}}}}
    engine = pod(**given)["containers"][0]
    bound = {"terminationGracePeriodSeconds": 30}
    assert engine["startupProbe"] == own | bound
    assert engine["livenessProbe"] == {"exec": {"command": ["ok"]}} | bound
    assert engine["readinessProbe"]["httpGet"]["path"] == "/health"
    assert build_spec(**given)["progressDeadlineSeconds"] == 4 + 7 * 2 + 60
    usual = msgspec.structs.replace(SERVER, probe_overrides={"startupProbe": {"httpGet": {"path": "/"}}})
    assert usual.startup_seconds == 30


def test_a_probe_without_path_and_command_only_connects() -> None:
    plain = Probe(period=1, timeout=2, failures=3)
    engine = pod(probes=Probes(plain, plain, plain))["containers"][0]
    assert engine["readinessProbe"]["tcpSocket"] == {"port": "http"}


def test_a_service_has_a_port_and_a_type_of_its_own_and_leads_to_the_engines() -> None:
    address = ServiceSpec("tiny", SERVER.selector, Route(), port=80, type="NodePort", node_port=30080)
    spec = service(SERVER, address)["spec"]
    assert spec["type"] == "NodePort"
    assert spec["ports"] == [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP", "nodePort": 30080}]
    (usual,) = service(SERVER, ServiceSpec("tiny", SERVER.selector, Route()))["spec"]["ports"]
    assert usual["port"] == 8080


def test_replicas_that_another_manager_sets_are_not_sent() -> None:
    assert "replicas" not in deployment(SERVER, Scale(None))["spec"]
    observed = deployment(SERVER, Scale(4))
    assert keep_deployment(observed, 2)["spec"]["replicas"] == 2
    assert "replicas" not in keep_deployment(observed, None)["spec"]
    assert keep_deployment(observed, 4) == observed


def test_a_rollout_may_take_all_pods_away_first_and_keep_no_history() -> None:
    spec = deployment(SERVER, Scale(1, surge=1, recreate=True, revision_history_limit=0))["spec"]
    assert spec["strategy"] == {"type": "Recreate"}
    assert spec["revisionHistoryLimit"] == 0


def test_further_mounts_come_after_ours() -> None:
    engine = msgspec.structs.replace(SERVER.engine, further_mounts=({"name": "x", "mountPath": "/x"},))
    assert [mount["name"] for mount in pod(engine=engine)["containers"][0]["volumeMounts"]] == ["data", "x"]


def test_a_deployment_finds_the_pods_of_any_finished_template_and_those_of_an_older_one_apart() -> None:
    rollout = Rollout(
        name="a", namespace="n", labels={"x": "y"}, selector={"app": "a"}, scale=Scale(2), startup_seconds=60
    )
    spec = {"containers": [{"name": "engine", "image": "engine:1"}]}
    first = deployment_of({"metadata": {"labels": {"mine": "1"}, "annotations": {"note": "1"}}, "spec": spec}, rollout)
    template = first["spec"]["template"]
    assert template["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "slipway", "mine": "1", "app": "a"}
    assert template["metadata"]["annotations"].keys() == {"note", TEMPLATE}
    assert (template["spec"], first["spec"]["replicas"]) == (spec, 2)
    other = deployment_of({"spec": {"containers": [{"name": "engine", "image": "engine:2"}]}}, rollout)
    marks = {one["spec"]["template"]["metadata"]["annotations"][TEMPLATE] for one in (first, other)}
    assert len(marks) == 2
    assert deployment_of(pod_template(SERVER), rollout)["spec"]["template"]["metadata"]["labels"]["app"] == "a"
