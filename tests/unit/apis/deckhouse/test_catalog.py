"""The status of a ModelCatalogSource, and what it has read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.apis.deckhouse.api import CATALOG_SOURCES
from slipway.kube.objects import Object
from slipway.serving.contract.api import InvalidSpecError, Rejection, World
from slipway.serving.contract.settings import Settings
from slipway.serving.wire import catalogs
from slipway.serving.wire.catalogs import Catalog, CatalogAddress

ADDRESS = CatalogAddress(
    url="https://catalog.example/base", credentials="catalog", authority="catalog-ca", refresh_seconds=600
)
TINY = catalogs.Entry(name="tiny", digest=f"sha256:{'a' * 64}", size=7)
GONE = msgspec.structs.replace(TINY, name="gone", active=False)
READ = Catalog(address=ADDRESS, revision="one", entries=(TINY, GONE), refreshed=1_800_000_000.0)
SPEC = {
    "url": "https://catalog.example/base/",
    "credentialsSecretName": "catalog",
    "caSecretName": "catalog-ca",
}
WRITTEN = {
    "observedGeneration": 1,
    "catalogRevision": "one",
    "entryCount": 1,
    "lastSuccessfulRefreshTime": "2027-01-15T08:00:00Z",
}


def world(is_known: Catalog | None = None, spec: Object | None = None, status: Object | None = None) -> World:
    listers: Any = None
    resource = {"metadata": {"name": "east", "uid": "u", "generation": 1}, "spec": spec or SPEC, "status": status or {}}
    return World(
        resource=resource,
        children={},
        pods=(),
        routed=(),
        settings=Settings(),
        now=0.0,
        listers=listers,
        catalogs={"east": is_known} if is_known else {},
    )


def ready(status: Object) -> tuple[str, str]:
    (condition,) = status["conditions"]
    assert condition["type"] == "Ready"
    return condition["status"], condition["reason"]


def test_a_source_has_its_catalog_read():
    assert CATALOG_SOURCES.plan(world()).catalog == ADDRESS


@pytest.mark.parametrize(("interval", "seconds"), [("1h", 3600), ("30s", 30), ("1s", 30), ("", 600)])
def test_an_interval_has_a_floor(interval, seconds):
    plan = CATALOG_SOURCES.plan(world(spec={**SPEC, "refreshInterval": interval}))
    assert plan.catalog is not None
    assert plan.catalog.refresh_seconds == seconds


def test_an_interval_that_is_none_is_reported():
    with pytest.raises(InvalidSpecError) as refused:
        CATALOG_SOURCES.plan(world(spec={**SPEC, "refreshInterval": "often"}))
    assert refused.value.reason == "InvalidRefreshInterval"
    status = CATALOG_SOURCES.status(world(), Rejection(refused.value.reason, refused.value.message)).status
    assert ready(status) == ("False", "InvalidRefreshInterval")


@pytest.mark.parametrize("spec", [{"url": 1}, {"url": "https://a.example"}, {**SPEC, "url": "http://a.example"}, []])
def test_values_that_no_definition_accepts_are_rejected(spec):
    with pytest.raises(InvalidSpecError) as refused:
        CATALOG_SOURCES.plan(world(spec=spec or {"url": None}))
    assert refused.value.reason == "InvalidSpec"


def test_a_read_source_is_reported_without_its_entries():
    status = CATALOG_SOURCES.status(world(READ), None).status
    assert {name: value for name, value in status.items() if name != "conditions"} == WRITTEN
    assert ready(status) == ("True", "Ready")
    assert TINY.digest not in str(status)


def test_before_the_first_look_it_is_not_ready():
    assert ready(CATALOG_SOURCES.status(world(), None).status) == ("False", "Pending")


def test_a_controller_that_restarts_leaves_the_status_until_it_has_looked():
    before = CATALOG_SOURCES.status(world(READ), None).status
    assert CATALOG_SOURCES.status(world(status=before), None).status == before


def test_the_last_read_catalog_counts_while_the_other_side_is_unreachable():
    away = msgspec.structs.replace(READ, fault="Unreachable", message="The catalog does not answer.", passing=True)
    status = CATALOG_SOURCES.status(world(away), None).status
    assert ready(status) == ("True", "Stale")
    assert {name: status[name] for name in WRITTEN} == WRITTEN


@pytest.mark.parametrize("read", [True, False])
def test_a_credential_that_is_refused_makes_it_not_ready(read):
    catalog = READ if read else Catalog(address=ADDRESS)
    refused = msgspec.structs.replace(catalog, fault="Unauthorized", message="It says no.")
    status = CATALOG_SOURCES.status(world(refused), None).status
    assert ready(status) == ("False", "Unauthorized")
    assert ("catalogRevision" in status) is read
