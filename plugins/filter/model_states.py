# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: model_states
short_description: Tell of each model and inference service what a report says of it
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
- Reads what M(slipway.inference.model_info) and M(slipway.inference.inference_service_info) return. One that sleeps is
  ready, and has no replica until it is asked.
- The role P(slipway.inference.status#role) uses it.
positional: _input, weights
options:
  _input:
    description: Results of these modules, each with the API as C(item).
    type: list
    elements: dict
    required: true
  weights:
    description: APIs whose models serve nothing, since inference services or workloads of others do.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Show which models sleep
  ansible.builtin.debug:
    msg: "{{ read.results | slipway.inference.model_states | selectattr('asleep') | map(attribute='name') }}"
"""

RETURN = r"""
_value:
  description:
    - For each C(api), C(kind), C(namespace), C(name), C(ready), C(asleep), C(phase), C(url), C(reason), C(message) and
      C(weights_only).
  type: list
  elements: dict
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

Object = Mapping[str, Any]
TOLD = ("kind", "namespace", "name", "ready", "phase", "url", "reason", "message")


def model_states(results: Iterable[Object], weights: Collection[str] = ()) -> list[dict[str, Any]]:
    return [
        _state(read["item"], model, weights_only="models" in read and read["item"] in weights)
        for read in results
        for model in _models(read)
    ]


def _models(read: Object) -> list[Object]:
    return read["models"] if "models" in read else read.get("inference_services", [])


def _state(api: str, model: Object, *, weights_only: bool) -> dict[str, Any]:
    available = next((one for one in model["conditions"] if one["type"] == "Available"), {})
    return {
        "api": api,
        **{key: model[key] for key in TOLD},
        "asleep": available.get("reason") == "ScaledToZero",
        "weights_only": weights_only,
    }


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Any]:
        return {"model_states": model_states}
