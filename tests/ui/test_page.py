"""The page in a real browser: models, keys, outages, and what keeps a browser safe."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from slipway.gateway import errors
from tests.ui.conftest import Stage, Tab
from tests.ui.steps import VIEWS, expect, opened, refresh
from tests.ui.worlds import CHAT, KRYPTON, KUBEAI, READY, ROUTED, World, every_state, summary

KEY = "sk-page-secret"
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


def test_a_model_that_fails_tells_why_and_what_to_do(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage)
    page.get_by_role("link", name="mistral").click()
    status = page.get_by_role("region", name="Status")
    expect(status, "This model is not running and needs a change.")
    expect(status, "ImagePullBackOff")
    expect(status, "image: 'ghcr.io/example/vllm:0.99' cannot be pulled")
    expect(status, "Check spec.image, and check from a node that the registry responds.")
    page.get_by_text("Conditions", exact=True).click()
    assert page.get_by_role("row", name=re.compile("^Progressing False ImagePullBackOff")).is_visible()


def test_log_lines_stand_apart_from_the_message(stage: Stage, tab: Tab) -> None:
    text = "The engine ended with exit code 1. Its log says:\nloading model\n  error: out of <b>memory</b>"
    world = World()
    world.declare(KRYPTON, "ns", "m", *summary(("False", "CrashLoopBackOff", text), stalled=True), ROUTED)
    stage.show(world)
    page = opened(tab, stage, "#/models.krypton.ai/ns/m")
    status = page.get_by_role("region", name="Status")
    expect(status, "The engine ended with exit code 1. Its log says:")
    log = page.locator("pre[aria-label='Last log lines']")
    assert log.inner_text() == "loading model\n  error: out of <b>memory</b>"
    assert "mono" in log.evaluate("(node) => getComputedStyle(node).fontFamily")


def test_a_date_is_an_age_and_times_have_24_hours(stage: Stage, make_tab: Callable[..., Tab]) -> None:
    tab = make_tab(locale="en-US")
    tab.page.clock.install(time=1793610000 + 26 * 86400)
    stage.show(every_state(), away_since=1793638800.0)
    page = opened(tab, stage, VIEWS[2])
    expect(page.get_by_role("main"), "created 26 d ago")
    expect(page.get_by_role("status"), "unavailable since 17:00:00")


def test_the_keyboard_alone_leads_to_a_model_and_back(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage)
    focused = "document.activeElement.textContent"
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "Skip to content"
    for _unused in range(40):
        page.keyboard.press("Tab")
        if page.evaluate(focused) == "tiny-from-zero":
            break
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="tiny-from-zero", level=1).wait_for()
    assert page.evaluate(focused) == "tiny-from-zero"
    page.keyboard.press("Tab")
    page.keyboard.press("Control+Enter")
    page.get_by_label("Message").press("Enter")
    stage.say("A ramp.")
    expect(page.get_by_role("log", name="Conversation"), "A ramp.")
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
    snapshot = page.get_by_role("table", name="Models").aria_snapshot()
    assert re.search(r"- row .*helper support", snapshot)
    assert "rowheader" in snapshot
    assert page.get_by_role("main").is_visible()
    assert page.locator("html").get_attribute("lang") == "en"
    unnamed = (
        "[...document.querySelectorAll('button, a, input, textarea, select')].filter((one) => one.checkVisibility()"
    )
    assert page.evaluate(f"{unnamed} && !(one.labels?.length || one.textContent.trim())).length") == 0


def test_if_keys_are_required_nothing_is_shown_without_a_valid_one(make_stage: Callable[..., Stage], tab: Tab) -> None:
    stage = make_stage(KEY)
    stage.show(every_state())
    page = opened(tab, stage)
    assert page.get_by_role("table").count() == 0
    page.get_by_label("API key").fill("sk-wrong")
    page.get_by_role("button", name="Show models").click()
    expect(page.get_by_role("alert"), "The gateway rejected this key.")
    page.get_by_label("API key").fill(KEY)
    page.keyboard.press("Enter")
    page.get_by_role("table", name="Models").wait_for()
    page.get_by_role("link", name="tiny", exact=True).first.click()
    page.get_by_role("button", name="Send", exact=True).click()
    stage.say("Yes.")
    expect(page.get_by_role("log", name="Conversation"), "Yes.")
    stage.say(None)
    assert stage.authorizations[-1] == f"Bearer {KEY}"
    shown = page.content() + page.url + page.evaluate("JSON.stringify([localStorage, document.cookie])")
    assert KEY not in shown
    page.get_by_role("button", name="Forget key").click()
    page.get_by_label("API key").wait_for()
    page.reload()
    page.get_by_label("API key").wait_for()
    assert page.evaluate("sessionStorage.length") == 0


def test_a_key_that_expires_while_the_page_is_open_is_requested_again(
    make_stage: Callable[..., Stage], tab: Tab
) -> None:
    stage = make_stage(KEY)
    stage.show(every_state())
    page = opened(tab, stage)
    page.get_by_label("API key").fill(KEY)
    page.keyboard.press("Enter")
    page.get_by_role("table", name="Models").wait_for()
    stage.key = "sk-another"
    refresh(page)
    expect(page.get_by_role("alert"), "The gateway rejected this key.")


def test_a_token_without_rights_shows_why_and_another_key_can_be_entered(
    make_stage: Callable[..., Stage], tab: Tab
) -> None:
    stage = make_stage(KEY)
    stage.show(every_state())
    stage.refusal = errors.NO_RIGHTS
    page = opened(tab, stage)
    page.get_by_label("API key").fill("eyJ.token")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert"), errors.NO_RIGHTS.message)
    stage.refusal = None
    page.get_by_label("API key").fill(KEY)
    page.keyboard.press("Enter")
    page.get_by_role("table", name="Models").wait_for()


def test_a_token_that_cannot_be_verified_yet_shows_the_gateways_message_and_can_be_forgotten(
    make_stage: Callable[..., Stage], tab: Tab
) -> None:
    stage = make_stage(KEY)
    stage.refusal = errors.UNKNOWN_SIGNER
    page = opened(tab, stage)
    page.get_by_label("API key").fill("eyJ.token")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status"), errors.UNKNOWN_SIGNER.message)
    assert "control process" not in page.get_by_role("status").inner_text()
    page.get_by_role("button", name="Forget key").click()
    assert page.get_by_label("API key").input_value() == ""


def test_an_unreachable_api_server_is_reported_until_it_returns(stage: Stage, tab: Tab) -> None:
    stage.show(every_state(), away_since=1793610000.0)
    page = opened(tab, stage)
    expect(page.get_by_role("status"), "The cluster's API server has been unavailable since")
    assert page.get_by_role("table", name="Models").is_visible()
    stage.show(every_state(), unread=("models.kubeai.org",))
    refresh(page)
    expect(page.get_by_role("status"), "The gateway cannot read models.kubeai.org")
    stage.show(every_state())
    refresh(page)
    page.locator("#notices:empty").wait_for(state="attached")


def test_a_control_process_that_is_away_leaves_what_was_known(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage)
    stage.down = True
    refresh(page)
    expect(page.get_by_role("status"), "The gateway's control process is unavailable (status 503).")
    assert page.get_by_role("row").count() == 14
    stage.down = False
    refresh(page)
    page.locator("#notices:empty").wait_for(state="attached")


def test_a_gateway_that_is_gone_is_reported(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage)
    stage.close()
    expect(page.get_by_role("status"), "The gateway is unreachable. Showing data from")


def test_a_hidden_page_sends_no_requests(stage: Stage, tab: Tab) -> None:
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


def test_a_visible_page_refreshes_every_few_seconds(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    tab.page.clock.install()
    page = opened(tab, stage)
    for _unused in range(3):
        with page.expect_response("**/ui/api/models"):
            page.clock.run_for(3_500)


def test_a_model_that_is_deleted_while_its_page_is_open_is_reported(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage, VIEWS[2])
    stage.show(World())
    refresh(page)
    expect(page.get_by_role("main"), "This model no longer exists.")


def test_text_from_the_cluster_stays_text(stage: Stage, tab: Tab) -> None:
    hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    world = World()
    uid = world.declare(KRYPTON, "ns", "m", *summary(("False", "Invalid", hostile), stalled=True))
    world.serve("ns", "m", uid, features=CHAT, source=hostile)
    stage.show(world)
    page = opened(tab, stage, "#/models.krypton.ai/ns/m")
    expect(page.get_by_role("region", name="Status"), hostile)
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


def test_the_page_sends_no_request_to_another_host(stage: Stage, tab: Tab) -> None:
    urls: list[str] = []
    tab.page.on("request", lambda request: urls.append(request.url))
    stage.show(every_state())
    for view in VIEWS:
        opened(tab, stage, view)
    assert urls
    assert [url for url in urls if not url.startswith(stage.url)] == []


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
