"""Connection limits of the public port and of hops."""

from __future__ import annotations

import re
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from slipway.gateway import memory
from slipway.gateway.haproxy.render import DesiredState, render_files
from slipway.gateway.main import main
from slipway.gateway.rules import connections
from slipway.gateway.settings import Settings

FULL = Settings(memory_bytes=768 << 20)


def configuration(settings: Settings) -> str:
    return render_files(settings, DesiredState())["haproxy.cfg"]


def frontends(settings: Settings) -> list[str]:
    sections = re.split(r"^(?=frontend |backend )", configuration(settings), flags=re.MULTILINE)
    return [section for section in sections if section.startswith("frontend ")]


@pytest.mark.parametrize("settings", [Settings(), FULL, Settings(max_connections=100)])
def test_haproxy_accepts_as_many_connections_as_all_frontends_together(settings: Settings) -> None:
    limits = map(int, re.findall(r"^    maxconn (\d+)$", configuration(settings), re.MULTILINE))
    total, clients, *hops = limits
    assert total == clients + sum(hops) == connections.total_connections(settings)
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


@pytest.mark.parametrize("most", [1000, 10_000])
@pytest.mark.parametrize("mib", [128, 256, 768, 4096])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_no_address_may_hold_all_buffers(threads: int, mib: int, most: int) -> None:
    """A request whose client does not read the answer holds two buffers, and two more in each hop."""
    settings = Settings(memory_bytes=mib << 20, threads=threads, max_body_bytes=1 << 20, max_connections=most)
    public, *hops = frontends(settings)
    limit = connections.address_limit(settings)
    assert f"sc_conn_cur(4) gt {limit}" in public
    counted = [f"sc_conn_cur(4) gt {limit}" in hop and f"table {connections.ADDRESSES}" in hop for hop in hops]
    in_hops = re.search(r"sc1_conn_cur gt (\d+)", hops[0])
    assert in_hops
    held = limit if all(counted) else limit + int(in_hops[1])
    assert 2 * held <= memory.max_buffers(threads, settings.max_body_bytes, settings.memory_bytes) * 7 / 8


def test_requests_in_hops_do_not_count_as_connections_if_there_are_buffers_for_both() -> None:
    plenty = Settings(memory_bytes=768 << 20, max_connections=1000)
    assert connections.address_limit(plenty) == 875
    assert configuration(plenty).count(f"src,ipmask(32,64) table {connections.ADDRESSES}") == 2


def test_the_limits_of_an_address_with_the_default_memory_are_those_in_the_documentation() -> None:
    assert connections.client_limit(FULL) == 4946
    assert connections.stream_limit(FULL) == 4327
    assert connections.address_limit(FULL) == 2163
    assert "sc1_conn_cur gt 1081" in configuration(FULL)


def test_without_a_limit_for_addresses_hops_refuse_none() -> None:
    unlimited = configuration(Settings(max_connections_per_address=0, memory_bytes=768 << 20))
    assert set(re.findall(r"sc\w*_conn_cur\S*", unlimited)) == {"sc_conn_cur(3)", "sc_conn_cur(5)", "sc_conn_cur(6)"}


@pytest.mark.parametrize("trusted", [(), ("10.0.0.0/8",)])
@pytest.mark.parametrize("of_address", [0, 8750])
def test_all_connections_and_http2_requests_together_have_small_buffers(
    of_address: int, trusted: tuple[str, ...]
) -> None:
    settings = Settings(memory_bytes=768 << 20, max_connections_per_address=of_address, trusted_proxies=trusted)
    public, *_hops = frontends(settings)
    counted = [line.strip() for line in public.splitlines() if "str(ff00::)" in line or "sc_conn_cur(6)" in line]
    buffers = memory.max_buffers(settings.threads, settings.max_body_bytes, settings.memory_bytes)
    assert counted[:2] == [
        "tcp-request connection track-sc5 str(ff00::) table addresses",
        "http-request track-sc6 str(ff00::) table addresses if http2",
    ]
    assert counted[2].endswith(f"{{ sc_conn_cur(6) gt {buffers * 7 // 8} }}"), "connections need room, too"
    assert f"tcp-request connection reject if {{ sc_conn_cur(5) gt {buffers} }}" in public


def test_a_hop_refuses_before_it_reads_a_body() -> None:
    reading = [part for part in frontends(Settings()) if "accept-proxy" in part and "wait-for-body" in part]
    assert len(reading) == 3
    for part in reading:
        assert part.index("sc1_conn_cur gt") < part.index("wait-for-body")


def test_every_hop_has_room_however_few_clients_memory_allows() -> None:
    assert connections.hop_limit(Settings(max_connections=3)) == 1


@pytest.mark.parametrize("files_", [20_000, 65_536, 1_048_576])
def test_connections_need_no_more_files_than_there_are(files_: int) -> None:
    most = connections.limit_by_open_files(1_000_000, files_)
    assert 2 * connections.total_connections(Settings(max_connections=most)) < files_


@pytest.fixture
def init(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], int]:
    """Writes the first files with this limit of open files. Returns the exit status."""

    def run_init(files_: int) -> int:
        config = tmp_path / "gateway.yaml"
        config.write_text(f"runDirectory: {tmp_path}\n")
        monkeypatch.setattr(resource, "getrlimit", lambda _unused: (files_, files_))
        return main(["--config", str(config), "--init"])

    return run_init


def test_a_low_limit_of_open_files_is_reported_and_allows_fewer_clients(
    init: Callable[[int], int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert init(4096) == 0
    assert "maxConnections: 4096 open files allow only 774 of 10000 connections." in caplog.text
    assert "maxconn 774\n" in (tmp_path / "haproxy.cfg").read_text()


@pytest.mark.parametrize("files_", [1_048_576, resource.RLIM_INFINITY])
def test_a_high_limit_of_open_files_changes_nothing(
    init: Callable[[int], int], tmp_path: Path, caplog: pytest.LogCaptureFixture, files_: int
) -> None:
    assert init(files_) == 0
    assert not caplog.records
    assert "maxconn 10000\n" in (tmp_path / "haproxy.cfg").read_text()


def test_a_gateway_with_too_few_open_files_does_not_start(
    init: Callable[[int], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(1399) == 2
    assert "The limit of open files is 1399, but 100 clients need 1400." in capsys.readouterr().err
    assert not (tmp_path / "haproxy.cfg").exists()
    assert init(1400) == 0
