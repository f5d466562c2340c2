"""Another cluster's catalog is a stranger: it is asked for what it may say, and for no more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from slipway.serving.wire.catalogs import GrantRequest
from slipway.weights.sources import catalogs
from slipway.weights.sources.catalogs import (
    CatalogEndpoint,
    CatalogError,
    authority,
    authorization,
    exchange,
    fetch_catalog,
    policy,
)

from ..catalog_server import ANYWHERE, DIGEST, OTHER, TOKEN, CatalogServer, Endless, catalog, data, entry, grant, silent
from ..certificates import Authority

REQUEST = GrantRequest(name="tiny", digest=DIGEST)


@pytest.fixture(scope="module")
def trusted() -> Authority:
    return Authority()


@pytest.fixture
def remote() -> CatalogServer:
    return CatalogServer()


@asynccontextmanager
async def serving(remote: CatalogServer, tls: Any) -> AsyncIterator[str]:
    server = TestServer(remote.application())
    await server.start_server(ssl=tls)
    yield f"https://127.0.0.1:{server.port}"
    await server.close()


@pytest.fixture
async def door(remote, trusted, tmp_path) -> AsyncIterator[CatalogEndpoint]:
    async with serving(remote, trusted.context(tmp_path)) as url:
        yield CatalogEndpoint(url=url, authorization=f"Bearer {TOKEN}", authority=trusted.pem)


async def refusal(door: CatalogEndpoint, allowed: Any = ANYWHERE) -> CatalogError:
    with pytest.raises(CatalogError) as refused:
        await fetch_catalog(door, allowed)
    assert TOKEN not in refused.value.message
    return refused.value


async def test_a_catalog_is_read_and_asked_whether_it_changed(door, remote):
    first = await fetch_catalog(door, ANYWHERE)
    assert first.document is not None
    assert [(one.name, one.digest, one.size) for one in first.document.entries] == [("tiny", DIGEST, 5)]
    assert (await fetch_catalog(door, ANYWHERE, first.tag)).document is None
    remote.document = catalog(entry(), entry("other", OTHER), revision="two")
    again = await fetch_catalog(door, ANYWHERE, first.tag)
    assert again.document is not None
    assert len(again.document.entries) == 2
    assert [tag for _path, tag in remote.requests] == ["", '"one"', '"one"']


async def test_unknown_entries_are_skipped(door, remote):
    remote.document = catalog(entry(facts={"family": "llama"}, later=1), news=[])
    assert (await fetch_catalog(door, ANYWHERE)).document is not None


async def test_a_catalog_that_sends_more_than_it_may_is_refused_before_it_has_ended(door, remote):
    remote.instead = endless = Endless()
    refused = await refusal(door)
    assert (refused.reason, refused.passing) == ("InvalidCatalog", False)
    assert "more than 8388608 bytes" in refused.message
    assert endless.sent < 100


async def test_a_catalog_that_never_ends_is_given_up(door, remote, monkeypatch):
    monkeypatch.setattr(catalogs, "_LIMIT", aiohttp.ClientTimeout(total=0.3))
    remote.instead = silent
    refused = await refusal(door)
    assert (refused.reason, refused.passing) == ("Unreachable", True)


@pytest.mark.parametrize("target", ["/elsewhere", "https://elsewhere.example/v1/catalog", "http://127.0.0.1:1/"])
async def test_redirects_are_not_followed(door, remote, target):
    remote.redirect = target
    assert (await refusal(door)).reason == "Redirected"
    assert [path for path, _tag in remote.requests] == ["/v1/catalog"]


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        catalog(apiVersion="catalog.slipway.inference/v2"),
        catalog(revision=""),
        catalog(entry(digest="sha256:a")),
        catalog(entry(digest=f"sha256:{'A' * 64}")),
        catalog(entry(size=0)),
        catalog(entry("../tiny")),
        catalog(entry(), entry(digest=OTHER)),
    ],
    ids=["list", "empty", "version", "revision", "short", "upper-case", "size", "name", "twice"],
)
async def test_an_invalid_catalog_is_rejected_as_a_whole(door, remote, document):
    remote.document = document
    assert (await refusal(door)).reason == "InvalidCatalog"


@pytest.mark.parametrize(
    ("status", "reason", "passing"),
    [
        (206, "Refused", False),
        (304, "InvalidCatalog", False),
        (401, "Unauthorized", False),
        (403, "Unauthorized", False),
        (404, "Refused", False),
        (429, "Refused", True),
        (500, "Refused", True),
        (503, "Refused", True),
    ],
)
async def test_an_answer_that_refuses_says_whether_it_may_pass(door, remote, status, reason, passing):
    remote.status = status
    refused = await refusal(door)
    assert (refused.reason, refused.passing) == (reason, passing)


async def test_a_server_with_another_authority_gets_no_credential(remote, trusted, tmp_path):
    async with serving(remote, Authority("another").context(tmp_path)) as url:
        door = CatalogEndpoint(url=url, authorization=f"Bearer {TOKEN}", authority=trusted.pem)
        assert (await refusal(door)).reason == "InvalidCertificate"
        with_public = CatalogEndpoint(url=url, authorization=f"Bearer {TOKEN}")
        assert (await refusal(with_public)).reason == "InvalidCertificate"
    assert remote.credentials == []


@pytest.mark.parametrize(
    ("url", "blocked"),
    [
        ("https://127.0.0.1:{port}", ()),
        ("https://localhost:{port}", ()),
        ("https://169.254.169.254", ()),
        ("https://[fd00:ec2::254]", ()),
        ("https://10.1.2.3", ("10.1.0.0/16",)),
        ("http://catalog.example", ()),
        ("https://catalog.example:99999", ()),
    ],
)
async def test_some_addresses_are_never_asked(door, remote, trusted, url, blocked):
    port = door.url.rpartition(":")[2]
    there = CatalogEndpoint(url=url.format(port=port), authorization=f"Bearer {TOKEN}", authority=trusted.pem)
    assert (await refusal(there, policy(blocked))).reason == "AddressNotAllowed"
    assert remote.credentials == []


async def test_a_catalog_that_is_away_may_be_back(trusted):
    there = CatalogEndpoint(url="https://127.0.0.1:1", authorization="Bearer x", authority=trusted.pem)
    refused = await refusal(there)
    assert (refused.reason, refused.passing) == ("Unreachable", True)


def test_other_clusters_have_private_addresses():
    assert policy().refusal("catalog.example", "10.1.2.3") is None
    assert policy().refusal("catalog.example", "203.0.113.9") is None


async def test_a_grant_is_for_what_was_asked_for(door, remote):
    given = await exchange(door, ANYWHERE, REQUEST)
    assert (given.registry, given.repository, given.token) == (
        "registry.example:5000",
        "cluster/tiny/uid",
        "pull-token",
    )
    assert remote.bodies == [{"name": "tiny", "digest": DIGEST}]


@pytest.mark.parametrize(
    "given",
    [
        grant(OTHER),
        grant(registry="registry.example/path"),
        grant(registry="user@registry.example"),
        grant(repository="../cluster"),
        grant(token="two\nlines"),
        grant(token=""),
        {},
    ],
    ids=["digest", "path", "user", "repository", "lines", "none", "empty"],
)
async def test_a_grant_that_lies_is_refused(door, remote, given):
    remote.grant = given
    with pytest.raises(CatalogError) as refused:
        await exchange(door, ANYWHERE, REQUEST)
    assert refused.value.reason == "InvalidGrant"
    assert "pull-token" not in refused.value.message


def test_a_secret_has_a_token_or_a_name_and_password():
    assert authorization(data(token="x", username="a", password="b")) == "Bearer x"
    assert authorization(data(username="a", password="b\n")) == "Basic YTpi"
    for wrong in ({}, data(username="a"), data(token="two\nlines"), {"token": "%%%"}):
        with pytest.raises(CatalogError) as refused:
            authorization(wrong)
        assert refused.value.reason == "InvalidCredentials"


def test_an_authority_stands_under_its_key(trusted):
    assert authority(data(ca_crt=trusted.pem)) == trusted.pem.strip()
    with pytest.raises(CatalogError):
        authority(data(token="x"))


async def test_an_authority_that_is_none_is_reported(door):
    broken = CatalogEndpoint(
        url=door.url, authorization=door.authorization, authority="-----BEGIN CERTIFICATE-----\nx\n"
    )
    assert (await refusal(broken)).reason == "InvalidAuthority"


def test_a_door_shows_no_credential(door):
    assert TOKEN not in repr(door)
    assert TOKEN not in str(door)
