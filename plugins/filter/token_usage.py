# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: token_usage
short_description: Sum the tokens that gateways counted, by day, API key and model
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Converts results of Prometheus queries, or the metrics of gateway pods, to rows.
  - The playbook C(slipway.inference.usage) uses it.
options:
  _input:
    description:
      - For each day or pod a dictionary with C(day), a label for the row, and either C(samples) or C(text).
      - C(samples) is the C(result) of a Prometheus instant query. C(text) contains metrics in Prometheus' text format.
      - Estimated samples have the label C(counted) with the value C(estimated).
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the tokens of each API key according to a gateway pod
  ansible.builtin.debug:
    msg: "{{ [{'day': 'so far', 'text': metrics}] | slipway.inference.token_usage }}"
  vars:
    metrics: |-
      slipway_gateway_tokens_total{key="alice",kind="input",model="qwen",namespace="models"} 12.0
"""

RETURN = r"""
_value:
  description:
    - Rows sorted by C(day), C(key), C(namespace) and C(model).
    - Each row also has the numbers C(input), C(cached), C(output), C(reasoning) and C(estimated). The latter is
      included in input and output.
  type: list
  elements: dict
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from ansible.errors import AnsibleFilterError

COUNTED = "slipway_gateway_tokens_total"
ESTIMATED = "slipway_gateway_estimated_tokens_total"
NUMBERS = ("input", "cached", "output", "reasoning", "estimated")
LINE = re.compile(r"^(\w+)\{([^}]*)\} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"\\]*)"')

Sample = tuple[str, dict[str, str], float]


def token_usage(answers: Any) -> list[dict[str, Any]]:
    rows: dict[tuple[str, ...], dict[str, float]] = {}
    try:
        for answer in answers:
            for name, labels, value in _samples(answer):
                kind = "estimated" if name == ESTIMATED else labels.get("kind")
                if name not in (COUNTED, ESTIMATED) or kind not in NUMBERS:
                    continue
                row = (str(answer["day"]), *(labels.get(label, "") for label in ("key", "namespace", "model")))
                sums = rows.setdefault(row, dict.fromkeys(NUMBERS, 0.0))
                sums[kind] += value
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise AnsibleFilterError(f"This is not a Prometheus result or metrics text: {error!r}") from error
    return [
        {"day": day, "key": key, "namespace": namespace, "model": model, **_whole(sums)}
        for (day, key, namespace, model), sums in sorted(rows.items())
        if any(_whole(sums).values())
    ]


def _whole(sums: dict[str, float]) -> dict[str, int]:
    return {name: round(value) for name, value in sums.items()}


def _samples(answer: dict[str, Any]) -> Iterator[Sample]:
    if "text" in answer:
        for name, labels, value in LINE.findall(answer["text"]):
            yield name, dict(LABEL.findall(labels)), float(value)
    else:
        yield from _of_prometheus(answer["samples"])


def _of_prometheus(samples: Iterable[dict[str, Any]]) -> Iterator[Sample]:
    for sample in samples:
        labels = sample["metric"]
        yield ESTIMATED if labels.get("counted") == "estimated" else COUNTED, labels, float(sample["value"][1])


class FilterModule:
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"token_usage": token_usage}
