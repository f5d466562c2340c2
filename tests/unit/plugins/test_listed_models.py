# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Items are sorted by their APIs, however they tell them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.slipway.inference.plugins.filter.listed_models import listed_models

SETTINGS = {
    "apis": {
        "krypton": {"version": "krypton.ai/v1alpha1"},
        "llmkube": {"version": "inference.llmkube.dev/v1alpha1", "services": "inferenceservices"},
        "deckhouse": {"version": "ai.deckhouse.io/v1alpha1", "unserved": True},
    },
    "api": "krypton",
    "service_api": "llmkube",
    "namespace": "usual",
}
MODEL = {"apiVersion": "inference.llmkube.dev/v1alpha1", "kind": "Model", "metadata": {"name": "m", "namespace": "own"}}
SERVICE = MODEL | {"kind": "InferenceService"}


@pytest.mark.parametrize(
    ("models", "services", "api", "kind"),
    [
        ([{"name": "m"}], [], "krypton", "models"),
        ([{"name": "m", "api": "other"}], [], "other", "models"),
        ([{"name": "m", "api_version": "inference.llmkube.dev/v1alpha1"}], [], "llmkube", "models"),
        ([MODEL], [], "llmkube", "models"),
        ([SERVICE], [], "llmkube", "inference_services"),
        ([], [{"name": "s"}], "llmkube", "inference_services"),
        ([], [MODEL], "llmkube", "models"),
    ],
)
def test_an_item_goes_to_its_api_and_kind(models: list[Any], services: list[Any], api: str, kind: str) -> None:
    [item] = [{key: value for key, value in one.items() if key != "api"} for one in models + services]

    assert listed_models(models, services, SETTINGS)["apis"] == {
        api: {"models": [], "inference_services": []} | {kind: [item]}
    }


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"name": "m"}, ("usual", "", "")),
        ({"name": "m", "spec": None}, ("usual", "", "")),
        ({"name": "m", "namespace": "", "spec": {"source": {"huggingface": "a/b"}}}, ("usual", "", "")),
        ({"name": "m", "spec": {"source": "hf://a/b"}}, ("usual", "hf://a/b", "")),
        (
            {"name": "m", "namespace": "own", "spec": {"url": "pvc://claim/a?b"}},
            ("own", "pvc://claim/a?b", "own/claim"),
        ),
        (MODEL, ("own", "", "")),
    ],
)
def test_a_listed_item_has_its_namespace_source_and_claim(item: dict[str, Any], expected: tuple[str, str, str]) -> None:
    [one] = listed_models([item], [], SETTINGS)["objects"]

    assert (one["name"], one["model"]) == ("m", True)
    assert (one["namespace"], one["source"], one["claim"]) == expected


def test_the_gateway_lists_models_or_the_services_that_serve_them() -> None:
    mac = {"api": "llmkube", "name": "mac", "spec": {"hardware": {"accelerator": "metal"}}}
    services = [{"name": "chat", "spec": {"modelRef": "m"}}, {"name": "on-a-mac", "spec": {"modelRef": "mac"}}]

    artifact = {"api": "deckhouse", "name": "artifact"}

    listing = listed_models([{"name": "k"}, MODEL, mac, artifact], services, SETTINGS)

    assert [one["name"] for one in listing["objects"] if one["served"]] == ["k", "chat"]
