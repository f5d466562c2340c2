# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module benchmark_job, and OME's kinds in other modules: what they wait for, and what they report."""

from __future__ import annotations

import json

from fake_api import FakeApi
from module_run import Run
from ome_objects import (
    BENCHMARK_SPEC,
    BENCHMARKS,
    CLUSTER_MODELS,
    COMPLETED,
    FAILED,
    MODEL_SPEC,
    MODELS,
    SERVICE_SPEC,
    WAITING,
    becomes,
    benchmarks,
)


def test_a_benchmark_is_made_and_waited_for_until_its_figures_are_there(api: FakeApi, run: Run) -> None:
    api.controller = becomes()
    result = run("benchmark_job", **benchmarks("a"))
    assert (result.failed, result["changed"]) == (False, True)
    (measured,) = result["results"]
    assert (measured["ready"], measured["phase"], measured["url"]) == (True, "Completed", "")
    assert json.loads(measured["details"])["requests"] == 10
    assert api.objects[BENCHMARKS + "a"]["spec"] == BENCHMARK_SPEC


def test_a_finished_benchmark_is_not_run_again(api: FakeApi, run: Run) -> None:
    api.controller = becomes()
    run("benchmark_job", **benchmarks("a", "b"))
    api.calls.clear()
    assert not run("benchmark_job", **benchmarks("a", "b"))["changed"]
    assert [call.verb for call in api.calls] == ["list"]


def test_check_run_check_run(api: FakeApi, run: Run) -> None:
    api.controller = becomes()
    changed = [run("benchmark_job", check=check, **benchmarks("a"))["changed"] for check in (True, False) * 2]
    assert changed == [True, True, False, False]


def test_requests_that_failed_end_the_wait_with_the_first_error(api: FakeApi, run: Run) -> None:
    api.controller = becomes(WAITING, a=FAILED)
    result = run("benchmark_job", **benchmarks("a", "b"))
    assert result["error_code"] == "failed"
    assert "RequestsFailed: 10 of 10 requests failed, the first with HTTP 404: no such model." in result["msg"]


def test_the_module_waits_for_a_benchmark_that_waits_for_its_service(api: FakeApi, run: Run) -> None:
    api.controller = becomes(WAITING)
    api.once("watch", lambda: api.set_status(BENCHMARKS + "a", **COMPLETED))
    assert not run("benchmark_job", **benchmarks("a")).failed
    late = run("benchmark_job", **benchmarks("b"), wait_timeout=1)
    assert (late["error_code"], late["results"][0]["reason"]) == ("timeout", "WaitingForService")


def test_a_model_and_a_service_of_ome_are_made_in_one_task(api: FakeApi, run: Run) -> None:
    api.controller = becomes()
    models = [{"name": "tiny", "kind": "ClusterBaseModel", "spec": MODEL_SPEC}]
    services = [{"name": "chat", "spec": SERVICE_SPEC}]
    task = {"api": "ome", "namespace": "models", "models": models, "inference_services": services}
    result = run("inference_service", **task)
    assert [(one["kind"], one["namespace"], one["ready"]) for one in result["results"]] == [
        ("ClusterBaseModel", "", True),
        ("InferenceService", "models", True),
    ]
    assert result["results"][0]["nodes_ready"] == ["node-1", "node-2"]
    assert CLUSTER_MODELS + "tiny" in api.objects
    assert not run("inference_service", **task)["changed"]


def test_a_model_of_ome_lies_in_the_cluster_or_in_a_namespace(api: FakeApi, run: Run) -> None:
    api.controller = becomes()
    run("model", api="ome", name="wide", spec=MODEL_SPEC)
    run("model", api="ome", name="narrow", namespace="models", spec=MODEL_SPEC)
    assert [*api.objects] == [CLUSTER_MODELS + "wide", MODELS + "narrow"]
    assert {one["kind"] for one in run("model_info", api="ome")["models"]} == {"BaseModel", "ClusterBaseModel"}
