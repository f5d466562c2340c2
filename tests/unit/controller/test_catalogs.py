"""Catalogs of other clusters are read again and again, and what was read last serves on."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from slipway.apis.deckhouse.api import CATALOG_SOURCES
from slipway.apis.deckhouse.names import CATALOG_SOURCE
from slipway.apis.labels import RESERVED
from slipway.controller.inputs.caches import Caches
from slipway.controller.inputs.catalogs import Catalogs
from slipway.controller.loaders.agents import LoaderClients
from slipway.controller.reconciling.reconciler import Reconciler
from slipway.controller.scaling.scaled import ScaledResources
from slipway.kube.api.client import Client
from slipway.kube.metrics import Metrics
from slipway.kube.objects import SECRET, Key, Object
from slipway.kube.writes.events import Recorder
from slipway.serving.contract.settings import Settings
from slipway.serving.wire.catalogs import CatalogAddress

from ..catalog_server import ANYWHERE, OTHER, TOKEN, CatalogServer, catalog, data, entry
from ..certificates import Authority
from ..kube.conftest import refuse
from .conftest import KEY

SYSTEM = "system"
EAST = Key("", "east")


@pytest.fixture(scope="module")
def trusted() -> Authority:
    return Authority()


@pytest.fixture
def remote() -> CatalogServer:
    return CatalogServer()


@pytest.fixture
async def url(remote, trusted, tmp_path) -> AsyncIterator[str]:
    server = TestServer(remote.application())
    await server.start_server(ssl=trusted.context(tmp_path))
    yield f"https://127.0.0.1:{server.port}"
    await server.close()


@pytest.fixture
async def secrets(server, trusted) -> None:
    await secret(server, "catalog", token=TOKEN)
    await secret(server, "authority", ca_crt=trusted.pem)


async def secret(server: Any, name: str, **values: str) -> None:
    await server.put(SECRET.path(SYSTEM, name), kind="Secret", data=data(**values))


@pytest.fixture
async def catalogs(client, secrets) -> AsyncIterator[Catalogs]:
    catalog_reader = Catalogs(client, SYSTEM, allowed=ANYWHERE)
    yield catalog_reader
    await catalog_reader.close()


def address(url: str, seconds: float = 0.02, **fields: str) -> CatalogAddress:
    named = {"credentials": "catalog", "authority": "authority", **fields}
    return CatalogAddress(url=url, refresh_seconds=seconds, **named)


def names_of(catalogs: Catalogs) -> list[str]:
    remote_catalog = catalogs.latest.get("east")
    return [one.name for one in remote_catalog.entries] if remote_catalog else []


async def test_a_new_entry_of_a_remote_catalog_appears(catalogs, remote, url, eventually):
    keys: list[Key] = []
    catalogs.on_change(CATALOG_SOURCE, keys.append)
    catalogs.follow(CATALOG_SOURCE, EAST, address(url))
    await eventually(lambda: names_of(catalogs) == ["tiny"])
    assert set(keys) == {EAST}
    remote.document = catalog(entry(), entry("other", OTHER), revision="two")
    await eventually(lambda: names_of(catalogs) == ["tiny", "other"])
    await eventually(lambda: remote.requests[-1] == ("/v1/catalog", '"two"'))
    assert catalogs.latest["east"].revision == "two"


async def test_the_last_read_catalog_stays_while_the_other_side_is_unreachable(
    catalogs, remote, url, eventually, caplog
):
    caplog.set_level(logging.WARNING)
    catalogs.follow(CATALOG_SOURCE, EAST, address(url))
    await eventually(lambda: names_of(catalogs) == ["tiny"])
    remote.status = 503
    await eventually(lambda: catalogs.latest["east"].fault)
    away = catalogs.latest["east"]
    assert (away.ready, away.fault, names_of(catalogs)) == (True, "Refused", ["tiny"])
    remote.status = 200
    await eventually(lambda: not catalogs.latest["east"].fault)
    assert len(caplog.records) == 1
    assert TOKEN not in caplog.text


async def test_a_catalog_that_turns_into_something_else_is_not_believed(catalogs, remote, url, eventually):
    catalogs.follow(CATALOG_SOURCE, EAST, address(url))
    await eventually(lambda: names_of(catalogs) == ["tiny"])
    remote.document = catalog(entry(digest="sha256:of-something-else"), revision="two")
    await eventually(lambda: catalogs.latest["east"].fault == "InvalidCatalog")
    assert (catalogs.latest["east"].ready, catalogs.latest["east"].revision) == (False, "one")


async def test_a_credential_may_be_replaced_at_any_time(catalogs, remote, url, server, eventually):
    catalogs.follow(CATALOG_SOURCE, EAST, address(url))
    await eventually(lambda: names_of(catalogs) == ["tiny"])
    remote.accepted = {"Bearer another"}
    await eventually(lambda: catalogs.latest["east"].fault == "Unauthorized")
    assert not catalogs.latest["east"].ready
    await secret(server, "catalog", token="another")
    await eventually(lambda: catalogs.latest["east"].ready)


async def test_a_catalog_is_not_asked_without_its_secrets(catalogs, remote, url, server, eventually):
    catalogs.follow(CATALOG_SOURCE, EAST, address(url, credentials="missing"))
    await eventually(lambda: "east" in catalogs.latest)
    assert catalogs.latest["east"].fault == "SecretMissing"
    server.fault("GET", "secrets/authority", refuse(403, "Forbidden"), times=10**9)
    catalogs.follow(CATALOG_SOURCE, EAST, address(url))
    await eventually(lambda: "east" in catalogs.latest)
    assert catalogs.latest["east"].fault == "SecretForbidden"
    assert "controller_catalog_secrets" in catalogs.latest["east"].message
    assert remote.requests == []


async def test_another_address_is_unknown(catalogs, remote, url, eventually):
    catalogs.follow(CATALOG_SOURCE, EAST, address(url))
    await eventually(lambda: names_of(catalogs) == ["tiny"])
    catalogs.follow(CATALOG_SOURCE, EAST, address("https://127.0.0.1:1"))
    assert "east" not in catalogs.latest
    await eventually(lambda: "east" in catalogs.latest)
    assert (catalogs.latest["east"].fault, names_of(catalogs)) == ("Unreachable", [])


async def test_a_source_that_is_gone_is_asked_no_more(catalogs, remote, url, eventually, rest):
    catalogs.follow(CATALOG_SOURCE, EAST, address(url))
    await eventually(lambda: names_of(catalogs) == ["tiny"])
    catalogs.follow(CATALOG_SOURCE, EAST, None)
    await rest(lambda: len(remote.requests))
    assert dict(catalogs.latest) == {}


async def test_a_catalog_that_is_followed_twice_is_read_once_per_interval(catalogs, remote, url, eventually, rest):
    catalogs.follow(CATALOG_SOURCE, EAST, address(url, seconds=600))
    catalogs.follow(CATALOG_SOURCE, EAST, address(url, seconds=600))
    await eventually(lambda: names_of(catalogs) == ["tiny"])
    await rest(lambda: len(remote.requests))
    assert len(remote.requests) == 1


@pytest.fixture
async def controller(client: Client, session, start, catalogs) -> AsyncIterator[None]:
    settings, metrics = Settings(system_namespace=SYSTEM), Metrics()
    caches, agents = Caches(client, [CATALOG_SOURCES], settings), LoaderClients(client, session)
    agents.sign_with(KEY)
    recorder = Recorder(client, "test", metrics=metrics)
    reconciler = Reconciler(
        CATALOG_SOURCES, client, caches, settings, recorder, agents, ScaledResources(), RESERVED, catalogs
    )
    for informer in caches.informers:
        start(informer.run())
    start(reconciler.controller(2, metrics).run())
    yield
    await agents.close()


async def test_the_status_of_a_source_tells_what_was_read(server, controller, catalogs, remote, url, eventually):
    path = CATALOG_SOURCE.path("", "east")

    def status() -> Object:
        status_fields: Object = server.objects.get(path, {}).get("status", {})
        return status_fields

    def condition() -> tuple[str, str]:
        first_condition = next(iter(status().get("conditions", [])), {})
        return first_condition.get("status", ""), first_condition.get("reason", "")

    spec = {"url": url, "credentialsSecretName": "catalog", "caSecretName": "authority"}
    named = {"kind": "ModelCatalogSource", "apiVersion": CATALOG_SOURCE.api_version}
    await server.put(path, **named, spec=spec)
    await eventually(lambda: condition() == ("True", "Ready"))
    assert (status()["catalogRevision"], status()["entryCount"]) == ("one", 1)
    assert TOKEN not in str(server.objects[path])
    await server.put(path, **named, spec={**spec, "refreshInterval": "often"})
    await eventually(lambda: condition() == ("False", "InvalidRefreshInterval"))
    await server.remove(path)
    await eventually(lambda: not catalogs.latest)
