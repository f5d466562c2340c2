"""Every block of the pages is what it claims to be, as far as that can be said without a cluster."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import msgspec
import yaml

from slipway.apis import APIS, DESCRIPTIONS
from slipway.apis.kubeai.system_yaml import parse
from slipway.controller.settings import ControllerSettings
from slipway.gateway.settings import Settings as GatewaySettings
from tests.schemas import definition_of, faults, schema_of
from tests.tables import each

from ...docs.pages import PAGES, ROOT, Block, blocks

BLOCKS = [block for page in PAGES for block in blocks(page)]
LANGUAGES = {"bash", "yaml", "json", "python", "text", "mermaid"}
MARKS = {"file", "elsewhere", "settings", "untested", "variables"}
DEFINITIONS = {
    (api.resource.kind.api_version, api.resource.kind.kind): schema_of(definition_of(api.resource)) for api in APIS
}
VERSIONS = {version for version, kind in DEFINITIONS}
SETTINGS = {"controller": ControllerSettings, "gateway": GatewaySettings}


def of(language: str, mark: str = "") -> Any:
    chosen = [block for block in BLOCKS if block.language == language and (not mark or mark in block.marks)]
    return each(chosen, ids=lambda block: block.name)


def documents(block: Block) -> list[Any]:
    return list(yaml.safe_load_all(block.text))


@each(BLOCKS, ids=lambda block: block.name)
def test_a_block_names_its_language_and_known_marks(block: Block) -> None:
    assert block.language in LANGUAGES
    assert set(block.marks) <= MARKS


@of("bash")
def test_bash_parses(block: Block) -> None:
    subprocess.run(["bash", "-n"], input=block.text, text=True, check=True, timeout=60)


def test_a_namespace_that_may_exist_is_applied_by_the_server() -> None:
    """Otherwise, kubectl prints a warning if another client has created it, as the demo does."""
    piped = re.compile(r"^kubectl create namespace .*\| kubectl apply (.*)$", re.MULTILINE)
    options = [option for block in BLOCKS for option in piped.findall(block.text)]
    assert options
    assert [option for option in options if "--server-side" not in option] == []


@each([block for block in BLOCKS if "elsewhere" in block.marks], ids=lambda block: block.name)
def test_a_block_that_is_tested_elsewhere_names_an_existing_file(block: Block) -> None:
    assert (ROOT / block.marks["elsewhere"]).is_file()


@of("json")
def test_json_parses(block: Block) -> None:
    json.loads(block.text)


@of("python")
def test_python_compiles(block: Block) -> None:
    compile(block.text, block.name, "exec")


@of("yaml")
def test_manifests_of_our_kinds_follow_their_definitions(block: Block) -> None:
    manifests = [
        document
        for document in documents(block)
        if isinstance(document, dict) and document.get("apiVersion") in VERSIONS
    ]
    for manifest in manifests:
        assert faults(DEFINITIONS[manifest["apiVersion"], manifest["kind"]], manifest) == []


@of("yaml", "variables")
def test_a_system_configuration_of_kubeai_can_be_read(block: Block) -> None:
    (shown,) = documents(block)
    given = shown.get("controller_kubeai_config")
    if isinstance(given, dict):
        parse(yaml.safe_dump(given))


@of("yaml", "settings")
def test_settings_are_taken_by_their_program_and_complete(block: Block) -> None:
    program = SETTINGS[block.marks["settings"]]
    (shown,) = documents(block)
    msgspec.convert(shown, program)
    assert set(shown) == {field.encode_name for field in msgspec.structs.fields(program)}


@of("yaml", "settings")
def test_settings_are_shown_with_their_defaults(block: Block) -> None:
    program = SETTINGS[block.marks["settings"]]
    (shown,) = documents(block)
    given = shown | {"images": {}} if "images" in shown else shown
    own = given.pop("apis", None)
    assert msgspec.convert(given, program) == program()
    if own is not None:
        assert {api.name: msgspec.convert(own.pop(api.name, {}), api.settings) for api in DESCRIPTIONS} == {
            api.name: api.settings() for api in DESCRIPTIONS
        }
        assert own == {}


@of("yaml", "variables")
def test_variables_are_those_of_the_roles(block: Block) -> None:
    variables: set[str] = set()
    for name in block.marks["variables"].split():
        variables |= _shared() if name == "shared" else set(_defaults(name))
    (shown,) = documents(block)
    assert set(shown) <= variables


def _defaults(role: str) -> dict[str, Any]:
    defaults: dict[str, Any] = yaml.safe_load((ROOT / "roles" / role / "defaults/main.yml").read_text())
    return defaults


def _shared() -> set[str]:
    """Variables that several roles and playbooks read."""
    files = [*ROOT.glob("roles/*/defaults/main.yml"), *ROOT.glob("playbooks/*.yml")]
    return {name for file in files for name in re.findall(r"\bslipway_[a-z_]+", file.read_text())}
