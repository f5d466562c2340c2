# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the documentation says is what the modules take and give."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.slipway.inference.plugins.module_utils import _auth
from ansible_collections.slipway.inference.plugins.module_utils._apis import MODELS, SERVICES
from ansible_collections.slipway.inference.plugins.module_utils._errors import HINTS
from fake_api import Answer, FakeApi
from krypton_models import FAILED, PENDING, READY, SPEC, becomes
from module_run import Result, Run

PLUGINS = "ansible_collections.slipway.inference.plugins"
COLLECTION = Path(__file__).resolve().parents[3]
EVERY_MODULE = sorted(path.stem for path in (COLLECTION / "plugins" / "modules").glob("*.py"))
# These run on the nodes and speak to no cluster; they have tests of their own.
ON_NODES = ["gpu_info"]
MODULES = [module for module in EVERY_MODULE if module not in ON_NODES]
# Options with many objects, of the modules that make them.
LISTS = {"model": ("models",), "inference_service": ("models", "inference_services")}
# What Ansible adds to every result.
COMMON = {"changed", "failed", "msg", "diff", "invocation", "warnings", "deprecations", "exception"}


def load(module: str) -> Any:
    return importlib.import_module(f"{PLUGINS}.modules.{module}")


def options(module: str) -> dict[str, Any]:
    """Documented options, with those of the fragments."""
    documented = yaml.safe_load(load(module).DOCUMENTATION)
    found = dict(documented.get("options") or {})
    for fragment in documented["extends_documentation_fragment"]:
        name = fragment.rpartition(".")[2]
        text = importlib.import_module(f"{PLUGINS}.doc_fragments.{name}").ModuleDocFragment.DOCUMENTATION
        found.update(yaml.safe_load(text).get("options") or {})
    return found


def surplus(value: Any, returned: dict[str, Any], at: str = "") -> list[str]:
    """Keys of a result that the documentation does not name."""
    found: list[str] = []
    for key, part in value.items():
        if key not in returned:
            found.append(f"{at}{key}")
        elif isinstance(part, list) and "contains" in returned[key]:
            for item in part:
                found += surplus(item, returned[key]["contains"], f"{at}{key}.")
    return found


def check_result(module: str, result: Result) -> None:
    documented = yaml.safe_load(load(module).RETURN)
    assert surplus({key: value for key, value in result.data.items() if key not in COMMON}, documented) == []


@pytest.mark.parametrize("module", MODULES)
def test_results_hold_nothing_that_is_not_documented(api: FakeApi, run: Run, module: str) -> None:
    api.controller = becomes(good=READY, bad=FAILED, slow=PENDING)
    task: dict[str, Any] = {"namespace": "models"}
    for option in LISTS.get(module, ()):
        task[option] = [{"name": name, "spec": SPEC} for name in ("good", "bad", "slow")]
    if module in LISTS:
        gone = {option: [{"name": "gone"}] for option in LISTS[module]}
        check_result(module, run(module, **{**task, **gone, "state": "absent"}))
        check_result(module, run(module, check=True, **task))
    check_result(module, run(module, **task))
    api.served.clear()
    check_result(module, run(module, **task))


def test_refused_models_hold_what_is_documented_as_always_there(api: FakeApi, run: Run) -> None:
    api.answers.append(Answer(lambda call: call.verb == "apply", 422, "Invalid", "spec.port: Invalid value: 0"))
    result = run("model", name="a", namespace="models", spec=SPEC)
    check_result("model", result)
    documented = yaml.safe_load(load("model").RETURN)["results"]["contains"]
    always = {name for name, value in documented.items() if value["returned"] == "always"}
    assert always <= result["results"][0].keys()
    unconditional = {name for name, value in documented.items() if value["returned"] == "when O(state=present)"}
    assert unconditional <= result["results"][0].keys()


@pytest.mark.parametrize("module", MODULES)
def test_successful_results_hold_everything_that_is_documented(api: FakeApi, run: Run, module: str) -> None:
    api.controller = becomes(others=READY)
    made = {"name": "good", "namespace": "models", "spec": SPEC}
    run(module.removesuffix("_info"), **made)
    task = made if module in LISTS else {"name": "good", "namespace": "models"}
    result = run(module, **task)
    for name, value in yaml.safe_load(load(module).RETURN).items():
        if value["returned"] == "success" or value["returned"].startswith("always"):
            assert name in result.data
            for key, inner in (value.get("contains") or {}).items():
                if inner.get("returned", "always") in (
                    "always",
                    "when O(state=present), unless the API server refused it",
                    "for a service when O(state=present), unless the API server refused it",
                ):
                    assert key in result[name][0]


@pytest.mark.parametrize("module", MODULES)
def test_every_option_says_its_environment_variable(module: str) -> None:
    documented = options(module)
    for name in _auth.ARGUMENTS:
        texts = documented[name]["suboptions"].values() if "suboptions" in documented[name] else [documented[name]]
        for text in texts:
            assert "E(K8S_AUTH_" in str(text["description"]), name


@pytest.mark.parametrize("module", EVERY_MODULE)
def test_every_module_is_in_its_action_group(module: str) -> None:
    """One that takes no credentials fails where the defaults of the group have some."""
    groups = yaml.safe_load((COLLECTION / "meta" / "runtime.yml").read_text())["action_groups"]
    assert [group for group, modules in groups.items() if module in modules] == [
        "nodes" if module in ON_NODES else "slipway"
    ]


def test_every_error_code_is_documented() -> None:
    text = str(yaml.safe_load(load("model").RETURN)["error_code"]["description"])
    assert [code for code in HINTS if f"V({code})" not in text] == []


def test_every_api_is_a_documented_choice() -> None:
    for module, apis in (("model", MODELS), ("inference_service", SERVICES)):
        for name in (module, f"{module}_info"):
            assert yaml.safe_load(load(name).DOCUMENTATION)["options"]["api"]["choices"] == sorted(apis)


def test_role_hints_name_roles_that_exist() -> None:
    for hint in HINTS.values():
        _before, _name, role = hint.partition("slipway.inference.")
        if role:
            assert (COLLECTION / "roles" / role.split()[0].rstrip(".")).is_dir()
