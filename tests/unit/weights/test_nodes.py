"""Selects nodes like the scheduler, and parses a node's records of its weights."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.weights import nodes
from slipway.weights.nodes import RECORDS, Node, Record, placement

PREFIX = "models.example/"
LABELS = {"zone": "a", "gpus": "8", "pool": ""}


def node(name: str = "one", boot: str = "b1", records: dict[str, str] | None = None, **labels: str) -> Node:
    return Node(name=name, uid=f"uid-{name}", boot=boot, ready=True, labels=LABELS | labels, records=records or {})


def required(*terms: Any) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}


def term(*conditions: tuple[str, str, list[str]]) -> dict[str, Any]:
    expressions = [
        {"key": key, "operator": operator} | ({"values": values} if values else {})
        for key, operator, values in conditions
    ]
    return {"matchExpressions": expressions}


def named(name: str, operator: str = "In") -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]}


@pytest.mark.parametrize(
    ("selector", "affinity", "admitted"),
    [
        ({}, None, True),
        ({}, {}, True),
        ({"zone": "a"}, None, True),
        ({"zone": "b"}, None, False),
        ({"zone": "a", "rack": "1"}, None, False),
        ({}, required(term(("zone", "In", ["a", "b"]))), True),
        ({}, required(term(("zone", "In", ["b"]))), False),
        ({}, required(term(("rack", "In", ["1"]))), False),
        ({}, required(term(("zone", "NotIn", ["b"]))), True),
        ({}, required(term(("zone", "NotIn", ["a"]))), False),
        # The original's agent does not let these pass; the scheduler does.
        ({}, required(term(("rack", "NotIn", ["1"]))), True),
        ({}, required(term(("pool", "Exists", []))), True),
        ({}, required(term(("rack", "Exists", []))), False),
        ({}, required(term(("rack", "DoesNotExist", []))), True),
        ({}, required(term(("zone", "DoesNotExist", []))), False),
        ({}, required(term(("gpus", "Gt", ["4"]))), True),
        ({}, required(term(("gpus", "Gt", ["8"]))), False),
        ({}, required(term(("gpus", "Lt", ["9"]))), True),
        ({}, required(term(("rack", "Lt", ["9"]))), False),
        ({}, required(term(("zone", "Gt", ["4"]))), False),
        ({}, required(term(("zone", "In", ["b"])), term(("gpus", "Exists", []))), True),
        ({}, required(term(("zone", "In", ["a"]), ("gpus", "Gt", ["8"]))), False),
        ({"zone": "b"}, required(term(("gpus", "Exists", []))), False),
        ({}, required({}), False),
        ({}, required(), False),
        ({}, required({}, term(("gpus", "Exists", []))), True),
        ({}, required(named("one")), True),
        ({}, required(named("other")), False),
        ({}, required(named("other", "NotIn")), True),
        ({}, required({**named("one"), **term(("zone", "In", ["b"]))}), False),
        ({}, {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": named("other")}]}, True),
    ],
)
def test_a_node_is_meant_where_a_pod_that_asks_so_could_run(selector: Any, affinity: Any, admitted: bool) -> None:
    assert placement(selector, affinity).admits(node()) == admitted


@pytest.mark.parametrize(
    ("affinity", "complaint"),
    [
        (required(term(("zone", "Is", ["a"]))), "the operator Is of zone"),
        (required(term(("zone", "In", []))), "In of zone needs values"),
        (required(term(("zone", "Exists", ["a"]))), "Exists of zone takes no values"),
        (required(term(("gpus", "Gt", ["1", "2"]))), "one whole number"),
        (required(term(("gpus", "Lt", ["many"]))), "one whole number"),
        (required({"matchFields": [{"key": "spec.x", "operator": "In", "values": ["a"]}]}), "matchFields takes"),
        (required(named("one", "Exists")), "matchFields takes"),
        ({"requiredDuringSchedulingIgnoredDuringExecution": {}}, "nodeSelectorTerms"),
        (required({"matchExpressions": "x"}), "array"),
    ],
)
def test_invalid_affinities_are_rejected(affinity: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        placement({}, affinity)


def test_a_pinned_job_runs_on_its_node_alone_and_says_which() -> None:
    affinity = nodes.pinned("one")
    job = {"spec": {"template": {"spec": {"affinity": affinity}}}}
    assert nodes.node_of(job) == "one"
    rule = placement({}, affinity["nodeAffinity"])
    assert [rule.admits(node(name)) for name in ("one", "two")] == [True, False]


@pytest.mark.parametrize("job", [{}, {"spec": {"template": {"spec": {"affinity": None}}}}])
def test_a_job_that_may_run_anywhere_has_no_node(job: Any) -> None:
    assert nodes.node_of(job) == ""


def seen(**changes: Any) -> dict[str, Any]:
    """A node as the API server sends it."""
    ready = {"type": "Ready", "status": changes.get("ready", "True"), "lastHeartbeatTime": changes.get("beat", "1")}
    metadata = {"name": "one", "uid": changes.get("uid", "u"), "resourceVersion": changes.get("beat", "1")}
    metadata |= {"labels": changes.get("labels", LABELS), "annotations": {"other": "x", **changes.get("records", {})}}
    status = {"conditions": [ready], "nodeInfo": {"bootID": changes.get("boot", "b1")}, "images": ["x"] * 50}
    return nodes.trim_node({"metadata": metadata, "status": status})


def test_only_relevant_fields_of_a_node_are_kept() -> None:
    kept = seen(records={f"{RECORDS}m": "{}"})
    assert kept == {
        "kind": "Node",
        "metadata": {
            "name": "one",
            "uid": "u",
            "resourceVersion": "1",
            "labels": LABELS,
            "annotations": {f"{RECORDS}m": "{}"},
        },
        "boot": "b1",
        "ready": True,
    }
    assert nodes.parse_node(kept).records == {f"{RECORDS}m": "{}"}


@pytest.mark.parametrize(
    ("changes", "everybody", "marks"),
    [
        ({"beat": "2"}, False, set()),
        ({"labels": LABELS | {"zone": "b"}}, True, set()),
        ({"boot": "b2"}, True, set()),
        ({"uid": "v"}, True, set()),
        ({"ready": "Unknown"}, True, set()),
        ({"labels": LABELS | {f"{PREFIX}m": "Ready"}}, False, {"m"}),
        ({"records": {f"{RECORDS}m": "{}"}}, False, {"m"}),
        ({"records": {f"{RECORDS}m": "{}"}, "labels": LABELS | {f"{PREFIX}n": "Ready", "zone": "b"}}, True, {"m", "n"}),
    ],
)
def test_a_heartbeat_enqueues_nothing_and_a_mark_only_its_model(changes: Any, everybody: bool, marks: set[str]) -> None:
    difference = nodes.difference(seen(), seen(**changes), PREFIX)
    assert (difference.concerns_all, difference.marks) == (everybody, marks)


def test_an_added_or_removed_node_concerns_all_models() -> None:
    assert nodes.difference(None, seen(), PREFIX).concerns_all
    assert nodes.difference(seen(), None, PREFIX).concerns_all


def record_on_node(record: Record | None, label: str = f"{PREFIX}m", *, offered: bool = True) -> Node:
    """Returns the node after this patch."""
    patch = nodes.build_patch(node(), label, record, selectable=offered)
    records = {name: text for name, text in patch.annotations.items() if text is not None}
    labels = {name: text for name, text in patch.labels.items() if text is not None}
    return node(records=records, **labels)


def test_a_record_comes_back_as_it_was_written_beside_its_label() -> None:
    record = Record(state="Ready", of="u", digest="d", path="/m", former=("/old",), boot="b1", size=7, revision="abc")
    marked_node = record_on_node(record)
    assert nodes.find_record(marked_node, "m", "u") == record
    assert marked_node.labels[f"{PREFIX}m"] == "Ready"
    assert f"{PREFIX}m" not in record_on_node(record, offered=False).labels
    assert record_on_node(None) == node()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": "Lost", "of": "u"}', '{"state": "Ready"}', "{" * 9000])
def test_an_invalid_record_is_ignored(text: str) -> None:
    assert nodes.find_record(node(records={f"{RECORDS}m": text}), "m", "u") is None


def test_a_record_of_another_model_of_the_same_name_says_nothing() -> None:
    assert nodes.find_record(record_on_node(Record(state="Ready", of="u")), "m", "v") is None


@pytest.mark.parametrize(
    ("record", "has"),
    [
        (Record(state="Ready", of="u", digest="d", boot="b1"), True),
        (Record(state="Updating", of="u", digest="d", boot="b1"), False),
        (Record(state="Ready", of="u", digest="e", boot="b1"), False),
        (Record(state="Ready", of="u", digest="d", boot="b0"), False),
    ],
)
def test_weights_are_there_while_the_node_runs_on(record: Record, has: bool) -> None:
    assert record.has("d", node()) == has


def test_a_record_remembers_the_folders_that_it_leaves() -> None:
    record = Record(state="Ready", of="u", path="/b", former=("/a",))
    assert record.paths == ("/a", "/b")
    assert record.former_paths("/c") == ("/a", "/b")
    assert record.former_paths("/a") == ("/b",)
