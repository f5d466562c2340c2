# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The modules with KubeAI's models: what their status means, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.slipway.inference.plugins.module_utils._apis import MODELS
from ansible_collections.slipway.inference.plugins.module_utils._readiness import judge
from fake_api import FakeApi
from krypton_models import becomes
from kubeai_models import (
    ASLEEP,
    CACHE_FAILED,
    CACHE_LOADING,
    COMPLETE,
    FAILED,
    ON_THEIR_WAY,
    PATH,
    PENDING,
    READY,
    SPEC,
    status,
)
from module_run import Run

ANSWERS = ("True", "Ready", "1 replica answers.")


def model(model_status: dict[str, Any] | None, generation: int = 3) -> dict[str, Any]:
    resource: dict[str, Any] = {"metadata": {"name": "a", "namespace": "models", "generation": generation}, "spec": {}}
    return {**resource, "status": {"observedGeneration": 3, **model_status}} if model_status is not None else resource


def adapters(state: str, reason: str, **others: tuple[str, str, str]) -> dict[str, Any]:
    return model(
        status(**{"Available": ANSWERS, "Progressing": COMPLETE, **others}, AdaptersLoaded=(state, reason, ""))
    )


@pytest.mark.parametrize(
    ("resource", "state", "reason"),
    [
        (model(READY), "ready", ""),
        (model(ASLEEP), "ready", ""),
        (model(READY, generation=4), "waiting", "Outdated"),
        (model(None), "waiting", "NoStatus"),
        (model({}), "waiting", ""),
        (model({"replicas": {"all": 1, "ready": 1}}), "waiting", ""),
        (model(PENDING), "waiting", "WaitingForPods"),
        (model(CACHE_LOADING), "waiting", "LoadingCache"),
        (model(status(Available=ANSWERS, Progressing=ON_THEIR_WAY)), "waiting", "RollingOut"),
        (model(status(0, Available=("False", "ScaledToZero", ""), Progressing=ON_THEIR_WAY)), "waiting", "RollingOut"),
        (model(FAILED), "failed", "CrashLoopBackOff"),
        (model(FAILED, generation=4), "waiting", "Outdated"),
        (model(CACHE_FAILED), "failed", "CacheLoadFailed"),
        (model(status(Accepted=("False", "UnknownProfile", "There is no profile gpu."))), "failed", "UnknownProfile"),
        (model(status(Accepted=("False", "InvalidConfig", "interval: 5 is too short."))), "failed", "InvalidConfig"),
        (model(status(Accepted=("Unknown", "Retrying", "The API server is busy."))), "waiting", "Retrying"),
        (adapters("True", "Loaded"), "ready", ""),
        (adapters("False", "ScaledToZero", Available=("False", "ScaledToZero", "")), "ready", ""),
        (adapters("False", "LoadingAdapters"), "waiting", "LoadingAdapters"),
        (adapters("False", "AdapterFailed"), "failed", "AdapterFailed"),
        (adapters("False", "LoadingAdapters", CacheLoaded=("True", "Loaded", "")), "waiting", "LoadingAdapters"),
    ],
)
def test_a_status_is_judged(resource: dict[str, Any], state: str, reason: str) -> None:
    verdict = judge(MODELS["kubeai"], resource)
    assert (verdict.state, verdict.reason) == (state, reason)


def test_a_model_is_made_and_waited_for(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=READY)
    result = run("model", api="kubeai", name="a", namespace="models", labels={"tenancy": "public"}, spec=SPEC)
    assert not result.failed
    [outcome] = result["results"]
    assert (outcome["name"], outcome["ready"], outcome["phase"], outcome["url"], outcome["changed"]) == (
        "a",
        True,
        "Ready",
        "",
        True,
    )
    resource = api.objects[PATH + "a"]
    assert (resource["apiVersion"], resource["spec"]["url"]) == ("kubeai.org/v1", SPEC["url"])
    assert resource["metadata"]["labels"] == {"tenancy": "public"}


def test_a_failure_is_reported_by_what_failed_and_not_by_what_waits_meanwhile() -> None:
    waiting = {"Available": ("False", "WaitingForPods", ""), "AdaptersLoaded": ("False", "AdapterFailed", "")}
    stalled = ("True", "AdapterFailed", "It is not there.")
    verdict = judge(MODELS["kubeai"], model(status(**waiting, Progressing=ON_THEIR_WAY, Stalled=stalled)))
    assert (verdict.state, verdict.text) == ("failed", "AdapterFailed: It is not there.")
    verdict = judge(MODELS["kubeai"], model(status(**waiting, Progressing=ON_THEIR_WAY)))
    assert (verdict.state, verdict.reason) == ("failed", "WaitingForPods")


def test_a_model_at_zero_replicas_is_ready(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=ASLEEP)
    result = run("model", api="kubeai", name="a", namespace="models", spec={**SPEC, "minReplicas": 0})
    assert not result.failed
    assert (result["results"][0]["phase"], result["results"][0]["message"]) == ("Ready", "")


def test_check_run_check_run(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=READY)
    names = ("deepseek-r1-1.5b-cpu", "qwen2.5-7b-cpu")
    task: dict[str, Any] = {"namespace": "models", "models": [{"name": name, "spec": SPEC} for name in names]}
    changed = [run("model", check=check, api="kubeai", **task)["changed"] for check in (True, False, True, False)]
    assert changed == [True, True, False, False]
    assert set(api.objects) == {PATH + name for name in names}


def test_models_of_the_two_apis_do_not_meet(api: FakeApi, run: Run) -> None:
    run("model", api="kubeai", name="a", namespace="models", spec=SPEC, wait=False)
    assert run("model_info")["models"] == []
    [report] = run("model_info", api="kubeai")["models"]
    assert (report["name"], report["phase"], report["reason"]) == ("a", "", "NoStatus")
    wrong = run("model", api="kubeai", models=[{"apiVersion": "krypton.ai/v1alpha1", "metadata": {"name": "b"}}])
    assert "apiVersion is krypton.ai/v1alpha1, not kubeai.org/v1" in wrong["msg"]


def test_manually_scaled_replicas_stay(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=READY)
    task = {"name": "a", "namespace": "models", "spec": SPEC}
    run("model", api="kubeai", **task)
    metadata = {"name": "a", "namespace": "models"}
    scaled = {"apiVersion": "kubeai.org/v1", "kind": "Model", "metadata": metadata, "spec": {"replicas": 3}}
    api.put(PATH + "a", scaled, manager="autoscaler")
    api.set_status(PATH + "a", **READY)
    assert not run("model", api="kubeai", **task)["changed"]
    assert api.objects[PATH + "a"]["spec"]["replicas"] == 3


def test_a_failure_brings_the_engine_s_last_words(api: FakeApi, run: Run) -> None:
    api.objects["/api/v1/namespaces/models/pods/model-a-1"] = _pod(
        "model-a-1", "server", {"app": "model", "model": "a"}
    )
    api.logs["model-a-1"] = "ValueError: unknown flag\n"
    api.controller = becomes(others=FAILED)
    result = run("model", api="kubeai", name="a", namespace="models", spec=SPEC)
    assert result["error_code"] == "failed"
    assert result.cause == (
        "Model models/a failed. CrashLoopBackOff: The engine ended with exit code 1. Last log lines:\n"
        "ValueError: unknown flag"
    )
    assert api.calls_of("log")[0].query["container"] == "server"


def test_a_cache_that_is_not_loaded_brings_the_loader_s_last_words(api: FakeApi, run: Run) -> None:
    labels = {"batch.kubernetes.io/job-name": "load-cache-a"}
    done = {**_pod("load-cache-a-0", "loader", labels), "status": {"phase": "Succeeded"}}
    api.objects["/api/v1/namespaces/models/pods/load-cache-a-0"] = done
    api.objects["/api/v1/namespaces/models/pods/load-cache-a-1"] = _pod("load-cache-a-1", "loader", labels)
    api.logs.update({"load-cache-a-0": "all is well", "load-cache-a-1": "404 Not Found"})
    api.controller = becomes(others=CACHE_FAILED)
    result = run("model", api="kubeai", name="a", namespace="models", spec={**SPEC, "cacheProfile": "efs"})
    assert result["results"][0]["log"] == ["404 Not Found"]
    assert result["results"][0]["phase"] == "Failed"
    assert result["msg"].startswith("Model models/a failed. CacheLoadFailed: The hub has no repository org/repo.")


def test_a_cache_that_is_not_cleared_says_why(api: FakeApi, run: Run) -> None:
    run("model", api="kubeai", name="a", namespace="models", spec={**SPEC, "cacheProfile": "efs"}, wait=False)
    api.finalizers.add(PATH + "a")
    pod = _pod("evict-cache-a-0", "evictor", {"batch.kubernetes.io/job-name": "evict-cache-a"})
    api.objects["/api/v1/namespaces/models/pods/evict-cache-a-0"] = pod
    api.objects["/api/v1/namespaces/models/events/e"] = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "models"},
        "involvedObject": {"kind": "Pod", "name": "evict-cache-a-0", "uid": "evict-cache-a-0"},
        "type": "Warning",
        "reason": "FailedMount",
        "message": "The volume does not answer.",
    }
    task = {"api": "kubeai", "name": "a", "namespace": "models", "state": "absent"}
    run("model", **task, wait=False)
    result = run("model", **task, wait_timeout=1)
    assert result.cause == (
        "Model models/a is not deleted after 1 s. Deleting: It is blocked by finalizers: example.org/held. "
        "FailedMount: The volume does not answer."
    )


def test_secrets_in_the_environment_are_in_no_output(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=READY)
    spec = {**SPEC, "env": {"HF_TOKEN": "hf_very-secret-one", "BASIC_AUTH": "very-secret-two", "VLLM_USE_V1": "1"}}
    result = run("model", api="kubeai", models=[{"name": "a", "namespace": "models", "spec": spec}])
    info = run("model_info", api="kubeai")
    assert "very-secret" not in str(result.data) + str(info.data)
    assert info["resources"][0]["spec"]["env"]["VLLM_USE_V1"] == "1"


def _pod(name: str, container: str, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "models", "uid": name, "labels": labels},
        "status": {"containerStatuses": [{"name": container, "restartCount": 1, "state": {"waiting": {}}}]},
    }
