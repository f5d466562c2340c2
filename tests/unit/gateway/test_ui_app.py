"""The handlers below /ui/: files, JSON API, and headers that restrict the browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from slipway.gateway.haproxy.metrics import RawCounters
from slipway.gateway.haproxy.socket import CommandError
from slipway.gateway.routing.keys import Rights
from slipway.gateway.rules import page as access
from slipway.gateway.rules.limits import KEY_HEADER
from slipway.gateway.ui.app import HEADERS, Page
from tests.ui.worlds import World, every_state, many

MOST_BYTES = 200_000
"""What a browser loads to show a gateway with 1,000 models."""


class PageSetup:
    """The inputs of the page."""

    def __init__(self) -> None:
        self.world = every_state()
        self.others: dict[str, Any] = {}
        self.counted = True
        self.readings = 0
        self.rights: dict[str, Rights] = {}

    async def counters(self) -> RawCounters:
        self.readings += 1
        if not self.counted:
            raise CommandError("HAProxy does not answer")
        return RawCounters("# pxname,svname\n", "", "")

    def page(self) -> Page:
        return Page(
            lambda: self.world.shown()[1],
            lambda: self.world.shown(**self.others)[0],
            self.counters,
            keys=False,
            replica="gateway-0",
            rights=lambda: self.rights,
        )


@pytest.fixture
def page_setup() -> PageSetup:
    return PageSetup()


@pytest.fixture
async def client(page_setup: PageSetup) -> AsyncIterator[TestClient[Any, Any]]:
    application = web.Application()
    page_setup.page().add_to(application)
    async with TestClient(TestServer(application)) as test_client:
        yield test_client


async def get_json(client: TestClient[Any, Any], path: str) -> Any:
    async with client.get(path) as answer:
        assert answer.status == 200
        return await answer.json()


@pytest.mark.parametrize("name", access.FILES)
async def test_each_file_has_headers_that_restrict_the_browser(client: TestClient[Any, Any], name: str) -> None:
    async with client.get(f"/ui/{name}") as answer:
        assert answer.status == 200
        assert HEADERS.items() <= answer.headers.items()
        assert await answer.read()


async def test_a_browser_that_has_a_file_gets_no_second_copy(client: TestClient[Any, Any]) -> None:
    async with client.get("/ui/main.js") as first:
        tag = first.headers["ETag"]
    async with client.get("/ui/main.js", headers={"If-None-Match": tag}) as second:
        assert (second.status, await second.read()) == (304, b"")


async def test_the_policy_allows_no_script_style_or_request_from_elsewhere_and_no_markup_from_text() -> None:
    policy = HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy


async def test_a_key_sees_only_models_that_it_may_use(page_setup: PageSetup, client: TestClient[Any, Any]) -> None:
    everything = await get_json(client, "/ui/api/models")
    page_setup.rights = {"team": Rights(models=("default/tiny",))}
    async with client.get("/ui/api/models", headers={KEY_HEADER: "team"}) as answer:
        own = await answer.json()
    assert [(model["namespace"], model["name"]) for model in own["models"]] == [("default", "tiny")]
    assert {conflict["service"] for conflict in own["conflicts"]} <= {"tiny"}
    other = next(model for model in everything["models"] if model["name"] != "tiny")
    path = f"/ui/api/models/{other['kind']}/{other['namespace']}/{other['name']}"
    assert (await client.get(path)).status == 200
    assert (await client.get(path, headers={KEY_HEADER: "team"})).status == 404
    async with client.get("/ui/api/models", headers={KEY_HEADER: "operator"}) as answer:
        assert (await answer.json())["models"] == everything["models"]


async def test_the_overview_has_models_conflicts_and_the_replica(client: TestClient[Any, Any]) -> None:
    body = await get_json(client, "/ui/api/models")
    assert body["replica"] == "gateway-0"
    assert (body["keys"], body["counted"]) == (False, True)
    assert len(body["models"]) == 13
    assert body["models"][0] == {
        "kind": "models.krypton.ai",
        "namespace": "default",
        "name": "tiny",
        "state": "ready",
        "reason": "Ready",
        "message": "1 of 1 replicas answers.",
        "ids": ["tiny", "default/tiny"],
        "features": ["TextGeneration"],
        "source": "hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF/qwen2.5-0.5b-instruct-q4_k_m.gguf",
        "created": 1793610000,
        "ready": 2,
        "wanted": 2,
    }
    assert [conflict["service"] for conflict in body["conflicts"]] == ["draft", "tiny"]


async def test_a_model_is_found_by_kind_namespace_and_name(client: TestClient[Any, Any]) -> None:
    body = await get_json(client, "/ui/api/models/models.kubeai.org/support/helper")
    assert body["model"]["state"] == "degraded"
    assert body["conditions"][0][:3] == ["Ready", "True", "OutOfGpuMemory"]
    async with client.get("/ui/api/models/models.kubeai.org/support/nobody") as answer:
        assert answer.status == 404
        assert (await answer.json())["error"]["message"] == "There is no such model."


async def test_a_resource_of_the_whole_cluster_has_a_dash_for_its_namespace(
    client: TestClient[Any, Any], page_setup: PageSetup
) -> None:
    kind, obj = page_setup.world.resources[0]
    del obj["metadata"]["namespace"]
    body = await get_json(client, f"/ui/api/models/{kind.plural}.{kind.group}/-/tiny")
    assert body["model"]["namespace"] == ""


async def test_many_pages_share_one_reading_of_haproxys_counters(
    client: TestClient[Any, Any], page_setup: PageSetup
) -> None:
    page_setup.world = World()
    for _unused in range(20):
        await get_json(client, "/ui/api/models")
    assert page_setup.readings < 20
    before = page_setup.readings
    for _unused in range(20):
        await client.get("/ui/api/models/models.kubeai.org/support/helper")
    assert page_setup.readings < before + 20


async def test_without_haproxy_models_are_shown_without_counters(
    client: TestClient[Any, Any], page_setup: PageSetup
) -> None:
    page_setup.counted = False
    body = await get_json(client, "/ui/api/models")
    assert body["counted"] is False
    assert body["models"]


async def test_an_unreachable_api_server_is_reported(client: TestClient[Any, Any], page_setup: PageSetup) -> None:
    page_setup.others = {"away_since": 1793610000.5, "unread": ("models.kubeai.org",)}
    body = await get_json(client, "/ui/api/models")
    assert (body["away_since"], body["unread"]) == (1793610000, ["models.kubeai.org"])


async def test_a_page_with_1000_models_stays_small(client: TestClient[Any, Any], page_setup: PageSetup) -> None:
    page_setup.world = many(1000)
    size = 0
    for path in (*(f"/ui/{name}" for name in access.FILES), "/ui/api/models"):
        async with client.get(path, headers={"Accept-Encoding": "gzip"}) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            size += int(answer.headers["Content-Length"])
    assert size < MOST_BYTES


async def test_other_paths_have_nothing(client: TestClient[Any, Any]) -> None:
    for path in ("/ui/nothing", "/ui/app.py", "/ui/api", "/ui/%2e%2e/app.py"):
        async with client.get(path) as answer:
            assert answer.status == 404
