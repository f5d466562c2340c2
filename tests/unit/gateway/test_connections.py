"""Connection limits of the public port and of hops."""

from __future__ import annotations

import re

import pytest

from slipway.gateway import connections
from slipway.gateway.render import DesiredState, files
from slipway.gateway.settings import Settings

FULL = Settings(memory_bytes=768 << 20)


def configuration(settings: Settings) -> str:
    return files(settings, DesiredState())["haproxy.cfg"]


def frontends(settings: Settings) -> list[str]:
    sections = re.split(r"^(?=frontend |backend )", configuration(settings), flags=re.MULTILINE)
    return [section for section in sections if section.startswith("frontend ")]


@pytest.mark.parametrize("settings", [Settings(), FULL, Settings(max_connections=100)])
def test_haproxy_accepts_as_many_connections_as_all_frontends_together(settings: Settings) -> None:
    limits = map(int, re.findall(r"^    maxconn (\d+)$", configuration(settings), re.MULTILINE))
    total, clients, *hops = limits
    assert total == clients + sum(hops) == connections.total(settings)
    assert clients == connections.client_limit(settings)


@pytest.mark.parametrize("per_address", [8750, 100000])
def test_no_address_may_fill_a_frontend(per_address: int) -> None:
    sections = frontends(Settings(max_connections_per_address=per_address))
    assert len(sections) == 5
    for section in sections:
        limit, share = (re.search(rf"{word} (\d+)", section) for word in ("maxconn", "sc1_conn_cur gt"))
        assert limit
        assert share
        assert int(share[1]) <= int(limit[1]) * 7 / 8


def test_without_a_limit_for_addresses_hops_refuse_none() -> None:
    assert "sc1_conn_cur" not in configuration(Settings(max_connections_per_address=0))


def test_a_hop_refuses_before_it_reads_a_body() -> None:
    reading = [part for part in frontends(Settings()) if "accept-proxy" in part and "wait-for-body" in part]
    assert len(reading) == 3
    for part in reading:
        assert part.index("sc1_conn_cur gt") < part.index("wait-for-body")


def test_every_hop_has_room_however_few_clients_memory_allows() -> None:
    assert connections.hop_limit(Settings(max_connections=3)) == 1
