"""JSON patches as RFC 6902 has them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from slipway.kube.values.jsonpatch import PatchError, patched

POD: dict[str, Any] = {"metadata": {"labels": {"a/b": "1", "c~d": "2"}}, "spec": {"list": [1, 2, 3], "on": True}}


def one(**operation: Any) -> Any:
    if "source" in operation:
        operation["from"] = operation.pop("source")
    return patched(POD, [operation])


@pytest.mark.parametrize(
    ("operation", "place", "value"),
    [
        ({"op": "add", "path": "/spec/new", "value": {"x": None}}, "new", {"x": None}),
        ({"op": "add", "path": "/spec/list/0", "value": 0}, "list", [0, 1, 2, 3]),
        ({"op": "add", "path": "/spec/list/3", "value": 4}, "list", [1, 2, 3, 4]),
        ({"op": "add", "path": "/spec/list/-", "value": 4}, "list", [1, 2, 3, 4]),
        ({"op": "replace", "path": "/spec/list/1", "value": 9}, "list", [1, 9, 3]),
        ({"op": "remove", "path": "/spec/list/0"}, "list", [2, 3]),
        ({"op": "move", "path": "/spec/list/0", "source": "/spec/list/2"}, "list", [3, 1, 2]),
        ({"op": "copy", "path": "/spec/list/-", "source": "/spec/list/0"}, "list", [1, 2, 3, 1]),
        ({"op": "copy", "path": "/spec/new", "source": "/metadata/labels/a~1b"}, "new", "1"),
        ({"op": "move", "path": "/spec/new", "source": "/metadata/labels/c~0d"}, "new", "2"),
        ({"op": "test", "path": "/spec/on", "value": True}, "on", True),
    ],
)
def test_an_operation_does_what_the_standard_says(operation: dict[str, Any], place: str, value: Any) -> None:
    before = copy.deepcopy(POD)
    assert one(**operation)["spec"][place] == value
    assert before == POD


@pytest.mark.parametrize(
    ("operation", "complaint"),
    [
        ({"op": "remove", "path": "/spec/none"}, "non-existent object 'none'"),
        ({"op": "replace", "path": "/spec/none", "value": 1}, "non-existent object 'none'"),
        ({"op": "add", "path": "/none/x", "value": 1}, r"member 'none' not found\Z"),
        ({"op": "add", "path": "/spec/list/4", "value": 1}, "outside of list"),
        ({"op": "add", "path": "/spec/list/01", "value": 1}, "'01' is not a valid sequence index"),
        ({"op": "add", "path": "/spec/list/-1", "value": 1}, "'-1' is not a valid sequence index"),
        ({"op": "remove", "path": "/spec/list/-"}, "invalid array index '-'"),
        ({"op": "add", "path": "/spec/on/x", "value": 1}, "does not support indexing"),
        ({"op": "add", "path": "/spec/x"}, "does not contain a 'value'"),
        ({"op": "test", "path": "/spec/on", "value": 1}, "not equal to tested value 1"),
        ({"op": "move", "path": "/spec/list/0", "source": "/spec"}, "into their own children"),
        ({"op": "copy", "path": "/spec/x"}, "does not contain a 'from'"),
        ({"op": "merge", "path": "/spec"}, "Unknown operation 'merge'"),
        ({"op": "remove", "path": "spec"}, "must start with /"),
        ({"op": "remove", "path": ""}, "can't remove the whole document"),
    ],
)
def test_an_operation_that_cannot_be_done_says_which_and_why(operation: dict[str, Any], complaint: str) -> None:
    with pytest.raises(PatchError, match=complaint) as refused:
        one(**operation)
    assert str(refused.value).startswith(f"operation 0 ({operation['op']} {operation['path']})")


def test_operations_build_on_each_other() -> None:
    steps = [
        {"op": "add", "path": "/spec/a", "value": {}},
        {"op": "add", "path": "/spec/a/b", "value": [1]},
        {"op": "test", "path": "/spec/a", "value": {"b": [1.0]}},
        {"op": "replace", "path": "", "value": {"whole": 1}},
    ]
    assert patched(POD, steps) == {"whole": 1}


def test_a_complaint_is_one_short_line_that_does_not_show_the_document() -> None:
    document = {"spec": {"token": "secret" * 1000}}
    for operation in ({"op": "add", "path": "/none/x", "value": 1}, {"op": "remove", "path": "/spec/\n" + "x" * 9999}):
        with pytest.raises(PatchError) as refused:
            patched(document, [operation])
        reason = str(refused.value).partition("): ")[2]
        assert "secret" not in reason
        assert "\n" not in reason
        assert len(reason) <= 300


def test_copies_of_copies_end_before_they_fill_the_memory() -> None:
    doubled = [{"op": "copy", "from": "/a", "path": f"/a/{number}"} for number in range(64)]
    with pytest.raises(PatchError, match=r"larger than|nested too deeply"):
        patched({"a": {"text": "x" * 100}}, doubled)
