# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rights of API keys that a gateway would reject."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.slipway.inference.plugins.filter.faulty_key_rights import FilterModule

faulty_key_rights = FilterModule().filters()["faulty_key_rights"]

NUMBER = "is not a whole number from 1 to 1000000000."
IDS = "is not a list of IDs of at most 253 characters."
TIME = 'is not a time in quotes, such as "2030-01-31T00:00:00Z".'


@pytest.mark.parametrize(
    "rights",
    [
        {},
        {"owner": "ml", "models": ["qwen", "team/*"], "selector": "team=a"},
        {"ends": "2030-01-31T00:00:00+02:00"},
        {"ends": "2030-01-31T00:00:00Z", "requestsAtOnce": 1, "requestsPerMinute": 1_000_000_000},
    ],
)
def test_rights_that_a_gateway_accepts_have_no_fault(rights: dict[str, Any]) -> None:
    assert faulty_key_rights({"alice": rights}, ["alice"]) == []


@pytest.mark.parametrize(
    ("rights", "fault"),
    [
        ({"requestPerMinute": 5}, ".requestPerMinute: unknown option. Use requestsPerMinute."),
        ({"requestsPerMinute": 0}, f".requestsPerMinute: 0 {NUMBER}"),
        ({"requestsPerMinute": True}, f".requestsPerMinute: true {NUMBER}"),
        ({"requestsAtOnce": "5"}, f'.requestsAtOnce: "5" {NUMBER}'),
        ({"tokensPerMinute": 5}, ".tokensPerMinute: the gateway counts no tokens. Set gateway_count_tokens."),
        ({"models": "qwen"}, f'.models: "qwen" {IDS}'),
        ({"models": [1]}, f".models: [1] {IDS}"),
        ({"owner": 5}, ".owner: 5 is not a text of at most 253 characters."),
        ({"selector": ["a"]}, '.selector: ["a"] is not a text of at most 1024 characters.'),
        ({"ends": "tomorrow"}, f'.ends: "tomorrow" {TIME}'),
        ({"ends": "2030-02-30T00:00:00Z"}, f'.ends: "2030-02-30T00:00:00Z" {TIME}'),
        (["qwen"], ': ["qwen"] is not a mapping.'),
    ],
)
def test_a_fault_names_key_option_and_value(rights: Any, fault: str) -> None:
    assert faulty_key_rights({"alice": rights}, ["alice"], count_tokens=False) == [f"alice{fault}"]


def test_an_option_like_no_other_lists_the_known_ones() -> None:
    (fault,) = faulty_key_rights({"alice": {"x": 1}}, ["alice"])
    assert fault.startswith("alice.x: unknown option. Use owner, models, selector, ends, requestsPerMinute,")


def test_a_long_value_is_cut() -> None:
    (fault,) = faulty_key_rights({"alice": {"selector": "a" * 5000}}, ["alice"])
    assert json.dumps("a" * 99)[:-1] in fault
    assert len(fault) < 200


@pytest.mark.parametrize("name", ["jwt:*", "jwt:alice@example.org", "jwt:repo:org/repo:ref:refs/heads/main"])
def test_subjects_have_rights_if_the_gateway_accepts_tokens(name: str) -> None:
    assert faulty_key_rights({name: {}}, [], accepts_tokens=True) == []
    assert faulty_key_rights({name: {}}, []) == [f"{name}: the gateway accepts no tokens. Set gateway_jwt."]


@pytest.mark.parametrize("name", ["jwt:", "jwt:a b", "jwt:a*", "jwt:a\n", "jwt:" + "a" * 201])
def test_an_invalid_subject_is_a_fault(name: str) -> None:
    (fault,) = faulty_key_rights({name: {}}, [], accepts_tokens=True)
    assert fault == f"{name}: not a valid subject. Use 1 to 200 of A-Za-z0-9._:/@|+=~,- or jwt:*."


def test_a_key_that_does_not_exist_is_a_fault() -> None:
    assert faulty_key_rights({"bob": {}}, ["alice"]) == ["bob: no such key in gateway_api_keys."]


def test_a_name_that_yaml_reads_as_a_number_is_a_name() -> None:
    assert faulty_key_rights({1: {}}, [1]) == []
    assert faulty_key_rights({1: {}}, ["alice"]) == ["1: no such key in gateway_api_keys."]
