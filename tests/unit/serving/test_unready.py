"""Why nothing answers for a model, in one word for those who ask for it."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.serving.status.unready import (
    MOST_BYTES,
    UNREADY,
    Explanation,
    Unready,
    annotation,
    explain,
    parse_unready,
    stand_in,
)

SINCE = "2026-01-01T00:00:00Z"
THEN = 1767225600.0


def conditions(reason: str, *, stalled: str = "True", available: str = "False") -> list[dict[str, Any]]:
    return [
        {"type": "Available", "status": available, "reason": reason},
        {"type": "Stalled", "status": stalled, "reason": reason},
    ]


def unscheduled(since: str = SINCE) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "lastTransitionTime": since}
    return {"metadata": {"name": "p"}, "status": {"conditions": [condition]}}


def test_a_failure_that_needs_a_change_by_the_author_is_final() -> None:
    assert explain(conditions("ImagePullBackOff"), [], THEN, 300) == Explanation(Unready("ImagePullBackOff", True))


@pytest.mark.parametrize("reason", ["OOMKilled", "CrashLoopBackOff", "StartupTimeout"])
def test_an_engine_that_is_restarted_may_answer_next_time(reason: str) -> None:
    assert explain(conditions(reason), [], THEN, 300) == Explanation(Unready(reason))


def test_an_available_or_starting_resource_has_no_explanation() -> None:
    assert explain(conditions("InvalidSpec", available="True"), [], THEN, 300) == Explanation()
    assert explain(conditions("WaitingForPods", stalled="False"), [], THEN, 300) == Explanation()
    assert explain([], [], THEN, 300) == Explanation()


@pytest.mark.parametrize("reason", ["Unschedulable", "ResourceNotFound", "PVCNotFound"])
def test_a_pod_without_a_node_or_claim_is_waited_for_as_long_as_the_setting_says(reason: str) -> None:
    condition_list = conditions(reason)
    assert explain(condition_list, [unscheduled()], THEN + 100, 300) == Explanation(Unready(reason), 200)
    assert explain(condition_list, [unscheduled()], THEN + 300, 300) == Explanation(Unready(reason, True))
    newer = [unscheduled(), unscheduled("2026-01-01T00:04:00Z")]
    assert explain(condition_list, newer, THEN + 300, 300) == Explanation(Unready(reason), 240)


def test_a_failed_adapter_does_not_stop_requests_while_the_workload_lags_behind_its_ready_pod() -> None:
    ready = {"metadata": {"name": "p"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert explain(conditions("AdapterFailed"), [ready], THEN, 300) == Explanation()
    deleting = {**ready, "metadata": {"name": "p", "deletionTimestamp": SINCE}}
    assert explain(conditions("AdapterFailed"), [deleting], THEN, 300) == Explanation(Unready("AdapterFailed", True))


def test_a_reason_that_is_not_a_word_is_not_reported() -> None:
    assert explain(conditions('no "word"'), [], THEN, 300) == Explanation()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"reason": "a b"}', '{"reason": 1}', " " * MOST_BYTES + "{}", "[" * 200]
)
def test_invalid_text_in_the_annotation_is_ignored(text: str) -> None:
    assert parse_unready({UNREADY: text}) is None


def test_a_written_annotation_can_be_read_back() -> None:
    for unready in (Unready("OOMKilled"), Unready("InvalidSpec", True)):
        assert parse_unready({UNREADY: annotation(unready) or ""}) == unready
    assert annotation(None) is None
    assert parse_unready({}) is None


@pytest.mark.parametrize("name", ["bad", "dotted.name", "x" * 200])
def test_the_stand_in_for_a_refused_resource_has_no_pods_and_a_valid_service_name(name: str) -> None:
    manifest = stand_in("api", {"metadata": {"namespace": "models", "name": name}}, Unready("InvalidSpec", True))
    assert len(manifest["metadata"]["name"]) <= 63
    assert "." not in manifest["metadata"]["name"]
    assert manifest["spec"] == {"clusterIP": "None", "ports": [{"name": "http", "port": 80}]}
