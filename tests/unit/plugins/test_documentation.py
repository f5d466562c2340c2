# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the documentation says of options, groups and errors is so."""

from __future__ import annotations

import re

import pytest
import yaml
from ansible_collections.slipway.inference.plugins.module_utils import _auth
from ansible_collections.slipway.inference.plugins.module_utils._apis import AUTO, BENCHMARKS, MODELS, SERVICES
from ansible_collections.slipway.inference.plugins.module_utils._errors import HINTS
from documented import COLLECTION, MODULES, OF_KUBERNETES, documentation, fragments, options, returned, words

# Modules that speak to a cluster. Others have no use for the options that say how to reach one.
OF_CLUSTERS = [module for module in MODULES if "k8s_auth" in fragments(module)]


@pytest.mark.parametrize("module", OF_CLUSTERS)
def test_every_option_says_its_environment_variable(module: str) -> None:
    documented = options(module)
    for name in _auth.ARGUMENTS:
        texts = documented[name]["suboptions"].values() if "suboptions" in documented[name] else [documented[name]]
        for text in texts:
            assert "E(K8S_AUTH_" in str(text["description"]), name


def test_every_module_is_in_the_action_group_of_those_that_take_its_options() -> None:
    """`module_defaults` of a group go to all of its modules, and one that does not know an option fails."""
    groups = yaml.safe_load((COLLECTION / "meta" / "runtime.yml").read_text())["action_groups"]
    members = {name: {one for one in group if isinstance(one, str)} for name, group in groups.items()}
    assert members["slipway"] == {*OF_CLUSTERS, *OF_KUBERNETES}
    assert sorted(module for group in members.values() for module in group) == MODULES
    for module in MODULES:
        membership = documentation(module)["attributes"].get("action_group", {}).get("membership")
        (group,) = (name for name, group in members.items() if module in group)
        assert membership == (None if group == "slipway" else [f"slipway.inference.{group}"])


def test_every_error_code_is_documented_and_no_other() -> None:
    codes = re.findall(r"v\(([a-z_]+)\)", words(returned("model")["error_code"]))
    assert sorted(codes) == sorted(HINTS)


def test_every_error_code_has_its_row_among_the_troubles() -> None:
    page = (COLLECTION / "docs" / "reference" / "troubleshooting.md").read_text()
    rows = page.split("## Errors of the modules\n")[1].split("\n## ")[0]
    assert sorted(re.findall(r"^\| `([a-z_]+)` \|", rows, re.MULTILINE)) == sorted(HINTS)


def test_every_api_is_a_documented_choice() -> None:
    assert options("model")["api"]["choices"] == [AUTO, *sorted(MODELS)]
    assert options("model_info")["api"]["choices"] == sorted(MODELS)
    for name in ("inference_service", "inference_service_info"):
        assert options(name)["api"]["choices"] == sorted(SERVICES)
    assert options("benchmark_job")["api"]["choices"] == sorted(BENCHMARKS)


def test_role_hints_name_roles_that_exist() -> None:
    for hint in HINTS.values():
        _before, _name, role = hint.partition("slipway.inference.")
        if role:
            assert (COLLECTION / "roles" / role.split()[0].rstrip(".")).is_dir()
