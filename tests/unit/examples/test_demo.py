"""The demo: its stages, the models that it asks, and what its pages name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

ROOT = Path(__file__).parents[3]
PLAYS = yaml.safe_load((ROOT / "playbooks/demo.yml").read_text())
SITE = next(play["vars"] for play in PLAYS if "models_list" in play.get("vars", {}))
ASKING = next(play for play in PLAYS if "demo_names" in play.get("vars", {}))
STAGES = re.findall(r"^DEMO_STAGES := (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)[0].split(",")
PAGES = [
    ROOT / "docs/reference/apis/krypton.md",
    ROOT / "docs/start/experiments.md",
    ROOT / "docs/how-to/scale-to-zero.md",
    *sorted((ROOT / "examples/models").glob("*")),
    ROOT / "examples/demo.yml",
]
"""What a reader applies to the demo, as these pages show it. Of krypton.md, only the first manifest counts."""
SOURCES = (
    re.compile(r"huggingface: *(?P<repository>[^\s,]+),?\s+file: *(?P<file>[^\s,}]+)"),
    re.compile(r"hf://(?P<repository>[^\s?]+)\?model=(?P<file>\S+)"),
    re.compile(r"https://huggingface\.co/(?P<repository>[^/\s]+/[^/\s]+)/resolve/main/(?P<file>\S+)"),
)
STATIC = """
import json, sys
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.playbook import Playbook
from ansible.playbook.block import Block
from ansible.plugins.loader import init_plugin_loader
from ansible.vars.manager import VariableManager

init_plugin_loader()
from ansible_collections.slipway.inference.plugins.callback.stages import _stages, stage_of

stages = _stages(json.loads(sys.argv[2]))

def tasks(block):
    for task in block.block + block.rescue + block.always:
        yield from tasks(task) if isinstance(task, Block) else [task]

loader = DataLoader()
variables = VariableManager(loader, InventoryManager(loader, ["localhost,"]))
entered = []
for play in Playbook.load(sys.argv[1], variables, loader).get_plays():
    entered.append(stages.get(play.get_name()))
    entered += [stage_of(task, stages) for block in play.compile() for task in tasks(block)]
print(json.dumps([stage for stage in entered if stage]))
"""


def source() -> Any:
    """Repository and file of the demo's models, which its own hub serves."""
    tasks = [task for play in PLAYS for task in play.get("tasks", [])]
    facts = [task["ansible.builtin.set_fact"] for task in tasks if "ansible.builtin.set_fact" in task]
    return next(fact["demo_source"] for fact in facts if "demo_source" in fact)


def names(**variables: Any) -> Any:
    """The names of the models that are asked, with these variables."""
    render = NativeEnvironment().from_string
    models = render(ASKING["vars"]["demo_models"]).render(variables)
    return render(ASKING["vars"]["demo_names"]).render(demo_models=models)


def test_the_stages_begin_in_the_order_of_their_numbers() -> None:
    collections = ROOT / ".venv/collections"
    command = [sys.executable, "-c", STATIC, str(ROOT / "playbooks/demo.yml"), json.dumps(STAGES)]
    environment = os.environ | {"ANSIBLE_COLLECTIONS_PATH": str(collections), "ANSIBLE_CONFIG": "ansible.cfg"}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    first = list(dict.fromkeys(json.loads(done.stdout.splitlines()[-1])))
    assert first == [stage.partition("=")[0] for stage in STAGES]


def test_the_demos_own_models_are_asked_unless_others_are_listed() -> None:
    assert names() == [model["name"] for model in SITE["models_list"]]


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        ([{"name": "mine"}], ["mine"]),
        ([{"name": "a", "api": "krypton"}, {"name": "b", "api": "kubeai"}], ["a", "b"]),
        ([{"name": "weights", "api": "llmkube"}, {"name": "mine"}], ["mine"]),
        ([], []),
    ],
)
def test_models_of_a_file_of_variables_are_asked_instead(models: list[dict[str, str]], expected: list[str]) -> None:
    assert names(models_list=models) == expected


def test_kubectl_lists_the_demos_models_as_models() -> None:
    """kubectl takes a plural for that of the first group in the alphabet."""
    groups = [
        definition["spec"]["group"]
        for path in (ROOT / "roles/crds/files").glob("*_models.yaml")
        if (definition := yaml.safe_load(path.read_text()))["spec"]["group"].split(".")[0] in SITE["slipway_apis"]
    ]
    assert len(groups) == len(SITE["slipway_apis"])
    assert min(groups).split(".")[0] == SITE["models_list"][0].get("api", "krypton")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_demos_own_hub_has_every_file_that_its_pages_name(page: Path) -> None:
    text = re.sub(r"^# ?", "", page.read_text(), flags=re.MULTILINE).partition("\n# Fields")[0]
    named = {(match["repository"], match["file"]) for pattern in SOURCES for match in pattern.finditer(text)}
    assert named <= {(source()["repository"], source()["file"])}
    assert named or not re.search(r"huggingface|hf://", text)


def test_the_next_steps_exist() -> None:
    [message] = [task["ansible.builtin.debug"]["msg"] for task in ASKING["tasks"] if "ansible.builtin.debug" in task]
    paths = re.findall(r"\b(?:docs|examples)/[\w/.]*\w", message)
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


@contextmanager
def gateway(status: int, error: dict[str, Any]) -> Iterator[str]:
    """A gateway that answers each request with an error. Yields its URL."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps({"error": error}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


REPLACE = "make demo TAGS=gateway VARS=FILE"
NO_KEY = {"code": "invalid_api_key", "message": "The API key is missing or incorrect."}


@pytest.mark.parametrize(
    ("status", "error", "variables", "lines"),
    [
        (
            401,
            NO_KEY,
            {},
            [
                "tiny: 401 invalid_api_key. The API key is missing or incorrect.",
                "tiny-from-zero: 401 invalid_api_key. The API key is missing or incorrect.",
                "The gateway requires an API key. Run with the same VARS, or remove the key: make demo TAGS=gateway",
            ],
        ),
        (
            401,
            NO_KEY,
            {"gateway_api_keys": {"me": "demo-key-1"}, "models_list": [{"name": "mine"}]},
            [
                "mine: 401 invalid_api_key. The API key is missing or incorrect.",
                f"The gateway does not accept the first key of gateway_api_keys. Replace its keys: {REPLACE}",
            ],
        ),
        (
            404,
            {"code": None, "message": "No\x1b[2Jmodel."},
            {"models_list": [{"name": name} for name in ("a", "b", "c")]},
            [
                "a: 404. No [2Jmodel.",
                "b: 404. No [2Jmodel.",
                "Look at the models: kubectl --kubeconfig kubeconfig get slipway -A -o wide",
            ],
        ),
    ],
)
def test_the_last_lines_have_the_gateways_error_and_the_fix(
    tmp_path: Path, status: int, error: dict[str, Any], variables: dict[str, Any], lines: list[str]
) -> None:
    play = deepcopy(ASKING)
    [asking] = [task for task in play["tasks"] if "block" in task]
    asking["block"][0] |= {"retries": 1, "delay": 0}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    environment = {
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".venv/collections"),
        "ANSIBLE_CONFIG": "ansible.cfg",
        "ANSIBLE_STDOUT_CALLBACK": "slipway.inference.stages",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_HOME": str(tmp_path / "home"),
        "SLIPWAY_STAGES_LOG": str(tmp_path / "log"),
    }
    with gateway(status, error) as url:
        given = json.dumps({"demo_url": url, "demo_kubeconfig": "kubeconfig", **variables})
        done = subprocess.run(
            ["ansible-playbook", str(tmp_path / "play.yml"), "-e", given],
            env=os.environ | environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.returncode == 2, done.stdout + done.stderr
    screen = done.stdout.splitlines()
    assert screen[-len(lines) - 1 :] == [*lines, f"Log: {tmp_path}/log"], done.stdout
    assert "demo-key-1" not in done.stdout
