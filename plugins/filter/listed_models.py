# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: listed_models
short_description: Sort models and inference services by API
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - Groups the lists of the role P(slipway.inference.models#role) by API. The API of an item is the one that it names,
    the one of its manifest's C(apiVersion), or the default. Both lists can contain manifests of both kinds.
positional: _input, services, settings
options:
  _input:
    description: Models, by name and spec or as complete manifests.
    type: list
    elements: dict
    required: true
  services:
    description: Inference services.
    type: list
    elements: dict
    required: true
  settings:
    description: Properties of the APIs, and defaults.
    type: dict
    required: true
    suboptions:
      apis:
        description: For each API, the C(version) of its manifests, and C(services) if it has inference services.
        type: dict
        required: true
      api:
        description: Default API of models.
        type: str
        required: true
      service_api:
        description: Default API of inference services.
        type: str
        required: true
      namespace:
        description: Default namespace.
        type: str
        required: true
"""

EXAMPLES = r"""
- name: Show which APIs are needed
  ansible.builtin.debug:
    msg: "{{ (models | slipway.inference.listed_models([], settings)).apis | list }}"
  vars:
    models:
      - {name: tiny, spec: {source: {huggingface: slipway/tiny}}}
    settings: {api: krypton, service_api: llmkube, namespace: default, apis: {krypton: {version: krypton.ai/v1alpha1}}}
"""

RETURN = r"""
_value:
  description: The items by API.
  type: dict
  contains:
    apis:
      description: For each API, its C(models) and C(inference_services), without the name of the API.
      type: dict
    objects:
      description: >-
        All items in one list, each with C(api), C(name), C(namespace), the C(source) of its weights, the C(claim) with
        its weights as namespace/name, whether it is a C(model), and whether the gateway will list it (C(served)).
      type: list
      elements: dict
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

Item = Mapping[str, Any]
CLAIM = re.compile(r"pvc://([^/?]+)")


def listed_models(models: Iterable[Item], services: Iterable[Item], settings: Item) -> dict[str, Any]:
    """Return the items by API (``apis``), and a list of facts about each item (``objects``)."""
    apis: dict[str, dict[str, list[Item]]] = {}
    for option, usual, items in (
        ("models", settings["api"], models),
        ("inference_services", settings["service_api"], services),
    ):
        for item in items:
            kinds = apis.setdefault(_api(item, settings["apis"], usual), {"models": [], "inference_services": []})
            kinds[_place(item, option)].append({key: value for key, value in item.items() if key != "api"})
    return {"apis": apis, "objects": [one for api, kinds in apis.items() for one in _objects(api, kinds, settings)]}


def _api(item: Item, apis: Item, usual: str) -> str:
    version = item.get("apiVersion", item.get("api_version", ""))
    return str(
        item.get("api", next((api for api, definition in apis.items() if definition.get("version") == version), usual))
    )


def _place(item: Item, option: str) -> str:
    kind = item.get("kind", "")
    return "inference_services" if kind == "InferenceService" else "models" if kind else option


def _objects(api: str, kinds: Mapping[str, Iterable[Item]], settings: Item) -> Iterable[dict[str, Any]]:
    # Models of such an API are only weights. A model for a Mac is served outside the cluster.
    about = settings["apis"].get(api) or {}
    weights_only = "services" in about or about.get("unserved", False)
    macs = [_metadata(item).get("name") for item in kinds["models"] if _accelerator(item) == "metal"]
    for item in kinds["models"]:
        yield _known(item, settings) | {"api": api, "model": True, "served": not weights_only}
    for item in kinds["inference_services"]:
        served = (item.get("spec") or {}).get("modelRef", "") not in macs
        yield _known(item, settings) | {"api": api, "model": False, "served": served}


def _known(item: Item, settings: Item) -> dict[str, Any]:
    metadata, spec = _metadata(item), item.get("spec") or {}
    source = spec.get("url", spec.get("source", ""))
    source = source if isinstance(source, str) else ""
    namespace = metadata.get("namespace") or settings["namespace"]
    claim = CLAIM.match(source)
    return {
        "name": metadata.get("name", ""),
        "namespace": namespace,
        "source": source,
        "claim": f"{namespace}/{claim[1]}" if claim else "",
    }


def _metadata(item: Item) -> Item:
    """Return the metadata of an item. A manifest has the field ``metadata``; a short item is its own metadata."""
    metadata: Item = item.get("metadata", item)
    return metadata


def _accelerator(item: Item) -> str:
    return str(((item.get("spec") or {}).get("hardware") or {}).get("accelerator", ""))


class FilterModule:
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"listed_models": listed_models}
