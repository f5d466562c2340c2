"""The example requests of the page reach the model."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.ui.conftest import Stage, Tab
from tests.ui.steps import TINY, opened
from tests.ui.worlds import World, every_state

KEY = "sk-page-secret"

NODE = """async ([text, key]) => {
  const lines = [], process = {env: {API_KEY: key}}, console = {log: (line) => lines.push(JSON.stringify(line))};
  class OpenAI {
    constructor({baseURL, apiKey}) {
      const headers = {Authorization: `Bearer ${apiKey}`, "Content-Type": "application/json"};
      const post = (path) => async (body) =>
        (await fetch(`${baseURL}/${path}`, {method: "POST", headers, body: JSON.stringify(body)})).json();
      this.chat = {completions: {create: post("chat/completions")}};
      this.embeddings = {create: post("embeddings")};
    }
  }
  const body = text.replace('import OpenAI from "openai";', "");
  await new (async () => {}).constructor("OpenAI", "process", "console", body)(OpenAI, process, console);
  return lines.join();
}"""
"""Runs an example for Node.js with a stand-in for the package ``openai``."""


def read_examples(page: Any) -> dict[str, str]:
    """The text of each example, by its language."""
    texts = {}
    page.get_by_role("group", name="Language").wait_for()
    for button in page.get_by_role("group", name="Language").get_by_role("button").all():
        button.click()
        name = button.inner_text()
        texts[name] = page.locator(f"pre[aria-label='{name}']").inner_text()
    return texts


@pytest.mark.parametrize("key", ["", KEY])
@pytest.mark.parametrize(
    ("view", "model", "answer", "languages"),
    [
        (TINY, "tiny", "A ramp.", ["curl", "Python", "Node.js", "Anthropic"]),
        ("#/models.kubeai.org/search/embedder", "embedder", "0.125", ["curl", "Python", "Node.js"]),
    ],
)
def test_the_examples_reach_the_model(
    make_stage: Callable[..., Stage],
    make_tab: Callable[..., Tab],
    tmp_path: Path,
    key: str,
    view: str,
    model: str,
    answer: str,
    languages: list[str],
) -> None:
    stage = make_stage(key)
    stage.show(every_state())
    page = opened(make_tab(bypass_csp=True), stage, view)  # for NODE, which evaluates text
    if key:
        page.get_by_label("API key").fill(key)
        page.keyboard.press("Enter")
    texts = read_examples(page)
    assert list(texts) == languages
    environment = {**os.environ, "API_KEY": key, "HOME": str(tmp_path)}
    for name in (name for name in languages if name != "Node.js"):
        command = ["bash", "-c", texts[name]] if name == "curl" else [sys.executable, "-c", texts[name]]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
        assert answer in run.stdout, run.stderr
    assert answer in page.evaluate(NODE, [texts["Node.js"], key])
    assert [question["model"] for question in stage.questions] == [model] * len(languages)
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
