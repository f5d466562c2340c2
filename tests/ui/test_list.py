"""The list of models in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable

from slipway.kube.objects import Kind
from tests.ui.conftest import Stage, Tab
from tests.ui.steps import expect, opened, refresh, row
from tests.ui.worlds import CHAT, KRYPTON, KUBEAI, READY, World, conditions_of, every_state, many, summary

MOST_BYTES = 200_000
WEIGHTS = Kind("inference.llmkube.dev", "v1alpha1", "Model", "models")
LABELS = {
    "tiny": "Ready",
    "tiny-from-zero": "Asleep",
    "by-hand": "Ready",
    "llama-70b": "Starting Unschedulable",
    "mistral": "Failed ImagePullBackOff",
    "draft": "No model ID NotRouted · conflict",
    "gone": "Deleting",
    "new": "No controller",
    "old": "Stopped Suspended",
    "embedder": "Ready",
    "helper": "Change failed OutOfGpuMemory",
    "summarizer": "Updating RollingOut",
}


def test_each_state_has_a_word_and_the_reason_beside_it(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage)
    assert page.get_by_role("row").count() == 14
    for name, label in LABELS.items():
        cell = (
            page.get_by_role("link", name=name, exact=True)
            .first.locator("xpath=ancestor::tr")
            .get_by_role("cell")
            .first
        )
        assert re.sub(r"\s+", " ", cell.inner_text()) == label, name
    assert tab.errors == []


def test_conflicts_of_the_routing_table_are_reported_beside_the_list_and_the_model(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage)
    conflict = page.get_by_role("listitem").filter(has_text="the ID 'tiny' belongs to Service default/tiny")
    conflict.wait_for()
    assert conflict.inner_text().startswith("tiny (team-b): ")
    assert page.get_by_role("listitem").count() == 2
    row(page, "tiny", "team-b").get_by_role("link").click()
    expect(page.get_by_role("region", name="Status"), "belongs to Service default/tiny")


def test_figures_follow_what_haproxy_counts(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    stage.count("default:tiny", active=2, answered=10, first_byte_ms=212)
    stage.count("research:llama-70b", waiting=4)
    page = opened(tab, stage)
    expect(row(page, "tiny", "default"), "2 active")
    expect(row(page, "tiny", "default"), "212 ms")
    expect(row(page, "llama-70b"), "4 waiting")
    stage.counters = None
    refresh(page)
    expect(page.get_by_role("status"), "HAProxy returns no counters")
    stage.show(World())
    refresh(page)
    expect(page.get_by_role("main"), "No models yet.")


def test_a_search_and_a_state_narrow_the_list(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage)
    page.get_by_role("searchbox", name="Search").fill("support-bot")
    expect(page.get_by_role("main"), "1 of 13 models")
    assert [link.inner_text() for link in page.locator("tbody a:visible").all()] == ["helper"]
    page.get_by_role("searchbox").fill("")
    failed = page.get_by_role("button", name="Failed 1", exact=True)
    failed.click()
    assert failed.get_attribute("aria-pressed") == "true"
    assert [link.inner_text() for link in page.locator("tbody a:visible").all()] == ["mistral"]


def test_1000_models_load_with_little_and_can_be_searched(stage: Stage, tab: Tab) -> None:
    stage.show(many(1000))
    page = opened(tab, stage)
    page.get_by_role("link", name="model-0999").wait_for()
    assert page.get_by_role("row").count() == 1001
    sizes = "performance.getEntries().reduce((sum, entry) => sum + (entry.transferSize ?? 0), 0)"
    assert page.evaluate(sizes) < MOST_BYTES
    page.get_by_role("button", name="Failed 20", exact=True).click()
    page.get_by_role("searchbox").fill("model-0950")
    expect(page.get_by_role("main"), "1 of 1000 models")
    page.get_by_role("link", name="model-0950").click()
    expect(page.get_by_role("region", name="Status"), "unsupported architecture")


def test_all_conflicts_of_a_model_are_one_entry(stage: Stage, tab: Tab) -> None:
    world = World()
    for kind, service in ((KRYPTON, "tiny"), (KUBEAI, "model-tiny")):
        world.serve("ns", service, world.declare(kind, "ns", "tiny", *READY), name="tiny", models=["tiny"])
    world.services[0]["metadata"]["creationTimestamp"] = "2026-11-01T09:00:00Z"
    stage.show(world)
    entry = opened(tab, stage).get_by_role("listitem")
    expect(
        entry, "tiny (ns): the ID 'ns/tiny' belongs to Service 'tiny', which is older; the ID 'tiny' belongs to Service"
    )
    assert entry.count() == 1


def test_the_base_url_of_the_api_can_be_copied(stage: Stage, make_tab: Callable[..., Tab]) -> None:
    stage.show(every_state())
    page = opened(make_tab(permissions=["clipboard-read", "clipboard-write"]), stage)
    expect(page.get_by_role("main"), f"Base URL{stage.url.removesuffix('/ui/')}/v1")
    page.get_by_role("button", name="Copy base URL").click()
    page.get_by_role("button", name="Copied base URL").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == f"{stage.url.removesuffix('/ui/')}/v1"


def test_models_that_need_attention_come_first_and_keep_the_focus(stage: Stage, tab: Tab) -> None:
    world = every_state()
    stage.show(world)
    page = opened(tab, stage)
    names = [link.inner_text() for link in page.locator("tbody a").all()]
    assert names[:4] == ["mistral", "draft", "helper", "new"]
    assert names[4:7] == ["tiny", "tiny-from-zero", "by-hand"]
    page.get_by_role("link", name="embedder").focus()
    bad = summary(("False", "CrashLoopBackOff", "The engine ended with exit code 1."), stalled=True)
    world.resources = [
        (kind, {**obj, "status": {"conditions": conditions_of(*bad)}} if obj["metadata"]["name"] == "embedder" else obj)
        for kind, obj in world.resources
    ]
    stage.show(world)
    refresh(page)
    page.get_by_role("button", name="Failed 2", exact=True).wait_for()
    assert [link.inner_text() for link in page.locator("tbody a").all()][:2] == ["mistral", "embedder"]
    assert page.evaluate("document.activeElement.textContent") == "embedder"


def test_weights_have_a_list_of_their_own(stage: Stage, tab: Tab) -> None:
    world = every_state()
    world.declare(WEIGHTS, "research", "mistral-weights", *READY)
    stage.show(world)
    page = opened(tab, stage)
    assert page.get_by_role("table", name="Weights").get_by_role("link").all_inner_texts() == ["mistral-weights"]
    assert page.get_by_role("table", name="Models").get_by_role("row").count() == 14
    page.get_by_role("searchbox").fill("embedder")
    page.get_by_role("table", name="Weights").wait_for(state="hidden")
    page.get_by_role("searchbox").fill("mistral-weights")
    expect(page.get_by_role("main"), "1 of 14 models")


def test_progress_and_devices_are_shown_in_the_list_and_for_the_model(stage: Stage, tab: Tab) -> None:
    world = every_state()
    loading = summary(("False", "LoadingCache", "The weights are being loaded into the cache: 4.2 of 10 GiB."), True)
    uid = world.declare(KUBEAI, "search", "ranker", *loading)
    world.resources[-1][1]["status"]["cache"] = {"doneBytes": 42, "totalBytes": 100}
    world.resources[-1][1]["spec"] = {"resourceProfile": "nvidia-gpu-l4:2"}
    world.resources[0][1]["spec"]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    world.serve("search", "ranker", uid, pods=0, features=CHAT)
    stage.show(world)
    page = opened(tab, stage)
    expect(row(page, "ranker"), "LoadingCache · 42 %")
    expect(page.get_by_role("main"), "Used by ready replicas: 2 \N{MULTIPLICATION SIGN} nvidia.com/gpu")
    page.get_by_role("link", name="ranker").click()
    status = page.get_by_role("region", name="Status")
    expect(status, "42 % loaded")
    assert status.get_by_role("progressbar", name="Loaded weights").get_attribute("value") == "42"
    expect(page.get_by_role("region", name="Figures"), "2 \N{MULTIPLICATION SIGN} nvidia-gpu-l4")


def test_the_age_of_the_data_is_shown(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    tab.page.clock.install()
    page = opened(tab, stage)
    expect(page.get_by_role("banner"), "Updated 0 s ago")
    stage.down = True
    page.clock.run_for(90_000)
    expect(page.get_by_role("banner"), "Updated 1 min ago")
    assert page.locator("[aria-live] #updated, [role=status] #updated").count() == 0
