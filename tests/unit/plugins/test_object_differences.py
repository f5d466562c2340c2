# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a task changed on several objects can be shown."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.slipway.inference.plugins.filter.object_differences import object_differences

DIFF = {"before": {"spec": {"replicas": 1}}, "after": {"spec": {"replicas": 2}}}


def applied(name: str, **result: Any) -> dict[str, Any]:
    return {"result": {"kind": "Deployment", "metadata": {"name": name}}, **result}


def test_changed_objects_are_shown_and_others_are_not() -> None:
    results = [applied("same", changed=False, diff={}), applied("other", changed=True, diff=DIFF)]

    assert object_differences({"changed": True, "result": {"results": results}}) == {"Deployment other": DIFF}


def test_an_object_that_changed_only_in_hidden_fields_is_not_shown() -> None:
    noise = {"before": {}, "after": {}}
    results = [applied("noise", changed=True, diff=noise), applied("other", changed=True, diff=DIFF)]

    assert object_differences({"changed": True, "result": {"results": results}}) == {"Deployment other": DIFF}


@pytest.mark.parametrize(
    "registered",
    [
        {"changed": True, "diff": DIFF, "result": {"kind": "Deployment", "metadata": {"name": "alone"}}},
        {"changed": True, "result": {"results": [applied("without --diff", changed=True)]}},
        {"changed": True, "failed": True, "msg": 'namespaces "later" not found'},
    ],
    ids=["a single object", "without differences", "a failure"],
)
def test_where_there_is_nothing_to_add_nothing_is_shown(registered: dict[str, Any]) -> None:
    assert object_differences(registered) == {}
