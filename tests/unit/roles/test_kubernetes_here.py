# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The modules k8s and k8s_info of this collection return what those of kubernetes.core return."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible.parsing.vault import VaultLib, VaultSecret
from ansible.plugins.action.normal import ActionModule as AnyModule
from ansible_collections.kubernetes.core.plugins.module_utils import args_common
from ansible_collections.slipway.inference.plugins.action import k8s
from ansible_collections.slipway.inference.plugins.module_utils import _auth
from ansible_collections.slipway.inference.plugins.plugin_utils import _kubernetes_here

from .cluster_api import ClusterApi
from .role_run import run_play

OTHER = "kubernetes.core"
OURS = "slipway.inference"
SECRET = "never-to-be-seen"
NAMED = {"api_version": "v1", "kind": "ConfigMap", "namespace": "models", "name": "a"}
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "models", "name": "a"}}
NOWHERE = {"host": "http://127.0.0.1:1", "api_key": SECRET}
APPLIED = {"server_side_apply": {"field_manager": "us"}, "apply": True}
BRACKETS = {"variable_start_string": "[[", "variable_end_string": "]]"}
Tasks = dict[str, tuple[str, dict[str, Any], dict[str, Any]]]
TASKS: Tasks = {
    "created": ("k8s", {"definition": {**CONFIG, "data": {"a": "1"}}, "apply": True}, {"diff": True}),
    "same": ("k8s", {"definition": {**CONFIG, "data": {"a": "1"}}, "apply": True}, {}),
    "rehearsed": ("k8s", {"definition": {**CONFIG, "data": {"a": "2"}}}, {"check_mode": True, "diff": True}),
    "from_file": ("k8s", {"src": "config.yml", **APPLIED}, {}),
    "from_template": ("k8s", {"template": "config.j2", **APPLIED}, {}),
    "from_templates": ("k8s", {"template": ["vaulted.j2", {"path": "brackets.j2", **BRACKETS}], **APPLIED}, {}),
    "from_no_file": ("k8s", {"src": "missing.yml"}, {}),
    "found": ("k8s_info", NAMED, {}),
    "all": ("k8s_info", {"kind": "ConfigMap"}, {}),
    "waited": ("k8s_info", {**NAMED, "wait": True, "wait_timeout": 60}, {}),
    "in_part": ("k8s_info", {**NAMED, "hidden_fields": ["metadata.generation"]}, {}),
    "of_no_kind": ("k8s_info", {"kind": "Nothing"}, {}),
    "masked": ("k8s_info", {**NAMED, "api_key": SECRET}, {}),
    "hidden": ("k8s_info", NAMED, {"no_log": True}),
    "wrong": ("k8s_info", {**NAMED, "names": "a"}, {}),
    "refused": ("k8s", {"definition": CONFIG, **NOWHERE}, {}),
    "expected": ("k8s_info", {**NAMED, **NOWHERE}, {"failed_when": False}),
    "retried": ("k8s_info", {**NAMED, **NOWHERE}, {"until": "retried is not failed", "retries": 1, "delay": 0}),
    "with_other_variables": ("k8s_info", NAMED, {"environment": {"KUBECONFIG": "/nowhere"}}),
    "as_user": ("k8s_info", NAMED, {"become": True, "become_user": "root"}),
    "asynchronous": ("k8s_info", NAMED, {"async": 30, "poll": 1}),
    "removed": ("k8s", {**NAMED, "state": "absent"}, {}),
    "many": ("k8s_info", {"kind": "{{ item }}"}, {"loop": ["Pod", "Node"]}),
}
OF_ROLE: Tasks = {"of_role": ("k8s", {"src": "of_role.yml", **APPLIED}, {})}
SUDO = """#!/bin/sh
while [ "$1" != /bin/sh ]; do shift; done
exec "$@"
"""
"""Takes the place of sudo, which is not everywhere."""
OLD = """
from ansible.executor import module_common

if hasattr(module_common, "_get_action_arg_defaults"):
    module_common._apply_action_arg_defaults = lambda action, task, args, templar: {
        **module_common._get_action_arg_defaults(action, task, templar._engine), **args
    }

class FilterModule:
    def filters(self):
        return {"plain": str}
"""
"""A filter that does nothing, in a file that makes Ansible leave templates in defaults as ansible-core 2.20.1 does."""


class Plays:
    """Runs tasks with the modules of one collection and returns their results by name."""

    def __init__(self, folder: Path, api: ClusterApi) -> None:
        self.folder, self._api = folder, api
        self.output = ""
        self.sudo = _program(folder / "sudo", SUDO)
        (folder / "password").write_text("of-a-vault")

    def __call__(self, collection: str, tasks: Tasks, role: Tasks | None = None, **play: Any) -> dict[str, Any]:
        folder = self.folder / collection
        self._write_files(folder)
        _write(folder / "roles/mine/tasks/main.yml", json.dumps(_tasks(collection, role or {})))
        names = [*tasks, *(role or {})]
        results = {name: "{{ hostvars[inventory_hostname]['" + name + "'] }}" for name in names}
        self.output = run_play(
            folder,
            {
                "hosts": "localhost",
                "connection": "local",
                "gather_facts": False,
                "environment": {"K8S_AUTH_HOST": self._api.url, "K8S_AUTH_API_KEY": "of-the-play"},
                "vars": {
                    "ansible_python_interpreter": sys.executable,
                    "ansible_become_exe": str(self.sudo),
                    "url": self._api.url,
                },
                **play,
                "tasks": [
                    *_tasks(collection, tasks),
                    {"ansible.builtin.import_role": {"name": "mine"}},
                    {"ansible.builtin.copy": {"content": results, "dest": str(folder / "results")}},
                ],
            },
            "-vvv",
            f"--vault-password-file={self.folder / 'password'}",
        )
        text = _comparable((folder / "results").read_text(), collection)
        return dict(json.loads(text, object_hook=_without_invocation))

    def _write_files(self, folder: Path) -> None:
        vault = VaultLib([("default", VaultSecret(b"of-a-vault"))])
        _write(folder / "files/config.yml", _config("a", "of the file"))
        _write(folder / "templates/config.j2", _config("a", "{{ 1 + 1 }}"))
        _write(folder / "templates/brackets.j2", _config("b", "[[ 1 + 1 ]]"))
        _write(folder / "templates/vaulted.j2", vault.encrypt(_config("c", "{{ 1 + 2 }}")).decode())
        _write(folder / "files/kubeconfig", vault.encrypt(json.dumps(self._kubeconfig(folder))).decode())
        _write(folder / "filter_plugins/old.py", OLD)
        _write(folder / "roles/mine/files/of_role.yml", _config("d", "of the role"))

    def _kubeconfig(self, folder: Path) -> dict[str, Any]:
        """One with a program that counts its calls and prints a token."""
        version = "client.authentication.k8s.io/v1"
        credential = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": SECRET}}
        count = f"echo called >>{folder}/calls"
        login = _program(folder / "login", f"#!/bin/sh\n{count}\necho '{json.dumps(credential)}'\n")
        program = {"apiVersion": version, "command": str(login), "interactiveMode": "Never"}
        return {
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "users": [{"name": "a", "user": {"exec": program}}],
            "clusters": [{"name": "a", "cluster": {"server": self._api.url}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        }  # fmt: skip

    @property
    def packed(self) -> int:
        """How many modules of kubernetes.core had their own process."""
        return len(re.findall(r"Using module file \S+/kubernetes/core/", self.output))


def _tasks(collection: str, tasks: Tasks) -> list[dict[str, Any]]:
    return [
        {f"{collection}.{module}": arguments, "name": name, "register": name, "ignore_errors": True, **keywords}
        for name, (module, arguments, keywords) in tasks.items()
    ]


def _config(name: str, value: str) -> str:
    return json.dumps({**CONFIG, "metadata": {"namespace": "models", "name": name}, "data": {"a": value}})


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def _program(path: Path, content: str) -> Path:
    _write(path, content)
    path.chmod(0o755)
    return path


def _comparable(results: str, collection: str) -> str:
    """Without what differs between two runs in any case."""
    results = results.replace(f"/{collection}/", "/")
    for name in ("uid", "duration", "resourceVersion"):
        results = re.sub(rf'"{name}": ("[^"]*"|\d+)', f'"{name}": 0', results)
    results = re.sub(r"/[^\s\"]*/ansible-local-[^\s\"]*", "/decrypted", results)
    results = re.sub(r"(?<=\(most recent call last\):)(\\n  ((?!\\n).)*)+", "", results)
    return re.sub("0x[0-9a-f]+", "0x", results)


def _without_invocation(values: dict[str, Any]) -> dict[str, Any]:
    """From ansible-core 2.21 on, kubernetes.core adds the arguments of the task, with their secrets."""
    return {name: value for name, value in values.items() if name != "invocation"}


@pytest.fixture
def plays(tmp_path: Path, api: ClusterApi) -> Plays:
    return Plays(tmp_path, api)


def test_the_results_are_those_of_kubernetes_core(plays: Plays, api: ClusterApi) -> None:
    objects = dict(api.objects)
    expected = plays(OTHER, TASKS, OF_ROLE)
    writes, api.writes, api.objects = api.writes, [], objects
    results = plays(OURS, TASKS, OF_ROLE)
    assert plays.packed == 2  # With other variables, and as a user.
    for name, result in expected.items():
        assert results[name] == result, name
    assert api.writes == writes
    assert SECRET not in str(results) + plays.output
    assert [name for name, result in results.items() if result.get("failed")] == [
        "from_no_file", "wrong", "refused", "retried", "asynchronous",
    ]  # fmt: skip
    assert (results["created"]["changed"], results["same"]["changed"]) == (True, False)


def test_a_kubeconfig_in_a_vault_may_run_a_program_to_log_in(plays: Plays, api: ClusterApi) -> None:
    api.put(CONFIG)
    tasks: Tasks = {"found": ("k8s_info", {**NAMED, "kubeconfig": "kubeconfig"}, {})}
    expected = plays(OTHER, tasks, environment={})
    results = plays(OURS, tasks, environment={})
    assert results == expected
    assert len(results["found"]["resources"]) == 1
    assert (plays.folder / OURS / "calls").read_text() == (plays.folder / OTHER / "calls").read_text()
    assert SECRET not in str(results) + plays.output
    assert plays.packed == 0


@pytest.mark.parametrize("name", ["group/kubernetes.core.k8s", "kubernetes.core.k8s_info", f"group/{OURS}.slipway"])
def test_defaults_apply(plays: Plays, api: ClusterApi, name: str) -> None:
    defaults = {name: {"host": "{{ url }}", "api_key": "of-the-defaults", "context": "{{ nothing | default(omit) }}"}}
    api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "models"}})
    tasks: Tasks = {"found": ("k8s_info", {"kind": "{{ 'Namespace' | plain }}"}, {})}
    results = plays(OURS, tasks, environment={}, module_defaults=defaults)
    assert [one["metadata"]["name"] for one in results["found"]["resources"]] == ["models"]
    assert plays.packed == 0


def test_defaults_for_kubernetes_core_apply_as_there(plays: Plays, api: ClusterApi) -> None:
    """Not to an option that the task omits, nor is an undefined one evaluated that the task sets."""
    old = _kubernetes_here.remove_omit is not None  # Ansible-core 2.18 evaluates all defaults.
    defaults = [
        {"group/kubernetes.core.k8s": {"context": "other", "namespace": "other" if old else "{{ nothing }}"}},
        {"kubernetes.core.k8s": {"delete_options": {"gracePeriodSeconds": "{{ nothing | default(omit) }}"}}},
        {"kubernetes.core.k8s_info": "{{ {'label_selectors': ['a=b']} }}"},
    ]
    api.put(CONFIG)
    listed = {"kind": "ConfigMap", "namespace": "models"}
    tasks: Tasks = {
        "selected": ("k8s_info", listed, {"until": "false", "retries": 1, "delay": 0}),
        "all": ("k8s_info", {**listed, "label_selectors": "{{ nothing | default(omit) }}"}, {}),
        "removed": ("k8s", {**NAMED, "state": "absent"}, {}),
    }
    expected = plays(OTHER, tasks, module_defaults=defaults)
    api.put(CONFIG)
    results = plays(OURS, tasks, module_defaults=defaults)
    assert results == expected
    assert (results["selected"]["resources"], len(results["all"]["resources"])) == ([], 1)
    assert results["removed"]["changed"]


def test_defaults_of_this_collection_win(plays: Plays, api: ClusterApi) -> None:
    defaults = {f"group/{OURS}.slipway": {"host": api.url}, "group/kubernetes.core.k8s": {**NOWHERE, "context": "x"}}
    tasks: Tasks = {"found": ("k8s_info", {"kind": "Namespace", "context": "{{ omit }}"}, {})}
    assert plays(OURS, tasks, environment={}, module_defaults=defaults)["found"]["api_found"]


def test_only_another_turbo_mode_or_no_module_prevents_running_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _kubernetes_here.load_main("k8s") is not None
    assert _kubernetes_here.load_main("none") is None
    for value, is_here in {"0": True, "false": True, "1": False, "yes": False}.items():
        monkeypatch.setenv("ENABLE_TURBO_MODE", value)
        assert (_kubernetes_here.load_main("k8s") is not None) is is_here, value


def test_a_client_that_is_installed_later_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("ansible_collections.kubernetes.core.plugins.")]:
        monkeypatch.delitem(sys.modules, name)
    with monkeypatch.context() as without:
        for name in ("kubernetes", "kubernetes.dynamic"):
            without.setitem(sys.modules, name, None)
        assert _kubernetes_here.load_main("k8s") is None
    assert "ansible_collections.kubernetes.core.plugins.module_utils.k8s.client" not in sys.modules


def test_a_missing_collection_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _kubernetes_here.load_action("none") is AnyModule
    action = object.__new__(k8s.ActionModule)
    monkeypatch.setitem(sys.modules, "ansible_collections.kubernetes.core", None)
    with pytest.raises(AnsibleActionFail, match="ansible-galaxy collection install kubernetes"):
        action.run()


def test_the_modules_of_kubernetes_core_take_the_options_of_the_group() -> None:
    """Otherwise a default for the group makes the tasks of all roles fail."""
    for name, spec in _auth.ARGUMENTS.items():
        assert set(spec.get("aliases", [])) <= set(args_common.AUTH_ARG_SPEC[name].get("aliases", [])), name
