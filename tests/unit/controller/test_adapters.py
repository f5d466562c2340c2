"""Orders to a model's pods, so that each serves its desired adapters, and pods without an adapter get no requests."""

from __future__ import annotations

from typing import Literal

import pytest

from slipway.controller.loaders import adapters
from slipway.controller.loaders.adapters import DRAIN_SECONDS, Order, Pod
from slipway.serving.wire import agent
from slipway.serving.wire.agent import Adapter, AdapterSet, AdapterState, AgentReport

NEW, OLD = "hf://acme/sql@new", "hf://acme/sql@old"
DESIRED = (Adapter("base_sql", NEW),)
FETCH_ONLY = (Adapter("base_sql", NEW, replace=False),)
Phase = Literal["Fetching", "Fetched", "Loaded", "Failed"]


def label(url: str) -> dict[str, str]:
    return {"adapter.kubeai.org/sql": agent.label(url), "adapter.slipway.inference/sql": "true"}


GONE = dict.fromkeys(label(""))


def report(phase: Phase, loaded: str = "", shown: str | None = None) -> AgentReport:
    """``loaded``: URL; ``shown``: the URL's label as the loader reports it."""
    loaded_label = shown if shown is not None else agent.label(loaded) if loaded else ""
    loaded_version = agent.version(loaded) if loaded else ""
    return AgentReport(
        (AdapterState("base_sql", agent.version(NEW), phase, loaded=loaded_version, loaded_label=loaded_label),)
    )


def pod(uid: str = "a", url: str = "", *, serving: bool = True) -> Pod:
    return Pod(uid, {"model": "base", **(label(url) if url else {})}, serving)


def orders(
    pods: list[Pod],
    desired: tuple[Adapter, ...],
    reports: dict[str, AgentReport],
    without: dict[tuple[str, str], float],
    label: str = "adapter.kubeai.org/",
) -> dict[str, Order]:
    return adapters.orders(pods, AdapterSet(adapters=desired, prefix="base_", label=label), reports, without)


def one(subject: Pod, expected: AgentReport | None, since: float = 0, desired: tuple[Adapter, ...] = DESIRED) -> Order:
    reports = {subject.uid: expected} if expected else {}
    return orders([subject], desired, reports, {(subject.uid, "base_sql"): since})[subject.uid]


@pytest.mark.parametrize(
    ("case", "subject", "expected", "labels", "desired", "moving"),
    [
        ("nothing known yet: told", pod(), None, {}, DESIRED, False),
        ("nothing loaded yet: told", pod(), AgentReport(), {}, DESIRED, True),
        ("on its way", pod(), report("Fetching"), {}, DESIRED, True),
        ("loaded: labelled", pod(), report("Loaded", NEW), label(NEW), None, True),
        ("loaded and labelled: at rest", pod(url=NEW), report("Loaded", NEW), {}, None, False),
        ("no answer: labels stay", pod(url=NEW), None, {}, DESIRED, False),
        ("failed: told again, slowly", pod(), report("Failed"), {}, DESIRED, False),
        ("engine not started: no label", pod(url=NEW, serving=False), None, GONE, DESIRED, True),
        ("engine starts: fetched meanwhile", pod(serving=False), report("Fetching"), {}, DESIRED, True),
        ("engine was restarted", pod(url=NEW), report("Fetched"), GONE, DESIRED, True),
        ("new version on its way: the old one serves", pod(url=OLD), report("Fetching", OLD), {}, FETCH_ONLY, True),
        ("new version failed: the old one serves", pod(url=OLD), report("Failed", OLD), {}, FETCH_ONLY, False),
        ("new version there: label off first", pod(url=OLD), report("Fetched", OLD), GONE, FETCH_ONLY, True),
        ("label is off, but not for long enough", pod(), report("Fetched", OLD), {}, FETCH_ONLY, True),
        ("old version has no label yet", pod(), report("Fetching", OLD), label(OLD), FETCH_ONLY, True),
    ],
)
def test_the_report_of_a_pod_determines_the_next_order(
    case: str,
    subject: Pod,
    expected: AgentReport | None,
    labels: dict[str, str | None],
    desired: tuple[Adapter, ...] | None,
    moving: bool,
) -> None:
    assert one(subject, expected) == Order(labels, desired, moving), case


@pytest.mark.parametrize("shown", ["", "x" * 64, "no/label", "Z"])
def test_a_label_that_a_loader_does_not_know_or_invents_is_not_put_on_the_pod(shown: str) -> None:
    assert one(pod(url=OLD), report("Fetching", OLD, shown)).labels == {}
    assert one(pod(), report("Fetching", OLD, shown)).labels == {}
    assert one(pod(), report("Loaded", NEW, shown)).labels == label(NEW)


def test_another_url_with_the_digest_of_the_original_s_labels_is_another_version() -> None:
    genuine, forged = collision()
    assert agent.label(genuine) == agent.label(forged)
    desired_adapters = (Adapter("base_sql", genuine),)
    agent_report = AgentReport(
        (AdapterState("base_sql", agent.version(genuine), "Fetched", "", agent.version(forged), agent.label(forged)),)
    )
    assert one(pod(url=forged), agent_report, desired=desired_adapters).labels == GONE


def collision() -> tuple[str, str]:
    """Two urls that the original's labels do not tell apart; by the birthday paradox some 10,000 are enough."""
    seen: dict[str, str] = {}
    for number in range(10**6):
        url = f"hf://evil/backdoored-{number}"
        if (earlier_url := seen.setdefault(agent.label(url), url)) != url:
            return earlier_url, url
    raise AssertionError("no two alike")


def test_the_version_is_replaced_once_no_more_requests_come() -> None:
    assert one(pod(), report("Fetched", OLD), since=DRAIN_SECONDS) == Order({}, DESIRED, True)


def test_an_adapter_that_is_no_longer_wanted_loses_its_label_and_is_unloaded() -> None:
    assert one(pod(url=NEW), report("Loaded", NEW), desired=()) == Order(GONE, (), True)
    assert one(pod(), AgentReport(), desired=()) == Order({}, None, False)


def test_labels_of_others_are_left_alone() -> None:
    assert one(Pod("a", {"model": "base"}, True), report("Loaded", NEW)).labels == label(NEW)


def test_pods_go_over_to_another_version_one_after_another() -> None:
    ready = report("Fetched", OLD)
    pod_orders = orders([pod("a", OLD), pod("b", OLD)], DESIRED, {"a": ready, "b": ready}, {})
    assert (pod_orders["a"].labels, pod_orders["b"].labels) == (GONE, {})
    assert pod_orders["b"].desired == FETCH_ONLY


def test_the_next_pod_waits_until_the_one_before_serves_again() -> None:
    ready = report("Fetched", OLD)
    for agent_report in (report("Fetched"), report("Fetching"), None):
        reports = {"b": ready} | ({"a": agent_report} if agent_report else {})
        assert orders([pod("a"), pod("b", OLD)], DESIRED, reports, {})["b"].labels == {}
    done = orders([pod("a", NEW), pod("b", OLD)], DESIRED, {"a": report("Loaded", NEW), "b": ready}, {})
    assert done["b"].labels == GONE


def test_a_pod_that_failed_does_not_keep_the_others_from_the_new_version() -> None:
    reports = {"a": report("Failed"), "b": report("Fetched", OLD)}
    assert orders([pod("a"), pod("b", OLD)], DESIRED, reports, {})["b"].labels == GONE


def test_a_pod_whose_engine_is_away_does_not_keep_the_others_from_the_new_version() -> None:
    pod_orders = orders([pod("a", serving=False), pod("b", OLD)], DESIRED, {"b": report("Fetched", OLD)}, {})
    assert pod_orders["b"].labels == GONE


def test_without_a_label_for_the_version_only_that_of_services_is_set() -> None:
    pod_orders = orders([pod("a", OLD)], DESIRED, {"a": report("Loaded", NEW)}, {}, label="")
    assert pod_orders["a"].labels == {}
    fresh = orders([pod("a")], DESIRED, {"a": report("Loaded", NEW)}, {}, label="")
    assert fresh["a"].labels == {"adapter.slipway.inference/sql": "true"}
