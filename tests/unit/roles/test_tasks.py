"""Traps that the roles' tasks and the playbooks keep clear of, seen in their text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ansible.template import trust_as_template

from slipway.apis import APIS
from tests import documents
from tests.tables import each

from ..ansible_files import mappings, role_variables
from .rendering import Rendered

ROOT = Path(__file__).parents[3]
FILES = sorted([*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("playbooks/*.yml")])


@each(FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_objects_read_by_name_need_not_have_the_label(file: Path) -> None:
    """Asked by name, k8s_info ignores label_selectors: what is another's would pass for ours, and be removed."""
    lookups = [task["slipway.inference.k8s_info"] for task in mappings(file) if "slipway.inference.k8s_info" in task]

    assert [arguments for arguments in lookups if "name" in arguments and "label_selectors" in arguments] == []


@each([*ROOT.glob("roles/*"), ROOT / "playbooks"], ids=lambda folder: folder.name)
def test_objects_are_read_and_changed_by_the_modules_that_these_tests_know(folder: Path) -> None:
    """With kubernetes.core's, a task would take ten times the CPU time, and no guard of this file would look at it."""
    files = [file for ending in ("*.yml", "*.yaml") for file in folder.rglob(ending)]

    assert [file for file in files if re.search(r"\bkubernetes\.core\.k8s(_info)?\b", file.read_text())] == []


def test_the_controller_knows_the_name_of_its_pod() -> None:
    """A container that was restarted in its pod takes its own lease up at once, by that name."""
    container = role_variables(ROOT / "roles/controller")["__controller_container"]

    assert {item["name"]: item["valueFrom"] for item in container["env"]} == {
        "POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}}
    }


def test_the_secret_stays_until_no_pod_asks_for_it() -> None:
    tasks = [task["name"] for task in documents.read(ROOT / "roles/component/tasks/main.yml")]

    assert tasks.index("Wait for the pods") < tasks.index("Remove a secret that is no longer wanted")


def test_a_change_of_kubeai_s_configuration_replaces_no_pod() -> None:
    """The controller reads it while it runs; a restart would stop all reconciling for the time that it takes."""
    tasks = documents.read(ROOT / "roles/controller/tasks/main.yml")
    [install] = [task for task in tasks if task["name"] == "Install the controller"]
    revision = documents.read(ROOT / "roles/component/vars/main.yml")["__component_revision"]

    assert [name for name, value in install["vars"].items() if "__controller_kubeai" in str(value)] == [
        "component_objects"
    ]
    assert "component_objects" not in revision


def test_a_rescue_names_a_task_of_its_file() -> None:
    for file in FILES:
        names = {task.get("name") for task in mappings(file)}
        rescued = set(re.findall(r"ansible_failed_task\.name == '([^']+)'", file.read_text()))
        assert rescued <= names, file


def test_the_models_go_before_the_controller_that_looks_after_what_they_leave() -> None:
    [play] = documents.read(ROOT / "playbooks/uninstall.yml")
    roles = [
        task["ansible.builtin.import_role"]["name"] for task in play["tasks"] if "ansible.builtin.import_role" in task
    ]

    assert roles.index("slipway.inference.models") < roles.index("slipway.inference.controller")


def test_every_api_is_known_to_every_role() -> None:
    """An API that one of them does not know could be installed, and not served or not removed."""
    apis = {
        "crds": set(Rendered("crds")["__crds_apis"]),
        "controller": set(Rendered("controller")["controller_apis"]),
        "gateway": set(Rendered("gateway")["gateway_apis"]),
        "models": set(Rendered("models")["__models_apis"]),
        "status": set(Rendered("status")["__status_apis"]),
    }

    assert set(map(frozenset, apis.values())) == {frozenset(api.name for api in APIS)}


@each(FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_objects_are_removed_by_one_call(file: Path) -> None:
    """In a loop, each object would cost a task with a new client."""
    removing = [task for task in mappings(file) if task.get("slipway.inference.k8s", {}).get("state") == "absent"]

    assert [task["name"] for task in removing if "loop" in task] == []


@each(FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_tasks_that_see_secrets_show_nothing(file: Path) -> None:
    """They report their changes, but never their secrets, neither in output nor in diffs."""
    tasks = [task for task in mappings(file) if _sees_secrets(task)]

    assert [task["name"] for task in tasks if not task.get("no_log")] == []


def _sees_secrets(task: dict[str, Any]) -> bool:
    used = [task.get(f"slipway.inference.{module}") for module in ("k8s", "k8s_info")]
    return any(arguments.get("kind") == "Secret" or "secret" in str(arguments) for arguments in used if arguments)


def test_the_least_rights_are_those_that_the_documentation_shows() -> None:
    shipped = (ROOT / "roles/models/files/model-author.yml").read_text()

    assert f"```yaml\n{shipped}```" in (ROOT / "docs/reference/controller.md").read_text()


def test_an_upgrade_takes_definitions_then_controller_then_gateway() -> None:
    [play] = documents.read(ROOT / "playbooks/upgrade.yml")
    tags = [task["tags"][0] for task in play["tasks"]]

    first = ["preflight", "verify", "verify", "crds", "model_registry", "depot", "controller", "gateway"]
    assert tags[: len(first)] == first
    assert tags[-1] == "verify"


def test_an_upgrade_takes_the_parts_that_an_installation_has() -> None:
    def conditions(playbook: str) -> dict[str, Any]:
        tasks = [task for task in mappings(ROOT / f"playbooks/{playbook}.yml") if "when" in task]
        actions = ("ansible.builtin.import_role", "ansible.builtin.include_role")
        return {task[action]["name"]: task["when"] for task in tasks for action in actions if action in task}

    parts = documents.read(ROOT / "playbooks/shared/parts.yml")
    assert conditions("upgrade") == conditions("site")
    assert {when.removesuffix(" | bool") for when in conditions("site").values()} == parts.keys()


@pytest.mark.parametrize(
    ("variables", "roles"),
    [
        ({}, set()),
        ({"slipway_apis": ["krypton", "deckhouse"]}, {"model_registry"}),
        ({"slipway_apis": ["deckhouse"], "slipway_model_registry": False}, set()),
        (
            {"slipway_hub": True, "slipway_metrics_server": "true", "slipway_monitoring": False},
            {"hub", "metrics_server"},
        ),
        ({"slipway_leader_worker_set": True, "slipway_monitoring": True}, {"leader_worker_set", "monitoring"}),
        ({"groups": {"gpu_nodes": ["one"]}}, {"gpus"}),
        ({"groups": {"mine": ["one"]}, "gpu_nodes_group": "mine", "slipway_gpu": False}, set()),
        ({"preflight_openshift": True, "gateway_api_keys_secret": "keys"}, {"openshift_route"}),
    ],
)
def test_the_preflight_checks_the_parts_that_will_be_installed(variables: dict[str, Any], roles: set[str]) -> None:
    host_vars = {"gateway_api_keys": {}, "gateway_api_keys_secret": "", "groups": {}, **variables}
    parts = documents.read(ROOT / "playbooks/shared/parts.yml")
    has = Rendered("preflight", **host_vars, **{name: trust_as_template(value) for name, value in parts.items()})
    checked = {"depot": "model_registry", "device_plugin": "gpus", "runtime_class": "gpus"}

    assert {name.removeprefix("slipway_has_") for name in parts if has[name]} == roles
    always = {"controller", "gateway", "models"}
    assert {checked.get(role, role) for role in has["preflight_roles"]} - always == roles


@pytest.mark.parametrize("playbook", ["site", "upgrade"])
def test_an_installation_can_be_upgraded_and_removed(playbook: str) -> None:
    def roles(name: str) -> set[str]:
        tasks = mappings(ROOT / f"playbooks/{name}.yml")
        used = [task["ansible.builtin.import_role"] for task in tasks if "ansible.builtin.import_role" in task]
        return {role["name"] for role in used}

    changing = roles(playbook) - {f"slipway.inference.{role}" for role in ("preflight", "status")}
    assert changing - roles("uninstall") == set()
