# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter from_catalogue: models by name."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.filter.from_catalogue import from_catalogue

CATALOGUE: dict[str, Any] = {
    "defaults": {"minReplicas": 0},
    "models": {
        "qwen2.5-7b-cpu": {"url": "ollama://qwen2.5:7b", "engine": "OLlama"},
        "qwen2.5-7b-instruct-l4": {"url": "hf://Qwen/7B", "args": ["-a", "-b"], "env": {"A": "1", "B": "2"}},
        "always": {"url": "hf://a/b", "minReplicas": 1},
    },
}


def problems(*entries: Any) -> list[str]:
    with pytest.raises(AnsibleFilterError) as caught:
        from_catalogue(list(entries), CATALOGUE)
    return str(caught.value.args[0]).splitlines()


def test_a_name_becomes_a_model_with_the_defaults_of_all() -> None:
    assert from_catalogue(["qwen2.5-7b-cpu", "always"], CATALOGUE) == [
        {
            "name": "qwen2.5-7b-cpu",
            "spec": {"minReplicas": 0, "url": "ollama://qwen2.5:7b", "engine": "OLlama"},
        },
        {"name": "always", "spec": {"minReplicas": 1, "url": "hf://a/b"}},
    ]


def test_an_entry_is_laid_over_what_the_catalogue_says() -> None:
    entry = {
        "name": "qwen2.5-7b-instruct-l4",
        "namespace": "search",
        "labels": {"tenancy": "public"},
        "annotations": None,
        "spec": {"args": ["-c"], "env": {"A": None, "C": "3"}, "minReplicas": 2, "loadBalancing": {"strategy": "x"}},
    }
    assert from_catalogue([entry], CATALOGUE) == [
        {
            "name": "qwen2.5-7b-instruct-l4",
            "namespace": "search",
            "labels": {"tenancy": "public"},
            "spec": {
                "minReplicas": 2,
                "url": "hf://Qwen/7B",
                "args": ["-c"],
                "env": {"B": "2", "C": "3"},
                "loadBalancing": {"strategy": "x"},
            },
        }
    ]
    assert CATALOGUE["models"]["qwen2.5-7b-instruct-l4"]["env"] == {"A": "1", "B": "2"}


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (
            "qwen2.5-7b",
            "The catalogue has no model qwen2.5-7b. Did you mean qwen2.5-7b-cpu or qwen2.5-7b-instruct-l4?",
        ),
        ("zzz", "The catalogue has no model zzz. There are always, qwen2.5-7b-cpu, qwen2.5-7b-instruct-l4."),
        ({"spec": {}}, "Entry 1 for the catalogue has no name."),
        (7, "Entry 1 for the catalogue has no name."),
        (
            {"name": "always", "specs": {}},
            "always: the catalogue entry has no key specs. Did you mean spec?",
        ),
        ({"name": "always", "spec": "hf://x/y"}, "always: spec must be a mapping."),
    ],
)
def test_a_wrong_entry_is_reported(entry: Any, problem: str) -> None:
    assert problems(entry) == [problem]


def test_all_wrong_entries_are_reported_at_once() -> None:
    assert len(problems("a", "always", "b")) == 2


def test_a_value_that_is_not_a_list_is_reported() -> None:
    with pytest.raises(AnsibleFilterError, match="must be a list, not 'always'"):
        from_catalogue("always", CATALOGUE)


def test_only_a_few_names_are_listed() -> None:
    many = {"models": {f"model-{number:02}": {} for number in range(40)}}
    with pytest.raises(AnsibleFilterError, match="model-11 and 28 more"):
        from_catalogue(["zzz"], many)
