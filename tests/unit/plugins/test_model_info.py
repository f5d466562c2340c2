# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module model_info against an API server."""

from __future__ import annotations

import pytest
from ansible_collections.slipway.inference.plugins.module_utils import _bulk
from fake_api import FakeApi
from krypton_models import FAILED, PATH, PENDING, READY, SPEC
from module_run import Run


def _model(api: FakeApi, name: str, namespace: str = "models", **labels: str) -> None:
    path = f"/apis/krypton.ai/v1alpha1/namespaces/{namespace}/models/{name}"
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    api.put(path, {"apiVersion": "krypton.ai/v1alpha1", "kind": "Model", "metadata": metadata, "spec": SPEC})


def test_all_models_are_read_with_what_became_of_them(api: FakeApi, run: Run) -> None:
    _model(api, "a")
    _model(api, "b", "other")
    api.set_status(PATH + "a", **READY)
    result = run("model_info")
    assert [(model["namespace"], model["name"], model["ready"]) for model in result["models"]] == [
        ("models", "a", True),
        ("other", "b", False),
    ]
    assert result["models"][1]["reason"] == "NoStatus"
    assert result["resources"][0]["spec"]["source"] == SPEC["source"]
    assert result["resources"][0]["kind"] == "Model"
    assert "managedFields" not in result["resources"][0]["metadata"]


def test_models_are_selected_by_name_namespace_and_labels(api: FakeApi, run: Run) -> None:
    _model(api, "a", team="search")
    _model(api, "b", team="ads")
    _model(api, "a", "other", team="search")

    def read(**options: object) -> list[str]:
        return [f"{model['namespace']}/{model['name']}" for model in run("model_info", **options)["models"]]

    assert read(name="a") == ["models/a", "other/a"]
    assert read(namespace="models") == ["models/a", "models/b"]
    assert read(namespace="models", name="b") == ["models/b"]
    assert read(label_selectors=["team=search"]) == ["models/a", "other/a"]
    assert read(label_selectors=["team=search"], namespace="models") == ["models/a"]
    assert read(name="none") == []


def test_check_run_check_run_never_change_anything(api: FakeApi, run: Run) -> None:
    _model(api, "a")
    results = [run("model_info", check=check) for check in (True, False, True, False)]
    assert [result["changed"] for result in results] == [False] * 4
    assert {call.verb for call in api.calls} == {"list"}


def test_without_the_definition_nothing_is_found(api: FakeApi, run: Run) -> None:
    api.served.clear()
    result = run("model_info")
    assert (result.failed, result["api_found"], result["models"], result["resources"]) == (False, False, [], [])


def test_resources_that_model_info_returned_can_be_deleted(api: FakeApi, run: Run) -> None:
    _model(api, "a")
    _model(api, "b", "other")
    api.set_status(PATH + "a", **FAILED)
    resources = run("model_info")["resources"]
    assert run("model", models=resources, state="absent")["changed"]
    assert api.objects == {}


# ---- waiting for what others make ------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks again soon whether there is something to wait for."""
    monkeypatch.setattr(_bulk, "POLL_SECONDS", 0.01)


@pytest.mark.usefixtures("impatient")
def test_a_model_that_is_not_there_yet_is_waited_for_until_it_is_ready(api: FakeApi, run: Run) -> None:
    api.once("list", lambda: _model(api, "a"))
    api.once("watch", lambda: api.set_status(PATH + "a", **READY))
    result = run("model_info", name="a", namespace="models", wait=True, wait_timeout=60)
    assert not result.failed
    assert [model["ready"] for model in result["models"]] == [True]


@pytest.mark.usefixtures("impatient")
def test_models_that_come_while_others_are_waited_for_are_waited_for_too(api: FakeApi, run: Run) -> None:
    _model(api, "a", team="search")

    def first_becomes_ready() -> None:
        _model(api, "b", team="search")
        _model(api, "stranger")
        api.set_status(PATH + "a", **READY)

    api.once("watch", first_becomes_ready)
    api.once("watch", lambda: api.set_status(PATH + "b", **READY))
    result = run("model_info", label_selectors=["team=search"], wait=True, wait_timeout=60)
    assert not result.failed
    assert [(model["name"], model["ready"]) for model in result["models"]] == [("a", True), ("b", True)]


def test_models_that_are_ready_are_read_by_one_request(api: FakeApi, run: Run) -> None:
    _model(api, "a")
    api.set_status(PATH + "a", **READY)
    assert not run("model_info", wait=True).failed
    assert [call.verb for call in api.calls] == ["list"]


def test_a_model_that_failed_for_good_ends_the_wait_with_its_reason(api: FakeApi, run: Run) -> None:
    _model(api, "a")
    api.set_status(PATH + "a", **FAILED)
    result = run("model_info", wait=True, wait_timeout=3600)
    assert (result.failed, result["error_code"]) == (True, "failed")
    assert "Model models/a failed. ImagePullBackOff: The image nope:1 cannot be pulled." in result["msg"]
    assert result["models"][0]["error_code"] == "failed"


def test_without_v_a_task_that_fails_returns_all_models_and_names_the_objects(api: FakeApi, run: Run) -> None:
    for name, status in (("bad", FAILED), ("good", READY)):
        _model(api, name)
        api.set_status(PATH + name, **status)
    result = run("model_info", wait=True, verbosity=0)
    assert result.failed
    assert [(one["name"], one["ready"], one["reason"]) for one in result["models"]] == [
        ("bad", False, "ImagePullBackOff"),
        ("good", True, ""),
    ]
    assert result["resources"] == [
        {"apiVersion": "krypton.ai/v1alpha1", "kind": "Model", "metadata": {"name": name, "namespace": "models"}}
        for name in ("bad", "good")
    ]


def test_objects_that_are_not_ready_in_time_are_reported(api: FakeApi, run: Run) -> None:
    _model(api, "a")
    api.set_status(PATH + "a", **PENDING)
    result = run("model_info", wait=True, wait_timeout=1)
    assert (result.failed, result["error_code"]) == (True, "timeout")
    assert "Model models/a is not ready after 1 s. WaitingForPods" in result["msg"]


def test_an_empty_wait_is_reported_at_its_timeout(api: FakeApi, run: Run) -> None:
    result = run("model_info", name="a", wait=True, wait_timeout=0)
    assert (result.failed, result["error_code"]) == (True, "timeout")
    assert result.cause == "No matching Model was found within 0 s."


def test_without_the_definition_nothing_is_waited_for(api: FakeApi, run: Run) -> None:
    api.served.clear()
    result = run("model_info", wait=True, wait_timeout=3600)
    assert (result.failed, result["error_code"]) == (True, "definition_missing")


def test_other_things_than_readiness_can_be_waited_for(api: FakeApi, run: Run) -> None:
    _model(api, "a")
    api.set_status(PATH + "a", **PENDING)
    task = {"wait": True, "wait_for": [{"field": "status.phase", "equals": "Pending"}]}
    assert not run("model_info", **task).failed
    assert [call.verb for call in api.calls] == ["list"]


def test_check_mode_does_not_wait(api: FakeApi, run: Run) -> None:
    assert not run("model_info", check=True, name="a", wait=True).failed
    assert [call.verb for call in api.calls] == ["list"]
