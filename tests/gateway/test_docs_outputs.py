"""The answers of a gateway with API keys that pages show: their curl commands are sent to a real one.

The cluster of tests/docs has a gateway without keys. SLIPWAY_WRITE_OUTPUTS=1 writes the pages, see
tests/docs/outputs.py.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.docs import outputs
from tests.docs.pages import PAGES, Block, blocks, commands
from tests.gateway.conftest import Engine, settle
from tests.gateway.standalone import PATIENCE, Standalone

NAME = "tests/gateway/test_docs_outputs.py"
SHOWN = [
    (above, below)
    for page in PAGES
    for above, below in outputs.shown_outputs(blocks(page))
    if above.marks.get("elsewhere") == NAME
]
KEYS = {"search": "sk-search-0123456789", "me": "demo-key-1"}
RIGHTS = {"search": {"models": ["qwen2-0-5b", "search/*"]}, "me": {"models": ["tiny"]}}
ADDRESSES = (
    "http://127.0.0.1:8080",
    "http://127.0.0.1:8081",
    "https://models.example.com",
    "https://slipway-gateway-slipway-system.apps.example.com",
)
"""Where the pages have their gateway."""


@pytest.fixture(scope="module")
def gateway(make_gateway: Callable[..., Standalone], engine: Engine) -> Iterator[Standalone]:
    gateway = make_gateway(apiKeysSecret="keys")
    gateway.route({name: [engine.endpoint] for name in ("qwen2-0-5b", "smollm2-135m", "tiny")}, KEYS, {}, RIGHTS)
    with gateway:
        settle(gateway)
        yield gateway


@pytest.mark.parametrize(("above", "below"), SHOWN, ids=[above.name for above, _below in SHOWN])
def test_the_page_shows_what_the_gateway_answers(above: Block, below: Block, gateway: Standalone) -> None:
    printed = "".join(run(command, gateway) for command in commands(above) if command.startswith("curl "))
    if os.environ.get(outputs.WRITE):
        page = above.page
        page.write_text(outputs.rewritten(page.read_text(), blocks(page), {above.text: printed}))
        [below] = [shown for text, shown in outputs.shown_outputs(blocks(page)) if text.text == above.text]
    assert outputs.matches(below.text, printed), f"{below.name} shows\n{below.text}\nbut the gateway answers\n{printed}"


def run(command: str, gateway: Standalone) -> str:
    for address in ADDRESSES:
        command = command.replace(address, gateway.url)
    environment = os.environ | {"API_KEY": KEYS["search"]}
    done = subprocess.run(
        ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    return f"{done.stdout}\n"
