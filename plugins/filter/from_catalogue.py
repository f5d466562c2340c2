# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: from_catalogue
short_description: Return models of a catalogue by name
version_added: 0.2.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Converts names of models to entries for O(slipway.inference.model#module:models).
  - Unknown names are errors with suggestions.
  - The role P(slipway.inference.models#role) uses it.
positional: _input, catalogue
options:
  _input:
    description:
      - Names, or dictionaries with C(name) and any of C(namespace), C(labels), C(annotations) and C(spec).
      - C(spec) is merged into the spec in the catalogue. Dictionaries are merged, other values are replaced, and null
        removes a value.
    type: list
    elements: raw
    required: true
  catalogue:
    description: A dictionary with C(models), specs by name, and C(defaults) for every spec.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show a model of the catalogue
  ansible.builtin.debug:
    msg: "{{ ['qwen2-500m-cpu'] | slipway.inference.from_catalogue(catalogue) }}"
  vars:
    catalogue:
      defaults:
        minReplicas: 0
      models:
        qwen2-500m-cpu:
          url: ollama://qwen2:0.5b
          engine: OLlama
          features: [TextGeneration]
"""

RETURN = r"""
_value:
  description: The models, each with C(name), C(spec) and the other keys of its entry.
  type: list
  elements: dict
"""

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.plugin_utils._shapes import near, plain

ENTRY = ("name", "namespace", "labels", "annotations", "spec")


def from_catalogue(entries: Any, catalogue: Mapping[str, Any]) -> list[dict[str, Any]]:
    if not isinstance(entries, (list, tuple)):
        raise AnsibleFilterError(f"The names of models must be a list, not {entries!r}.")
    models = catalogue["models"]
    given = [entry if isinstance(entry, Mapping) else {"name": entry} for entry in entries]
    problems = [problem for number, entry in enumerate(given, 1) for problem in _problems(entry, number, models)]
    if problems:
        raise AnsibleFilterError("\n".join(problems))
    defaults = catalogue.get("defaults") or {}
    return [_model(entry, {**defaults, **models[entry["name"]]}) for entry in given]


def _problems(entry: Mapping[str, Any], number: int, models: Mapping[str, Any]) -> Iterable[str]:
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        yield f"Entry {number} for the catalogue has no name."
    elif name not in models:
        yield f"The catalogue has no model {name}. {near(name, models)}"
    for key in entry:
        if key not in ENTRY:
            yield f"{name}: the catalogue entry has no key {key}. {near(str(key), dict.fromkeys(ENTRY))}"
    if not isinstance(entry.get("spec") or {}, Mapping):
        yield f"{name}: spec must be a mapping."


def _model(entry: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    own = {key: plain(part) for key, part in entry.items() if key != "spec" and part is not None}
    return {**own, "spec": _laid_over(plain(entry.get("spec") or {}), plain(spec))}


def _laid_over(own: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, part in own.items():
        if part is None:
            result.pop(key, None)
        elif isinstance(part, dict):
            below = result.get(key)
            result[key] = _laid_over(part, below if isinstance(below, dict) else {})
        else:
            result[key] = part
    return result


class FilterModule:
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"from_catalogue": from_catalogue}
