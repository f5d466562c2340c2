# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: stages
type: stdout
short_description: Show one line for each stage of a playbook, and write the usual output to a file
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - A stage is a play, or one or more roles. Its line shows its number, its duration and the number of changes.
  - Roles that a role imports or includes belong to its stage.
  - Messages of C(ansible.builtin.debug) are shown after the line of their stage.
  - The usual output is written to a file.
  - The last lines summarize failures and show the path of that file.
extends_documentation_fragment:
  - default_callback
  - result_format_callback
options:
  stages:
    description:
      - The stages in order, each as V(NAME) or as V(NAME=PART+PART). A part is the last component of a role's name, or
        the name of a play. Tasks between two stages belong to the first one.
      - If it is empty, each play is a stage.
    type: list
    elements: str
    default: []
    env:
      - name: SLIPWAY_STAGES
    ini:
      - section: callback_slipway_stages
        key: stages
  log:
    description: The file for the usual output. Each run overwrites it.
    type: path
    default: slipway.log
    env:
      - name: SLIPWAY_STAGES_LOG
    ini:
      - section: callback_slipway_stages
        key: log
"""

import os
import time
from typing import Any, TextIO

from ansible.plugins.callback.default import CallbackModule as DefaultCallback
from ansible.utils.color import stringc
from ansible.utils.display import Display

# Limits of what is shown of a failure: characters of an error output, lines of its message, lines of its hint.
CHARACTERS = 300
LINES = 3
HINT_LINES = 2


class Log:
    """A Display that writes to a file, and leaves everything else to the real Display."""

    def __init__(self, display: Display, file: TextIO) -> None:
        self._real, self._file = display, file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def display(self, msg: str, color: str | None = None, newline: bool = True, **unused: Any) -> None:
        self._file.write(f"{msg}\n" if newline else msg)
        self._file.flush()

    def banner(self, msg: str, color: str | None = None, cows: bool = True) -> None:
        self.display(f"\n{msg} {'*' * max(3, 79 - len(msg))}")

    def _format(self, name: str, *arguments: Any, **options: Any) -> None:
        """Call the real Display's method, which formats its arguments and shows them with self.display."""
        getattr(Display, name)(self, *arguments, **options)

    # ansible-core 2.19 and newer
    def _error(self, *arguments: Any, **options: Any) -> None:
        self._format("_error", *arguments, **options)

    def _warning(self, *arguments: Any, **options: Any) -> None:
        self._format("_warning", *arguments, **options)

    def _deprecated(self, *arguments: Any, **options: Any) -> None:
        self._format("_deprecated", *arguments, **options)


class Stage:
    """A running stage."""

    def __init__(self, name: str, began: float) -> None:
        self.name, self.began = name, began
        self.changed = self.done = 0


class CallbackModule(DefaultCallback):
    """The usual callback, which writes to a file, and one line for each stage on the screen."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "slipway.inference.stages"

    def __init__(self) -> None:
        super().__init__()
        self._screen: Display = self._display
        self._names: list[str] = []
        self._stage_of: dict[str, str] = {}
        self._stage: Stage | None = None
        self._passed: set[str] = set()
        self._changed = 0
        self._failed: dict[str, tuple[str, dict[str, Any]]] = {}
        self._path = ""
        self._began = time.monotonic()
        # Messages of the running stage, which are shown after its line.
        self._messages: list[str] = []

    def set_options(self, task_keys: Any = None, var_options: Any = None, direct: Any = None) -> None:
        super().set_options(task_keys=task_keys, var_options=var_options, direct=direct)
        self._stage_of = _stages(self.get_option("stages"))
        self._names = list(dict.fromkeys(self._stage_of.values()))
        self._path = str(self.get_option("log"))
        os.makedirs(os.path.dirname(os.path.abspath(self._path)), exist_ok=True)
        # It may contain output that only this user may read.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._display = Log(self._screen, os.fdopen(descriptor, "w", encoding="utf-8"))

    # --- stages

    def v2_playbook_on_start(self, playbook: Any) -> None:
        super().v2_playbook_on_start(playbook)
        self._show(f"Log: {self._path}")

    def v2_playbook_on_play_start(self, play: Any) -> None:
        super().v2_playbook_on_play_start(play)
        name = play.get_name().strip()
        stage = self._stage_of.get(name) if self._names else name
        if stage:
            self._enter(stage)

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        super().v2_playbook_on_task_start(task, is_conditional)
        stage = stage_of(task, self._stage_of)
        if stage:
            self._enter(stage)

    def _enter(self, name: str) -> None:
        if name in self._passed or (self._stage and self._stage.name == name):
            return
        self._leave()
        self._stage = Stage(name, time.monotonic())
        self._screen.display(self._heading(name), newline=False)

    def _leave(self, failed: bool = False) -> None:
        stage = self._stage
        if stage is None:
            return
        self._stage = None
        self._passed.add(stage.name)
        self._changed += stage.changed
        outcome = stringc("failed", "red") if failed else "ok    " if stage.done else "off   "
        line = f"{outcome}  {_seconds(time.monotonic() - stage.began):>10}  {_changes(stage.changed)}"
        self._screen.display(line.rstrip())
        for message in self._messages:
            self._screen.display(message)
        self._messages = []

    def _heading(self, name: str) -> str:
        if name not in self._names:
            return f"{name}  "
        width = max(map(len, self._names))
        return f"{self._names.index(name) + 1:>2}/{len(self._names)}  {name:<{width}}  "

    # --- results

    def v2_runner_on_ok(self, result: Any) -> None:
        super().v2_runner_on_ok(result)
        returned, task = result._result, result._task
        if self._stage is not None:
            self._stage.done += 1
            self._stage.changed += bool(returned.get("changed"))
        if task.action in ("debug", "ansible.builtin.debug") and isinstance(returned.get("msg"), str):
            self._add_message(returned["msg"])

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        super().v2_runner_on_failed(result, ignore_errors=ignore_errors)
        if not ignore_errors:
            self._remember(result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        super().v2_runner_on_unreachable(result)
        self._remember(result)

    def _remember(self, result: Any) -> None:
        # A block may rescue it, so only the end of the run shows whether it counts.
        self._failed[result._host.get_name()] = (result._task.get_name(), dict(result._result))

    def v2_playbook_on_stats(self, stats: Any) -> None:
        super().v2_playbook_on_stats(stats)
        summaries = {host: stats.summarize(host) for host in stats.processed}
        failed = [host for host, summary in summaries.items() if summary["failures"] or summary["unreachable"]]
        self._leave(failed=bool(failed))
        if not failed:
            seconds = _seconds(time.monotonic() - self._began)
            self._show(f"Done in {seconds}, {_changes(self._changed) or 'no changes'}.")
            return
        for host in failed:
            self._show_failure(host)
        self._show(f"Log: {os.path.abspath(self._path)}")

    def _show_failure(self, host: str) -> None:
        task, returned = self._failed.get(host, ("", {}))
        where = "" if host == "localhost" else f" on {host}"
        self._show(stringc(f"Failed{where}: {task}", "red"))
        if returned.get("_ansible_no_log") or returned.get("censored"):
            self._show("Its output is hidden.")
            return
        for line in _message(returned).splitlines()[:LINES]:
            self._show(line)
        for line in str(returned.get("hint") or "").splitlines()[:HINT_LINES]:
            self._show(line)

    def _add_message(self, text: str) -> None:
        if not text.strip():
            return
        if self._stage is None:
            self._screen.display(text.rstrip("\n"))
        else:
            self._messages.append(text.rstrip("\n"))

    def _show(self, text: str) -> None:
        if text.strip():
            self._screen.display(text.strip())


def stage_of(task: Any, stages: dict[str, str]) -> str | None:
    """Return the stage of a task, which is that of its outermost role: a role may use the role of another stage."""
    return next((stages[role] for role in _roles(task) if role in stages), None)


def _roles(task: Any) -> list[str]:
    """Return the names of the roles around a task, the outermost first."""
    names: list[str] = []
    while task is not None:
        role = getattr(task, "_role", None)
        if role is not None:
            names.append(role.get_name().rpartition(".")[2])
        task = getattr(task, "_parent", None)
    return names[::-1]


def _stages(items: list[str]) -> dict[str, str]:
    """Return the stage of each role and play."""
    pairs = [item.partition("=") for item in items]
    return {part: name for name, _sign, parts in pairs for part in (parts or name).split("+")}


def _message(returned: dict[str, Any]) -> str:
    """Return the message of a failed task, or that of the first failed item of its loop."""
    for item in returned.get("results") or ():
        if isinstance(item, dict) and item.get("failed") and item.get("msg"):
            return str(item["msg"])
    message = str(returned.get("msg") or returned.get("stderr") or returned.get("module_stderr") or "No message.")
    errors = str(returned.get("stderr") or "").strip()
    return errors[-CHARACTERS:] if message == "non-zero return code" and errors else message


def _changes(count: int) -> str:
    return "" if count == 0 else "1 change" if count == 1 else f"{count} changes"


def _seconds(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60} s"
