# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tokens by day, key and model, of what gateways and Prometheus say."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.filter.token_usage import token_usage

LABELS = 'model="q",namespace="m"'
TEXT = f"""slipway_gateway_tokens_total{{key="alice",kind="input",{LABELS}}} 12.0
slipway_gateway_tokens_total{{key="alice",kind="output",{LABELS}}} 3.0
slipway_gateway_estimated_tokens_total{{key="alice",kind="input",{LABELS}}} 2.0
slipway_gateway_estimated_tokens_total{{key="alice",kind="output",{LABELS}}} 1.0
slipway_gateway_tokens_total{{key="idle",kind="input",{LABELS}}} 0.0
slipway_gateway_requests_total{{code="2xx",{LABELS}}} 99.0
"""
NONE = {"cached": 0, "reasoning": 0}


def sample(value: str, **labels: str) -> dict[str, Any]:
    return {"metric": {"key": "bob", "namespace": "m", "model": "q", **labels}, "value": [1.5, value]}


def test_pods_are_summed_and_keys_that_used_nothing_left_out() -> None:
    rows = token_usage([{"day": "so far", "text": TEXT}, {"day": "so far", "text": TEXT}])
    named = {"day": "so far", "key": "alice", "namespace": "m", "model": "q"}
    assert rows == [{**named, "input": 24, "output": 6, "estimated": 6, **NONE}]


def test_days_of_prometheus_are_rows_in_their_order() -> None:
    days = [
        {"day": "2026-02-02", "samples": [sample("7.4", kind="output", counted="all")]},
        {
            "day": "2026-02-01",
            "samples": [sample("5", kind="input", counted="all"), sample("4", kind="input", counted="estimated")],
        },
    ]
    named = {"key": "bob", "namespace": "m", "model": "q"}
    assert token_usage(days) == [
        {"day": "2026-02-01", **named, "input": 5, "output": 0, "estimated": 4, **NONE},
        {"day": "2026-02-02", **named, "input": 0, "output": 7, "estimated": 0, **NONE},
    ]


@pytest.mark.parametrize("nonsense", [5, ["text"], [{"day": "d"}], [{"day": "d", "samples": [{"metric": {}}]}]])
def test_nonsense_is_an_error_of_ansible(nonsense: Any) -> None:
    with pytest.raises(AnsibleFilterError, match="not a Prometheus result"):
        token_usage(nonsense)
