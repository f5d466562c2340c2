# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The modules inference_service and inference_service_info: a model and its service in one task, told apart."""

from __future__ import annotations

import time
from typing import Any

import pytest
from fake_api import Answer, FakeApi
from llmkube_objects import (
    API,
    CRASHING,
    LOADING,
    METAL,
    MODEL_FAILED,
    MODEL_READY,
    MODEL_SPEC,
    MODELS,
    NO_MODEL,
    REFUSED,
    SERVICE_READY,
    SERVICES,
    SPEC,
    STOPPED,
    WAITING_FOR_GPU,
    becomes,
    task,
    tell,
)
from module_run import Run


def follows_once(api: FakeApi) -> bool:
    """Whether no watch reached its end and was restarted, as happens repeatedly in a wait of minutes."""
    watched = [call.path for call in api.calls_of("watch")]
    return len(watched) == len(set(watched))


def test_a_model_and_its_service_are_made_and_waited_for(api: FakeApi, run: Run) -> None:
    api.controller = becomes(MODEL_READY, SERVICE_READY)
    result = run("inference_service", **task("a"))
    assert (result.failed, result["changed"]) == (False, True)
    model, service = result["results"]
    assert (model["kind"], model["name"], model["ready"], model["url"]) == ("Model", "a", True, "")
    assert (service["kind"], service["name"], service["ready"], service["phase"]) == (
        "InferenceService",
        "a",
        True,
        "Ready",
    )
    assert service["url"] == "http://a.models.svc.cluster.local:8080/v1/chat/completions"
    assert (service["waiting_for"], service["queue_position"]) == ("", 0)
    assert "queue_position" not in model
    assert api.objects[MODELS + "a"]["spec"] == MODEL_SPEC
    assert api.objects[SERVICES + "a"]["spec"] == SPEC
    assert [entry["before_header"] for entry in result["diff"]] == ["Model models/a", "InferenceService models/a"]


def test_models_are_written_before_services(api: FakeApi, run: Run) -> None:
    run("inference_service", **task("a", "b", "c"), wait=False)
    written = [call.path for call in api.calls_of("apply") if "dryRun" not in call.query]
    assert len(written) == 6
    assert all(path.startswith(MODELS) for path in written[:3])
    assert all(path.startswith(SERVICES) for path in written[3:])


def test_a_single_service_needs_no_list(api: FakeApi, run: Run) -> None:
    api.controller = becomes(service=SERVICE_READY)
    result = run("inference_service", name="a", namespace="models", spec=SPEC)
    assert [service["kind"] for service in result["results"]] == ["InferenceService"]
    assert [call.verb for call in api.calls] == ["get", "apply", "watch"][: len(api.calls)]
    assert result["diff"][0]["before_header"] == "models/a"
    models = [{"name": "a", "spec": MODEL_SPEC}]
    api.controller = becomes(MODEL_READY)
    both = run("inference_service", name="a", namespace="models", spec=SPEC, models=models)
    assert [(one["kind"], one["changed"]) for one in both["results"]] == [("Model", True), ("InferenceService", False)]


def test_check_run_check_run(api: FakeApi, run: Run) -> None:
    api.controller = becomes(MODEL_READY, SERVICE_READY)
    changed = [run("inference_service", check=check, **task("a", "b"))["changed"] for check in (True, False) * 2]
    assert changed == [True, True, False, False]
    assert len(api.objects) == 4


def test_a_run_that_changes_nothing_costs_two_requests(api: FakeApi, run: Run) -> None:
    api.controller = becomes(MODEL_READY, SERVICE_READY)
    many = task(*(f"m{number}" for number in range(50)))
    assert not run("inference_service", **many).failed
    api.calls.clear()
    assert not run("inference_service", **many)["changed"]
    assert [call.verb for call in api.calls] == ["list", "list"]


def test_check_run_check_run_of_a_removal(api: FakeApi, run: Run) -> None:
    run("inference_service", **task("a"), wait=False)
    gone = {**task("a"), "state": "absent"}
    results = [run("inference_service", check=check, **gone) for check in (True, False, True, False)]
    assert [result["changed"] for result in results] == [True, True, False, False]
    assert [entry["before_header"] for entry in results[0]["diff"]] == ["Model models/a", "InferenceService models/a"]
    assert api.objects == {}


def test_services_are_deleted_before_models(api: FakeApi, run: Run) -> None:
    run("inference_service", **task("a", "b"), wait=False)
    run("inference_service", **{**task("a", "b"), "state": "absent"})
    paths = [call.path for call in api.calls_of("delete")]
    assert all(path.startswith(SERVICES) for path in paths[:2])
    assert all(path.startswith(MODELS) for path in paths[2:])


def test_a_model_stays_where_its_service_cannot_be_deleted(api: FakeApi, run: Run) -> None:
    run("inference_service", **task("a"), wait=False)
    api.answers.append(Answer(lambda call: call.verb == "delete", 403, "Forbidden", "no"))
    result = run("inference_service", **{**task("a"), "state": "absent"})
    assert result.failed
    assert [(one["kind"], one["changed"]) for one in result["results"]] == [
        ("Model", False),
        ("InferenceService", False),
    ]
    assert result["msg"].startswith("1 of 2 resources was not deleted. Model models/a was not processed.\n")
    assert MODELS + "a" in api.objects


def test_nothing_is_written_when_one_is_refused(api: FakeApi, run: Run) -> None:
    api.answers.append(
        Answer(
            lambda call: call.verb == "apply" and call.path == SERVICES + "b",
            422,
            "Invalid",
            "spec.contextSize: Invalid value: 1",
        )
    )
    result = run("inference_service", **task("a", "b"))
    assert (result.failed, result["error_code"], result["changed"]) == (True, "invalid", False)
    assert result.cause == (
        "1 of 4 resources was refused. Nothing was changed.\n"
        "- InferenceService models/b: spec.contextSize: Invalid value: 1."
    )
    assert api.objects == {}


def test_services_are_not_tried_where_a_model_cannot_be_written(api: FakeApi, run: Run) -> None:
    api.answers.append(
        Answer(
            lambda call: call.path == MODELS + "a" and call.verb == "apply" and "dryRun" not in call.query,
            422,
            "Invalid",
            "no",
        )
    )
    result = run("inference_service", **task("a"))
    assert result.cause == (
        "1 of 2 resources was not applied. InferenceService models/a was not processed.\n- Model models/a: no."
    )
    assert api.objects == {}


def test_a_model_that_fails_ends_the_wait_at_once(api: FakeApi, run: Run) -> None:
    api.controller = becomes(MODEL_FAILED, NO_MODEL)
    labels = {"app.kubernetes.io/name": "model-loader", "inference.llmkube.dev/model": "a"}
    api.objects["/api/v1/namespaces/models/pods/a-download-1"] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a-download-1", "namespace": "models", "uid": "p", "labels": labels},
        "status": {"phase": "Failed", "containerStatuses": [{"name": "loader", "state": {"terminated": {}}}]},
    }
    api.logs["a-download-1"] = "the hash differs\n"
    result = run("inference_service", **task("a"), wait_timeout=300)
    assert follows_once(api)
    assert result.cause == (
        "1 of 2 resources failed.\n- Model models/a: IntegrityCheckFailed: tiny.gguf has another SHA-256."
    )
    assert result["results"][0]["log"] == ["the hash differs"]
    assert "error_code" not in result["results"][1]


def test_the_message_of_the_loader_before_the_engine_is_reported(api: FakeApi, run: Run) -> None:
    api.objects["/api/v1/namespaces/models/pods/a-1"] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "a-1",
            "namespace": "models",
            "uid": "p",
            "labels": {"inference.llmkube.dev/service": "a"},
        },
        "status": {
            "initContainerStatuses": [{"name": "model-downloader", "restartCount": 2, "state": {"waiting": {}}}],
            "containerStatuses": [{"name": "llama-server", "restartCount": 0, "state": {"waiting": {}}}],
        },
    }
    api.logs["a-1"] = "no space left\n"
    api.controller = becomes(service=CRASHING)
    result = run("inference_service", name="a", namespace="models", spec=SPEC)
    assert result["results"][0]["log"] == ["no space left"]
    assert api.calls_of("log")[0].query["container"] == "model-downloader"


def test_a_service_that_waits_for_a_gpu_is_waited_for_and_reported(api: FakeApi, run: Run) -> None:
    api.controller = becomes(MODEL_READY, WAITING_FOR_GPU)
    result = run("inference_service", **task("a"), wait_timeout=1)
    assert result["error_code"] == "timeout"
    assert result.cause == (
        "1 of 2 resources is not ready after 1 s.\n"
        "- InferenceService models/a: WaitingForGPU: The pods are waiting for nvidia.com/gpu."
    )
    service = result["results"][1]
    assert (service["waiting_for"], service["queue_position"]) == ("nvidia.com/gpu: 4", 2)


@pytest.mark.parametrize(("status", "reason"), [(STOPPED, "ScaledToZero"), (METAL, "MetalOutOfReach")])
def test_a_service_that_is_as_it_was_asked_to_be_is_not_waited_for(
    api: FakeApi, run: Run, status: dict[str, Any], reason: str
) -> None:
    api.controller = becomes(MODEL_READY, status)
    result = run("inference_service", **task("a"))
    assert not result.failed
    service = result["results"][1]
    assert (service["ready"], service["reason"], service["phase"]) == (False, reason, status["phase"])


def test_other_rules_are_those_of_the_services_only(api: FakeApi, run: Run) -> None:
    api.controller = becomes(MODEL_READY, WAITING_FOR_GPU)
    rule = [{"field": "status.phase", "in": ["WaitingForGPU", "Creating", "Ready"]}]
    assert not run("inference_service", **task("a"), wait_for=rule).failed
    api.controller = becomes(MODEL_READY, METAL)
    failed = run("inference_service", **task("b"), wait_for=rule)
    assert failed["results"][1]["reason"] == "MetalOutOfReach"


def test_a_service_whose_model_is_not_in_the_task_fails_at_once(api: FakeApi, run: Run) -> None:
    api.controller = becomes(service=NO_MODEL)
    a_day = 86400  # A wait that does not end by itself is ended with the tests.
    result = run("inference_service", name="a", namespace="models", spec=SPEC, wait_timeout=a_day)
    assert follows_once(api)
    assert result.cause == (
        "InferenceService models/a failed. ModelNotFound: There is no Model a in the namespace models."
    )


def test_a_service_that_is_deleted_meanwhile_ends_the_wait_at_once(api: FakeApi, run: Run) -> None:
    api.controller = becomes(LOADING)
    api.once("watch", lambda: None)
    api.once("watch", lambda: api.remove(SERVICES + "a"))
    result = run("inference_service", **task("a"), wait_timeout=300)
    assert follows_once(api)
    assert result["error_code"] == "deleted"


def test_a_missing_model_does_not_count_before_the_controller_has_seen_the_model(api: FakeApi, run: Run) -> None:
    api.controller = becomes(LOADING, NO_MODEL)
    api.once("watch", lambda: None)
    api.once("watch", lambda: (api.set_status(MODELS + "a", **MODEL_READY), tell(api, "a", SERVICE_READY)))
    assert not run("inference_service", **task("a")).failed


def test_a_play_can_mend_the_model_of_a_service_that_has_failed(api: FakeApi, run: Run) -> None:
    """The service's status is of the time before, and its own spec has not changed."""
    api.controller = becomes(MODEL_READY, CRASHING)
    assert run("inference_service", **task("a"), wait=False)["changed"]
    api.controller = becomes(LOADING)
    api.once("watch", lambda: None)

    def fix_source() -> None:
        api.set_status(MODELS + "a", **MODEL_READY)
        time.sleep(0.5)
        tell(api, "a", SERVICE_READY)

    api.once("watch", fix_source)
    corrected = {**task("a"), "models": [{"name": "a", "spec": {"source": "https://files.example/other.gguf"}}]}
    result = run("inference_service", **corrected)
    assert not result.failed
    assert [one["changed"] for one in result["results"]] == [True, False]


def test_a_service_that_goes_on_failing_after_its_model_has_become_ready_ends_the_wait(api: FakeApi, run: Run) -> None:
    api.controller = becomes(LOADING, CRASHING)
    api.once("watch", lambda: None)
    api.once("watch", lambda: (api.set_status(MODELS + "a", **MODEL_READY), tell(api, "a", CRASHING)))
    result = run("inference_service", **task("a"), wait_timeout=300)
    assert result.cause == (
        "1 of 2 resources failed.\n- InferenceService models/a: UnsupportedModel: llama-server cannot load tiny.gguf."
    )


def test_a_spec_that_the_controller_refuses_is_reported_while_the_model_is_loaded(api: FakeApi, run: Run) -> None:
    api.controller = becomes(LOADING, REFUSED)
    result = run("inference_service", **task("a"), wait_timeout=300)
    assert (result["error_code"], result["results"][1]["error_code"]) == ("failed", "failed")


@pytest.mark.parametrize(
    "seen", [[], [{"uid": "1", "generation": 0}], [{"uid": "another", "generation": 9}], [{"name": "b"}]]
)
def test_a_service_that_has_not_seen_its_model_as_it_is_now_is_waited_for(
    api: FakeApi, run: Run, seen: list[dict[str, Any]]
) -> None:
    observed_models = [{"name": "a", "uid": "1", "generation": 1, "ready": True} | one for one in seen]
    api.controller = becomes(MODEL_READY, SERVICE_READY | {"observedModels": observed_models})
    result = run("inference_service", **task("a"), wait_timeout=1)
    assert [one["reason"] for one in result["results"]] == ["", "ModelNotReady"]


def test_a_service_that_answers_with_weights_of_before_is_not_ready_yet(api: FakeApi, run: Run) -> None:
    api.controller = becomes(MODEL_READY, SERVICE_READY)
    run("inference_service", **task("a"))
    api.controller = becomes(LOADING)
    changed = {**task("a"), "models": [{"name": "a", "spec": {"source": "https://files.example/other.gguf"}}]}
    result = run("inference_service", **changed, wait_timeout=1)
    assert result.cause == (
        "2 of 2 resources are not ready after 1 s.\n"
        "- Model models/a: LoadingCache: 1.2 of 3.4 GiB are loaded.\n"
        "- InferenceService models/a: ModelNotReady: The Model a is not ready,"
        " or its change has not been reconciled yet."
    )


def test_secrets_are_in_no_output(api: FakeApi, run: Run) -> None:
    api.controller = becomes(MODEL_READY, SERVICE_READY)
    env = [{"name": "HF_TOKEN", "value": "hf_very-secret-one"}, {"name": "LOG", "value": "all"}]
    spec = {**SPEC, "env": env, "extraArgs": ["--api-key", "k-very-secret"]}
    result = run("inference_service", namespace="models", inference_services=[{"name": "a", "spec": spec}])
    source = "https://me:p-very-secret@files.example/tiny.gguf"
    models = [{"name": "a", "spec": {"source": source}}]
    both = run("inference_service", name="b", namespace="models", spec=spec, models=models)
    info = run("inference_service_info")
    refused = run("inference_service", namespace="models", models=models, inference_services=[{"nam": "a"}])
    assert refused["error_code"] == "invalid_input"
    for outcome in (result, both, info, refused):
        assert "very-secret" not in str(outcome.data)
    assert api.objects[SERVICES + "a"]["spec"]["env"] == env
    assert api.objects[MODELS + "a"]["spec"]["source"] == source
    assert info["resources"][0]["spec"]["env"][1]["value"] == "all"


def test_everything_that_is_wrong_is_reported_with_its_kind(run: Run) -> None:
    models = [{"name": "a", "spec": MODEL_SPEC}, {"spec": MODEL_SPEC}]
    services = [{"name": "a"}, {"kind": "Model", "metadata": {"name": "b"}, "spec": SPEC}]
    result = run("inference_service", namespace="models", models=models, inference_services=services)
    assert result.cause == (
        "Nothing was changed. Model item 2: name is missing.\n"
        "InferenceService models/a: spec is missing.\n"
        "InferenceService models/b: kind is Model, not InferenceService."
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"models": []}, "one of the following is required: inference_services, name"),
        ({"name": "a", "inference_services": []}, "mutually exclusive: inference_services|name"),
        ({"name": "a", "api": "kubeai"}, "value of api must be one of: llmkube"),
    ],
)
def test_wrong_options_are_reported(run: Run, options: dict[str, Any], message: str) -> None:
    result = run("inference_service", **options)
    assert result.failed
    assert message in result["msg"]


def test_empty_lists_do_nothing(api: FakeApi, run: Run) -> None:
    result = run("inference_service", models=[], inference_services=[])
    assert (result["changed"], result["results"], api.calls) == (False, [], [])


def test_check_mode_predicts_where_definition_or_namespace_are_missing(api: FakeApi, run: Run) -> None:
    api.served.clear()
    result = run("inference_service", check=True, **task("a"))
    assert (result.failed, result["changed"]) == (False, True)
    for resource in ("models.inference.llmkube.dev", "inferenceservices.inference.llmkube.dev"):
        assert f"The cluster has no resource type {resource}. The API server cannot check models/a" in str(
            result["warnings"]
        )


def test_services_are_read_and_can_be_removed(api: FakeApi, run: Run) -> None:
    run("inference_service", **task("a", "b"), wait=False)
    api.set_status(SERVICES + "a", **WAITING_FOR_GPU)
    info = run("inference_service_info")
    first, second = info["inference_services"]
    assert (first["name"], first["ready"], first["queue_position"]) == ("a", False, 2)
    assert (second["name"], second["reason"]) == ("b", "NoStatus")
    assert [(one["kind"], one["apiVersion"]) for one in info["resources"]] == [("InferenceService", API)] * 2
    models = run("model_info", api="llmkube")
    assert [one["name"] for one in models["models"]] == ["a", "b"]
    removal = {"models": models["resources"], "inference_services": info["resources"], "state": "absent"}
    assert run("inference_service", **removal)["changed"]
    assert api.objects == {}


def test_the_module_model_makes_the_weights_alone(api: FakeApi, run: Run) -> None:
    api.controller = becomes(MODEL_READY)
    result = run("model", api="llmkube", name="a", namespace="models", spec=MODEL_SPEC)
    [model] = result["results"]
    assert (model["ready"], model["phase"], model["url"]) == (True, "Ready", "")
    assert set(api.objects) == {MODELS + "a"}
