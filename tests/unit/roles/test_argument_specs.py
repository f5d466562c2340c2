"""Every role says what it takes: its argument specs, defaults and README agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

ROLES = sorted(path.parent.parent for path in Path(__file__).parents[3].glob("roles/*/tasks/main.yml"))
ENTRY_POINTS = ("main", "uninstall")


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text()) if path.exists() else {}


def specified(role: Path) -> dict[str, dict[str, Any]]:
    """Option -> specification, over all entry points."""
    entries = load(role / "meta/argument_specs.yml")["argument_specs"].values()
    return {name: option for entry in entries for name, option in entry.get("options", {}).items()}


def resolved(value: Any) -> Any:
    """A default as it is where nobody has set any shared ``slipway_`` variable."""
    if isinstance(value, str):
        return NativeEnvironment().from_string(value).render() if "{{" in value else value
    if isinstance(value, dict):
        return {key: resolved(item) for key, item in value.items()}
    if isinstance(value, list):
        return [resolved(item) for item in value]
    return value


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_defaults_are_those_of_the_argument_specs(role: Path) -> None:
    written = load(role / "defaults/main.yml")
    defaults = {name: resolved(value) for name, value in written.items()}
    options = specified(role)

    assert set(defaults) == set(options)
    documented = {name: option["default"] for name, option in options.items() if "default" in option}
    assert {name: defaults[name] for name in documented} == documented
    for name in set(options) - set(documented):
        if options[name].get("required"):
            assert defaults[name] in ("", [], {}), name
        else:  # it follows from other variables: words say how
            assert "{{" in written[name], name
            assert "By default" in str(options[name]["description"]), name


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_readme_names_every_variable(role: Path) -> None:
    readme = (role / "README.md").read_text()

    assert [name for name in specified(role) if f"`{name}`" not in readme] == []


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_variable_carries_the_name_of_its_role(role: Path) -> None:
    assert [name for name in specified(role) if not name.startswith(f"{role.name}_")] == []


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_entry_point_has_its_tasks(role: Path) -> None:
    entries = load(role / "meta/argument_specs.yml")["argument_specs"]

    assert [name for name in entries if not (role / "tasks" / f"{name}.yml").exists()] == []
    assert [name for name in ENTRY_POINTS if (role / "tasks" / f"{name}.yml").exists() and name not in entries] == []
