# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules that run in Ansible's worker do and say what they do and say in a process of their own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from ansible_playbook import ansible_playbook, provide_collection
from fake_api import FakeApi
from krypton_models import PATH, SPEC

SECRET = "hf_never-to-be-seen"
TEMPLATE = "{{ 1 + 1 }}"
"""What somebody has written into an object; nobody may evaluate it."""
MODEL = {"name": "a", "namespace": "models", "wait": False}
APART = {"LD_OF_NOBODY": "1"}
"""An environment with which a module runs in a process of its own: this might be heeded at its start alone."""
TASKS: dict[str, dict[str, Any]] = {
    "applied": {"slipway.inference.model": {**MODEL, "spec": SPEC}},
    "foreseen": {
        "slipway.inference.model": {
            **MODEL,
            "name": "b",
            "spec": {**SPEC, "env": [{"name": "HF_TOKEN", "value": SECRET}]},
        },
        "check_mode": True,
        "diff": True,
    },
    "found": {"slipway.inference.model_info": {"namespace": "models"}},
    "refused": {"slipway.inference.model": {**MODEL, "namespace": "none", "spec": SPEC}},
    "wrong": {"slipway.inference.model": {**MODEL, "specs": SPEC}},
}


class Playbook:
    """Runs tasks against an API server, and gives their results by name."""

    def __init__(self, folder: Path, api: FakeApi) -> None:
        self._folder, self._api = folder, api
        provide_collection(folder)
        self.output = ""

    def __call__(self, tasks: dict[str, dict[str, Any]], **play: Any) -> dict[str, Any]:
        named = [{**task, "name": name, "register": name, "ignore_errors": True} for name, task in tasks.items()]
        results = {name: "{{ hostvars[inventory_hostname]['" + name + "'] }}" for name in tasks}
        keep = {"content": results, "dest": str(self._folder / "results")}
        (self._folder / "play.json").write_text(
            json.dumps(
                [
                    {
                        "hosts": "all",
                        "gather_facts": False,
                        "environment": {"K8S_AUTH_HOST": self._api.url, "K8S_AUTH_API_KEY": "of-the-play"},
                        **play,
                        "tasks": [*named, {"name": "Keep", "ansible.builtin.copy": keep, "delegate_to": "localhost"}],
                    }
                ]
            )
        )
        done = ansible_playbook(self._folder, "-vvv", "-i", "machine,", "play.json")
        self.output = done.stdout + done.stderr
        outcomes: dict[str, Any] = json.loads((self._folder / "results").read_text())
        return outcomes

    @property
    def packed(self) -> int:
        """How many modules of ours had a process of their own."""
        return self.output.count("/inference/plugins/modules/")


@pytest.fixture
def playbook(tmp_path: Path, api: FakeApi) -> Playbook:
    if shutil.which("ansible-playbook") is None:
        pytest.skip("needs ansible-playbook")
    return Playbook(tmp_path, api)


def test_results_are_those_of_a_process_of_its_own(api: FakeApi, playbook: Playbook) -> None:
    api.warnings.append("from the server")
    named = {"apiVersion": "krypton.ai/v1alpha1", "kind": "Model"}
    metadata = {"name": "of-others", "namespace": "models"}
    api.put(PATH + "of-others", {**named, "metadata": metadata, "spec": {**SPEC, "args": [TEMPLATE]}})
    apart = {
        f"apart_{name}": {**task, "environment": {**APART, "K8S_AUTH_API_KEY": "of-the-task"}}
        for name, task in TASKS.items()
    }
    both = {name: task for pair in zip(TASKS.items(), apart.items(), strict=True) for name, task in pair}
    local = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    results = playbook(both, vars=local)
    assert playbook.packed == len(apart)
    applied, again = results.pop("applied"), results.pop("apart_applied")
    assert (applied["changed"], again["changed"]) == (True, False)
    assert applied.keys() == again.keys()
    for name in [*results]:
        if not name.startswith("apart_"):
            assert results[name] == results[f"apart_{name}"], name
    assert results["found"]["resources"][1]["spec"]["args"] == [TEMPLATE]
    assert "from the server" in str(results["found"]["warnings"])
    assert results["refused"]["error_code"] == "namespace_missing"
    assert results["wrong"]["msg"].startswith("Unsupported parameters for (slipway.inference.model) module: specs.")
    assert {call.headers["Authorization"] for call in api.calls} == {"Bearer of-the-play", "Bearer of-the-task"}
    assert SECRET not in playbook.output
    assert set(api.objects) == {PATH + "a", PATH + "of-others"}


def test_a_host_delegates_to_the_controller(api: FakeApi, playbook: Playbook) -> None:
    tasks = {"found": {**TASKS["found"], "delegate_to": "localhost"}}
    assert playbook(tasks)["found"]["api_found"]
    assert playbook.packed == 0


def test_with_another_python_the_module_has_a_process_of_its_own(
    api: FakeApi, playbook: Playbook, tmp_path: Path
) -> None:
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\nexec "$REAL_PYTHON" "$@"\n')
    program.chmod(0o755)
    variables = {"ansible_connection": "local", "ansible_python_interpreter": str(program)}
    environment = {"K8S_AUTH_HOST": api.url, "K8S_AUTH_API_KEY": "k", "REAL_PYTHON": "{{ ansible_playbook_python }}"}
    assert playbook({"found": TASKS["found"]}, vars=variables, environment=environment)["found"]["api_found"]
    assert playbook.packed == 1
