# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The examples in the documentation are tasks that the modules take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from documented import MODULES, OWN, load

PREFIX = "slipway.inference."
# Keys of a task that are no module.
KEYWORDS = {"name", "register", "vars", "loop", "loop_control", "when", "delegate_to", "become", "failed_when", "until"}
# What a template may stand for, by the type of the option.
STANDS_FOR: dict[str, Any] = {
    "str": "x", "path": "/x", "raw": "x", "int": 1, "float": 1.0, "bool": True, "list": [], "dict": {},
}  # fmt: skip


class _ArgumentsError(Exception):
    """Carries what a module gave to AnsibleModule."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__("given")
        self.given = given


def specification(module: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The arguments of AnsibleModule in the module's main."""

    def catch(_self: object, **given: Any) -> None:
        raise _ArgumentsError(given)

    monkeypatch.setattr("ansible.module_utils.basic.AnsibleModule.__init__", catch)
    with pytest.raises(_ArgumentsError) as caught:
        load(module).main()
    return caught.value.given


def tasks(module: str) -> Iterator[tuple[str, str, Any]]:
    """Name, module and arguments of each example."""
    for task in yaml.safe_load(load(module).EXAMPLES):
        (used,) = set(task) - KEYWORDS
        yield task["name"], used, task[used]


def filled(value: Any, option: dict[str, Any]) -> Any:
    """An argument as it may be after templating."""
    kind = option.get("type", "str")
    if isinstance(value, str) and "{{" in value:
        return option.get("choices", [STANDS_FOR[kind]])[0]
    within = option.get("options")
    if within and isinstance(value, list):
        return [filled(part, {"type": "dict", "options": within}) for part in value]
    if within and isinstance(value, dict):
        return {key: filled(part, within.get(key, {})) for key, part in value.items()}
    return value


@pytest.mark.parametrize("module", MODULES)
def test_examples_are_tasks_with_names(module: str) -> None:
    for name, used, _arguments in tasks(module):
        assert name[0].isupper()
        assert used.count(".") == 2, f"{used} is no full name"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_s_examples_show_the_module(module: str) -> None:
    assert f"{PREFIX}{module}" in [used for _name, used, _arguments in tasks(module)]


@pytest.mark.parametrize("module", OWN)
def test_the_modules_take_what_the_examples_give(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, used, arguments in tasks(module):
        if used.startswith(PREFIX):
            with monkeypatch.context() as patched:
                given = specification(used.removeprefix(PREFIX), patched)
            given.pop("supports_check_mode", None)
            options = given["argument_spec"]
            task = {key: filled(value, options.get(key, {})) for key, value in (arguments or {}).items()}
            assert ArgumentSpecValidator(**given).validate(task).error_messages == [], name
