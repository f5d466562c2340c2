# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change in any release.

"""Actions that run modules of ``kubernetes.core`` in a fork of the Ansible worker, as ``_in_worker`` does for this
collection's modules.

The action of kubernetes.core still finds the files and renders the templates. Only the module's process differs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.parsing.mod_args import ModuleArgsParser
from ansible.plugins.action import ActionBase
from ansible.plugins.action.normal import ActionModule as AnyModule
from ansible_collections.slipway.inference.plugins.plugin_utils._in_worker import Forking

try:
    from ansible.executor.task_executor import remove_omit
except ImportError:  # From ansible-core 2.19 on, templates omit values themselves.
    remove_omit = None

_COLLECTION = "ansible_collections.kubernetes.core"


def load_action(name: str) -> type[ActionBase]:
    """Return kubernetes.core's action of this name. If there is none, return the action that Ansible uses by
    default."""
    try:
        action: type[ActionBase] = import_module(f"{_COLLECTION}.plugins.action.{name}").ActionModule
    except ImportError:
        return AnyModule  # type: ignore[no-any-return]
    return action


def load_main(name: str) -> Callable[[], None] | None:
    """Return ``main`` of kubernetes.core's module, or None if the module needs its own process."""
    if boolean(os.environ.get("ENABLE_TURBO_MODE", ""), strict=False):  # kubernetes.core has its own server then.
        return None
    try:
        # First, because kubernetes.core's code would remember a missing client after a task has installed it.
        import_module("kubernetes.dynamic")
        main: Callable[[], None] = import_module(f"{_COLLECTION}.plugins.modules.{name}").main
    except Exception:  # noqa: BLE001  (the module's own process then reports what is missing)
        return None
    return main


class OfKubernetes(Forking):
    """A mixin for an action of kubernetes.core that has another name in tasks and can run its module in a fork."""

    module: str

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        _require_collection()
        variables = task_vars or {}
        task = self._task.copy()
        task.action = f"kubernetes.core.{self.module}"
        task.args = {**self._defaults(task, variables.get("omit")), **task.args}
        self._task = task
        result: dict[str, Any] = super().run(tmp, variables)
        return result

    def _is_here(self, variables: Mapping[str, Any]) -> bool:
        return callable(self.main) and super()._is_here(variables)

    def _is_early(self, variable: str) -> bool:
        # The Kubernetes client has read KUBECONFIG and others when it was imported.
        return not variable.startswith("K8S_AUTH_")

    def _ensure_invocation(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a crashed module unchanged. kubernetes.core would add all arguments, including
        secrets."""
        return result

    def _defaults(self, task: Any, omit: Any) -> dict[str, Any]:
        """Return the module_defaults for the module of kubernetes.core. Ansible applies them only by the name in the
        task.

        Ansible's own functions for this differ: some versions do not render templates in them.
        """
        defaults: dict[str, Any] = {}
        for values in _layers(task):
            defaults.update((self._templar.template(values) if isinstance(values, str) else values) or {})
        names = defaults.keys() - task.args.keys() - _arguments(task)
        rendered: dict[str, Any] = self._templar.template({name: defaults[name] for name in names})
        return rendered if remove_omit is None else dict(remove_omit(rendered, omit))


def _require_collection() -> None:
    try:
        import_module(_COLLECTION)
    except ImportError as error:
        message = "The collection kubernetes.core is missing. Run: ansible-galaxy collection install kubernetes.core"
        raise AnsibleActionFail(message) from error


def _layers(task: Any) -> Iterator[Any]:
    """Yield the module_defaults for the task's action, with those for its groups first."""
    defaults = {name: values for layer in task.module_defaults for name, values in layer.items()}
    groups = task._parent._play._action_groups.get(task.action, [])  # noqa: SLF001  (where Ansible finds them)
    for name, values in defaults.items():
        if name.startswith("group/") and name.removeprefix("group/") in groups:
            yield values
    if task.action in defaults:
        yield defaults[task.action]


def _arguments(task: Any) -> set[str]:
    """Return the names of the arguments as written in the task. An omitted argument gets no default."""
    return set(ModuleArgsParser(task.get_ds(), collection_list=task.collections).parse()[1])
