# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From what a play says to manifests."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.slipway.inference.plugins.module_utils._apis import MODELS
from ansible_collections.slipway.inference.plugins.module_utils._errors import InferenceError
from ansible_collections.slipway.inference.plugins.module_utils._manifest import parse

SPEC = {"source": {"huggingface": "org/repo", "file": "f.gguf"}}
WHOLE = {
    "apiVersion": "krypton.ai/v1alpha1",
    "kind": "Model",
    "metadata": {"name": "a", "namespace": "models", "labels": {"team": "search"}},
    "spec": SPEC,
}


def only(item: dict[str, Any], namespace: str | None = None) -> dict[str, Any]:
    [model] = parse([([MODELS["krypton"]], item)], namespace, True)
    return model.manifest


def test_a_short_item_and_a_whole_manifest_mean_the_same() -> None:
    assert only({"name": "a", "labels": {"team": "search"}, "spec": SPEC}, "models") == WHOLE
    assert only({**WHOLE, "api_version": WHOLE["apiVersion"]}) == WHOLE


def test_server_managed_fields_are_not_sent() -> None:
    metadata = {
        **WHOLE["metadata"],  # type: ignore[dict-item]
        "uid": "u",
        "resourceVersion": "7",
        "generation": 2,
        "managedFields": [],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
    }
    assert only({**WHOLE, "metadata": metadata, "status": {"phase": "Ready"}}) == WHOLE


def test_the_item_s_own_namespace_wins() -> None:
    assert only({"name": "a", "namespace": "other", "spec": SPEC}, "models")["metadata"]["namespace"] == "other"


def test_labels_and_annotations_become_texts() -> None:
    manifest = only({"name": "a", "labels": {"n": 1, "b": True}, "annotations": {"x": "y"}, "spec": SPEC}, "models")
    assert manifest["metadata"]["labels"] == {"n": "1", "b": "true"}


def test_everything_that_is_wrong_is_reported_at_once() -> None:
    items = [
        {"name": "a", "spec": SPEC},
        {"name": "a", "spec": SPEC},
        {"name": "Big_Name", "spec": SPEC},
        {"spec": SPEC},
        {"name": "b", "namespace": "a/b"},
        {"name": "c", "kind": "Pod", "api_version": "v1", "spec": SPEC},
    ]
    with pytest.raises(InferenceError) as raised:
        parse([([MODELS["krypton"]], item) for item in items], "models", True)
    assert raised.value.code == "invalid_input"
    assert raised.value.message == (
        "Nothing was changed. models/a: it is listed twice.\n"
        "models/Big_Name: name must consist of lower case letters, digits, '-' and '.'.\n"
        "item 4: name is missing.\n"
        "a/b/b: namespace a/b must consist of lower case letters, digits and '-'.\n"
        "a/b/b: spec is missing.\n"
        "models/c: apiVersion is v1, not krypton.ai/v1alpha1.\n"
        "models/c: kind is Pod, not Model."
    )


def test_a_namespace_has_to_come_from_somewhere() -> None:
    with pytest.raises(InferenceError, match="a: namespace is missing: set it in the item or for the task"):
        only({"name": "a", "spec": SPEC})
