"""Every role documents its variables: argument specs, defaults and README agree."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jinja2.nativetypes import NativeEnvironment

from slipway.apis import APIS
from tests import documents

from ..ansible_files import mappings

ROOT = Path(__file__).parents[3]
ROLES = sorted(path.parent.parent for path in ROOT.glob("roles/*/tasks/main.yml"))
ENTRY_POINTS = ("main", "check", "verify", "uninstall", "drain", "uncordon")
PREFIX = "slipway.inference."
WRITTEN_BY_USERS = [
    *ROOT.glob("playbooks/**/*.yml"),
    *ROOT.glob("examples/**/*.yml"),
    *ROOT.glob("molecule/**/*.yml"),
]
CODE = re.compile(r"`([^`]*)`")
TYPES: dict[str, type | tuple[type, ...]] = {
    "str": str, "path": str, "int": int, "float": (int, float), "bool": bool, "list": list, "dict": dict, "raw": object,
}  # fmt: skip


def load(path: Path) -> Any:
    return documents.read(path) if path.exists() else {}


def specified(role: Path) -> dict[str, dict[str, Any]]:
    """Option -> specification, over all entry points."""
    entries = load(role / "meta/argument_specs.yml")["argument_specs"].values()
    return {name: option for entry in entries for name, option in entry.get("options", {}).items()}


def looked_up(name: str) -> list[str]:
    """The one lookup that defaults use: the names of the serving APIs."""
    assert name == "slipway.inference.apis"
    return [*dict.fromkeys(api.name for api in APIS)]


def resolved(value: Any) -> Any:
    """Returns the value of a default if no shared ``slipway_`` variable is set."""
    if isinstance(value, str):
        return NativeEnvironment().from_string(value).render(lookup=looked_up) if "{{" in value else value
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
def test_readme_tells_the_defaults(role: Path) -> None:
    rows = table(role)
    options = specified(role)

    cells = {name: rows[name] for name, option in options.items() if "default" in option and name in rows}
    assert {name: cell for name, cell in cells.items() if not tells(cell, options[name]["default"])} == {}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_readme_names_nothing_that_is_not_there(role: Path) -> None:
    names = set(specified(role)) | set(re.findall(r"\bslipway_[a-z_]+", (role / "defaults/main.yml").read_text()))

    assert {name for name in table(role) if name.startswith(f"{role.name}_")} - names == set()


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_defaults_are_of_the_types_that_are_specified(role: Path) -> None:
    options = {name: option for name, option in specified(role).items() if "default" in option}

    assert [name for name, option in options.items() if not is_a(option["default"], option["type"])] == []
    lists = {name: option for name, option in options.items() if option["type"] == "list"}
    assert [name for name, option in lists.items() if "elements" not in option] == []


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_entry_point_has_its_tasks(role: Path) -> None:
    entries = entry_points(role)

    assert [name for name in entries if not (role / "tasks" / f"{name}.yml").exists()] == []
    assert [name for name in ENTRY_POINTS if (role / "tasks" / f"{name}.yml").exists() and name not in entries] == []
    assert [name for name, entry in entries.items() if not entry.get("short_description")] == []


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_task_file_that_others_call_is_an_entry_point(role: Path) -> None:
    """Ansible checks the variables of entry points only."""
    others = [file for file in ROOT.glob("roles/*/tasks/*.yml") if file.parents[1] != role]
    targets = {call for file in [*WRITTEN_BY_USERS, *others] for call in calls(file)}
    called = {entry for name, entry in targets if name == f"{PREFIX}{role.name}"}
    called |= set(re.findall(r"`tasks_from: (\w+)`", (role / "README.md").read_text()))

    assert called - entry_points(role).keys() == set()


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_readme_tells_every_entry_point(role: Path) -> None:
    readme = (role / "README.md").read_text()

    assert [name for name in entry_points(role) if name != "main" and f"tasks_from: {name}" not in readme] == []


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_every_role_says_who_made_it_and_for_what(role: Path) -> None:
    meta = load(role / "meta/main.yml")

    about = meta["galaxy_info"]
    assert all(about[key] for key in ("author", "description", "license", "min_ansible_version"))
    assert meta.get("dependencies", []) == [], "order belongs into playbooks"


def entry_points(role: Path) -> dict[str, dict[str, Any]]:
    specs: dict[str, dict[str, Any]] = load(role / "meta/argument_specs.yml")["argument_specs"]
    return specs


@cache
def calls(file: Path) -> set[tuple[str, str]]:
    """Roles, by their full names, and entry points that a playbook, or a file of tasks, calls."""
    targets = set()
    for node in mappings(file):
        for module in ("include_role", "import_role"):
            arguments = node.get(f"ansible.builtin.{module}")
            if isinstance(arguments, dict):
                targets.add((arguments["name"], arguments.get("tasks_from", "main").removesuffix(".yml")))
    return targets


def table(role: Path) -> dict[str, str]:
    """Variable -> the cell with its default, of the table in the role's README."""
    lines = (role / "README.md").read_text().splitlines()
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines if line.startswith("| `")]
    return {name: row[1] for row in rows if len(row) > 2 for name in CODE.findall(row[0])}


def tells(cell: str, default: Any) -> bool:
    """Whether a cell shows a default, as code. Text may explain a missing default."""
    shown = CODE.findall(cell)
    if default in ("", [], {}) and cell and not CODE.fullmatch(cell):
        return True
    return bool(shown) and (shown[0] == default or documents.load(shown[0]) == default)


def is_a(value: Any, kind: str) -> bool:
    return isinstance(value, TYPES[kind]) and (kind in ("bool", "raw") or not isinstance(value, bool))
