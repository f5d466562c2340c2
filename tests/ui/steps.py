"""Steps that tests of the page share."""

from __future__ import annotations

import re
from typing import Any

from tests.ui.conftest import PATIENCE, Stage, Tab

VIEWS = ("", "#/inferenceservices.inference.llmkube.dev/research/mistral", "#/models.krypton.ai/default/tiny")
TINY = VIEWS[2]


def opened(tab: Tab, stage: Stage, view: str = "") -> Any:
    """Opens the page, and waits until it shows models or asks for a key."""
    tab.page.goto(f"{stage.url}{view}")
    tab.page.locator("main h1").wait_for()
    return tab.page


def refresh(page: Any) -> None:
    """Has the page refresh now, as it does when a user returns to its tab."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def row(page: Any, name: str, namespace: str = "") -> Any:
    return page.get_by_role("row", name=re.compile(f"^{name} ?{namespace}")).first


def expect(locator: Any, text: str) -> None:
    """Waits for the text."""
    locator.filter(has_text=text).first.wait_for(timeout=PATIENCE)
