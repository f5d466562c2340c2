# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module model against an API server: what it makes, what it says, how often it asks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.slipway.inference.plugins.module_utils import _task
from ansible_collections.slipway.inference.plugins.module_utils._advice_data import ADVICE
from fake_api import Answer, FakeApi
from krypton_models import FAILED, PATH, PENDING, READY, SPEC, becomes
from module_run import Run


def test_a_model_is_made_and_waited_for(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=READY)
    result = run("model", name="a", namespace="models", labels={"team": "search"}, spec=SPEC)
    assert not result.failed
    assert result["changed"]
    [model] = result["results"]
    assert (model["name"], model["namespace"], model["ready"], model["phase"]) == ("a", "models", True, "Ready")
    assert model["url"] == "http://a.models.svc:8080/v1"
    resource = api.objects[PATH + "a"]
    assert resource["spec"]["source"] == SPEC["source"]
    assert resource["metadata"]["labels"] == {"team": "search"}
    assert resource["metadata"]["managedFields"][0]["manager"] == "slipway.inference"


def test_check_run_check_run(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=READY)
    task: dict[str, Any] = {"namespace": "models", "models": [{"name": "a", "spec": SPEC}, {"name": "b", "spec": SPEC}]}
    changed = [run("model", check=check, **task)["changed"] for check in (True, False, True, False)]
    assert changed == [True, True, False, False]
    assert set(api.objects) == {PATH + "a", PATH + "b"}


def test_check_run_check_run_of_a_change(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=READY)
    run("model", name="a", namespace="models", spec={**SPEC, "port": 9090, "args": ["-c", "1"]})
    task = {"name": "a", "namespace": "models", "spec": {**SPEC, "args": ["-c", "2"]}}
    results = [run("model", check=check, **task) for check in (True, False, True, False)]
    assert [result["changed"] for result in results] == [True, True, False, False]
    [difference] = results[0]["diff"]
    assert difference == results[1]["diff"][0]
    assert difference["before"]["spec"] == {"source": SPEC["source"], "port": 9090, "args": ["-c", "1"]}
    assert difference["after"]["spec"] == {"source": SPEC["source"], "args": ["-c", "2"]}
    assert difference["before_header"] == "models/a"
    assert api.objects[PATH + "a"]["spec"]["port"] == 8080


def test_check_run_check_run_of_a_removal(api: FakeApi, run: Run) -> None:
    api.put(
        PATH + "a",
        {
            "apiVersion": "krypton.ai/v1alpha1",
            "kind": "Model",
            "metadata": {"name": "a", "namespace": "models"},
            "spec": SPEC,
        },
    )
    task = {"namespace": "models", "models": [{"name": "a"}, {"name": "never-there"}], "state": "absent"}
    results = [run("model", check=check, **task) for check in (True, False, True, False)]
    assert [result["changed"] for result in results] == [True, True, False, False]
    assert [model["changed"] for model in results[1]["results"]] == [True, False]
    assert api.objects == {}


def test_status_never_makes_a_task_changed(api: FakeApi, run: Run) -> None:
    run("model", name="a", namespace="models", spec=SPEC, wait=False)
    api.set_status(PATH + "a", **READY)
    assert not run("model", name="a", namespace="models", spec=SPEC)["changed"]


def test_fields_of_other_managers_stay_unchanged(api: FakeApi, run: Run) -> None:
    run("model", name="a", namespace="models", spec=SPEC, wait=False)
    api.put(
        PATH + "a",
        {
            "apiVersion": "krypton.ai/v1alpha1",
            "kind": "Model",
            "metadata": {"name": "a", "namespace": "models", "annotations": {"note": "mine"}},
            "spec": {"minReplicas": 3},
        },
    )
    result = run("model", name="a", namespace="models", spec={**SPEC, "port": 9090}, wait=False)
    assert result["changed"]
    assert api.objects[PATH + "a"]["spec"]["minReplicas"] == 3
    assert "minReplicas" not in result["diff"][0]["after"]["spec"]
    assert api.objects[PATH + "a"]["metadata"]["annotations"] == {"note": "mine"}


def test_a_conflict_names_the_other_manager_and_the_fields(api: FakeApi, run: Run) -> None:
    body = {"apiVersion": "krypton.ai/v1alpha1", "kind": "Model", "metadata": {"name": "a", "namespace": "models"}}
    api.put(PATH + "a", {**body, "spec": {**SPEC, "port": 1, "args": ["x"]}})
    task = {"name": "a", "namespace": "models", "spec": {**SPEC, "port": 2, "args": ["y"]}, "wait": False}
    result = run("model", **task)
    assert result.failed
    assert result["error_code"] == "conflict"
    assert result.cause == (
        "Model models/a was refused. kubectl owns .spec.port, .spec.args. "
        "Set force_conflicts to take these fields over, or remove them from the task."
    )
    assert run("model", **task, force_conflicts=True)["changed"]
    assert api.objects[PATH + "a"]["spec"]["port"] == 2


def test_nothing_is_written_when_one_is_refused(api: FakeApi, run: Run) -> None:
    api.answers.append(
        Answer(
            lambda call: call.verb == "apply" and call.path.endswith("/b"),
            422,
            "Invalid",
            "spec.port: Invalid value: 0",
        )
    )
    result = run("model", namespace="models", models=[{"name": name, "spec": SPEC} for name in ("a", "b", "c")])
    assert result.failed
    assert (result["error_code"], result["status"], result["changed"]) == ("invalid", 422, False)
    assert result.cause == "1 of 3 Models was refused. Nothing was changed.\n- models/b: spec.port: Invalid value: 0."
    assert api.objects == {}


def test_a_hundred_models_cost_few_requests(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=READY)
    task: dict[str, Any] = {"namespace": "models", "models": [{"name": f"m{i}", "spec": SPEC} for i in range(100)]}
    assert not run("model", **task).failed
    # One list, one dry run and one write each, and a watch at most: no discovery, no polling.
    assert len(api.calls_of("list")) == 1
    assert len(api.calls_of("apply")) == 200
    assert len(api.calls_of("watch")) <= 1
    assert len(api.calls) <= 202
    api.calls.clear()
    assert not run("model", **task)["changed"]
    assert [call.verb for call in api.calls] == ["list"]


def test_a_model_takes_three_requests(api: FakeApi, run: Run) -> None:
    api.once("watch", lambda: api.set_status(PATH + "a", **READY))
    assert not run("model", name="a", namespace="models", spec=SPEC).failed
    assert [call.verb for call in api.calls] == ["get", "apply", "watch"]
    assert api.calls_of("watch")[0].query["fieldSelector"] == "metadata.name=a"


def test_namespaces_are_waited_for_together(api: FakeApi, run: Run) -> None:
    def become_ready() -> None:
        api.set_status(PATH + "a", **READY)
        api.set_status(PATH.replace("/models/models", "/other/models") + "b", **READY)

    api.once("watch", lambda: None)
    api.once("watch", become_ready)
    result = run(
        "model",
        namespace="models",
        models=[{"name": "a", "spec": SPEC}, {"name": "b", "namespace": "other", "spec": SPEC}],
    )
    assert [model["ready"] for model in result["results"]] == [True, True]
    assert len(api.calls_of("watch")) == 2


def test_a_failure_ends_the_wait_at_once_and_carries_the_others(api: FakeApi, run: Run) -> None:
    states = {"good": READY, "slow": PENDING, "bad": FAILED}

    def act_when_all_are_there(api: FakeApi, _resource: object) -> None:
        if len(api.objects) == len(states):
            for name, status in states.items():
                api.set_status(PATH + name, **status)

    api.controller = act_when_all_are_there
    names = ("good", "bad", "slow")
    result = run("model", namespace="models", models=[{"name": name, "spec": SPEC} for name in names], wait_timeout=300)
    assert result.failed
    assert (result["error_code"], result["changed"]) == ("failed", True)
    assert result.cause == "1 of 3 Models failed.\n- models/bad: ImagePullBackOff: The image nope:1 cannot be pulled."
    good, bad, slow = result["results"]
    assert (good["ready"], bad["ready"], slow["ready"]) == (True, False, False)
    assert (bad["error_code"], bad["reason"]) == ("failed", "ImagePullBackOff")
    assert slow["reason"] == "WaitingForPods"
    assert "error_code" not in good


def test_a_failure_comes_with_events_and_the_end_of_the_log(api: FakeApi, run: Run) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "bad-1", "namespace": "models", "uid": "p", "labels": {"krypton.ai/model": "bad"}},
        "status": {"containerStatuses": [{"name": "llama-server", "restartCount": 2, "state": {"waiting": {}}}]},
    }
    about = {"kind": "Pod", "name": "bad-1", "uid": "p"}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "models"},
        "involvedObject": about,
        "type": "Warning",
        "reason": "BackOff",
        "message": "Back-off restarting failed container",
        "count": 4,
    }
    api.objects["/api/v1/namespaces/models/pods/bad-1"] = pod
    api.objects["/api/v1/namespaces/models/events/e"] = event
    repeated = {"metadata": {"name": "r", "namespace": "models"}, "message": "The image nope:1 cannot be pulled."}
    api.objects["/api/v1/namespaces/models/events/r"] = event | repeated
    api.logs["bad-1"] = "loading\nerror: no such file\n"
    api.controller = becomes(bad=FAILED)
    result = run("model", name="bad", namespace="models", spec=SPEC)
    assert result.cause == ("Model models/bad failed. ImagePullBackOff: The image nope:1 cannot be pulled.")
    assert result["hint"] == f"What to do: {ADVICE['ImagePullBackOff']}"
    more = "To see more: kubectl describe models.krypton.ai/bad --namespace models"
    assert result["msg"] == f"{result.cause} {more}\n{result['hint']}"
    [model] = result["results"]
    assert model["log"] == ["loading", "error: no such file"]
    assert model["events"] == [
        {
            "type": "Warning",
            "reason": "BackOff",
            "message": "Back-off restarting failed container",
            "count": 4,
            "object": "Pod/bad-1",
        }
    ]
    assert api.calls_of("log")[0].query == {"container": "llama-server", "tailLines": "20", "previous": "true"}


def test_a_model_whose_short_id_leads_to_another_is_ready_with_a_warning(api: FakeApi, run: Run) -> None:
    message = "An older model has the name: a is served by other/a. The model ID of this one is models/a."
    route = {"type": "Routed", "status": "False", "reason": "NameConflict", "message": message}
    api.controller = becomes(others=READY | {"conditions": [*READY["conditions"], route]})
    result = run("model", name="a", namespace="models", spec=SPEC)
    assert not result.failed
    assert f"Model models/a: NameConflict: {message}" in str(result["warnings"])


def test_a_failure_that_nothing_explains_ends_with_the_log(api: FakeApi, run: Run) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "odd-1", "namespace": "models", "uid": "p", "labels": {"krypton.ai/model": "odd"}},
        "status": {"containerStatuses": [{"name": "llama-server", "restartCount": 0, "state": {"waiting": {}}}]},
    }
    api.objects["/api/v1/namespaces/models/pods/odd-1"] = pod
    api.logs["odd-1"] = "loading\nerror: odd\n"
    conditions = [
        one | ({"reason": "Odd", "message": "It ended."} if one["reason"] != "Valid" else {})
        for one in FAILED["conditions"]
    ]
    api.controller = becomes(odd=FAILED | {"conditions": conditions})
    result = run("model", name="odd", namespace="models", spec=SPEC)
    assert result["msg"] == "Model models/odd failed. Odd: It ended. Last log lines:\nloading\nerror: odd"


def test_without_v_a_failed_task_returns_all_objects_without_what_is_long(api: FakeApi, run: Run) -> None:
    api.controller = becomes(bad=FAILED, good=READY)
    models = [{"name": name, "spec": SPEC} for name in ("bad", "good")]
    short = run("model", namespace="models", models=models, verbosity=0)["results"]
    whole = run("model", namespace="models", models=models)["results"]
    assert [(one["name"], one["changed"], one["reason"], one.get("error_code")) for one in short] == [
        ("bad", True, "ImagePullBackOff", "failed"),
        ("good", True, "", None),
    ]
    assert whole[0]["conditions"] == FAILED["conditions"]
    long = {"conditions", "events", "log"}
    assert whole[0].keys() - short[0].keys() == whole[0].keys() & (long | {"drift", "phase", "url", "waited"})
    assert whole[1].keys() - short[1].keys() == whole[1].keys() & long


def test_without_v_the_hint_refers_to_the_message(api: FakeApi, run: Run) -> None:
    api.controller = becomes(bad=FAILED)
    result = run("model", name="bad", namespace="models", spec=SPEC, verbosity=0)
    assert result["hint"] == "See the end of msg."
    assert result["msg"].endswith(f"\nWhat to do: {ADVICE['ImagePullBackOff']}")


def test_without_v_a_failed_task_says_what_it_has_deleted(api: FakeApi, run: Run) -> None:
    api.controller = becomes(a=FAILED, old=READY)
    run("model", **_search("old"))
    result = run("model", **_search("a"), verbosity=0)
    assert result.failed
    assert [(one["name"], one["changed"]) for one in result["pruned"]] == [("old", True)]


def test_without_v_objects_stay_in_the_results_if_the_wait_ends_by_an_error(api: FakeApi, run: Run) -> None:
    api.controller = becomes(a=PENDING)
    api.answers.append(Answer(lambda call: call.verb == "watch", 200, text="[]\n"))
    result = run("model", name="a", namespace="models", spec=SPEC, verbosity=0)
    assert result.failed
    assert [(one["name"], one["changed"]) for one in result["results"]] == [("a", True)]


def test_a_timeout_names_each_model_and_its_last_state(api: FakeApi, run: Run) -> None:
    api.controller = becomes(a=PENDING, c=READY)
    task: dict[str, Any] = {"namespace": "models", "models": [{"name": name, "spec": SPEC} for name in "abc"]}
    run("model", **task, wait=False)
    result = run("model", **task, wait_timeout=1)
    assert result.failed
    assert result["error_code"] == "controller_missing"
    assert result.cause == (
        "2 of 3 Models are not ready after 1 s.\n"
        "- models/a: WaitingForPods: No replica answers yet.\n"
        "- models/b: NoStatus: No controller has reconciled it yet. "
        "Is the controller running? The role slipway.inference.controller installs it."
    )


def test_the_same_reason_is_reported_once(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=PENDING)
    models = [{"name": f"m{i:02}", "spec": SPEC} for i in range(12)]
    run("model", namespace="models", models=models, wait=False)
    result = run("model", namespace="models", models=models, wait_timeout=1)
    assert result["error_code"] == "timeout"
    assert result.cause == (
        "12 of 12 Models are not ready after 1 s.\n"
        "- models/m00, models/m01, models/m02, models/m03, models/m04, models/m05, models/m06, models/m07, models/m08, "
        "models/m09 and 2 more: WaitingForPods: No replica answers yet."
    )


def test_a_status_of_the_spec_before_does_not_count(api: FakeApi, run: Run) -> None:
    run("model", name="a", namespace="models", spec=SPEC, wait=False)
    api.set_status(PATH + "a", **READY)
    result = run("model", name="a", namespace="models", spec={**SPEC, "port": 9090}, wait_timeout=1)
    assert result.failed
    assert result["results"][0]["reason"] == "Outdated"


def test_other_rules_can_be_waited_for(api: FakeApi, run: Run) -> None:
    status = {**PENDING, "replicas": 1}
    api.controller = becomes(others=status)
    task = {"name": "a", "namespace": "models", "spec": SPEC}
    assert not run(
        "model", **task, wait_for=[{"condition": "Accepted"}, {"field": "status.replicas", "equals": 1}]
    ).failed
    result = run("model", **task, wait_for=[{"condition": "Routed"}], wait_timeout=1)
    assert result.cause == (
        "Model models/a is not ready after 1 s. WaitingForPods: No replica answers yet. "
        "Waiting until condition Routed is True."
    )


def test_a_model_that_is_deleted_meanwhile_ends_the_wait(api: FakeApi, run: Run) -> None:
    api.once("watch", lambda: api.remove(PATH + "a"))
    result = run("model", name="a", namespace="models", spec=SPEC)
    assert result["error_code"] == "deleted"
    assert result.cause == "Model models/a failed. Deleted: It was deleted during the wait."


def test_removal_waits_until_the_model_is_gone(api: FakeApi, run: Run) -> None:
    run("model", name="a", namespace="models", spec=SPEC, wait=False)
    api.finalizers.add(PATH + "a")
    api.once("watch", lambda: api.remove(PATH + "a"))
    result = run("model", name="a", namespace="models", state="absent")
    assert not result.failed
    assert api.objects == {}


def test_removal_that_takes_too_long_says_what_holds_it(api: FakeApi, run: Run) -> None:
    run("model", name="a", namespace="models", spec=SPEC, wait=False)
    api.finalizers.add(PATH + "a")
    assert run("model", name="a", namespace="models", state="absent", wait=False)["changed"]
    again = run("model", name="a", namespace="models", state="absent", wait_timeout=1)
    assert (
        again.cause
        == "Model models/a is not deleted after 1 s. Deleting: It is blocked by finalizers: example.org/held."
    )
    assert not again["changed"]


def test_if_the_definition_is_missing_the_role_is_named(api: FakeApi, run: Run) -> None:
    api.served.remove("/apis/krypton.ai/v1alpha1")
    result = run("model", name="a", namespace="models", spec=SPEC)
    assert result["error_code"] == "definition_missing"
    assert (
        result.cause == "The cluster has no resource type models.krypton.ai. Run the role slipway.inference.crds first."
    )
    assert not run("model", name="a", namespace="models", state="absent").failed


def test_check_mode_predicts_where_definition_or_namespace_are_missing(api: FakeApi, run: Run) -> None:
    result = run("model", check=True, name="a", namespace="not-yet", spec=SPEC)
    assert (result.failed, result["changed"]) == (False, True)
    assert "The namespace not-yet does not exist. The API server cannot check not-yet/a yet." in str(result["warnings"])
    api.served.clear()
    result = run("model", check=True, name="a", namespace="models", spec=SPEC)
    assert (result.failed, result["changed"]) == (False, True)
    assert result["diff"][0]["after"] == {"spec": SPEC}
    assert "The cluster has no resource type models.krypton.ai. The API server cannot check models/a" in str(
        result["warnings"]
    )


def test_a_missing_namespace_is_named(api: FakeApi, run: Run) -> None:
    result = run("model", name="a", namespace="nowhere", spec=SPEC)
    assert result["error_code"] == "namespace_missing"
    assert result.cause == (
        "Model nowhere/a was refused. The namespace nowhere does not exist. Create the namespace first."
    )


def test_warnings_of_the_server_reach_the_user(api: FakeApi, run: Run) -> None:
    api.warnings.append("spec.old is deprecated")
    result = run("model", name="a", namespace="models", spec=SPEC, wait=False)
    assert "spec.old is deprecated" in str(result["warnings"])


def test_secrets_are_in_no_output(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=READY)
    secrets = {"HF_TOKEN": "hf_very-secret-one", "API_KEY": "abc"}
    spec = {
        **SPEC,
        "env": [{"name": name, "value": value} for name, value in secrets.items()],
        "args": ["--api-key", "k-very-secret"],
    }
    for task in ({"models": [{"name": "a", "spec": spec}]}, {"name": "b", "spec": spec}):
        result = run("model", namespace="models", **task)
        for secret in ("hf_very-secret-one", "'abc'", "k-very-secret", "the-api-key"):
            assert secret not in str(result.data)
    assert api.objects[PATH + "a"]["spec"]["env"][0]["value"] == "hf_very-secret-one"
    info = run("model_info", namespace="models")
    assert "k-very-secret" not in str(info.data)


def test_an_empty_list_does_nothing(api: FakeApi, run: Run) -> None:
    result = run("model", models=[])
    assert (result["changed"], result["results"], api.calls) == (False, [], [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "one of the following is required: models, name"),
        (
            {"model": [{"name": "a"}]},
            "one of the following is required: models, name. Unsupported: model. Did you mean models",
        ),
        ({"name": "a", "models": []}, "mutually exclusive: models|name"),
        ({"name": "a", "spec": {}}, "a: namespace is missing: set it in the item or for the task."),
        ({"models": [{"name": "a", "specs": {}}]}, "specs"),
        ({"name": "a", "wait_for": [{}]}, "one of the following is required: condition, field, any"),
        (
            {"name": "a", "wait_for": [{"condition": "A", "equals": 1}]},
            "missing parameter(s) required by 'equals': field",
        ),
        ({"name": "a", "api": "other"}, "value of api must be one of: auto, deckhouse, krypton, kubeai, llmkube"),
    ],
)
def test_wrong_options_are_reported(run: Run, options: dict[str, Any], message: str) -> None:
    result = run("model", **options)
    assert result.failed
    assert message in result["msg"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"wait_timeot": 5},
        {"api": "other"},
        {"wait_timeout": "soon"},
        {"name": "a"},
        {"wait_for": [{}]},
        {"spec": "env: HF_TOKEN hf_very-secret-one"},
        {"models": [{"name": "a", "spec": "--api-key k-very-secret abc"}]},
    ],
)
def test_secrets_are_in_no_argument_error(run: Run, wrong: dict[str, Any]) -> None:
    spec = {
        "env": [{"name": "HF_TOKEN", "value": "hf_very-secret-one"}, {"name": "PIN_TOKEN", "value": "abc"}],
        "args": ["--api-key", "k-very-secret", "-hft", "h-very-secret"],
    }
    task = {"models": [{"name": "a", "spec": spec}], "proxy": "http://me:p-very-secret@proxy:3128"}
    result = run("model", **{**task, **wrong})
    assert result.failed
    assert result["error_code"] == "invalid_input"
    for secret in ("hf_very-secret-one", "k-very-secret", "h-very-secret", "p-very-secret", "the-api-key", "abc"):
        assert secret not in str(result.data)


def test_a_defect_of_the_module_has_a_code_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object) -> None:
        raise KeyError("metadata")

    monkeypatch.setattr(_task._manifest, "parse", broken)
    result = run("model", name="a", namespace="models", spec=SPEC)
    assert (result.failed, result["error_code"]) == (True, "internal_error")
    assert "KeyError: 'metadata'" in result["msg"]


def test_a_removal_that_is_refused_is_no_change(api: FakeApi, run: Run) -> None:
    names = ("a", "b", "c")
    run("model", namespace="models", models=[{"name": name, "spec": SPEC} for name in names], wait=False)
    for path, status, reason in (("/a", 403, "Forbidden"), ("/b", 409, "Conflict"), ("/c", 404, "NotFound")):
        api.answers.append(_refusal(path, status, reason))
    result = run("model", namespace="models", models=[{"name": name} for name in names], state="absent", wait=False)
    assert result.failed
    assert [model["changed"] for model in result["results"]] == [False, False, False]
    assert (result["changed"], result["diff"]) == (False, [])
    assert [model.get("error_code") for model in result["results"]] == ["denied", "replaced", None]
    assert "force_conflicts" not in result["msg"]


def _refusal(path: str, status: int, reason: str) -> Answer:
    body = {"kind": "Status", "reason": reason, "message": "no", "details": {"name": path[1:]}}
    return Answer(lambda call: call.verb == "delete" and call.path.endswith(path), status, text=json.dumps(body))


def test_after_an_error_that_meets_all_the_others_are_not_tried(api: FakeApi, run: Run) -> None:
    api.answers += [Answer(lambda call: call.verb == "apply", 401, "Unauthorized", "no") for _call in range(100)]
    result = run("model", namespace="models", models=[{"name": f"m{i}", "spec": SPEC} for i in range(100)])
    assert result["error_code"] == "unauthorized"
    assert len(result["results"]) == 100
    assert len(api.calls_of("apply")) <= 32


# ---- of several APIs -------------------------------------------------------------------------------------------------


def test_a_manifest_says_its_api_itself(api: FakeApi, run: Run) -> None:
    manifests = [
        {"apiVersion": version, "kind": "Model", "metadata": {"name": name, "namespace": "models"}, "spec": {"x": 1}}
        for version, name in (("kubeai.org/v1", "a"), ("krypton.ai/v1alpha1", "b"))
    ]
    result = run("model", models=[*manifests, {"name": "c", "spec": SPEC}], namespace="models", wait=False)
    assert [model["name"] for model in result["results"]] == ["a", "b", "c"]
    assert sorted(api.objects) == [PATH + "b", PATH + "c", "/apis/kubeai.org/v1/namespaces/models/models/a"]


def test_a_kind_that_one_api_has_says_the_api(api: FakeApi, run: Run) -> None:
    run("model", name="a", kind="ClusterBaseModel", spec={"x": 1}, wait=False)
    assert [*api.objects] == ["/apis/ome.io/v1beta1/clusterbasemodels/a"]


def test_an_api_that_is_named_is_that_of_all_manifests(run: Run) -> None:
    manifest = {"apiVersion": "kubeai.org/v1", "metadata": {"name": "a", "namespace": "models"}, "spec": {}}
    assert (
        "a: apiVersion is kubeai.org/v1, not krypton.ai/v1alpha1."
        in run("model", api="krypton", models=[manifest])["msg"]
    )


def test_a_manifest_of_an_unknown_api_is_rejected_with_the_known_ones(run: Run) -> None:
    manifest = {"apiVersion": "kubeai.org/v2", "metadata": {"name": "a", "namespace": "models"}, "spec": {}}
    message = run("model", models=[manifest])["msg"]
    assert "a: apiVersion is kubeai.org/v2, not krypton.ai/v1alpha1 or kubeai.org/v1 or " in message


def test_wait_conditions_hold_for_models_of_every_api(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=PENDING)
    manifest = {"apiVersion": "kubeai.org/v1", "metadata": {"name": "a", "namespace": "models"}, "spec": {"x": 1}}
    result = run("model", models=[manifest], wait_for=[{"field": "status.phase", "equals": "Pending"}])
    assert not result.failed


# ---- patches ---------------------------------------------------------------------------------------------------------


def test_a_patch_changes_what_it_names_and_nothing_else(api: FakeApi, run: Run) -> None:
    run("model", name="a", namespace="models", labels={"team": "search"}, spec={**SPEC, "args": ["x"]}, wait=False)
    task = {"name": "a", "namespace": "models", "spec": {"minReplicas": 3}, "state": "patched", "wait": False}
    results = [run("model", check=check, **task) for check in (True, False, True, False)]
    assert [result["changed"] for result in results] == [True, True, False, False]
    resource = api.objects[PATH + "a"]
    assert resource["spec"] == {**SPEC, "args": ["x"], "minReplicas": 3, "port": 8080}
    assert resource["metadata"]["labels"] == {"team": "search"}


def test_a_patch_merges_dictionaries_replaces_lists_and_gives_up_what_is_null(api: FakeApi, run: Run) -> None:
    run("model", name="a", namespace="models", spec={**SPEC, "args": ["x"], "image": "y:1"}, wait=False)
    patch = {"source": {"file": "other.gguf"}, "args": ["y", "z"], "image": None}
    assert run("model", name="a", namespace="models", spec=patch, state="patched", wait=False)["changed"]
    spec = api.objects[PATH + "a"]["spec"]
    assert (spec["source"], spec["args"]) == ({**SPEC["source"], "file": "other.gguf"}, ["y", "z"])
    assert "image" not in spec


def test_a_task_that_describes_all_takes_a_patch_back(api: FakeApi, run: Run) -> None:
    whole = {"name": "a", "namespace": "models", "spec": {**SPEC, "minReplicas": 1}, "wait": False}
    run("model", **whole)
    run("model", name="a", namespace="models", spec={"minReplicas": 3}, state="patched", wait=False)
    assert run("model", **whole)["changed"]
    assert api.objects[PATH + "a"]["spec"]["minReplicas"] == 1


def test_a_foreign_field_is_patched_only_with_force(api: FakeApi, run: Run) -> None:
    body = {"apiVersion": "krypton.ai/v1alpha1", "kind": "Model", "metadata": {"name": "a", "namespace": "models"}}
    api.put(PATH + "a", {**body, "spec": {**SPEC, "minReplicas": 1}})
    task = {"name": "a", "namespace": "models", "spec": {"minReplicas": 3}, "state": "patched", "wait": False}
    assert run("model", **task)["error_code"] == "conflict"
    assert run("model", **task, force_conflicts=True)["changed"]
    assert api.objects[PATH + "a"]["spec"] == {**SPEC, "minReplicas": 3, "port": 8080}


def test_nothing_is_patched_where_a_model_is_missing(api: FakeApi, run: Run) -> None:
    run("model", name="a", namespace="models", spec=SPEC, wait=False)
    models = [{"name": name, "spec": {"minReplicas": 3}} for name in ("a", "b")]
    result = run("model", models=models, namespace="models", state="patched")
    assert (result.failed, result["error_code"], result["changed"]) == (True, "not_found", False)
    assert "models/b: It does not exist, and state=patched" in result["msg"]
    assert set(api.objects) == {PATH + "a"}
    assert api.objects[PATH + "a"]["spec"]["minReplicas"] == 1


def test_check_mode_predicts_the_patch_of_an_object_from_an_earlier_task(api: FakeApi, run: Run) -> None:
    task = {"name": "a", "namespace": "models", "spec": {"minReplicas": 3}, "state": "patched"}
    result = run("model", check=True, **task)
    assert (result.failed, result["changed"]) == (False, True)
    assert "models/a cannot be patched yet" in str(result["warnings"])
    assert api.objects == {}


# ---- the time for the API server -------------------------------------------------------------------------------------


def test_the_time_for_reading_and_writing_is_an_option(api: FakeApi, run: Run) -> None:
    result = run("model", name="a", namespace="models", spec=SPEC, api_timeout=0)
    assert (result.failed, result["error_code"]) == (True, "unreachable")
    assert "api_timeout" in result["hint"]
    assert api.calls == []


# ---- removal of obsolete objects -------------------------------------------------------------------------------------


def _search(*names: str, **more: Any) -> dict[str, Any]:
    models = [{"name": name, "labels": {"team": "search"}, "spec": SPEC} for name in names]
    return {"namespace": "models", "models": models, "prune": ["team=search"], **more}


def test_unlisted_objects_with_the_selector_are_deleted(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=READY)
    run("model", **_search("a", "old"))
    run("model", name="stranger", namespace="models", labels={"team": "ads"}, spec=SPEC)
    run("model", name="old", namespace="other", labels={"team": "search"}, spec=SPEC)
    before = set(api.objects)
    results = [run("model", check=check, **_search("a", "new")) for check in (True, False, True, False)]
    assert [result["changed"] for result in results] == [True, True, False, False]
    assert [[one["name"] for one in result["pruned"]] for result in results] == [["old"], ["old"], [], []]
    assert [model["name"] for model in results[1]["results"]] == ["a", "new"]
    assert results[0]["diff"] == results[1]["diff"]
    assert results[0]["diff"][-1]["before_header"] == "models/old"
    assert (results[0]["diff"][-1]["before"]["spec"]["source"], results[0]["diff"][-1]["after"]) == (SPEC["source"], {})
    assert set(api.objects) == before - {PATH + "old"} | {PATH + "new"}


def test_the_module_deletes_old_models_before_it_waits_for_the_others(api: FakeApi, run: Run) -> None:
    run("model", **_search("old"), wait=False)
    api.calls.clear()
    run("model", **_search("a"), wait_timeout=1)
    verbs = [call.verb for call in api.calls]
    assert verbs.index("apply") < verbs.index("delete") < verbs.index("watch")


def test_it_is_waited_until_what_goes_is_gone(api: FakeApi, run: Run) -> None:
    api.controller = becomes(others=READY)
    run("model", **_search("old"))
    api.finalizers.add(PATH + "old")
    api.once("watch", lambda: api.remove(PATH + "old"))
    assert not run("model", **_search("a")).failed
    assert set(api.objects) == {PATH + "a"}


@pytest.mark.parametrize("selector", [[], [""], ["team!=search"], ["!team"], ["team notin (a, b)", "!x"]])
def test_a_selector_that_names_no_label_is_refused(api: FakeApi, run: Run, selector: list[str]) -> None:
    result = run("model", **_search("a", prune=selector))
    assert (result.failed, result["error_code"]) == (True, "invalid_input")
    assert "prune must require a label" in result["msg"]
    assert api.calls == []


def test_an_empty_list_removes_all_that_is_found_where_the_api_is_named(api: FakeApi, run: Run) -> None:
    run("model", **_search("a", "b"), wait=False)
    outcome = run("model", namespace="models", models=[], prune=["team in (search, ads)"])
    assert "prune needs a namespace" in outcome["msg"]
    result = run("model", api="krypton", namespace="models", models=[], prune=["team=search"])
    assert (result["changed"], len(result["pruned"])) == (True, 2)
    assert api.objects == {}


def test_nothing_goes_where_something_was_refused(api: FakeApi, run: Run) -> None:
    run("model", **_search("old"), wait=False)
    api.answers.append(Answer(lambda call: call.verb == "apply", 422, "Invalid", "spec.port: Invalid value: 0"))
    result = run("model", **_search("a"))
    assert (result.failed, result["pruned"]) == (True, [])
    assert set(api.objects) == {PATH + "old"}


def test_nothing_is_written_where_it_may_not_be_seen_what_would_go(api: FakeApi, run: Run) -> None:
    api.answers.append(
        Answer(lambda call: call.verb == "list" and "labelSelector" in call.query, 403, "Forbidden", "no")
    )
    assert run("model", **_search("a")).failed
    assert api.objects == {}


def test_a_controllers_objects_for_other_owners_stay(api: FakeApi, run: Run) -> None:
    run("model", **_search("made"), wait=False)
    api.objects[PATH + "made"]["metadata"]["ownerReferences"] = [{"kind": "Catalog", "controller": True}]
    assert run("model", **_search("a"), wait=False)["pruned"] == []
    assert PATH + "made" in api.objects


def test_models_of_the_whole_cluster_stay_where_a_namespace_is_named(api: FakeApi, run: Run) -> None:
    old = {"name": "old", "kind": "ClusterBaseModel", "labels": {"team": "search"}, "spec": {"x": 1}}
    new = {"name": "new", "kind": "BaseModel", "namespace": "models", "spec": {"x": 1}}
    run("model", models=[old], wait=False)
    assert run("model", models=[new], namespace="models", prune=["team=search"], wait=False)["pruned"] == []
    [gone] = run("model", models=[new], prune=["team=search"], wait=False)["pruned"]
    assert (gone["kind"], gone["name"]) == ("ClusterBaseModel", "old")


@pytest.mark.parametrize("state", ["absent", "patched"])
def test_pruning_goes_with_making_alone(run: Run, state: str) -> None:
    assert "prune requires state=present" in run("model", **_search("a", state=state))["msg"]


# ---- what others have changed ----------------------------------------------------------------------------------------


def _changed_by_kubectl(api: FakeApi, **spec: Any) -> None:
    body = {"apiVersion": "krypton.ai/v1alpha1", "kind": "Model", "metadata": {"name": "a", "namespace": "models"}}
    api.put(PATH + "a", {**body, "spec": spec})


def test_drift_names_the_field_both_values_and_who_has_changed_it(api: FakeApi, run: Run) -> None:
    task = {"name": "a", "namespace": "models", "spec": {**SPEC, "minReplicas": 1}, "wait": False}
    run("model", **task)
    _changed_by_kubectl(api, minReplicas=3, port=9000)
    drift = [{"path": ".spec.minReplicas", "ours": 1, "theirs": 3, "manager": "kubectl"}]
    for options in ({}, {"check": True}, {"check": True, "force_conflicts": True}, {"force_conflicts": True}):
        [result] = run("model", **task, **options)["results"]
        assert result["drift"] == drift
    assert run("model", **task)["results"][0]["drift"] == []


def test_a_change_of_the_task_itself_is_no_drift(api: FakeApi, run: Run) -> None:
    run("model", name="a", namespace="models", spec=SPEC, wait=False)
    [result] = run("model", name="a", namespace="models", spec={**SPEC, "minReplicas": 2}, wait=False)["results"]
    assert (result["changed"], result["drift"]) == (True, [])


def test_secrets_in_drift_are_masked(api: FakeApi, run: Run) -> None:
    task = {"name": "a", "namespace": "models", "wait": False}
    run("model", **task, spec={**SPEC, "env": {"HF_TOKEN": "hf_ours_1234"}})
    _changed_by_kubectl(api, env={"HF_TOKEN": "hf_theirs_5678"})
    result = run("model", **task, spec={**SPEC, "env": {"HF_TOKEN": "hf_ours_1234"}})
    [drift] = result["results"][0]["drift"]
    assert (drift["path"], drift["ours"], drift["theirs"]) == (".spec.env.HF_TOKEN", "********", "********")
    assert "hf_theirs_5678" not in json.dumps(result.data)
