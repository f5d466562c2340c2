"""The example for AWX: AWX accepts it, and its playbooks and variables exist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from slipway.apis import APIS
from tests import documents

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples/awx"
ANSWERS = {
    "text": str, "textarea": str, "password": str, "integer": int, "float": float, "multiplechoice": str,
    "multiselect": str,
}  # fmt: skip
"""Type of a question -> type of its default, as AWX's API has them."""
LENGTHS = ("text", "textarea", "password")
OPTION_TYPES = {"text": "str", "textarea": "list", "integer": "int", "multiselect": "list"}
"""Type of a question -> type of the role's option that it sets."""
BUILT_IN = {"OpenShift or Kubernetes API Bearer Token", "Machine"}
SHARED = "slipway_"


class Loader(yaml.SafeLoader):
    """Reads ``!unsafe`` as the text that it is."""


Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))


def read(name: str) -> Any:
    return yaml.load((EXAMPLE / "configuration" / f"{name}.yml").read_text(), Loader)  # noqa: S506 - a SafeLoader


TEMPLATES = {one["name"]: one for one in read("job_templates")["controller_templates"]}
WORKFLOWS = {one["name"]: one for one in read("workflows")["controller_workflows"]}
SURVEYS = {name: one["survey_spec"] for name, one in {**TEMPLATES, **WORKFLOWS}.items() if "survey_spec" in one}
QUESTIONS = [pytest.param(one, id=f"{name}-{one['variable']}") for name, of in SURVEYS.items() for one in of["spec"]]


def options() -> dict[str, Any]:
    """Option -> its specification, over all entry points of all roles."""
    specs: dict[str, Any] = {}
    for path in ROOT.glob("roles/*/meta/argument_specs.yml"):
        for entry in documents.read(path)["argument_specs"].values():
            specs.update(entry["options"])
    return specs


def names(name: str, key: str) -> set[str]:
    return {one["name"] for one in read(name)[key]}


# --- surveys: what AWX's API checks of them ---------------------------------------------------------------------------


@pytest.mark.parametrize("survey", SURVEYS.values(), ids=list(SURVEYS))
def test_a_survey_has_what_it_must_have(survey: dict[str, Any]) -> None:
    assert {key: type(survey[key]) for key in survey} == {"name": str, "description": str, "spec": list}
    variables = [question["variable"] for question in survey["spec"]]
    assert variables
    assert len(set(variables)) == len(variables)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_has_fields_of_the_right_types(question: dict[str, Any]) -> None:
    required = {"question_name": str, "question_description": str, "variable": str, "type": str, "required": bool}
    assert {key: type(question.get(key)) for key in required} == required
    assert question["type"] in ANSWERS
    assert set(question) <= {*required, "default", "min", "max", "choices"}
    assert {type(question[limit]) for limit in ("min", "max") if limit in question} <= {int}
    assert question["default"] == "" or {type(question["default"])} == {ANSWERS[question["type"]]}


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_default_is_an_answer_that_is_accepted(question: dict[str, Any]) -> None:
    default, kind = question["default"], question["type"]
    if kind in ("multiplechoice", "multiselect"):
        assert {type(choice) for choice in question["choices"]} == {str}
        assert set(default.splitlines()) <= set(question["choices"])
        assert kind == "multiselect" or len(default.splitlines()) == 1
    elif default != "" or not question["required"]:
        assert "choices" not in question
        assert question["min"] <= (len(default) if kind in LENGTHS else default) <= question["max"]


# --- surveys: that the roles take the answers -------------------------------------------------------------------------


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_variable_is_one_that_the_roles_read(question: dict[str, Any]) -> None:
    variable = question["variable"]
    option = options().get(variable)
    if option is None:
        assert variable.startswith(SHARED)
        assert f"| `{variable}` |" in (ROOT / "playbooks/README.md").read_text()
        return
    if question["type"] == "multiplechoice":
        assert set(question["choices"]) == ({"true", "false"} if option["type"] == "bool" else set(option["choices"]))
    elif variable != "models_catalogue":  # names or mappings
        assert OPTION_TYPES[question["type"]] == option["type"]
    default = {"true": True, "false": False}.get(question["default"], question["default"])
    assert default == (option["default"] or default.__class__())


def test_the_choice_of_serving_apis_is_of_all_that_there_are() -> None:
    (question,) = (one for one in SURVEYS["Slipway install"]["spec"] if one["variable"] == "slipway_apis")
    assert question["choices"] == [*dict.fromkeys(api.name for api in APIS)]


# --- what refers to what ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=list(TEMPLATES))
def test_a_job_template_uses_what_there_is(template: dict[str, Any]) -> None:
    assert template["project"] in names("projects", "controller_projects")
    assert template["inventory"] in names("inventories", "controller_inventories")
    assert template["execution_environment"] in names("execution_environments", "controller_execution_environments")
    assert set(template["credentials"]) <= names("credentials", "controller_credentials")
    assert (EXAMPLE / template["playbook"]).is_file()
    assert template.get("survey_enabled", False) is ("survey_spec" in template)
    assert template["timeout"] > 0


def test_every_playbook_has_a_job_template() -> None:
    assert {path.name for path in EXAMPLE.glob("*.yml")} - {"execution-environment.yml"} == {
        template["playbook"] for template in TEMPLATES.values()
    }


def test_every_playbook_that_is_imported_is_one_of_the_collection() -> None:
    plays = [play for path in EXAMPLE.glob("*.yml") for play in documents.read(path) if isinstance(play, dict)]
    imported = [play["ansible.builtin.import_playbook"] for play in plays if "ansible.builtin.import_playbook" in play]
    assert imported
    for name in imported:
        collection, _dot, playbook = name.rpartition(".")
        assert collection == "slipway.inference"
        assert (ROOT / f"playbooks/{playbook}.yml").is_file()


@pytest.mark.parametrize("workflow", WORKFLOWS.values(), ids=list(WORKFLOWS))
def test_a_workflow_leads_through_templates_that_take_its_answers(workflow: dict[str, Any]) -> None:
    nodes = {node["identifier"]: node for node in workflow["simplified_workflow_nodes"]}
    projects = names("projects", "controller_projects")
    assert {node["unified_job_template"] for node in nodes.values()} <= projects | set(TEMPLATES)
    followers = [name for node in nodes.values() for name in node.get("success_nodes", [])]
    assert set(followers) <= set(nodes)
    assert len(set(nodes) - set(followers)) == 1
    variables = {question["variable"] for question in workflow["survey_spec"]["spec"]}
    taken = {
        question["variable"]
        for node in nodes.values()
        for question in SURVEYS.get(node["unified_job_template"], {"spec": []})["spec"]
    }
    assert variables <= taken
    for node in nodes.values():
        prompts = {f"ask_{field}_on_launch" for field in node if field in ("skip_tags", "job_tags", "limit")}
        assert all(TEMPLATES[node["unified_job_template"]][prompt] for prompt in prompts)


def test_hosts_and_groups_are_of_the_inventory() -> None:
    read_inventories = read("inventories")
    inventories = names("inventories", "controller_inventories")
    assert {
        one["inventory"] for key in ("controller_hosts", "controller_groups") for one in read_inventories[key]
    } <= inventories


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_a_credential_is_of_a_type_that_there_is_and_holds_no_secret() -> None:
    types = {one["name"]: one for one in read("credential_types")["controller_credential_types"]}
    for credential in read("credentials")["controller_credentials"]:
        kind = credential["credential_type"]
        assert kind in BUILT_IN | set(types)
        fields = types[kind]["inputs"]["fields"] if kind in types else []
        secret = {field["id"] for field in fields if field.get("secret")} | {"bearer_token", "password", "ssh_key_data"}
        for name in secret & set(credential["inputs"]):
            assert credential["inputs"][name].startswith("{{ lookup('ansible.builtin.env', 'SLIPWAY_")


def test_a_credential_type_injects_its_own_fields_into_variables_that_are_allowed() -> None:
    for kind in read("credential_types")["controller_credential_types"]:
        fields = {field["id"] for field in kind["inputs"]["fields"]}
        assert kind["kind"] in ("cloud", "net")
        assert set(kind["inputs"]["required"]) <= fields
        for variable, template in kind["injectors"]["env"].items():
            assert not variable.startswith("ANSIBLE_")
            assert template.strip("{} ") in fields
            playbooks = [path.read_text() for path in EXAMPLE.glob("*.yml")]
            assert any(f"'{variable}'" in text for text in playbooks)


# --- collections and the execution environment ------------------------------------------------------------------------


def test_the_collections_are_those_that_this_one_needs() -> None:
    galaxy = documents.read(ROOT / "galaxy.yml")
    requirements = documents.read(EXAMPLE / "collections/requirements.yml")["collections"]
    versions = {one["name"]: one["version"] for one in requirements}
    own = versions.pop("slipway.inference")
    assert versions == galaxy["dependencies"]
    released = Version(galaxy["version"])
    assert Version(f"{released.major}.{released.minor + 1}.0") in SpecifierSet(own)


def test_the_execution_environment_can_be_built(tmp_path: Path) -> None:
    pytest.importorskip("ansible_builder")
    command = [sys.executable, "-m", "ansible_builder", "create"]
    where = ["--file", str(EXAMPLE / "execution-environment.yml"), "--context", str(tmp_path / "context")]
    subprocess.run([*command, *where], check=True, capture_output=True, text=True, timeout=120)
    context = tmp_path / "context/_build"
    assert documents.read(context / "requirements.yml") == documents.load(
        (EXAMPLE / "collections/requirements.yml").read_text()
    )

    place = tmp_path / "ansible_collections/slipway"
    place.mkdir(parents=True)
    (place / "inference").symlink_to(ROOT)
    introspect = [sys.executable, str(context / "scripts/introspect.py"), "introspect", str(tmp_path)]
    introspection = subprocess.run(introspect, check=True, capture_output=True, text=True, timeout=120)
    needs = documents.load(introspection.stdout)
    assert needs["python"] == ["kubernetes>=24.2.0  # from collection slipway.inference"]
    assert [line.split()[0] for line in needs["system"]] == ["openssh-clients", "openssh-client"]
