"""A Server becomes a Deployment: the parts that not every API uses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.serving import volumes
from slipway.serving.diagnosis import TEMPLATE
from slipway.serving.job import ended
from slipway.serving.plan import Invalid
from slipway.serving.server import Container, File, Mount, Probe, Probes, Scale, Server
from slipway.serving.workload import deployment, workload

HTTP = Probe(path="/health", period=5, timeout=3, failures=3)
SERVER = Server(
    name="tiny",
    namespace="models",
    labels={"model": "tiny"},
    selector={"model": "tiny"},
    engine=Container(name="engine", image="engine:1", mounts=(Mount("data", "/data", "sub", read_only=True),)),
    port=8080,
    probes=Probes(Probe(command=("ready",), initial_delay=2, period=1, timeout=600, failures=10), HTTP, HTTP),
    drain_seconds=15,
    volumes=(volumes.claim("data", "weights"),),
)


def made(surge: int | None = None, **changes: Any) -> dict[str, Any]:
    spec: dict[str, Any] = deployment(msgspec.structs.replace(SERVER, **changes), Scale(1, surge))["spec"]
    return spec


def pod(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = made(**changes)["template"]["spec"]
    return found


def mark(**changes: Any) -> str:
    return str(made(**changes)["template"]["metadata"]["annotations"][TEMPLATE])


def test_a_start_may_take_what_its_probe_waits() -> None:
    assert SERVER.startup_seconds == 602
    assert made()["progressDeadlineSeconds"] == 662
    probe = pod()["containers"][0]["startupProbe"]
    assert probe["exec"] == {"command": ["ready"]}
    assert probe["initialDelaySeconds"] == 2


def test_containers_before_and_beside_the_engine_answer_no_probes_but_their_own() -> None:
    found = pod(before=(Container(name="fetch", image="f"),), beside=(Container(name="look", image="l"),))
    assert [one["name"] for one in found["initContainers"]] == ["fetch"]
    assert [one["name"] for one in found["containers"]] == ["engine", "look"]
    assert "readinessProbe" not in found["containers"][1]
    assert {one["terminationMessagePolicy"] for one in found["containers"]} == {"FallbackToLogsOnError"}
    own = Probe(port=81, path="/well", period=1, timeout=5, failures=1)
    found = pod(beside=(Container(name="look", image="l", readiness=own),))
    assert found["containers"][1]["readinessProbe"]["httpGet"] == {"path": "/well", "port": 81}
    assert found["containers"][0]["readinessProbe"]["httpGet"] == {"path": "/health", "port": "http"}


def test_a_mount_may_be_a_part_of_a_volume() -> None:
    mount = {"name": "data", "mountPath": "/data", "subPath": "sub", "readOnly": True}
    assert pod()["containers"][0]["volumeMounts"] == [mount]


@pytest.mark.parametrize(
    ("surge", "strategy"),
    [(None, None), (2, {"maxSurge": 2, "maxUnavailable": 0}), (0, {"maxSurge": 0, "maxUnavailable": 1})],
)
def test_a_rollout_without_surge_takes_away_first(surge: int | None, strategy: dict[str, int] | None) -> None:
    assert made(surge).get("strategy", {}).get("rollingUpdate") == strategy


def test_an_account_is_made_only_where_one_is_wanted_and_none_is_given() -> None:
    def kinds(**changes: Any) -> set[str]:
        return {child["kind"] for child in workload(msgspec.structs.replace(SERVER, **changes), Scale(1), ())}

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
    with pytest.raises(Invalid, match="must leave the pod"):
        made(patches=(patch,))


def test_the_end_of_a_job_is_read_from_its_conditions() -> None:
    failed = {"type": "Failed", "status": "True", "lastTransitionTime": "2026-11-21T09:00:00Z"}
    job = {"status": {"conditions": [{"type": "Complete", "status": "False"}, failed]}}
    assert ended(job, "Complete") is None
    assert ended(job, "Failed") == 1795251600
    assert ended(None, "Failed") is None
