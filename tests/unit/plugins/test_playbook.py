# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The modules as a user meets them: through ansible-playbook."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_playbook import ansible_playbook, provide_collection
from fake_api import FakeApi
from krypton_models import FAILED, PATH, READY, SPEC, becomes

SECRET = "hf_never-to-be-seen"

PLAY: list[dict[str, Any]] = [
    {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": sys.executable},
        "module_defaults": {
            "group/slipway.inference.slipway": {"host": "{{ url }}", "api_key": "never-to-be-seen-key"}
        },
        "tasks": [
            {
                "name": "Register models",
                "slipway.inference.model": {
                    "namespace": "models",
                    "models": [
                        {"name": "a", "spec": {**SPEC, "env": [{"name": "HF_TOKEN", "value": SECRET}]}},
                        {"apiVersion": "krypton.ai/v1alpha1", "kind": "Model", "metadata": {"name": "b"}, "spec": SPEC},
                    ],
                },
            },
            {"name": "Read models", "slipway.inference.model_info": {"namespace": "models"}, "register": "found"},
            {
                "name": "Remove the second",
                "slipway.inference.model": {"name": "b", "namespace": "models", "state": "absent"},
                "tags": ["never", "remove"],
            },
        ],
    }
]


class Playbook:
    """Runs PLAY against an API server."""

    def __init__(self, folder: Path, api: FakeApi) -> None:
        self._folder, self._api = folder, api
        (folder / "play.yml").write_text(json.dumps(PLAY))
        provide_collection(folder)

    def __call__(self, *arguments: str) -> tuple[str, dict[str, Any]]:
        done = ansible_playbook(self._folder, "-i", "localhost,", "-e", f"url={self._api.url}", *arguments, "play.yml")
        recap = done.stdout.rstrip().splitlines()[-1]
        return done.stdout + done.stderr, dict(part.split("=") for part in recap.split() if "=" in part)


@pytest.fixture
def playbook(tmp_path: Path, api: FakeApi) -> Playbook:
    if shutil.which("ansible-playbook") is None:
        pytest.skip("needs ansible-playbook")
    return Playbook(tmp_path, api)


def test_check_run_check_run(api: FakeApi, playbook: Playbook) -> None:
    api.controller = becomes(others=READY)
    assert playbook("--check", "--diff")[1]["changed"] == "1"
    assert api.objects == {}
    assert playbook("--diff")[1]["changed"] == "1"
    assert set(api.objects) == {PATH + "a", PATH + "b"}
    assert playbook("--check", "--diff")[1]["changed"] == "0"
    assert playbook()[1]["changed"] == "0"


def test_secrets_are_in_no_output(api: FakeApi, playbook: Playbook) -> None:
    api.controller = becomes(others=READY)
    output, _recap = playbook("-vvv", "--diff")
    assert api.objects[PATH + "a"]["spec"]["env"][0]["value"] == SECRET
    assert "Register models" in output
    assert "never-to-be-seen" not in output


FAILING = f"""\
- hosts: localhost
  connection: local
  gather_facts: false
  vars:
    ansible_python_interpreter: {sys.executable}
  tasks:
    - name: Register a model
      slipway.inference.model:
        host: "{{{{ url }}}}"
        api_key: unused
        name: a
        namespace: models
        spec: {json.dumps(SPEC)}
      ignore_errors: true
"""


def test_a_failed_task_prints_at_most_25_lines_with_the_fix_at_the_end_of_its_message(
    api: FakeApi, tmp_path: Path
) -> None:
    if shutil.which("ansible-playbook") is None:
        pytest.skip("needs ansible-playbook")
    provide_collection(tmp_path)
    api.controller = becomes(a=FAILED)
    (tmp_path / "play.yml").write_text(FAILING)
    (tmp_path / "ansible.cfg").write_text("[defaults]\ncallback_result_format = yaml\n")
    done = ansible_playbook(tmp_path, "-i", "localhost,", "-e", f"url={api.url}", "play.yml")
    shown = (done.stderr + done.stdout).partition("PLAY RECAP")[0].partition("TASK [")[2]
    lines = [line for line in (done.stderr + shown).splitlines() if line.strip() and line != "...ignoring"]
    assert len(lines) <= 25, "\n".join(lines)
    assert "What to do: Check spec.image" in shown
