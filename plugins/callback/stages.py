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
  - A stage is V(off) if its tasks were not needed, and V(skipped) if C(--tags) does not select them.
  - Roles that a role imports or includes belong to its stage.
  - Messages of C(ansible.builtin.debug) are shown after the line of their stage.
  - The usual output is written to a file.
  - The last lines summarize failures, with the messages of the first failed items of a loop, and show the path of
    that file.
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
import re
import time
from collections.abc import Sequence
from typing import Any, TextIO

from ansible import context
from ansible.plugins.callback.default import CallbackModule as DefaultCallback
from ansible.utils.color import stringc
from ansible.utils.display import Display

# Limits of what is shown of a failure: characters of an error output or of a line of an item, lines of its message,
# lines of its hint, failed items of a loop, and characters of an item's name.
CHARACTERS = 300
LINES = 3
HINT_LINES = 2
ITEMS = 3
LABEL_CHARACTERS = 60

# Before the fix in a message.
FIX = "What to do"

# Terminals execute these, and logs of engines and names of items may contain them.
CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f]+")

NO_MESSAGE = "No message."
HIDDEN = "Its output is hidden."

# With these values of --tags, the tags of a task do not show whether it was selected.
BROAD_TAGS = frozenset({"all", "tagged", "untagged"})


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
        self.selected = False


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
        self._failed: dict[str, tuple[str, dict[str, Any], list[dict[str, Any]]]] = {}
        # The failed items of each loop, by host and task. ansible-core 2.21 shows in no other way which items failed.
        self._failed_items: dict[tuple[str, str], list[dict[str, Any]]] = {}
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
        if self._stage is not None:
            self._stage.selected |= is_selected(task, self._play)

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
        outcome = stringc("failed ", "red") if failed else f"{_outcome(stage):<7}"
        line = f"{outcome} {_seconds(time.monotonic() - stage.began):>10}  {_changes(stage.changed)}"
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
        items = self._failed_items.pop(_key(result), [])
        if not ignore_errors:
            self._remember(result, items)

    def v2_runner_item_on_failed(self, result: Any) -> None:
        self._failed_items.setdefault(_key(result), []).append(dict(result._result))
        super().v2_runner_item_on_failed(result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        super().v2_runner_on_unreachable(result)
        self._remember(result, self._failed_items.pop(_key(result), []))

    def _remember(self, result: Any, items: list[dict[str, Any]]) -> None:
        # A block may rescue it, so only the end of the run shows whether it counts.
        self._failed[result._host.get_name()] = (result._task.get_name(), dict(result._result), items)

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
        task, returned, items = self._failed.get(host, ("", {}, []))
        where = "" if host == "localhost" else f" on {host}"
        self._show(stringc(f"Failed{where}: {task}", "red"))
        for line in failure_lines(returned, items):
            self._show(line)

    def _add_message(self, text: str) -> None:
        if not text.strip():
            return
        printable = "\n".join(_printable(line) for line in text.rstrip("\n").split("\n"))
        if self._stage is None:
            self._screen.display(printable)
        else:
            self._messages.append(printable)

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


def is_selected(task: Any, play: Any) -> bool:
    """Return whether --tags selects a task, and not only because of its tag "always", which is of use to other stages.
    A play with this tag is a stage of each run."""
    tags = set(context.CLIARGS.get("tags") or ())
    return not tags or bool(tags & (BROAD_TAGS | set(task.tags))) or "always" in (play.tags or ())


def _outcome(stage: Stage) -> str:
    if not stage.selected and not stage.changed:
        return "skipped"
    return "ok" if stage.done else "off"


def _key(result: Any) -> tuple[str, str]:
    return result._host.get_name(), str(result._task._uuid)


def failure_lines(returned: dict[str, Any], failed: Sequence[dict[str, Any]] = ()) -> list[str]:
    """Return the message and the hint of a failed task, or of the failed items of its loop."""
    if not failed or _is_hidden(returned):
        return _lines(returned)
    if len(failed) == 1:
        first, *others = _lines(failed[0])
        return [_labeled(failed[0], first), *others]
    lines = [_labeled(item, " ".join(_lines(item))[:CHARACTERS]) for item in failed[:ITEMS]]
    others = len(failed) - ITEMS
    return [*lines, f"{others} more {'item' if others == 1 else 'items'} failed."] if others > 0 else lines


def _lines(returned: dict[str, Any]) -> list[str]:
    if _is_hidden(returned):
        return [HIDDEN]
    message = [_printable(line).strip() for line in _message(returned).splitlines()]
    lines = [line for line in message if line] or [NO_MESSAGE]
    # The message of a module may end with the hint.
    if len(lines) > LINES and lines[-1].startswith(FIX):
        lines = [*lines[: LINES - 1], lines[-1]]
    hints = [_printable(line) for line in str(returned.get("hint") or "").splitlines()]
    hint = [line for line in hints if line not in "\n".join(lines)]
    if lines[-1].startswith(FIX):
        hint = []
    return [*lines[:LINES], *hint[:HINT_LINES]]


def _printable(line: str) -> str:
    return CONTROL_CHARACTERS.sub(" ", line)


def _is_hidden(returned: dict[str, Any]) -> bool:
    return bool(returned.get("_ansible_no_log") or returned.get("censored"))


def _labeled(item: dict[str, Any], text: str) -> str:
    """Return a text with the item's name before it, if it is a short text or a number that the text does not have."""
    label = item.get("_ansible_item_label", item.get("item"))
    if _is_hidden(item) or isinstance(label, bool) or not isinstance(label, (str, int)):
        return text
    name = _printable(str(label)).strip()
    if not name or len(name) > LABEL_CHARACTERS or text.split()[:1] in ([name], [f"{name}:"]):
        return text
    return f"{name}: {text}"


def _message(returned: dict[str, Any]) -> str:
    message = str(returned.get("msg") or returned.get("stderr") or returned.get("module_stderr") or NO_MESSAGE)
    errors = str(returned.get("stderr") or "").strip()
    # ansible-core 2.21 puts it into a sentence.
    return errors[-CHARACTERS:] if "non-zero return code" in message and errors else message


def _changes(count: int) -> str:
    return "" if count == 0 else "1 change" if count == 1 else f"{count} changes"


def _seconds(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60} s"
