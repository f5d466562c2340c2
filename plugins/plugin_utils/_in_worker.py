# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change in any release.

"""Runs a module in a fork of the worker where it would run on the same machine by the same Python anyway.

Packing a module, starting a Python and importing everything is nearly all that a short task costs. A fork has it all
already, and is as separate from the worker as the module's own process would be: it has its own environment, and its
threads and globals end with it. Arguments and result take the form in which Ansible hands them to any module.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from typing import IO, Any, NoReturn

from ansible import constants as C  # noqa: N812  (as Ansible calls it)
from ansible.errors import AnsibleActionFail
from ansible.module_utils import basic
from ansible.module_utils.common import json as ansible_json
from ansible.plugins.action.normal import ActionModule as AnyModule
from ansible.utils.unsafe_proxy import wrap_var

try:
    from ansible.module_utils import _internal
except ImportError:
    _internal = None  # type: ignore[assignment]

# From ansible-core 2.19 on values keep their types on the way, and a module asks whether it runs on the controller.
_IS_TYPED = hasattr(ansible_json, "get_module_encoder")
# Variables that a process heeds only at its start.
_EARLY = ("PYTHON", "LD_")
_PROFILE = "legacy"
"""The form of JSON that modules exchange with such an ansible-core if they know nothing of forms."""


class InWorker(AnyModule):
    """An action that calls ``main`` of its module, here if it can, else as Ansible runs every module."""

    main: Callable[[], None]

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        variables = task_vars or {}
        environment: dict[str, Any] = {}
        self._compute_environment_string(environment)
        if not self._is_here(variables) or any(name.startswith(_EARLY) for name in environment):
            result: dict[str, Any] = super().run(tmp, task_vars)
            return result
        arguments = dict(self._task.args)
        self._update_module_args(self._task.action, arguments, variables)
        values = {**self._connection._shell.env, **environment}  # noqa: SLF001  (where every action finds it)
        return _decoded(*_forked(type(self).main, _encoded(arguments), {name: str(values[name]) for name in values}))

    def _is_here(self, variables: Mapping[str, Any]) -> bool:
        """Whether the module would run on this machine, by this Python, as this user, while the task lasts."""
        if self._connection.transport != "local" or self._connection.become or self._task.async_val:
            return False
        if C.DEFAULT_KEEP_REMOTE_FILES:  # Somebody wants to look at the module as it was packed.
            return False
        if self._task.delegate_to:
            variables = variables.get("ansible_delegated_vars", {}).get(self._task.delegate_to, {})
        interpreter = C.config.get_config_value("INTERPRETER_PYTHON", variables=variables)
        return _is_this(str(self._templar.template(interpreter)))


def _is_this(interpreter: str) -> bool:
    """Whether this process is run by that Python, as which ``python`` and ``python3`` of one environment count."""
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


def _decoded(output: str, errors: str) -> dict[str, Any]:
    """The result that a module has printed; nothing in it is a template."""
    try:
        if not _IS_TYPED:
            plain: dict[str, Any] = wrap_var(json.loads(output))
            return plain
        decoder = ansible_json.get_module_decoder(_PROFILE, ansible_json.Direction.MODULE_TO_CONTROLLER)
        result: dict[str, Any] = json.loads(output, cls=decoder)
    except ValueError as error:
        raise AnsibleActionFail(f"The module ended without a result: {errors or output}") from error
    return result


def _forked(main: Callable[[], None], arguments: bytes, environment: Mapping[str, str]) -> tuple[str, str]:
    """What a module printed, and what it said besides."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = os.fork()
        if not child:
            _be_module(main, arguments, environment, output, errors)
        try:
            os.waitpid(child, 0)
        except BaseException:  # The time of the task is up.
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
        return tuple(_read(file) for file in (output, errors))  # type: ignore[return-value]


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace").strip()


def _be_module(
    main: Callable[[], None],
    arguments: bytes,
    environment: Mapping[str, str],
    output: IO[bytes],
    errors: IO[bytes],
) -> NoReturn:
    """Goes on as the process of a module does, to its end."""
    try:
        os.dup2(output.fileno(), 1)
        os.dup2(errors.fileno(), 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", encoding="utf-8"), os.fdopen(2, "w", encoding="utf-8")
        os.environ.update(environment)
        # As Ansible's own loader of modules does.
        basic._ANSIBLE_ARGS = arguments  # noqa: SLF001
        if _IS_TYPED:
            basic._ANSIBLE_PROFILE = _PROFILE  # noqa: SLF001
            _internal.is_controller = False  # What it has to say goes into its result.
        main()
    except SystemExit:
        pass
    except BaseException:  # noqa: BLE001  (nothing may return into the worker's code)
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(0)
