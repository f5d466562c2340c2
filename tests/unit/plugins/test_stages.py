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
SECONDS = re.compile(r"\d+ s\b")
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
    "first": [{"ansible.builtin.command": {"argv": ["true"]}, "changed_when": True}],
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
    (tmp_path / "play.yml").write_text(json.dumps(PLAYBOOK))
    (tmp_path / "ansible.cfg").touch()
    home = tmp_path / "ansible_collections" / "slipway"
    home.mkdir(parents=True)
    (home / "inference").symlink_to(COLLECTION)
    return tmp_path


def played(folder: Path, *, broken: bool = False) -> list[str]:
    """The lines on the screen, each time as N."""
    settings = {
        "ANSIBLE_COLLECTIONS_PATH": str(folder),
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_STDOUT_CALLBACK": "slipway.inference.stages",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
        "ANSIBLE_HOME": str(folder / "home"),
        "SLIPWAY_STAGES": "first,unneeded,second,Ask",
        "SLIPWAY_STAGES_LOG": str(folder / "logs/run.log"),
        "SLIPWAY_STAGES_TIMES": str(folder / "times.json"),
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
    return [SECONDS.sub("N s", line) for line in done.stdout.splitlines()]


def test_each_stage_is_a_line_and_what_a_playbook_tells_is_shown(folder: Path) -> None:
    log = folder / "logs/run.log"
    assert played(folder) == [
        f"4 stages. The whole output is in {log}.",
        "1 of 4: first ... N s, 1 changed",
        "2 of 4: unneeded ... N s, not needed",
        "3 of 4: second ... N s, ok",
        "4 of 4: Ask ... ",
        "the answer",
        "  is 42",
        "4 of 4: Ask ... N s, ok",
        "Done after N s.",
    ]
    assert "rescued later" in log.read_text()
    assert "PLAY RECAP" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0
    assert set(json.loads((folder / "times.json").read_text())) == {"first", "unneeded", "second", "Ask"}


def test_a_failure_is_told_in_a_few_lines_the_last_of_which_names_the_file(folder: Path) -> None:
    (folder / "times.json").write_text(json.dumps(dict.fromkeys(("first", "unneeded", "second", "Ask"), 10)))
    log = folder / "logs/run.log"
    assert played(folder, broken=True) == [
        f"4 stages, about N s, as last time. The whole output is in {log}.",
        "1 of 4: first (about N s) ... N s, 1 changed",
        "2 of 4: unneeded (about N s) ... N s, not needed",
        "3 of 4: second (about N s) ... N s, failed",
        "Failed: second : Register the model",
        "one",
        "two",
        "three",
        f"The whole output: {log}",
    ]
    assert "four" in log.read_text()
    assert json.loads((folder / "times.json").read_text())["second"] == 10, "only a good run is remembered"
