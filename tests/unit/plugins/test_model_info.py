# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module model_info against an API server."""

from __future__ import annotations

from fake_api import FakeApi
from krypton_models import FAILED, PATH, READY, SPEC
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


def test_what_was_read_can_be_removed(api: FakeApi, run: Run) -> None:
    _model(api, "a")
    _model(api, "b", "other")
    api.set_status(PATH + "a", **FAILED)
    found = run("model_info")["resources"]
    assert run("model", models=found, state="absent")["changed"]
    assert api.objects == {}
