# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A playbook's stages on the screen, and all else in a file."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

COLLECTION = Path(__file__).resolve().parents[3]
SECONDS = re.compile(r" *\d+ s\b")
PLAYBOOK: list[dict[str, Any]] = [
    {
        "name": "Install",
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.import_role": {"name": "first"}},
            {"ansible.builtin.import_role": {"name": "unneeded"}, "when": "needed | default(false)"},
            {"ansible.builtin.import_role": {"name": "second"}},
            {"ansible.builtin.import_role": {"name": "third"}},
        ],
    },
    {
        "name": "Ask",
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.debug": {"msg": "the answer\n  is 42"}}],
    },
]
ROLES: dict[str, list[dict[str, Any]]] = {
    "first": [
        {"ansible.builtin.include_role": {"name": "second", "tasks_from": "check"}},
        {"ansible.builtin.import_role": {"name": "third"}},
        {"ansible.builtin.command": {"argv": ["true"]}, "changed_when": True},
    ],
    "third": [{"ansible.builtin.debug": {"var": "inventory_hostname"}}],
    "unneeded": [{"ansible.builtin.debug": {"var": "inventory_hostname"}}],
    "second": [
        {
            "name": "Try",
            "block": [{"ansible.builtin.fail": {"msg": "rescued later"}}],
            "rescue": [{"ansible.builtin.debug": {"var": "inventory_hostname"}}],
        },
        {
            "name": "Register the model",
            "ansible.builtin.fail": {"msg": "one\ntwo\nthree\nfour"},
            "when": "broken | default(false)",
        },
    ],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if shutil.which("ansible-playbook") is None:
        pytest.skip("needs ansible-playbook")
    for role, tasks in ROLES.items():
        (tmp_path / "roles" / role / "tasks").mkdir(parents=True)
        (tmp_path / "roles" / role / "tasks/main.yml").write_text(json.dumps(tasks))
    check = [{"ansible.builtin.debug": {"var": "inventory_hostname"}}]
    (tmp_path / "roles/second/tasks/check.yml").write_text(json.dumps(check))
    (tmp_path / "play.yml").write_text(json.dumps(PLAYBOOK))
    (tmp_path / "ansible.cfg").touch()
    home = tmp_path / "ansible_collections" / "slipway"
    home.mkdir(parents=True)
    (home / "inference").symlink_to(COLLECTION)
    return tmp_path


def played(folder: Path, *, broken: bool = False) -> list[str]:
    """The lines on the screen, with N for each time."""
    settings = {
        "ANSIBLE_COLLECTIONS_PATH": str(folder),
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_STDOUT_CALLBACK": "slipway.inference.stages",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
        "ANSIBLE_HOME": str(folder / "home"),
        "SLIPWAY_STAGES": "first,optional=unneeded,rest=second+third,Ask",
        "SLIPWAY_STAGES_LOG": str(folder / "logs/run.log"),
    }
    done = subprocess.run(
        ["ansible-playbook", "play.yml", "-e", json.dumps({"broken": broken})],
        cwd=folder,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode != 0) == broken, done.stdout + done.stderr
    return [SECONDS.sub(" N s", line) for line in done.stdout.splitlines()]


def test_each_stage_is_a_line_and_messages_of_the_playbook_are_shown(folder: Path) -> None:
    log = folder / "logs/run.log"
    assert played(folder) == [
        f"Log: {log}",
        " 1/4  first     ok N s  1 change",
        " 2/4  optional  off N s",
        " 3/4  rest      ok N s",
        " 4/4  Ask       ok N s",
        "the answer",
        "  is 42",
        "Done in N s, 1 change.",
    ]
    assert "rescued later" in log.read_text()
    assert "PLAY RECAP" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0


def test_a_failure_is_shown_in_a_few_lines_the_last_of_which_names_the_file(folder: Path) -> None:
    log = folder / "logs/run.log"
    assert played(folder, broken=True) == [
        f"Log: {log}",
        " 1/4  first     ok N s  1 change",
        " 2/4  optional  off N s",
        " 3/4  rest      failed N s",
        "Failed: second : Register the model",
        "one",
        "two",
        "three",
        f"Log: {log}",
    ]
    assert "four" in log.read_text()
