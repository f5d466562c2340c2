# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: stages
type: stdout
short_description: Show a line for each stage of a playbook, and keep the rest in a file
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - A stage is a role, or a play. Each has one line with its number, what it took and what it changed. Messages of
    C(ansible.builtin.debug) are shown as they are.
  - All that the usual output would have shown goes to a file.
  - What failed is told in a few lines at the end, the last of which names that file.
extends_documentation_fragment:
  - default_callback
  - result_format_callback
options:
  stages:
    description:
      - The stages, in their order, by the last part of a role's name or by a play's name. What runs between two of them
        belongs to the one before.
      - Without it each play is a stage.
    type: list
    elements: str
    default: []
    env:
      - name: SLIPWAY_STAGES
    ini:
      - section: callback_slipway_stages
        key: stages
  log:
    description: The file for the usual output. It is written anew each time.
    type: path
    default: slipway.log
    env:
      - name: SLIPWAY_STAGES_LOG
    ini:
      - section: callback_slipway_stages
        key: log
  times:
    description: >-
      A file that keeps how long each stage took when it last went well, from which the next run estimates. Empty keeps
      nothing.
    type: str
    default: ""
    env:
      - name: SLIPWAY_STAGES_TIMES
    ini:
      - section: callback_slipway_stages
        key: times
"""

import json
import os
import time
from typing import Any, TextIO

from ansible.plugins.callback.default import CallbackModule as DefaultCallback
from ansible.utils.color import stringc
from ansible.utils.display import Display

WIDTH = 100
# Of what is told of a failure.
LINES = 3
HINT_LINES = 2


class Log:
    """A Display that writes to a file; what it does not write itself, the real one knows."""

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
        """By the method of the real one, which formats what it is given and shows it by display."""
        getattr(Display, name)(self, *arguments, **options)

    # From ansible-core 2.19 on.
    def _error(self, *arguments: Any, **options: Any) -> None:
        self._format("_error", *arguments, **options)

    def _warning(self, *arguments: Any, **options: Any) -> None:
        self._format("_warning", *arguments, **options)

    def _deprecated(self, *arguments: Any, **options: Any) -> None:
        self._format("_deprecated", *arguments, **options)


class Stage:
    """What one stage did so far."""

    def __init__(self, name: str, began: float) -> None:
        self.name, self.began = name, began
        self.changed = self.done = 0


class CallbackModule(DefaultCallback):
    """The usual callback, whose words go to a file, and a line for each stage on the screen."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "slipway.inference.stages"

    def __init__(self) -> None:
        super().__init__()
        self._screen: Display = self._display
        self._names: list[str] = []
        self._stage: Stage | None = None
        self._passed: dict[str, float] = {}
        self._failed: dict[str, tuple[str, dict[str, Any]]] = {}
        self._known: dict[str, float] = {}
        self._path = ""
        self._began = time.monotonic()
        # Whether the stage's line still waits for its end.
        self._open = False

    def set_options(self, task_keys: Any = None, var_options: Any = None, direct: Any = None) -> None:
        super().set_options(task_keys=task_keys, var_options=var_options, direct=direct)
        self._names = list(self.get_option("stages"))
        self._path = str(self.get_option("log"))
        self._known = _times(self.get_option("times"))
        os.makedirs(os.path.dirname(os.path.abspath(self._path)), exist_ok=True)
        # It may show what only the one who runs it may see.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._display = Log(self._screen, os.fdopen(descriptor, "w", encoding="utf-8"))

    # --- stages

    def v2_playbook_on_start(self, playbook: Any) -> None:
        super().v2_playbook_on_start(playbook)
        self._show(f"{self._estimate()} The whole output is in {self._path}.")

    def v2_playbook_on_play_start(self, play: Any) -> None:
        super().v2_playbook_on_play_start(play)
        name = play.get_name().strip()
        if not self._names or name in self._names:
            self._enter(name)

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        super().v2_playbook_on_task_start(task, is_conditional)
        self._enter_role(task)

    def _enter_role(self, task: Any) -> None:
        role = getattr(task, "_role", None)
        name = role.get_name().rpartition(".")[2] if role else ""
        if name in self._names:
            self._enter(name)

    def _enter(self, name: str) -> None:
        if name in self._passed or (self._stage and self._stage.name == name):
            return
        self._leave()
        self._stage = Stage(name, time.monotonic())
        known = self._known.get(name)
        usual = f" (about {_seconds(known)})" if known is not None and known >= 5 else ""
        self._screen.display(f"{self._number(name)}{name}{usual} ... ", newline=False)
        self._open = True

    def _leave(self, failed: bool = False) -> None:
        stage = self._stage
        if stage is None:
            return
        self._stage = None
        took = time.monotonic() - stage.began
        self._passed[stage.name] = took
        if failed:
            outcome = stringc("failed", "red")
        elif not stage.done:
            outcome = "not needed"
        else:
            outcome = f"{stage.changed} changed" if stage.changed else "ok"
        again = "" if self._open else f"{self._number(stage.name)}{stage.name} ... "
        self._open = False
        self._show(f"{again}{_seconds(took)}, {outcome}")

    def _number(self, name: str) -> str:
        if name not in self._names:
            return ""
        return f"{self._names.index(name) + 1} of {len(self._names)}: "

    def _estimate(self) -> str:
        known = [self._known[name] for name in self._names if name in self._known]
        if known and len(known) == len(self._names):
            return f"{len(self._names)} stages, about {_seconds(sum(known))}, as last time."
        return f"{len(self._names)} stages." if self._names else ""

    # --- results

    def v2_runner_on_ok(self, result: Any) -> None:
        super().v2_runner_on_ok(result)
        told = result._result
        if self._stage is not None:
            self._stage.done += 1
            self._stage.changed += bool(told.get("changed"))
        if result._task.action in ("debug", "ansible.builtin.debug") and isinstance(told.get("msg"), str):
            self._tell(told["msg"])

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        super().v2_runner_on_failed(result, ignore_errors=ignore_errors)
        if not ignore_errors:
            self._remember(result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        super().v2_runner_on_unreachable(result)
        self._remember(result)

    def _remember(self, result: Any) -> None:
        # A block may rescue it: only the end tells.
        self._failed[result._host.get_name()] = (result._task.get_name(), dict(result._result))

    def v2_playbook_on_stats(self, stats: Any) -> None:
        super().v2_playbook_on_stats(stats)
        counted = {host: stats.summarize(host) for host in stats.processed}
        failed = [host for host, one in counted.items() if one["failures"] or one["unreachable"]]
        self._leave(failed=bool(failed))
        if not failed:
            _keep(self.get_option("times"), {**self._known, **self._passed})
            self._show(f"Done after {_seconds(time.monotonic() - self._began)}.")
            return
        for host in failed:
            self._tell_failure(host)
        self._show(f"The whole output: {os.path.abspath(self._path)}")

    def _tell_failure(self, host: str) -> None:
        task, told = self._failed.get(host, ("", {}))
        hidden = told.get("_ansible_no_log") or told.get("censored")
        why = "its output is hidden" if hidden else _why(told)
        where = "" if host == "localhost" else f" on {host}"
        self._show(stringc(f"Failed{where}: {task}", "red"))
        for line in why.splitlines()[:LINES]:
            self._show(line)
        for line in str(told.get("hint") or "").splitlines()[:HINT_LINES] if not hidden else ():
            self._show(line)

    def _tell(self, text: str) -> None:
        if self._open:
            self._screen.display("")
        self._open = False
        if text.strip():
            self._screen.display(text.rstrip("\n"))

    def _show(self, text: str) -> None:
        if text.strip():
            self._screen.display(text.strip())


def _why(told: dict[str, Any]) -> str:
    """What a failed task says, of a loop the first that failed."""
    for one in told.get("results") or ():
        if isinstance(one, dict) and one.get("failed") and one.get("msg"):
            return str(one["msg"])
    said = str(told.get("msg") or told.get("stderr") or told.get("module_stderr") or "It says nothing.")
    errors = str(told.get("stderr") or "").strip()
    return errors[-3 * WIDTH :] if said == "non-zero return code" and errors else said


def _seconds(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60} s"


def _times(path: str | None) -> dict[str, float]:
    """Of the last run; nothing where there is no such file, or it holds something else."""
    try:
        with open(os.path.expanduser(path or ""), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(name): float(value) for name, value in found.items() if isinstance(value, (int, float))}


def _keep(path: str | None, times: dict[str, float]) -> None:
    if not path:
        return
    try:
        os.makedirs(os.path.dirname(os.path.abspath(os.path.expanduser(path))), exist_ok=True)
        with open(os.path.expanduser(path), "w", encoding="utf-8") as file:
            json.dump({name: round(value, 1) for name, value in times.items()}, file)
    except OSError:
        return  # Only the next estimate is lost.
