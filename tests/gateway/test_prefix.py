"""PrefixHash: requests that begin alike meet the same engine, on every gateway, while no engine has too much to do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from slipway.gateway.standalone import Standalone
from tests.gateway.conftest import Api, Engine, wait_for

CHAT = "/v1/chat/completions"
TEXT = "Tell me a story about harbours, tides and the ships that wait for them. " * 3


def prefix_hash(engines: list[Engine], **parameters: int) -> dict[str, object]:
    route = {"strategy": "PrefixHash", "prefixHash": parameters}
    return {"endpoints": [engine.endpoint for engine in engines], "route": route}


@pytest.fixture(scope="module")
def engines(make_engine: Callable[..., Engine]) -> list[Engine]:
    return [make_engine(f"e{number}") for number in range(4)]


@pytest.fixture(scope="module")
def hashed(make_gateway: Callable[..., Standalone], engines: list[Engine]) -> Iterator[Standalone]:
    made = make_gateway(maxBodyBytes=8 << 20)
    made.route({"m1": prefix_hash(engines, prefixCharLength=100), "m1_wiki": prefix_hash(engines[:2])})
    with made:
        wait_for(lambda: "m1" in (made.run / "rings.map").read_text())
        yield made


@pytest.fixture(scope="module")
def api(hashed: Standalone) -> Iterator[Api]:
    with Api(hashed.url) as made:
        yield made


def engine_of(api: Api, body: bytes | dict[str, Any], path: str = CHAT) -> str:
    data = body if isinstance(body, bytes) else json.dumps({"model": "m1", **body}).encode()
    answer = api.post(path, data=data)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-engine"]


def user(content: object, **more: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], **more}


def test_a_conversation_stays_where_it_began_and_conversations_spread(api: Api) -> None:
    seen = Counter()
    for number in range(40):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"{number} {TEXT}"}]
        first = engine_of(api, {"messages": messages})
        for turn in range(3):
            messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": f"And {turn}?"}]
            assert engine_of(api, {"messages": messages}) == first
        seen[first] += 1
    assert set(seen) == {"e0", "e1", "e2", "e3"}
    assert max(seen.values()) < 20
