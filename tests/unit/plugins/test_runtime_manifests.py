# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names and short items become manifests of runtimes."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.filter.runtime_manifests import runtime_manifests

KNOWN = {"kind": "ClusterServingRuntime", "metadata": {"name": "known"}, "spec": {"disabled": False}}


@pytest.mark.parametrize(
    ("given", "kind", "metadata"),
    [
        ("known", "ClusterServingRuntime", {"name": "known"}),
        ({"name": "short", "labels": {"a": "b"}}, "ClusterServingRuntime", {"name": "short", "labels": {"a": "b"}}),
        ({"name": "short", "namespace": "chat"}, "ServingRuntime", {"name": "short", "namespace": "chat"}),
        ({"kind": "ServingRuntime", "metadata": {"name": "m"}}, "ServingRuntime", {"name": "m", "namespace": "usual"}),
    ],
)
def test_each_becomes_a_manifest(given: Any, kind: str, metadata: dict[str, Any]) -> None:
    [manifest] = runtime_manifests([given], [KNOWN], "usual")

    assert manifest == {
        "apiVersion": "ome.io/v1beta1",
        "kind": kind,
        "metadata": metadata,
        "spec": KNOWN["spec"] if given == "known" else {},
    }


def test_a_name_that_is_not_known_is_named() -> None:
    with pytest.raises(AnsibleFilterError, match="Unknown runtime other"):
        runtime_manifests(["other"], [KNOWN], "usual")
