# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which fields are ours, and what changes of them."""

from __future__ import annotations

from typing import Any

from ansible_collections.slipway.inference.plugins.module_utils._diff import compare, drift, project, unchanged, union

MANAGER, VERSION = "slipway.inference", "krypton.ai/v1alpha1"


def live(spec: dict[str, Any], owned: dict[str, Any] | None, **metadata: Any) -> dict[str, Any]:
    entries = (
        [] if owned is None else [{"manager": MANAGER, "operation": "Apply", "apiVersion": VERSION, "fieldsV1": owned}]
    )
    status = {
        "manager": MANAGER,
        "operation": "Apply",
        "apiVersion": VERSION,
        "subresource": "status",
        "fieldsV1": {"f:status": {}},
    }
    return {
        "metadata": {"name": "a", **metadata, "managedFields": [status, *entries]},
        "spec": spec,
        "status": {"phase": "Ready"},
    }


def manifest(spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": VERSION,
        "kind": "Model",
        "metadata": {"name": "a", "namespace": "m", **metadata},
        "spec": spec,
    }


def test_leaves_name_all_below_them() -> None:
    assert project({"a": {"b": 1}, "c": 2}, {"f:a": {}}) == {"a": {"b": 1}}


def test_items_of_lists_are_named_by_key_or_value() -> None:
    value = {"ports": [{"name": "http", "port": 1, "extra": 2}, {"name": "other"}], "set": ["x", "y"]}
    fields = {"f:ports": {'k:{"name":"http"}': {".": {}, "f:name": {}, "f:port": {}}}, "f:set": {'v:"y"': {}}}
    assert project(value, fields) == {"ports": [{"name": "http", "port": 1}], "set": ["y"]}


def test_a_whole_swallows_its_parts() -> None:
    assert union({"f:a": {"f:b": {}}}, {"f:a": {}}) == {"f:a": {}}
    assert union({"f:a": {"f:b": {}}}, {"f:a": {"f:c": {}}}) == {"f:a": {"f:b": {}, "f:c": {}}}


def test_an_object_that_is_as_wanted_need_not_be_sent() -> None:
    owned = {"f:metadata": {"f:labels": {"f:team": {}}}, "f:spec": {"f:port": {}, "f:args": {}}}
    there = live({"port": 1, "args": ["x"], "minReplicas": 1}, owned, labels={"team": "s", "other": "o"})
    assert unchanged(there, manifest({"port": 1, "args": ["x"]}, labels={"team": "s"}), MANAGER)
    assert not unchanged(there, manifest({"port": 2, "args": ["x"]}, labels={"team": "s"}), MANAGER)
    assert not unchanged(there, manifest({"port": 1}, labels={"team": "s"}), MANAGER)
    assert not unchanged(there, manifest({"port": 1, "args": ["x"]}), MANAGER)
    assert not unchanged(None, manifest({"port": 1}), MANAGER)
    assert not unchanged(live({"port": 1}, None), manifest({"port": 1}), MANAGER)


def test_only_owned_fields_are_compared() -> None:
    before = live({"port": 1, "image": "by-another"}, {"f:spec": {"f:port": {}}})
    after = live({"port": 2, "image": "by-another"}, {"f:spec": {"f:port": {}}})
    assert compare(before, after, MANAGER, VERSION) == ({"spec": {"port": 1}}, {"spec": {"port": 2}})


def test_a_field_that_is_given_up_shows_as_gone() -> None:
    before = live({"port": 9, "args": ["x"]}, {"f:spec": {"f:port": {}, "f:args": {}}})
    after = live({"port": 8080, "args": ["x"]}, {"f:spec": {"f:args": {}}})
    assert compare(before, after, MANAGER, VERSION) == ({"spec": {"args": ["x"], "port": 9}}, {"spec": {"args": ["x"]}})


def test_taking_over_what_another_has_set_alike_is_no_change() -> None:
    before = live({"port": 1}, None)
    after = live({"port": 1}, {"f:spec": {"f:port": {}}})
    was, now = compare(before, after, MANAGER, VERSION)
    assert was == now


def test_a_new_object_shows_what_is_set() -> None:
    after = live({"port": 1, "minReplicas": 1}, {"f:spec": {"f:port": {}}})
    assert compare(None, after, MANAGER, VERSION) == ({}, {"spec": {"port": 1}})


def test_drift_finds_items_of_lists_by_their_keys() -> None:
    there = live({"ports": [{"name": "other", "port": 9}, {"name": "http", "port": 2}]}, None)
    fields = {"f:spec": {"f:ports": {'k:{"name":"http"}': {".": {}, "f:name": {}, "f:port": {}}}}}
    there["metadata"]["managedFields"].append({"manager": "helm", "operation": "Update", "fieldsV1": fields})
    changes = drift(there, manifest({"ports": [{"name": "http", "port": 1}]}), MANAGER)
    assert changes == [{"path": '.spec.ports[name="http"].port', "ours": 1, "theirs": 2, "manager": "helm"}]


def test_drift_names_the_latest_field_manager() -> None:
    there = live({"port": 2}, None)
    there["metadata"]["managedFields"] += [
        {"manager": manager, "operation": "Update", "time": time, "fieldsV1": {"f:spec": {"f:port": {}}}}
        for manager, time in (("late", "2026-01-02T00:00:00Z"), ("early", "2026-01-01T00:00:00Z"))
    ]
    assert [one["manager"] for one in drift(there, manifest({"port": 1}), MANAGER)] == ["late"]


def test_a_field_of_another_manager_with_the_same_value_is_no_drift() -> None:
    there = live({"port": 1, "extra": 5}, None)
    fields = {"f:spec": {".": {}, "f:port": {}, "f:extra": {}}}
    there["metadata"]["managedFields"].append({"manager": "helm", "operation": "Apply", "fieldsV1": fields})
    assert drift(there, manifest({"port": 1}), MANAGER) == []
    assert drift(None, manifest({"port": 1}), MANAGER) == []
