# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change in any release.

"""Actions that run a module in a fork of the Ansible worker if it would run on the same machine with the same Python
anyway.

Most of the time of a short task is for packing the module, starting Python and importing everything. A fork already has
all of this, and is as isolated from the worker as the module's own process: it has its own environment, and its threads
and globals end with it. Inherited state that a module must not see is reset as in a new process. Arguments and result
have the form that Ansible uses for any module, and Ansible itself reads the result.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any, NoReturn

from ansible import constants as C  # noqa: N812  (as Ansible calls it)
from ansible.module_utils import basic
from ansible.module_utils.common import json as ansible_json
from ansible.plugins.action import ActionBase
from ansible.plugins.action.normal import ActionModule as AnyModule
from ansible.vars import clean

try:
    from ansible.module_utils import _internal
    from ansible.module_utils._internal._ansiballz import _loader
except ImportError:
    _internal = _loader = None  # type: ignore[assignment]

# Since ansible-core 2.19, values keep their types, and a module can check whether it runs on the controller.
_IS_TYPED = hasattr(ansible_json, "get_module_encoder")
_EARLY = ("PYTHON", "LD_")
_PROFILE = "legacy"
"""JSON profile that ansible-core 2.19 and later uses for modules that declare none."""


class Forking(ActionBase):
    """An action that runs its module's ``main`` in a fork if possible, and otherwise as Ansible runs every module."""

    main: Callable[[], None]

    def _execute_module(
        self,
        module_name: str | None = None,
        module_args: dict[str, Any] | None = None,
        tmp: Any = None,
        task_vars: dict[str, Any] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        variables = task_vars or {}
        environment: dict[str, Any] = {}
        self._compute_environment_string(environment)
        if not self._is_here(variables) or any(self._is_early(name) for name in environment):
            result: dict[str, Any] = super()._execute_module(module_name, module_args, tmp, task_vars, **options)
            return result
        arguments = dict(self._task.args if module_args is None else module_args)
        self._update_module_args(module_name or self._task.action, arguments, variables)
        values = {**self._connection._shell.env, **environment}  # noqa: SLF001  (where every action finds it)
        module = _Module(
            type(self).main,
            _encoded(arguments),
            {name: str(values[name]) for name in values},
            str(self._loader.get_basedir()),  # The working directory of every module on the controller.
        )
        return self._read_result(module.run())

    def _read_result(self, ending: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result that a module printed, or the failure that Ansible reports if it printed none."""
        data = self._parse_returned_data(ending, *([_PROFILE] if _IS_TYPED else []))
        if hasattr(data, "as_result_dict"):  # From ansible-core 2.21 on.
            data.remove_internal_keys()
            return dict(data.as_result_dict(for_round_trip=True))
        clean.remove_internal_keys(data)
        return dict(data)

    def _is_early(self, variable: str) -> bool:
        """Whether a process reads the environment variable only before its module starts."""
        return variable.startswith(_EARLY)

    def _is_here(self, variables: Mapping[str, Any]) -> bool:
        """Whether the module would run on this machine, with this Python, as this user, and until the task ends."""
        if self._connection.transport != "local" or self._connection.become or self._task.async_val:
            return False
        if C.DEFAULT_KEEP_REMOTE_FILES:  # The user wants to inspect the packed module.
            return False
        if self._task.delegate_to:
            variables = variables.get("ansible_delegated_vars", {}).get(self._task.delegate_to, {})
        interpreter = C.config.get_config_value("INTERPRETER_PYTHON", variables=variables)
        return _is_this(str(self._templar.template(interpreter)))


class InWorker(Forking, AnyModule):
    """An action that only runs its module."""


def _is_this(interpreter: str) -> bool:
    """Whether ``interpreter`` is the Python that runs this process. ``python`` and ``python3`` of one environment count
    as the same."""
    try:
        same = os.path.samefile(interpreter, sys.executable)
    except OSError:
        return False
    return same and os.path.dirname(interpreter) == os.path.dirname(sys.executable)


def _encoded(arguments: Mapping[str, Any]) -> bytes:
    content = {"ANSIBLE_MODULE_ARGS": arguments}
    if not _IS_TYPED:
        return json.dumps(content, cls=ansible_json.AnsibleJSONEncoder, vault_to_text=True).encode()
    encoder = ansible_json.get_module_encoder(_PROFILE, ansible_json.Direction.CONTROLLER_TO_MODULE)
    return json.dumps(content, cls=encoder).encode()


@dataclass(frozen=True)
class _Module:
    """A module's ``main`` function, and the arguments, environment and working directory with which it runs."""

    main: Callable[[], None]
    arguments: bytes
    environment: Mapping[str, str]
    folder: str

    def run(self) -> dict[str, Any]:
        """Run the module in a fork. Return its exit status and output in the form in which a connection returns those
        of any command."""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            child = os.fork()
            if not child:
                self._become(output, errors)
            try:
                status = os.waitpid(child, 0)[1]
            except BaseException:  # The task has timed out.
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise
            code = os.waitstatus_to_exitcode(status)
            # A shell, which starts every module, reports a signal in this way.
            return {"rc": 128 - code if code < 0 else code, "stdout": _read(output), "stderr": _read(errors)}

    def _become(self, output: IO[bytes], errors: IO[bytes]) -> NoReturn:
        """Run the module in the forked process, and end the process."""
        code = 1
        try:
            _put_back(output, errors)
            os.chdir(self.folder)
            os.environ.update(self.environment)
            tempfile.tempdir = None  # Python reads TMPDIR and TZ only once.
            time.tzset()
            code = self._call()
        except BaseException:  # noqa: BLE001  (nothing may return into the worker's code)
            traceback.print_exc()
        finally:
            _end(code)

    def _call(self) -> int:
        """Call the module as Ansible's own loader does, and return the exit status of the process."""
        basic._ANSIBLE_ARGS = self.arguments  # noqa: SLF001
        if _IS_TYPED:
            basic._ANSIBLE_PROFILE = _PROFILE  # noqa: SLF001
            _internal.is_controller = False  # Warnings of the module then go into its result.
        try:
            self.main()
            raise RuntimeError("New-style module did not handle its own exit.")  # noqa: TRY301  (as Ansible does)
        except SystemExit as end:
            if end.code is None or isinstance(end.code, int):
                return end.code or 0
            sys.stderr.write(f"{end.code}\n")
        except Exception as error:
            if not _IS_TYPED:
                raise
            with contextlib.suppress(SystemExit):
                _loader._handle_exception(error, _PROFILE)  # noqa: SLF001  (it prints a result, and exits)
        return 1


def _put_back(output: IO[bytes], errors: IO[bytes]) -> None:
    """Give a fork the standard streams, signal handlers and log settings of a new process instead of the worker's."""
    with open(os.devnull, "rb") as nothing:
        for number, file in enumerate((nothing, output, errors)):
            os.dup2(file.fileno(), number)
    sys.stdin = os.fdopen(0, encoding="utf-8")
    sys.stdout, sys.stderr = os.fdopen(1, "w", encoding="utf-8"), os.fdopen(2, "w", encoding="utf-8")
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    atexit._clear()  # noqa: SLF001  (what the worker does at its end)
    logging.root.handlers.clear()  # Ansible's log is not the module's.
    logging.root.setLevel(logging.WARNING)


def _end(code: int) -> NoReturn:
    """End the fork as Python ends a process: first threads end, and then exit handlers of libraries remove their
    files."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
        atexit._run_exitfuncs()  # noqa: SLF001
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code & 0xFF)


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
