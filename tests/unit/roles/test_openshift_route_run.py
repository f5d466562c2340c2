"""The role openshift_route against an API server: it publishes the gateway, predicts changes, reports errors, and
uninstalls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .cluster_api import OPENSHIFT, ClusterApi
from .role_run import run_role

pytestmark = pytest.mark.plays

PLACE = ("Route", "slipway-system", "slipway-gateway")
KEY = "-----BEGIN PRIVATE KEY----- of no use"


@pytest.fixture
def api(api: ClusterApi) -> ClusterApi:
    api.kinds += OPENSHIFT
    return api


def play(folder: Path, api: ClusterApi, entry: str, *flags: str, failing: bool = False, **variables: Any) -> str:
    return run_role(folder, api, "openshift_route", entry, *flags, failing=failing, **variables)


def test_the_router_gives_a_stream_more_time_than_the_gateway_does(tmp_path: Path, api: ClusterApi) -> None:
    play(tmp_path, api, "main", gateway_stream_idle_seconds="60", gateway_wake_seconds="7200")
    annotations = api.objects[PLACE]["metadata"]["annotations"]
    assert annotations["haproxy.router.openshift.io/timeout"] == "7260s"

    play(tmp_path, api, "main", openshift_route_annotations={"haproxy.router.openshift.io/timeout": "3h"})
    annotations = api.objects[PLACE]["metadata"]["annotations"]
    assert annotations["haproxy.router.openshift.io/timeout"] == "3h"


def test_a_certificate_of_ones_own_is_used_and_its_key_never_shown(tmp_path: Path, api: ClusterApi) -> None:
    certificate = {"openshift_route_certificate": "PEM", "openshift_route_key": KEY}
    output = play(tmp_path, api, "main", "--diff", "-vvv", openshift_route_host="models.example.com", **certificate)
    assert api.objects[PLACE]["spec"]["host"] == "models.example.com"
    assert api.objects[PLACE]["spec"]["tls"]["key"] == KEY
    assert "https://models.example.com/v1" in output
    assert KEY not in output

    output = play(tmp_path, api, "main", failing=True, openshift_route_certificate="PEM")
    assert "openshift_route_certificate and openshift_route_key must be set together" in output


def test_a_rejection_by_the_routers_ends_the_wait(tmp_path: Path, api: ClusterApi) -> None:
    api.failing = "route b already exposes this host"
    output = play(tmp_path, api, "main", failing=True, openshift_route_wait_timeout=60)
    assert "No router admits the Route slipway-gateway in namespace slipway-system" in output
    assert "route b already exposes this host (HostAlreadyClaimed)" in output


def test_a_route_that_no_router_admits_is_reported(tmp_path: Path, api: ClusterApi) -> None:
    api.routers = 0
    output = play(tmp_path, api, "main", failing=True, openshift_route_wait_timeout="1")
    assert "No router has processed the Route slipway-gateway in namespace slipway-system after 1 s" in output


def test_on_a_cluster_without_routes_it_says_what_there_is_instead(tmp_path: Path, api: ClusterApi) -> None:
    api.kinds = api.kinds[: -len(OPENSHIFT)]
    output = play(tmp_path, api, "main", failing=True)
    assert "This cluster does not serve route.openshift.io/v1" in output
    assert "gateway_service_type" in output
    assert "changed=0 " in play(tmp_path, api, "uninstall")


def test_a_foreign_route_stays_unchanged(tmp_path: Path, api: ClusterApi) -> None:
    api.put({"kind": "Route", "metadata": {"name": PLACE[2], "namespace": PLACE[1]}, "spec": {"host": "theirs"}})
    assert "changed=0 " in play(tmp_path, api, "uninstall")
    assert PLACE in api.objects
