"""The gateway's page in a real browser: what a person sees, types and hears of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.ui.conftest import PATIENCE, Stage, Tab
from tests.ui.worlds import CHAT, KRYPTON, KUBEAI, READY, World, every_state, many, summary

KEY = "sk-page-secret"
MOST_BYTES = 200_000
LABELS = {
    "tiny": "Ready",
    "tiny-from-zero": "Asleep",
    "by-hand": "Ready",
    "llama-70b": "Starting Unschedulable",
    "mistral": "Failed ImagePullBackOff",
    "draft": "No id leads to it NotRouted · conflict",
    "gone": "Being deleted",
    "new": "Not taken up",
    "old": "Stopped Suspended",
    "embedder": "Ready",
    "helper": "Change failed OutOfGpuMemory",
    "summarizer": "Changing RollingOut",
}
VIEWS = ("", "#/inferenceservices.inference.llmkube.dev/research/mistral", "#/models.krypton.ai/default/tiny")
CONTRAST = """() => {
  const channels = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((one) => one / 255)
    .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    .reduce((sum, one, place) => sum + one * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (node) => {
    for (let one = node; one; one = one.parentElement) {
      const colour = channels(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    throw new Error("nothing is painted behind it");
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const poor = [];
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !node.checkVisibility() || node.closest("option, noscript")) continue;
    const [one, other] = [light(channels(getComputedStyle(node).color)), light(behind(node))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    if (ratio < 4.5) poor.push(`${texts.currentNode.data}: ${ratio.toFixed(2)}`);
  }
  return poor;
}"""


def opened(tab: Tab, stage: Stage, view: str = "") -> Any:
    """The page, when it shows what the gateway says."""
    tab.page.goto(f"{stage.url}{view}")
    tab.page.locator("main h1").wait_for()
    return tab.page


def refresh(page: Any) -> None:
    """Has the page ask now, as it does when somebody comes back to it."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def row(page: Any, name: str, namespace: str = "") -> Any:
    return page.get_by_role("row", name=re.compile(f"^{name} ?{namespace}")).first


def expect(locator: Any, text: str) -> None:
    """Waits until the text is there."""
    locator.filter(has_text=text).first.wait_for(timeout=PATIENCE)


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


def test_a_model_that_fails_tells_why_and_what_to_do(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage)
    page.get_by_role("link", name="mistral").click()
    told = page.get_by_role("region", name="How it is")
    expect(told, "ImagePullBackOff")
    expect(told, "image: 'ghcr.io/example/vllm:0.99' cannot be pulled")
    expect(told, "Check spec.image, and check from a node that the registry responds.")
    page.get_by_text("Its conditions").click()
    assert page.get_by_role("row", name=re.compile("^Progressing False ImagePullBackOff")).is_visible()


def test_conflicts_of_the_routing_table_are_told_beside_the_list_and_the_model(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage)
    expect(page.get_by_role("listitem"), "team-b/tiny the id 'tiny' leads to Service default/tiny, which is older")
    row(page, "tiny", "team-b").get_by_role("link").click()
    expect(page.get_by_role("region", name="How it is"), "leads to Service default/tiny")


def test_figures_follow_what_haproxy_counts(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    stage.count("default:tiny", active=2, answered=10, first_byte_ms=212)
    stage.count("research:llama-70b", waiting=4)
    page = opened(tab, stage)
    expect(row(page, "tiny", "default"), "2 under way")
    expect(row(page, "tiny", "default"), "212 ms")
    expect(row(page, "llama-70b"), "4 waiting")
    stage.counters = None
    refresh(page)
    expect(page.get_by_role("status"), "HAProxy does not tell its counters")
    stage.show(World())
    refresh(page)
    expect(page.get_by_role("main"), "No model has been declared yet.")


def test_a_search_and_a_state_narrow_the_list(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage)
    page.get_by_role("searchbox", name="Search").fill("support-bot")
    expect(page.get_by_role("main"), "1 of 13 models.")
    assert [link.inner_text() for link in page.locator("tbody a:visible").all()] == ["helper"]
    page.get_by_role("searchbox").fill("")
    failed = page.get_by_role("button", name="Failed 1", exact=True)
    failed.click()
    assert failed.get_attribute("aria-pressed") == "true"
    assert [link.inner_text() for link in page.locator("tbody a:visible").all()] == ["mistral"]


def test_the_keyboard_alone_leads_to_a_model_and_back(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage)
    focused = "document.activeElement.textContent"
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "Skip to the content"
    for _unused in range(40):
        page.keyboard.press("Tab")
        if page.evaluate(focused) == "tiny-from-zero":
            break
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="tiny-from-zero", level=1).wait_for()
    assert page.evaluate(focused) == "tiny-from-zero"
    page.keyboard.press("Tab")
    page.keyboard.press("Control+Enter")
    page.get_by_label("Question").press("Control+Enter")
    stage.say("A ramp.")
    expect(page.get_by_role("region", name="Answer"), "A ramp.")
    stage.say(None)
    page.go_back()
    page.get_by_role("heading", name="Models", level=1).wait_for()
    assert page.evaluate(focused) == "Models"


@pytest.mark.parametrize("width", [360, 1280])
def test_a_screen_reader_finds_a_table_with_names_for_its_cells(
    stage: Stage, make_tab: Callable[..., Tab], width: int
) -> None:
    stage.show(every_state())
    page = opened(make_tab(viewport={"width": width, "height": 740}), stage)
    said = page.get_by_role("table", name="Models").aria_snapshot()
    assert re.search(r"- row .*helper support", said)
    assert "rowheader" in said
    assert page.get_by_role("main").is_visible()
    assert page.locator("html").get_attribute("lang") == "en"
    unnamed = (
        "[...document.querySelectorAll('button, a, input, textarea, select')].filter((one) => one.checkVisibility()"
    )
    assert page.evaluate(f"{unnamed} && !(one.labels?.length || one.textContent.trim())).length") == 0


def test_an_answer_is_shown_as_it_comes(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage, VIEWS[2])
    page.get_by_label("Question").fill("Why?")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.get_by_role("status"), "Waiting for the answer")
    answer = page.get_by_role("region", name="Answer")
    for text, sofar in (("Because ", "Because "), ("of <b>this</b>.", "Because of <b>this</b>.")):
        stage.say(text)
        expect(answer, sofar)
        assert answer.get_attribute("aria-busy") == "true"
    stage.say(None)
    expect(page.get_by_role("status"), "all of it after")
    assert answer.get_attribute("aria-busy") == "false"
    asked = stage.questions[0]
    assert (asked["model"], asked["stream"]) == ("tiny", True)
    assert asked["messages"] == [{"role": "user", "content": "Why?"}]


def test_an_answer_can_be_stopped_and_asked_for_again(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage, VIEWS[2])
    page.get_by_role("button", name="Ask", exact=True).click()
    stage.say("One")
    expect(page.get_by_role("region", name="Answer"), "One")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("status"), "Stopped.")
    assert page.get_by_role("button", name="Ask", exact=True).is_enabled()


def test_an_error_within_an_answer_is_told_after_what_came(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage, VIEWS[2])
    page.get_by_role("button", name="Ask", exact=True).click()
    stage.say("Half an ")
    stage.send(json.dumps({"error": {"message": "The server of the model ended."}}))
    expect(page.get_by_role("alert"), "The server of the model ended.")
    expect(page.get_by_role("region", name="Answer"), "Half an ")
    stage.send(None)


def test_the_figures_move_on_while_an_answer_comes_and_disturb_nothing(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage, VIEWS[2])
    page.get_by_label("Question").fill("Draft of mine")
    page.get_by_role("button", name="Ask", exact=True).click()
    stage.say("First. ")
    stage.count("default:tiny", active=7)
    refresh(page)
    expect(page.get_by_role("region", name="Figures"), "7")
    stage.say("Second.")
    expect(page.get_by_role("region", name="Answer"), "First. Second.")
    assert page.get_by_label("Question").input_value() == "Draft of mine"
    stage.say(None)


def test_a_model_of_embeddings_is_asked_for_some(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage, "#/models.kubeai.org/search/embedder")
    page.get_by_label("Text").fill("a slipway")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.get_by_role("region", name="Answer"), "3 numbers: 0.2500, -0.5000, 0.1250")
    assert stage.questions == [{"model": "embedder", "input": "a slipway"}]


def test_where_keys_are_asked_for_nothing_is_shown_without_a_right_one(
    make_stage: Callable[..., Stage], tab: Tab
) -> None:
    stage = make_stage(KEY)
    stage.show(every_state())
    page = opened(tab, stage)
    assert page.get_by_role("table").count() == 0
    page.get_by_label("API key").fill("sk-wrong")
    page.get_by_role("button", name="Show the models").click()
    expect(page.get_by_role("alert"), "The gateway does not know this key.")
    page.get_by_label("API key").fill(KEY)
    page.keyboard.press("Enter")
    page.get_by_role("table", name="Models").wait_for()
    page.get_by_role("link", name="tiny", exact=True).first.click()
    page.get_by_role("button", name="Ask", exact=True).click()
    stage.say("Yes.")
    expect(page.get_by_role("region", name="Answer"), "Yes.")
    stage.say(None)
    assert stage.authorizations[-1] == f"Bearer {KEY}"
    shown = page.content() + page.url + page.evaluate("JSON.stringify([localStorage, document.cookie])")
    assert KEY not in shown
    page.get_by_role("button", name="Forget the key").click()
    page.get_by_label("API key").wait_for()
    page.reload()
    page.get_by_label("API key").wait_for()
    assert page.evaluate("sessionStorage.length") == 0


def test_a_key_that_ends_while_somebody_looks_is_asked_for_again(make_stage: Callable[..., Stage], tab: Tab) -> None:
    stage = make_stage(KEY)
    stage.show(every_state())
    page = opened(tab, stage)
    page.get_by_label("API key").fill(KEY)
    page.keyboard.press("Enter")
    page.get_by_role("table", name="Models").wait_for()
    stage.key = "sk-another"
    refresh(page)
    expect(page.get_by_role("alert"), "The gateway does not know this key.")


@pytest.mark.parametrize("key", ["", KEY])
def test_the_commands_that_are_shown_ask_the_model(
    make_stage: Callable[..., Stage], tab: Tab, tmp_path: Path, key: str
) -> None:
    stage = make_stage(key)
    stage.show(every_state())
    page = opened(tab, stage, "#/models.kubeai.org/search/embedder")
    if key:
        page.get_by_label("API key").fill(key)
        page.keyboard.press("Enter")
    texts = {language: page.locator(f"pre[aria-label={language}]").inner_text() for language in ("curl", "Python")}
    environment = {**os.environ, "API_KEY": key, "HOME": str(tmp_path)}
    for command in (["bash", "-c", texts["curl"]], [sys.executable, "-c", texts["Python"]]):
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
        assert "0.125" in ran.stdout, ran.stderr
    assert [question["model"] for question in stage.questions] == ["embedder"] * 2
    assert key == "" or key not in "".join(texts.values())


def test_each_kind_of_model_is_shown_the_path_that_takes_it(stage: Stage, tab: Tab) -> None:
    world = World()
    for feature, path in (
        ("TextGeneration", "/v1/chat/completions"),
        ("Reranking", "/v1/rerank"),
        ("SpeechToText", "/v1/audio/transcriptions"),
    ):
        world.serve("ns", feature.lower(), features=[feature])
        stage.show(world)
        tab.page.goto("about:blank")
        page = opened(tab, stage, f"#/services/ns/{feature.lower()}")
        assert path in page.locator("pre[aria-label=curl]").inner_text()


def test_an_api_server_that_is_away_is_told_until_it_is_back(stage: Stage, tab: Tab) -> None:
    stage.show(every_state(), away_since=1793610000.0)
    page = opened(tab, stage)
    expect(page.get_by_role("status"), "The cluster's API server has not answered since")
    assert page.get_by_role("table", name="Models").is_visible()
    stage.show(every_state(), unread=("models.kubeai.org",))
    refresh(page)
    expect(page.get_by_role("status"), "Nothing can be read of models.kubeai.org")
    stage.show(every_state())
    refresh(page)
    page.locator("#notices:empty").wait_for(state="attached")


def test_a_control_process_that_is_away_leaves_what_was_known(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage)
    stage.down = True
    refresh(page)
    expect(page.get_by_role("status"), "The gateway's control process does not answer (status 503).")
    assert page.get_by_role("row").count() == 14
    stage.down = False
    refresh(page)
    page.locator("#notices:empty").wait_for(state="attached")


def test_a_gateway_that_is_gone_is_told(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage)
    stage.close()
    expect(page.get_by_role("status"), "The gateway cannot be reached. What is shown is from")


def test_a_page_that_nobody_looks_at_asks_nothing(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    tab.page.clock.install()
    page = opened(tab, stage)
    away = "Object.defineProperty(document, 'hidden', {get: () => window.away, configurable: true}); window.away = true"
    page.evaluate(away)
    for _unused in range(6):
        page.clock.run_for(3_500)
        page.evaluate("fetch('page.css').then((response) => response.text())")  # as long as an overview would take
    assert stage.overviews <= 2
    page.evaluate("window.away = false")
    with page.expect_response("**/ui/api/models"):
        refresh(page)


def test_a_page_that_somebody_looks_at_asks_every_few_seconds(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    tab.page.clock.install()
    page = opened(tab, stage)
    for _unused in range(3):
        with page.expect_response("**/ui/api/models"):
            page.clock.run_for(3_500)


def test_a_model_that_goes_while_somebody_looks_is_told(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage, VIEWS[2])
    stage.show(World())
    refresh(page)
    expect(page.get_by_role("main"), "There is no such model any more.")


def test_text_from_the_cluster_stays_text(stage: Stage, tab: Tab) -> None:
    hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    world = World()
    uid = world.declare(KRYPTON, "ns", "m", *summary(("False", "Invalid", hostile), stalled=True))
    world.serve("ns", "m", uid, features=CHAT, source=hostile)
    stage.show(world)
    page = opened(tab, stage, "#/models.krypton.ai/ns/m")
    expect(page.get_by_role("region", name="How it is"), hostile)
    assert page.locator("main img, main script").count() == 0
    assert tab.errors == []


def test_the_browser_refuses_scripts_markup_and_requests_that_are_not_the_pages_own(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage)
    tries = """async () => {
      const script = document.createElement("script");
      try { script.textContent = "window.ran = true"; document.body.append(script); } catch {}
      let markup = "taken", asked = "answered";
      try { document.body.innerHTML = "<b>x</b>"; } catch { markup = "refused"; }
      try { await fetch("http://127.0.0.2:9/"); } catch { asked = "refused"; }
      return [window.ran, markup, asked];
    }"""
    assert page.evaluate(tries) == [None, "refused", "refused"]
    assert any("Content Security Policy" in error for error in tab.errors)


def test_nothing_is_asked_of_anybody_else(stage: Stage, tab: Tab) -> None:
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    stage.show(every_state())
    for view in VIEWS:
        opened(tab, stage, view)
    assert asked
    assert [url for url in asked if not url.startswith(stage.url)] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_and_nothing_is_cut_off_at_360_pixels(
    stage: Stage, make_tab: Callable[..., Tab], scheme: str
) -> None:
    world = every_state()
    long = "a-very-long-name-without-any-place-to-break-" * 5
    uid = world.declare(KUBEAI, "n" * 60, long[:200], *READY)
    world.serve("n" * 60, "m", uid, models=[long[:200]], features=CHAT, source=f"hf:{long}")
    stage.show(world)
    stage.count("default:tiny", active=3, answered=12345678, failed=9, first_byte_ms=212)
    page = opened(make_tab(viewport={"width": 360, "height": 740}, color_scheme=scheme), stage)
    for view in (*VIEWS, f"#/models.kubeai.org/{'n' * 60}/{long[:200]}"):
        opened(Tab(page), stage, view)
        page.get_by_role("main").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
        assert page.evaluate(CONTRAST) == [], view


def test_1000_models_load_with_little_and_can_be_searched(stage: Stage, tab: Tab) -> None:
    stage.show(many(1000))
    page = opened(tab, stage)
    page.get_by_role("link", name="model-0999").wait_for()
    assert page.get_by_role("row").count() == 1001
    sizes = "performance.getEntries().reduce((sum, entry) => sum + (entry.transferSize ?? 0), 0)"
    assert page.evaluate(sizes) < MOST_BYTES
    page.get_by_role("button", name="Failed 20", exact=True).click()
    page.get_by_role("searchbox").fill("model-0950")
    expect(page.get_by_role("main"), "1 of 1000 models.")
    page.get_by_role("link", name="model-0950").click()
    expect(page.get_by_role("region", name="How it is"), "unsupported architecture")
