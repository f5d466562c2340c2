"""The demo asks the models that a file of variables names, and says what to try next."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

ROOT = Path(__file__).parents[3]
PLAYS = yaml.safe_load((ROOT / "playbooks/demo.yml").read_text())
ASKING = next(play for play in PLAYS if "demo_names" in play.get("vars", {}))


def asked(**variables: Any) -> Any:
    """The names of the models that are asked, with these variables."""
    render = NativeEnvironment().from_string
    named = render(ASKING["vars"]["demo_named"]).render(variables)
    return render(ASKING["vars"]["demo_names"]).render(demo_named=named)


def test_its_own_models_are_asked_where_nobody_names_others() -> None:
    own = next(play["vars"]["models_list"] for play in PLAYS if "models_list" in play.get("vars", {}))
    assert asked() == [model["name"] for model in own]


@pytest.mark.parametrize(
    ("models", "names"),
    [
        ([{"name": "mine"}], ["mine"]),
        ([{"name": "b", "api": "kubeai"}, {"name": "a", "api": "krypton"}], ["b", "a"]),
        ([{"name": "weights", "api": "llmkube"}, {"name": "mine"}], ["mine"]),
        ([], []),
    ],
)
def test_models_of_ones_own_are_asked_in_their_place(models: list[dict[str, str]], names: list[str]) -> None:
    assert asked(models_list=models) == names


def test_what_it_says_to_try_next_is_there() -> None:
    [told] = [task["ansible.builtin.debug"]["msg"] for task in ASKING["tasks"] if "ansible.builtin.debug" in task]
    paths = re.findall(r"\b(?:docs|examples)/[\w/.]*\w", told)
    assert len(paths) == 2
    assert [path for path in paths if not (ROOT / path).exists()] == []
