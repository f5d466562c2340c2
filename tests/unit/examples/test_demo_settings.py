"""Misspelled tags and variables end `make demo` before anything starts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STAGES = re.findall(r"^DEMO_STAGES := (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)[0]


def check(*arguments: str) -> list[str]:
    """Returns the errors."""
    command = [sys.executable, str(ROOT / "scripts/demo_settings.py"), "--stages", STAGES, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == bool(done.stderr), done.stderr
    return done.stderr.splitlines()


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ("gatway", "error: TAGS: 'gatway' is not a tag of the demo. Did you mean gateway?"),
        ("controller, gatway", "error: TAGS: 'gatway' is not a tag of the demo. Did you mean gateway?"),
        ("checks", "error: TAGS: 'checks' is not a tag of the demo. Did you mean preflight?"),
        ("APIs", "error: TAGS: 'APIs' is not a tag of the demo. Did you mean crds?"),
    ],
)
def test_an_unknown_tag_is_reported_with_the_nearest_one(tags: str, message: str) -> None:
    assert check("--tags", tags) == [message]


def test_an_unknown_tag_that_is_like_none_is_reported_with_all() -> None:
    [line] = check("--tags", "zzz")
    assert line.startswith("error: TAGS: 'zzz' is not a tag of the demo. Use one of ")
    assert "gateway, " in line
    assert "always" not in line


@pytest.mark.parametrize("tags", ["", "gateway", "controller,gateway", "local_cluster", "gpu_nodes", "all"])
def test_tags_of_the_demo_are_accepted(tags: str) -> None:
    assert check("--tags", tags) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("gateway_replica: 2", "no role and no playbook reads gateway_replica. Did you mean gateway_replicas?"),
        ("gatway_replicas: 2", "no role and no playbook reads gatway_replicas. Did you mean gateway_replicas?"),
        ("slipway_imge: a/b:1", "no role and no playbook reads slipway_imge. Did you mean slipway_image?"),
        ("gateway_zzzzzzzzzzzzzzzzzzzzz: 1", "no role and no playbook reads gateway_zzzzzzzzzzzzzzzzzzzzz. Remove it."),
    ],
)
def test_a_variable_that_nothing_reads_is_reported(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "vars.yml"
    file.write_text(f"gateway_replicas: 1\nslipway_image: a/b:1\n{line}\n" if "replicas" not in line else f"{line}\n")
    assert check("--vars", str(file)) == [f"error: VARS: {file}: {message}"]


@pytest.mark.parametrize(
    "text",
    [
        "mine: 1",
        "gateway_my_keys: {me: k}\ngateway_api_keys: '{{ gateway_my_keys }}'",
        "gateway_api_keys: {me: !vault abc}",
        "ansible_python_interpreter: /usr/bin/python3",
        "- no variables",
        "a: [not YAML",
        "",
    ],
)
def test_other_files_are_left_to_ansible(tmp_path: Path, text: str) -> None:
    (tmp_path / "vars.yml").write_text(text)
    assert check("--vars", str(tmp_path / "vars.yml")) == []


@pytest.mark.parametrize("file", sorted(ROOT.glob("examples/*.yml")), ids=lambda file: file.name)
def test_every_example_sets_known_variables(file: Path) -> None:
    assert check("--vars", str(file)) == []


def test_make_checks_before_anything_is_built() -> None:
    [rule] = re.findall(r"^demo: (.*?)(?: ##|$)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert rule.index("demo-settings") < rule.index("docker")
