"""Chats with a model in a real browser."""

from __future__ import annotations

import json
from typing import Any

from tests.ui.conftest import Stage, Tab
from tests.ui.steps import TINY, VIEWS, expect, opened, refresh
from tests.ui.worlds import CHAT, KUBEAI, World, every_state, summary


def send(page: Any, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name="Send", exact=True).click()


def conversation(page: Any) -> Any:
    return page.get_by_role("log", name="Conversation")


def test_an_answer_is_shown_as_it_comes(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage, TINY)
    assert conversation(page).count() == 0
    send(page, "Why?")
    expect(page.get_by_role("status"), "Waiting for the answer")
    for text, so_far in (("Because ", "Because "), ("of <b>this</b>.", "Because of <b>this</b>.")):
        stage.say(text)
        expect(conversation(page), so_far)
        assert conversation(page).get_attribute("aria-busy") == "true"
    stage.finish(tokens=5)
    expect(conversation(page), "5 tokens · ")
    assert conversation(page).get_attribute("aria-busy") == "false"
    request = stage.questions[0]
    assert (request["model"], request["stream"], request["max_tokens"]) == ("tiny", True, 512)
    assert request["messages"] == [{"role": "user", "content": "Why?"}]
    assert tab.errors == []


def test_the_next_message_carries_the_conversation_and_a_new_chat_does_not(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage, TINY)
    page.get_by_text("Settings").click()
    page.get_by_label("System prompt").fill("Be brief.")
    page.get_by_label("Maximum tokens in an answer").fill("7")
    system = {"role": "system", "content": "Be brief."}
    send(page, "One?")
    stage.say("1")
    stage.finish(tokens=1)
    expect(conversation(page), "1 token · first token after")
    send(page, "Two?")
    stage.say("2")
    stage.finish(tokens=7, reason="length")
    expect(conversation(page), "stopped at the maximum")
    assert stage.questions[1]["messages"] == [
        system,
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "Two?"},
    ]
    assert stage.questions[1]["max_tokens"] == 7
    page.get_by_role("button", name="New chat").click()
    conversation(page).wait_for(state="hidden")
    send(page, "Three?")
    stage.say("3")
    stage.finish(tokens=1)
    expect(conversation(page), "1 token")
    assert stage.questions[2]["messages"] == [system, {"role": "user", "content": "Three?"}]


def test_the_speed_of_an_answer_is_shown(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    tab.page.clock.install()
    tab.page.clock.pause_at(2_000_000_000_000)
    page = opened(tab, stage, TINY)
    send(page, "Why?")
    page.get_by_text("Waiting for the answer").wait_for()
    page.clock.run_for(200)
    stage.say("A ")
    expect(conversation(page), "A ")
    page.clock.run_for(2_000)
    stage.say("ramp.")
    expect(conversation(page), "A ramp.")
    stage.finish(tokens=21)
    expect(conversation(page), "21 tokens · 10.0 tokens/s · first token after 200 ms")


def test_without_a_number_of_tokens_the_parts_are_counted(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage, TINY)
    send(page, "Why?")
    stage.say("So.")
    stage.say(None)
    expect(conversation(page), "about 1 token · first token after")


def test_an_answer_can_be_stopped_and_requested_again(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage, TINY)
    send(page, "Count.")
    stage.say("One")
    expect(conversation(page), "One")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("status"), "Stopped.")
    assert page.get_by_role("button", name="Send", exact=True).is_enabled()
    send(page, "Go on.")
    expect(conversation(page), "Go on.")
    stage.say(None)


def test_an_error_within_an_answer_is_shown_below_the_text_before_it(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage, TINY)
    send(page, "Why?")
    stage.say("Half an ")
    stage.send(json.dumps({"error": {"message": "The server of the model ended."}}))
    expect(page.get_by_role("alert"), "The server of the model ended.")
    expect(conversation(page), "Half an ")
    stage.send(None)


def test_a_message_that_gets_no_answer_can_be_sent_again(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage, TINY)
    stage.down = True
    send(page, "Why?")
    expect(page.get_by_role("alert"), "No server can be reached.")
    assert page.get_by_label("Message").input_value() == "Why?"
    stage.down = False
    page.get_by_role("button", name="Send", exact=True).click()
    stage.say("So.")
    stage.finish(tokens=2)
    expect(conversation(page), "2 tokens")
    assert stage.questions[0]["messages"] == [{"role": "user", "content": "Why?"}]


def test_figures_change_while_an_answer_comes_and_disturb_nothing(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage, TINY)
    send(page, "Why?")
    page.get_by_label("Message").fill("My next message")
    stage.say("First. ")
    stage.count("default:tiny", active=7)
    refresh(page)
    expect(page.get_by_role("region", name="Figures"), "7")
    stage.say("Second.")
    expect(conversation(page), "First. Second.")
    assert page.get_by_label("Message").input_value() == "My next message"
    stage.say(None)


def test_a_model_that_cannot_answer_has_no_chat(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage, VIEWS[1])
    expect(page.get_by_role("main"), "This model cannot answer now.")
    assert page.get_by_role("button", name="Send").count() == 0
    world = World()
    uid = world.declare(KUBEAI, "ns", "m", *summary(("False", "WaitingForPods", "Not yet."), reconciling=True))
    world.serve("ns", "m", uid, pods=0, features=CHAT)
    stage.show(world)
    page = opened(tab, stage, "#/models.kubeai.org/ns/m")
    page.reload()
    send(page, "Why?")
    expect(page.get_by_role("status"), "Waiting for a replica")
    stage.say(None)


def test_embeddings_are_requested_from_a_model_of_embeddings(stage: Stage, tab: Tab) -> None:
    stage.show(every_state())
    page = opened(tab, stage, "#/models.kubeai.org/search/embedder")
    page.get_by_label("Text").fill("a slipway")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(conversation(page), "3 numbers: 0.2500, -0.5000, 0.1250")
    assert stage.questions == [{"model": "embedder", "input": "a slipway"}]


def test_text_from_a_model_or_a_user_stays_text(stage: Stage, tab: Tab) -> None:
    hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    stage.show(every_state())
    page = opened(tab, stage, TINY)
    send(page, hostile)
    stage.say(hostile)
    stage.finish(tokens=3)
    expect(conversation(page), "3 tokens")
    assert conversation(page).inner_text().count(hostile) == 2
    assert page.locator("main img, main script").count() == 0
    assert tab.errors == []
