# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Shapes are filled from items by paths."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.slipway.inference.plugins.filter.shaped import shaped

POD: dict[str, Any] = {
    "kind": "Pod",
    "metadata": {"name": "one", "labels": {"app.kubernetes.io/name": "web"}},
    "spec": {"containers": [{"image": "first"}, {"image": "last"}], "priority": 0},
}


@pytest.mark.parametrize(
    ("shape", "created"),
    [
        ("{metadata.name}", "one"),
        ("{spec.priority}", 0),
        ("{spec.containers}", POD["spec"]["containers"]),
        ("{.}", POD),
        ("{spec.containers.-1.image}", "last"),
        ("{metadata.labels[app.kubernetes.io/name]}", "web"),
        ("{kind} {metadata.namespace}/{metadata.name}", "Pod /one"),
        ({"name": "{metadata.name}", "namespace": "{metadata.namespace}", "is": True}, {"name": "one", "is": True}),
        (["{kind}", "{metadata.namespace}", "{metadata.name}"], ["Pod", "one"]),
        ({"metadata": {"name": "{metadata.name}-2"}}, {"metadata": {"name": "one-2"}}),
        ("no path", "no path"),
    ],
)
def test_a_shape_is_filled(shape: Any, created: Any) -> None:
    assert shaped([POD], shape) == [created]


@pytest.mark.parametrize(
    "path", ["{metadata.namespace}", "{spec.containers.2}", "{kind.name}", "{spec.containers.name}"]
)
def test_items_that_lack_it_are_left_out(path: str) -> None:
    assert shaped([POD, {}], path) == []


def test_a_default_stands_where_an_item_has_nothing() -> None:
    shape = {"name": "{metadata.name}", "ready": "{status.ready}"}

    assert shaped([POD], shape, {"ready": 0}) == [{"name": "one", "ready": 0}]
    assert shaped([POD | {"status": {"ready": 3}}], shape, {"ready": 0}) == [{"name": "one", "ready": 3}]


def test_pairs_are_read_by_number() -> None:
    assert shaped([("a", "b")], {"api": "{0}", "namespace": "{1}"}) == [{"api": "a", "namespace": "b"}]
