# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An API whose models are of several kinds, one of them of the whole cluster."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.slipway.inference.plugins.module_utils import _apis
from fake_api import FakeApi
from krypton_models import READY, becomes
from module_run import Run

Object = dict[str, Any]

API = "zoo.example/v1"
CLUSTER = f"/apis/{API}/clustermodels/"
NAMESPACED = f"/apis/{API}/namespaces/models/models/"
RULES: Object = {
    "ready": {"path": "status.phase", "within": ["Ready"]},
    "failed": {"path": "status.phase", "within": ["Failed"]},
}
RESOURCES: list[Object] = [
    {"group": "zoo.example", "version": "v1", "kind": kind, "plural": plural, "module": module, **RULES, **further}
    for kind, plural, module, further in (
        ("ClusterModel", "clustermodels", "model", {"namespaced": False, "pods": ["loads={name}"]}),
        ("Model", "models", "model", {}),
        ("Cage", "cages", "", {}),
        (
            "InferenceService",
            "inferenceservices",
            "inference_service",
            {"needs": [{"kind": "ClusterModel", "path": "spec.model"}], "seen": "status.seen"},
        ),
    )
]


@pytest.fixture(autouse=True)
def zoo(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = _apis.kinds(RESOURCES)
    monkeypatch.setitem(_apis.MODELS, "zoo", kinds["model"])  # type: ignore[arg-type]
    monkeypatch.setitem(_apis.SERVICES, "zoo", kinds["inference_service"])  # type: ignore[arg-type]
    api.served.add(f"/apis/{API}")


def test_a_model_that_names_neither_kind_nor_namespace_is_of_the_cluster(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=READY)
    result = run("model", api="zoo", models=[{"name": "a", "spec": {"x": 1}}])
    assert (result.failed, result["changed"]) == (False, True)
    assert [(one["kind"], one["namespace"], one["ready"]) for one in result["results"]] == [("ClusterModel", "", True)]
    assert [*api.objects] == [CLUSTER + "a"]


def test_a_model_with_a_namespace_is_in_it(api: FakeApi, run: Run) -> None:
    run("model", api="zoo", models=[{"name": "a", "spec": {"x": 1}}], namespace="models", wait=False)
    manifest = {"kind": "Model", "metadata": {"name": "b", "namespace": "models"}, "spec": {"x": 1}}
    run("model", api="zoo", models=[manifest, {**manifest, "kind": "ClusterModel"}], wait=False)
    assert [*api.objects] == [NAMESPACED + "a", NAMESPACED + "b", CLUSTER + "b"]


def test_models_of_several_kinds_are_made_and_waited_for_in_one_task(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=READY)
    models = [{"name": "a", "spec": {"x": 1}}, {"name": "a", "kind": "Model", "namespace": "models", "spec": {"x": 2}}]
    result = run("model", api="zoo", models=models)
    assert [(one["kind"], one["namespace"]) for one in result["results"]] == [("ClusterModel", ""), ("Model", "models")]
    assert {path: one["spec"]["x"] for path, one in api.objects.items()} == {CLUSTER + "a": 1, NAMESPACED + "a": 2}
    assert not run("model", api="zoo", models=models)["changed"]


def test_a_single_model_may_say_its_kind(api: FakeApi, run: Run) -> None:
    run("model", api="zoo", name="a", kind="Model", namespace="models", spec={"x": 1}, wait=False)
    assert [*api.objects] == [NAMESPACED + "a"]


def test_a_kind_that_the_api_has_not_is_refused_with_those_that_it_has(run: Run) -> None:
    result = run("model", api="zoo", models=[{"name": "a", "kind": "Elephant", "spec": {}}])
    assert result["error_code"] == "invalid_input"
    assert "kind is Elephant, not Model or ClusterModel" in result["msg"]


def test_resources_that_model_info_returned_can_be_deleted(api: FakeApi, run: Run) -> None:
    for name, kind in (("a", "ClusterModel"), ("b", "Model")):
        run("model", api="zoo", name=name, kind=kind, namespace="models", spec={"x": 1}, wait=False)
    info = run("model_info", api="zoo")
    assert {(one["kind"], one["name"], one["namespace"]) for one in info["models"]} == {
        ("ClusterModel", "a", ""),
        ("Model", "b", "models"),
    }
    assert not run("model", api="zoo", models=info["resources"], state="absent").failed
    assert api.objects == {}


def test_cluster_scoped_objects_have_no_namespace(run: Run) -> None:
    for name, kind in (("a", "ClusterModel"), ("b", "Model")):
        run("model", api="zoo", name=name, kind=kind, namespace="models", spec={"x": 1}, wait=False)
    assert [one["name"] for one in run("model_info", api="zoo", namespace="models")["models"]] == ["b"]
    assert [one["name"] for one in run("model_info", api="zoo", name="a")["models"]] == ["a"]


def test_models_of_a_cluster_without_the_api_are_none(api: FakeApi, run: Run) -> None:
    api.served.discard(f"/apis/{API}")
    assert not run("model_info", api="zoo")["api_found"]


def test_wait_conditions_hold_for_models_of_every_kind(api: FakeApi, run: Run) -> None:
    """They are ready by their own rule; the task requires more."""
    api.controller = becomes(a=READY, b={**READY, "nodes": 1})
    models = [{"name": "b", "kind": "Model", "namespace": "models", "spec": {"x": 1}}]
    wait = {"wait_for": [{"field": "status.nodes", "equals": 1}], "wait_timeout": 2}
    assert not run("model", api="zoo", models=models, **wait).failed
    late = run("model", api="zoo", models=[{**models[0], "name": "a"}], **wait)
    assert late["error_code"] == "timeout"


def test_a_failure_of_the_cluster_s_model_is_reported_with_the_log_of_its_pod(api: FakeApi, run: Run) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "load-a", "namespace": "other", "labels": {"loads": "a"}},
        "status": {"phase": "Failed", "containerStatuses": [{"name": "loader", "ready": False}]},
    }
    api.objects["/api/v1/namespaces/other/pods/load-a"] = pod
    api.logs["load-a"] = "no such repository"
    api.controller = becomes(a={"phase": "Failed", "conditions": []})
    result = run("model", api="zoo", name="a", spec={"x": 1})
    assert result["error_code"] == "failed"
    assert result["results"][0]["log"] == ["no such repository"]


def test_a_service_waits_for_the_cluster_s_model_beside_it(api: FakeApi, run: Run) -> None:
    """Its failure may be about an earlier model, until its status shows that it has observed the current one."""
    api.controller = becomes(m=READY, s={"phase": "Failed", "conditions": []})
    services = [{"name": "s", "namespace": "models", "spec": {"model": "m"}}]
    task = {"api": "zoo", "models": [{"name": "m", "spec": {"x": 1}}], "inference_services": services}
    late = run("inference_service", **task, wait_timeout=2)
    assert (late["error_code"], late["results"][1]["reason"]) == ("timeout", "ClusterModelNotReady")


def test_the_reason_for_a_services_runtime_is_reported_on_request(api: FakeApi, run: Run) -> None:
    runtime = {"name": "cpu", "kind": "ClusterServingRuntime", "score": 25, "chosen": "Selection"}
    excluded = [{"name": "gpu", "kind": "ClusterServingRuntime", "reason": "size 70B is beyond 8B"}]
    api.controller = becomes(a={"runtime": runtime}, b={"excluded": excluded})
    services = [{"name": name, "namespace": "models", "spec": {"model": "m"}} for name in ("a", "b", "c")]
    run("inference_service", api="zoo", inference_services=services, wait=False)
    listing = run("inference_service_info", api="zoo", why=True)["inference_services"]
    assert [(one["runtime"], one["excluded"]) for one in listing] == [(runtime, []), ({}, excluded), ({}, [])]
    assert "runtime" not in run("inference_service_info", api="zoo")["inference_services"][0]
