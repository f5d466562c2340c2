# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules behave and report the same in Ansible's worker as in a separate process."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from ansible_playbook import ansible_playbook, provide_collection
from fake_api import FakeApi
from krypton_models import PATH, SPEC

SECRET = "hf_never-to-be-seen"
TEMPLATE = "{{ 1 + 1 }}"
"""Text that a client wrote into an object, and that must never be evaluated."""
MODEL = {"name": "a", "namespace": "models", "wait": False}
APART = {"LD_OF_NOBODY": "1"}
"""An environment that makes a module run in a separate process, because it may only take effect at startup."""
LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
PROBE = """
import atexit, logging, os, signal, sys, tempfile, threading, time
from ansible.module_utils.basic import AnsibleModule

def main():
    module = AnsibleModule({"do": {"type": "str"}, "path": {"type": "path"}})
    if module.params["do"] == "raise":
        raise ConnectionError("The server refuses.")
    if module.params["do"] == "be killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if module.params["do"] == "leave":
        print("Traceback of some kind")
        sys.exit(3)
    if module.params["do"] == "give up":
        sys.exit("The server is gone.")
    if module.params["do"] == "exit beyond a byte":
        sys.exit(2**40 + 7)
    if module.params["do"] == "return":
        return
    if module.params["do"] == "clean up":
        path = module.params["path"]
        mark = lambda name: open(os.path.join(path, name), "w").close()
        atexit.register(mark, "at exit")
        threading.Thread(target=lambda: (threading.main_thread().join(), mark("of a thread"))).start()
        module.exit_json(temporary=os.path.isdir(module.tmpdir))
    print("A library speaks.")
    logging.getLogger("urllib3").error("A line of the module.")
    with open(module.params["path"]) as file:
        content = file.read()
    module.exit_json(
        content=content,
        folder=os.getcwd(),
        input=sys.stdin.read(),
        level=logging.root.getEffectiveLevel(),
        handlers=[str(handler) for handler in logging.root.handlers],
        mask=os.umask(0),
        signals={str(one): str(signal.getsignal(one)) for one in signal.valid_signals()},
        temporary=tempfile.gettempdir(),
        zone=time.tzname,
    )

if __name__ == "__main__":
    main()
"""
"""A module that shows what its process is, or does not end as a module should."""
ACTION = """
from ansible_collections.slipway.inference.plugins.plugin_utils._in_worker import InWorker
from ansible_collections.tests.probe.plugins.modules import probe

class ActionModule(InWorker):
    main = staticmethod(probe.main)
"""
TASKS: dict[str, dict[str, Any]] = {
    "applied": {"slipway.inference.model": {**MODEL, "spec": SPEC}},
    "foreseen": {
        "slipway.inference.model": {
            **MODEL,
            "name": "b",
            "spec": {**SPEC, "env": [{"name": "HF_TOKEN", "value": SECRET}]},
        },
        "check_mode": True,
        "diff": True,
    },
    "found": {"slipway.inference.model_info": {"namespace": "models"}},
    "refused": {"slipway.inference.model": {**MODEL, "namespace": "none", "spec": SPEC}},
    "wrong": {"slipway.inference.model": {**MODEL, "specs": SPEC}},
}


class Playbook:
    """Runs tasks against an API server, and gives their results by name."""

    def __init__(self, folder: Path, api: FakeApi) -> None:
        self._folder, self._api = folder, api
        (folder / "plays").mkdir()
        provide_collection(folder)
        self.output = ""

    def __call__(self, tasks: dict[str, dict[str, Any]], **play: Any) -> dict[str, Any]:
        named = [{**task, "name": name, "register": name, "ignore_errors": True} for name, task in tasks.items()]
        results = {name: "{{ hostvars[inventory_hostname]['" + name + "'] }}" for name in tasks}
        keep = {"content": results, "dest": str(self._folder / "results")}
        (self._folder / "plays" / "play.json").write_text(
            json.dumps(
                [
                    {
                        "hosts": "all",
                        "gather_facts": False,
                        "environment": {"K8S_AUTH_HOST": self._api.url, "K8S_AUTH_API_KEY": "of-the-play"},
                        **play,
                        "tasks": [*named, {"name": "Keep", "ansible.builtin.copy": keep, "delegate_to": "localhost"}],
                    }
                ]
            )
        )
        done = ansible_playbook(self._folder, "-vvv", "-i", "machine,", "plays/play.json")
        self.output = done.stdout + done.stderr
        outcomes: dict[str, Any] = json.loads((self._folder / "results").read_text())
        return outcomes

    @property
    def packed(self) -> int:
        """How many modules of collections had their own process."""
        return len(re.findall("^Using module file .*/plugins/modules/", self.output, re.MULTILINE))


@pytest.fixture
def playbook(tmp_path: Path, api: FakeApi) -> Playbook:
    if shutil.which("ansible-playbook") is None:
        pytest.skip("needs ansible-playbook")
    return Playbook(tmp_path, api)


def test_results_are_those_of_a_process_of_its_own(api: FakeApi, playbook: Playbook) -> None:
    api.warnings.append("from the server")
    named = {"apiVersion": "krypton.ai/v1alpha1", "kind": "Model"}
    metadata = {"name": "of-others", "namespace": "models"}
    api.put(PATH + "of-others", {**named, "metadata": metadata, "spec": {**SPEC, "args": [TEMPLATE]}})
    apart = {
        f"apart_{name}": {**task, "environment": {**APART, "K8S_AUTH_API_KEY": "of-the-task"}}
        for name, task in TASKS.items()
    }
    both = {name: task for pair in zip(TASKS.items(), apart.items(), strict=True) for name, task in pair}
    results = playbook(both, vars=LOCAL)
    assert playbook.packed == len(apart)
    applied, again = results.pop("applied"), results.pop("apart_applied")
    assert (applied["changed"], again["changed"]) == (True, False)
    assert applied.keys() == again.keys()
    for name in [*results]:
        if not name.startswith("apart_"):
            assert results[name] == results[f"apart_{name}"], name
    assert results["found"]["resources"][1]["spec"]["args"] == [TEMPLATE]
    assert "from the server" in str(results["found"]["warnings"])
    assert results["refused"]["error_code"] == "namespace_missing"
    assert results["wrong"]["msg"].startswith("Unsupported parameters for (slipway.inference.model) module: specs.")
    assert {call.headers["Authorization"] for call in api.calls} == {"Bearer of-the-play", "Bearer of-the-task"}
    assert SECRET not in playbook.output
    assert set(api.objects) == {PATH + "a", PATH + "of-others"}


@pytest.fixture
def probe(tmp_path: Path, playbook: Playbook) -> Playbook:
    for kind, text in (("modules", PROBE), ("action", ACTION)):
        file = tmp_path / "ansible_collections" / "tests" / "probe" / "plugins" / kind / "probe.py"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    return playbook


def _in_both(playbook: Playbook, task: dict[str, Any], environment: dict[str, Any]) -> tuple[Any, Any]:
    """The task's result here and in its own process, without the paths in tracebacks."""
    tasks = {"here": {**task, "environment": environment}, "apart": {**task, "environment": {**environment, **APART}}}
    results = playbook(tasks, vars=LOCAL)
    assert playbook.packed == 1
    return tuple(  # type: ignore[return-value]
        {name: value for name, value in results[one].items() if name not in ("exception", "module_stderr", "attempts")}
        for one in tasks
    )


@pytest.mark.parametrize("way", ["raise", "be killed", "leave", "give up", "exit beyond a byte", "return"])
def test_a_crash_is_a_result_as_of_any_module(probe: Playbook, way: str) -> None:
    here, apart = _in_both(probe, {"tests.probe.probe": {"do": way}}, {})
    assert here == apart
    assert here["failed"]


def test_a_module_ends_as_a_process_does(probe: Playbook, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    task = {"tests.probe.probe": {"do": "clean up", "path": str(tmp_path)}}
    variables = {**LOCAL, "ansible_remote_tmp": str(temporary)}
    result = probe({"here": task}, vars=variables)["here"]
    assert (result["temporary"], probe.packed) == (True, 0)
    assert {"at exit", "of a thread"} <= {path.name for path in tmp_path.iterdir()}
    assert not list(temporary.glob("ansible-moduletmp-*"))


def test_conditions_and_retries_see_a_crash(probe: Playbook) -> None:
    crash = {"tests.probe.probe": {"do": "raise"}}
    tasks = {
        "expected": {**crash, "failed_when": False},
        "retried": {**crash, "until": "retried is not failed", "retries": 1, "delay": 0},
    }
    results = probe(tasks, vars=LOCAL)
    assert not results["expected"]["failed"]
    assert (results["retried"]["failed"], results["retried"]["attempts"]) == (True, 1)


def test_a_module_sees_nothing_of_the_worker(probe: Playbook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "ansible.log"
    monkeypatch.setenv("ANSIBLE_LOG_PATH", str(log))
    (tmp_path / "plays" / "files").mkdir()
    (tmp_path / "plays" / "files" / "x").write_text("near the play")
    environment = {"TMPDIR": str(tmp_path / "plays"), "TZ": "Pacific/Honolulu"}
    here, apart = _in_both(probe, {"tests.probe.probe": {"path": "files/x"}}, environment)
    assert here == apart
    assert here["content"] == "near the play"
    assert "A line of the module." not in log.read_text()


def test_a_host_delegates_to_the_controller(api: FakeApi, playbook: Playbook) -> None:
    tasks = {"found": {**TASKS["found"], "delegate_to": "localhost"}}
    assert playbook(tasks)["found"]["api_found"]
    assert playbook.packed == 0


def test_with_another_python_the_module_has_a_process_of_its_own(
    api: FakeApi, playbook: Playbook, tmp_path: Path
) -> None:
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\nexec "$REAL_PYTHON" "$@"\n')
    program.chmod(0o755)
    variables = {"ansible_connection": "local", "ansible_python_interpreter": str(program)}
    environment = {"K8S_AUTH_HOST": api.url, "K8S_AUTH_API_KEY": "k", "REAL_PYTHON": "{{ ansible_playbook_python }}"}
    assert playbook({"found": TASKS["found"]}, vars=variables, environment=environment)["found"]["api_found"]
    assert playbook.packed == 1
