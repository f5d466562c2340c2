# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The wait language: conditions, fields, alternatives."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError
from ansible_collections.slipway.inference.plugins.module_utils._rules import describe, holds, parse

RESOURCE = {
    "metadata": {"annotations": {"example.org/stage": "gold"}},
    "status": {
        "phase": "Ready",
        "readyReplicas": 2,
        "live": True,
        "parts": [{"name": "a"}, {"name": "b"}],
        "conditions": [
            {"type": "Available", "status": "True", "reason": "Ready"},
            {"type": "Routed", "status": "False", "reason": "NameConflict"},
        ],
    },
}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"condition": "Available"}, True),
        ({"condition": "Available", "status": "False"}, False),
        ({"condition": "Available", "reason": ["Other", "Ready"]}, True),
        ({"condition": "Available", "reason": ["Other"]}, False),
        ({"condition": "Routed", "status": "False"}, True),
        ({"condition": "Unheard"}, False),
        ({"field": "status.phase"}, True),
        ({"field": "status.url"}, False),
        ({"field": "status.url", "exists": False}, True),
        ({"field": "status.phase", "exists": False}, False),
        ({"field": "status.phase", "equals": "Ready"}, True),
        ({"field": "status.readyReplicas", "equals": 2}, True),
        ({"field": "status.readyReplicas", "equals": "2"}, True),
        ({"field": "status.readyReplicas", "equals": 0}, False),
        ({"field": "status.live", "equals": True}, True),
        ({"field": "status.phase", "in": ["Pending", "Ready"]}, True),
        ({"field": "status.phase", "in": ["Pending"]}, False),
        ({"field": "status.phase", "matches": "^Rea"}, True),
        ({"field": "status.phase", "matches": "^ady"}, False),
        ({"field": "status.parts.1.name", "equals": "b"}, True),
        ({"field": "status.parts.7.name"}, False),
        ({"field": "metadata.annotations.example\\.org/stage", "equals": "gold"}, True),
        ({"any": [{"condition": "Routed"}, {"field": "status.phase", "equals": "Ready"}]}, True),
        ({"any": [{"condition": "Routed"}, {"field": "status.phase", "equals": "Failed"}]}, False),
    ],
)
def test_a_rule_holds_or_not(rule: dict[str, Any], expected: bool) -> None:
    assert holds(parse([rule]), RESOURCE) is expected


@pytest.mark.parametrize("test", [{"in": []}, {"matches": ""}])
def test_an_empty_test_is_an_error_of_the_input(test: dict[str, Any]) -> None:
    for rule in ({"field": "status.phase", **test}, {"any": [{"field": "status.phase", **test}]}):
        with pytest.raises(InferenceError) as raised:
            parse([rule])
        assert raised.value.code == "invalid_input"
        assert raised.value.message.endswith("of the field status.phase is empty.")


def test_all_entries_have_to_hold() -> None:
    rules = [{"condition": "Available"}, {"field": "status.phase", "equals": "Ready"}]
    assert holds(parse(rules), RESOURCE)
    assert not holds(parse([*rules, {"condition": "Routed"}]), RESOURCE)


def test_rules_are_reported_in_words() -> None:
    rule = parse([{"condition": "Routed"}, {"any": [{"field": "a.b", "in": [1, 2]}, {"field": "c", "exists": False}]}])
    assert describe(rule) == "condition Routed is True and a.b is 1 or 2 or c is not set"


def test_a_broken_regular_expression_is_an_error_of_the_input() -> None:
    with pytest.raises(InferenceError) as raised:
        parse([{"field": "a", "matches": "("}])
    assert raised.value.code == "invalid_input"
    assert "wait_for: matches is not a regular expression" in raised.value.message
