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
from ansible_collections.slipway.inference.plugins.callback.stages import failure_lines

COLLECTION = Path(__file__).resolve().parents[3]
SECONDS = re.compile(r" *\d+ s\b")
PLAYBOOK: list[dict[str, Any]] = [
    {
        "name": "Install",
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.import_role": {"name": "first"}, "tags": ["first"]},
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
        "tags": ["always"],
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
            "when": "broken | default('') == 'task'",
        },
        {
            "name": "Ask each model",
            "ansible.builtin.fail": {"msg": "{{ item.name }} is at zero\nwake it"},
            "loop": [{"name": name} for name in ("tiny", "small", "large", "huge", "vast")],
            "loop_control": {"label": "{{ item.name }}"},
            "when": ["broken | default('') == 'loop'", "item.name != 'small'"],
        },
        {
            "name": "Read each secret",
            "ansible.builtin.fail": {"msg": "{{ item }} is wrong"},
            "loop": ["s3cret", "hunter2"],
            "no_log": True,
            "when": "broken | default('') == 'secret'",
        },
        {
            "name": "Wait for each pod",
            "ansible.builtin.command": {"argv": ["sh", "-c", "echo {{ item }}-broke >&2; exit 1"]},
            "loop": [1],
            "changed_when": False,
            "when": "broken | default('') == 'item'",
        },
        {"name": "Look", "ansible.builtin.debug": {"var": "inventory_hostname"}, "tags": ["always"]},
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


def played(folder: Path, *arguments: str, broken: str = "") -> list[str]:
    """The lines on the screen, with N for each time. ``broken``: what fails."""
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
        ["ansible-playbook", "play.yml", "-e", json.dumps({"broken": broken}), *arguments],
        cwd=folder,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode != 0) == bool(broken), done.stdout + done.stderr
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
    assert played(folder, broken="task") == [
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


def test_stages_without_a_selected_tag_are_skipped(folder: Path) -> None:
    assert played(folder, "--tags", "first") == [
        f"Log: {folder}/logs/run.log",
        " 1/4  first     ok N s  1 change",
        " 3/4  rest      skipped N s",
        " 4/4  Ask       ok N s",
        "the answer",
        "  is 42",
        "Done in N s, 1 change.",
    ]


def failure(folder: Path, broken: str) -> list[str]:
    """The lines between that of the failed stage and that of the log."""
    lines = played(folder, broken=broken)
    return lines[lines.index(" 3/4  rest      failed N s") + 1 : -1]


def test_the_messages_of_the_first_failed_items_of_a_loop_are_shown(folder: Path) -> None:
    assert failure(folder, "loop") == [
        "Failed: second : Ask each model",
        "tiny is at zero wake it",
        "large is at zero wake it",
        "huge is at zero wake it",
        "1 more item failed.",
    ]


def test_the_message_of_a_failed_item_has_its_name(folder: Path) -> None:
    assert failure(folder, "item") == ["Failed: second : Wait for each pod", "1: 1-broke"]


def test_hidden_items_of_a_loop_stay_hidden(folder: Path) -> None:
    assert failure(folder, "secret") == ["Failed: second : Read each secret", "Its output is hidden."]


@pytest.mark.parametrize("hidden", [{"censored": "the output has been hidden"}, {"_ansible_no_log": True}])
def test_a_hidden_item_among_others_stays_hidden(hidden: dict[str, Any]) -> None:
    items = [
        {"failed": True, "msg": "hunter2", "item": "s3cret", **hidden},
        {"failed": True, "msg": "late", "item": "a"},
    ]
    assert failure_lines({"msg": "One or more items failed"}, items) == ["Its output is hidden.", "a: late"]


def test_a_hint_that_the_message_has_is_not_repeated() -> None:
    assert failure_lines({"msg": "It is late. Wait.", "hint": "Wait.\nOr run it again."}) == [
        "It is late. Wait.",
        "Or run it again.",
    ]


def test_long_messages_of_items_are_cut() -> None:
    items = [{"failed": True, "msg": "x" * 9000, "item": name} for name in ("a", "y" * 9000)]
    assert [len(line) for line in failure_lines({}, items)] == [len("a: ") + 300, 300]


def test_the_fix_at_the_end_of_a_long_message_is_the_last_line() -> None:
    log = "\n".join(f"line {number}" for number in range(9))
    returned = {"msg": f"It failed. Last log lines:\n{log}\nWhat to do: Wait.", "hint": "See the end of msg."}
    assert failure_lines(returned) == ["It failed. Last log lines:", "line 0", "What to do: Wait."]


def test_a_terminal_gets_no_control_characters_of_a_message() -> None:
    items = [{"msg": "late\x1b]0;title\x07", "failed": True, "item": "a\x1b[2J"}]
    assert failure_lines({"msg": "One or more items failed"}, items) == ["a [2J: late ]0;title"]
    assert failure_lines({"msg": "\x1b[2Jlate", "hint": "Wait\x9b2J."}) == ["[2Jlate", "Wait 2J."]
