"""A loader connects to a spec's addresses only if the guard allows it, and error messages reveal no secrets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from slipway.artifacts.locations.address_policy import AddressPolicy
from slipway.loader.download.stage import opened, stage
from slipway.loader.transport import http
from slipway.loader.transport.errors import LoadError
from slipway.loader.transport.source import Access

from .conftest import Loading, Service, work
from .site import SHA, WHOLE, Site


@pytest.mark.parametrize("name", ["127.0.0.1", "2130706433", "0x7f.1", "localhost", "127.1"])
def test_addresses_that_only_the_cluster_can_reach_get_no_request(site: Site, folder: Path, name: str) -> None:
    url = site.url.replace("127.0.0.1", name)
    with pytest.raises(LoadError, match=r"^SourceNotAllowed: .*: ask the operator to allow it$") as raised:
        stage(url, partial(opened, url, {}, AddressPolicy()), folder, WHOLE, work())
    assert not raised.value.transient
    assert site.service
    assert site.service.seen == []


def test_a_load_from_an_allowed_address_succeeds(site: Site, folder: Path) -> None:
    url = site.url
    assert stage(url, partial(opened, url, {}, AddressPolicy(("127.0.0.0/8",))), folder, WHOLE, work()).sha256 == SHA


def test_a_redirect_leads_nowhere_that_is_not_allowed(
    start: Callable[[web.Application], Service], site: Site, folder: Path
) -> None:
    async def elsewhere(_request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound(site.url.replace("127.0.0.1", "127.0.0.2"))

    app = web.Application()
    app.router.add_get("/tiny.gguf", elsewhere)
    url = f"{start(app).url}/tiny.gguf"
    with pytest.raises(LoadError, match=r"^SourceNotAllowed: 127.0.0.2"):
        stage(url, partial(opened, url, {}, AddressPolicy(("127.0.0.1",))), folder, WHOLE, work())


def test_a_name_with_one_address_that_is_not_allowed_is_not_asked_at_all(
    site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which of its addresses would be asked is not ours to say; nor may it say another one a moment later."""
    hosts: list[str] = []

    def getaddrinfo(host: str, port: int, **_others: Any) -> list[Any]:
        hosts.append(host)
        return [(2, 1, 6, "", (address, port)) for address in ("127.0.0.1", "10.0.0.7")]

    monkeypatch.setattr("socket.getaddrinfo", getaddrinfo)
    url = site.url.replace("127.0.0.1", "weights.example")
    with pytest.raises(LoadError, match=r"weights.example resolves to 10.0.0.7, which is a private address"):
        stage(url, partial(opened, url, {}, AddressPolicy(("127.0.0.1",))), folder, WHOLE, work())
    allowed = AddressPolicy(("weights.example",))
    hosts.clear()
    assert stage(url, partial(opened, url, {}, allowed), folder, WHOLE, work()).sha256 == SHA
    assert set(hosts) == {"weights.example"}


def test_a_host_that_is_not_there_is_asked_again_later(folder: Path) -> None:
    url = "http://127.0.0.1:9/x.gguf"
    with pytest.raises(LoadError, match=r"cannot be reached") as raised:
        stage(url, partial(opened, url, {}, AddressPolicy(("127.0.0.1",))), folder, WHOLE, work())
    assert raised.value.transient


def test_nothing_secret_is_reported(site: Site, folder: Path) -> None:
    url = site.url.replace("http://", "http://me:hunter2@").replace("tiny.gguf", "none?sig=hunter2")
    with pytest.raises(LoadError) as raised:
        stage(url, partial(opened, url, {}, None), folder, WHOLE, work())
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "variable"), [("hf://acme/tiny", "HF_ENDPOINT"), ("gs://models/team/tiny", "STORAGE_EMULATOR_HOST")]
)
def test_an_endpoint_that_a_spec_names_is_asked_only_where_the_guard_lets_it(
    hub: Service, loading: Loading, url: str, variable: str
) -> None:
    loading.env, loading.access = {variable: hub.url}, Access(AddressPolicy())
    with pytest.raises(LoadError, match=r"^SourceNotAllowed: 127\.0\.0\.1 is this host"):
        loading(url)
    assert hub.seen == []


def test_a_hub_leads_nowhere_that_is_not_allowed(hub: Service, loading: Loading) -> None:
    """Its large files come from elsewhere."""
    loading.env, loading.access = {"HF_ENDPOINT": hub.url}, Access(AddressPolicy(("127.0.0.1",)))

    async def interfere(request: web.Request) -> web.StreamResponse | None:
        if request.path.endswith("tiny.gguf"):
            raise web.HTTPFound(hub.url.replace("127.0.0.1", "127.0.0.2"))
        return None

    hub.interfere = interfere
    with pytest.raises(LoadError, match=r"^SourceNotAllowed: 127\.0\.0\.2"):
        loading("hf://acme/tiny")


@pytest.mark.parametrize("allowed", [True, False])
def test_a_proxy_that_a_spec_names_is_asked_only_where_the_guard_lets_it(
    site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    monkeypatch.setenv("HTTP_PROXY", site.url.removesuffix("/tiny.gguf"))
    guard = AddressPolicy(("127.0.0.0/8",) if allowed else (), proxies=True)
    assert site.service
    with pytest.raises(LoadError, match="no such file" if allowed else r"^SourceNotAllowed: 127\.0\.0\.1"):
        stage(
            "http://weights.example/x.gguf",
            partial(opened, "http://weights.example/x.gguf", {}, guard),
            folder,
            WHOLE,
            work(),
        )
    assert bool(site.service.seen) == allowed


def test_a_proof_follows_no_redirect_to_another_host(site: Site, start: Callable[[web.Application], Service]) -> None:
    seen: list[set[str]] = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        seen.append({name.lower() for name in request.headers})
        return web.Response(text="here")

    async def leads(request: web.Request) -> web.StreamResponse:
        place = request.query.get("to") or other.url.replace("127.0.0.1", "localhost")
        answer = web.Response(status=307, headers={"Location": f"{place}/elsewhere"})
        answer.set_cookie("session", "of-this-host")
        return answer

    app = web.Application()
    app.router.add_get("/elsewhere", elsewhere)
    other = start(app)
    first = web.Application()
    first.router.add_get("/x", leads)
    first.router.add_get("/elsewhere", elsewhere)
    url = start(first).url
    proofs = {"Authorization": "Bearer x", "X-Amz-Security-Token": "t", "X-Amz-Date": "d", "X-Goog-User-Project": "p"}
    client = http.session({})
    http.send(client, "GET", f"{url}/x", {**proofs, "Range": "bytes=1-", "Cookie": "a=b"})
    names = {name.lower() for name in proofs} | {"cookie"}
    assert seen[0].isdisjoint(names)
    assert "range" in seen[0]
    http.send(client, "GET", f"{url}/x?to={url}", proofs)
    assert names <= seen[1], "the same host is asked with them"
