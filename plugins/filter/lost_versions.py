# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: lost_versions
short_description: Tell which stored versions of objects a new definition no longer has
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
- Compares definitions of the cluster with those of the same name that are to take their place.
- The role P(slipway.inference.preflight#role) uses it.
positional: _input, new
options:
  _input:
    description: CustomResourceDefinitions of the cluster.
    type: list
    elements: dict
    required: true
  new:
    description: Those that are to be applied.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: See that all objects can still be read
  ansible.builtin.assert:
    that: definitions.resources | slipway.inference.lost_versions(new) | length == 0
"""

RETURN = r"""
_value:
  description: By the name of a definition those versions in which objects may be stored, and which the new one lacks.
  type: dict
"""

from collections.abc import Iterable, Mapping
from typing import Any

Object = Mapping[str, Any]


def lost_versions(definitions: Iterable[Object], new: Iterable[Object]) -> dict[str, list[str]]:
    known = {one["metadata"]["name"]: {version["name"] for version in one["spec"]["versions"]} for one in new}
    stored = {one["metadata"]["name"]: (one.get("status") or {}).get("storedVersions") or [] for one in definitions}
    lost = {
        name: [one for one in versions if one not in known[name]] for name, versions in stored.items() if name in known
    }
    return {name: versions for name, versions in lost.items() if versions}


class FilterModule:
    """Registers the filter."""

    def filters(self) -> dict[str, Any]:
        return {"lost_versions": lost_versions}
