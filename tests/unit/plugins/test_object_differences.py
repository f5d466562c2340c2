# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Differences of several objects that one task applied."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.slipway.inference.plugins.filter.object_differences import object_differences

DIFF = {"before": {"spec": {"replicas": 1}}, "after": {"spec": {"replicas": 2}}}


def applied(name: str, **result: Any) -> dict[str, Any]:
    return {"result": {"kind": "Deployment", "metadata": {"name": name, "namespace": "a"}}, **result}


def differences(*results: dict[str, Any]) -> dict[str, Any]:
    return object_differences({"changed": True, "result": {"results": list(results)}})


def test_only_changed_objects_are_returned() -> None:
    assert differences(applied("same", changed=False, diff={}), applied("other", changed=True, diff=DIFF)) == {
        "Deployment a/other": DIFF
    }


def test_an_object_that_changed_only_in_hidden_fields_is_left_out() -> None:
    hidden = {"before": {}, "after": {}}

    assert differences(applied("b", changed=True, diff=hidden), applied("c", changed=True, diff=DIFF)) == {
        "Deployment a/c": DIFF
    }


def test_objects_of_one_name_in_several_namespaces_are_all_returned() -> None:
    roles = [{"kind": "Role", "metadata": {"name": "tenant", "namespace": name}} for name in ("a", "b")]
    bound = {"kind": "ClusterRole", "metadata": {"name": "tenant"}}

    assert list(differences(*({"result": one, "changed": True, "diff": DIFF} for one in (*roles, bound)))) == [
        "Role a/tenant",
        "Role b/tenant",
        "ClusterRole tenant",
    ]


@pytest.mark.parametrize(
    "registered",
    [
        {"changed": False, "result": {"results": []}},
        {"changed": True, "result": {"results": [applied("without diff", changed=True)]}},
        {"changed": True, "failed": True, "msg": 'namespaces "later" not found'},
        {"changed": False, "skipped": True},
    ],
    ids=["no object", "without differences", "failed", "skipped"],
)
def test_a_result_without_differences_has_none(registered: dict[str, Any]) -> None:
    assert object_differences(registered) == {}


def test_a_single_object_is_compared_with_the_one_before() -> None:
    single = {**applied("settings"), "changed": True}
    before = {**single["result"], "data": {"a": "1"}}

    assert object_differences(single, [before]) == {
        "Deployment a/settings": {"before": {"data": {"a": "1"}}, "after": {}}
    }
    assert object_differences(single, [single["result"]]) == {}
    assert object_differences(single) == {"Deployment a/settings": {"before": {}, "after": single["result"]}}
