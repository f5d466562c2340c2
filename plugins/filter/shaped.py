# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: shaped
short_description: Fill a template with the values of each item of a list
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Fills a shape once for each item. A string in the shape that consists of a path in braces is replaced by the item's
    value of any type. In a longer string, paths are replaced by text. Other values do not change.
  - A path consists of keys separated by dots. Keys that contain dots are in brackets, such as
    C({metadata.labels[app.kubernetes.io/name]}). Numbers index lists, V(-1) is the last element. C({.}) is the item
    itself.
  - Missing values are omitted from dictionaries and lists, and empty in longer strings. Items without any of the values
    are omitted from the result.
positional: _input, shape, defaults
options:
  _input:
    description: The items, such as Kubernetes objects.
    type: list
    elements: raw
    required: true
  shape:
    description: Template for each item.
    type: raw
    required: true
  defaults:
    description: If the shape is a dictionary, default values for its keys.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Show each pod with its node
  ansible.builtin.debug:
    msg: "{{ pods.resources | slipway.inference.shaped('{metadata.namespace}/{metadata.name} on {spec.nodeName}') }}"

- name: Show how many replicas of each Deployment are ready
  ansible.builtin.debug:
    msg: "{{ deployments.resources | slipway.inference.shaped(shape, {'ready': 0}) }}"
  vars:
    shape:
      name: "{metadata.name}"
      ready: "{status.readyReplicas}"
"""

RETURN = r"""
_value:
  description: The filled shapes, in the order of the items.
  type: list
  elements: raw
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

BRACED = re.compile(r"\{([^{}]+)\}")
KEY = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")
_NOTHING = object()


def shaped(items: Iterable[Any], shape: Any, defaults: Mapping[str, Any] | None = None) -> list[Any]:
    """Return ``shape`` filled with the values of each item. ``defaults`` are values for keys of a mapping that an item
    does not fill."""
    shapes = [_filled(shape, item) for item in items]
    if defaults:
        return [{**defaults, **one} for one in shapes]
    return [one for one in shapes if one is not _NOTHING]


def _filled(shape: Any, item: Any) -> Any:
    if isinstance(shape, Mapping):
        values = {key: _filled(part, item) for key, part in shape.items()}
        return {key: value for key, value in values.items() if value is not _NOTHING}
    if isinstance(shape, (list, tuple)):
        return [value for value in (_filled(part, item) for part in shape) if value is not _NOTHING]
    if not isinstance(shape, str):
        return shape
    alone = BRACED.fullmatch(shape)
    return _at(item, alone[1]) if alone else BRACED.sub(lambda path: _text(_at(item, path[1])), shape)


def _at(item: Any, path: str) -> Any:
    for bracketed, plain in KEY.findall(path):
        key = bracketed or plain
        if isinstance(item, Mapping) and key in item:
            item = item[key]
        elif isinstance(item, (list, tuple)) and key.lstrip("-").isdecimal() and -len(item) <= int(key) < len(item):
            item = item[int(key)]
        else:
            return _NOTHING
    return item


def _text(value: Any) -> str:
    return "" if value is _NOTHING or value is None else str(value)


class FilterModule:
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"shaped": shaped}
