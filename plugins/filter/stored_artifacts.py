# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: stored_artifacts
short_description: Count models by their phase, and add up what their artifacts take of a registry's claim
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Reads the status of models that are published as artifacts, and the claim that the registry stores them on.
  - The role P(slipway.inference.status#role) uses it.
positional: _input, claim
options:
  _input:
    description: Models as the API server has them.
    type: list
    elements: dict
    required: true
  claim:
    description: The registry's PersistentVolumeClaim; empty where there is none, or it may not be read.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Show how full the registry's claim is
  ansible.builtin.debug:
    msg: "{{ stored.used_percent }} percent of {{ stored.claim }}"
  vars:
    stored: "{{ models.resources | slipway.inference.stored_artifacts(claims.resources | first) }}"
"""

RETURN = r"""
_value:
  description: What is stored.
  type: dict
  contains:
    phases:
      description: How many models there are by phase. A model without one is C(Pending).
      type: dict
    bytes:
      description: >-
        What the artifacts of all models that are published have together, by their status. Artifacts of deleted models
        take space until the registry's next collection, and do not count here.
      type: int
    claim:
      description: Name of the claim; empty where it is not known.
      type: str
    capacity_bytes:
      description: What the claim has, or asks for while it is not bound; 0 where it is not known.
      type: int
    used_percent:
      description: How much of the claim they take; empty where that is not known.
      type: raw
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.slipway.inference.plugins.plugin_utils._quantity import whole

Object = Mapping[str, Any]


def stored_artifacts(models: Iterable[Object], claim: Object | None = None) -> dict[str, Any]:
    statuses = [model.get("status") or {} for model in models]
    stored = sum(whole((status.get("artifact") or {}).get("sizeBytes", 0)) for status in statuses)
    capacity = _capacity(claim or {})
    return {
        "phases": dict(Counter(str(status.get("phase") or "Pending") for status in statuses)),
        "bytes": stored,
        "claim": ((claim or {}).get("metadata") or {}).get("name", ""),
        "capacity_bytes": capacity,
        "used_percent": stored * 100 // capacity if capacity else "",
    }


def _capacity(claim: Object) -> int:
    bound = ((claim.get("status") or {}).get("capacity") or {}).get("storage")
    asked = (((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}).get("storage")
    return whole(bound or asked or "0")


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Any]:
        return {"stored_artifacts": stored_artifacts}
