"""How many connections there may be."""

from __future__ import annotations

import re
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from slipway.gateway import connections
from slipway.gateway.main import main
from slipway.gateway.render import DesiredState, files
from slipway.gateway.settings import Settings

FULL = Settings(memory_bytes=768 << 20)


def numbers(settings: Settings, pattern: str) -> list[int]:
    """Numbers that the configuration has in lines of this form."""
    return list(map(int, re.findall(pattern, files(settings, DesiredState())["haproxy.cfg"], re.MULTILINE)))


@pytest.mark.parametrize("settings", [Settings(), FULL, Settings(max_connections=100)])
def test_all_frontends_together_have_no_more_than_haproxy_takes(settings: Settings) -> None:
    in_all, clients, *hops = numbers(settings, r"^    maxconn (\d+)$")
    assert in_all == clients + sum(hops) == connections.in_all(settings)
    assert clients == connections.clients(settings)


def test_each_frontend_has_a_limit_and_no_client_may_fill_it() -> None:
    text = files(Settings(), DesiredState())["haproxy.cfg"]
    sections = re.split(r"^(?=frontend |backend )", text, flags=re.MULTILINE)
    frontends = [section for section in sections if section.startswith("frontend ")]
    assert len(frontends) == 5
    for frontend in frontends:
        most, share = (re.search(rf"{word} (\d+)", frontend) for word in ("maxconn", "sc1_conn_cur gt"))
        assert most
        assert share
        assert int(share[1]) < int(most[1])


def test_a_hop_refuses_before_it_reads_a_body() -> None:
    text = files(Settings(), DesiredState())["haproxy.cfg"]
    frontends = [part.split("\nbackend ")[0] for part in text.split("\nfrontend ")[1:]]
    reading = [part for part in frontends if "accept-proxy" in part and "wait-for-body" in part]
    assert len(reading) == 3
    for part in reading:
        assert part.index("sc1_conn_cur gt") < part.index("wait-for-body")


def test_connections_need_no_more_files_than_there_are() -> None:
    for files_ in (20_000, 65_536, 1_048_576):
        most = connections.within(1_000_000, files_)
        assert 2 * connections.in_all(Settings(max_connections=most)) < files_
    assert connections.within(10_000, 1_048_576) == 10_000


def test_every_hop_has_room_however_few_clients_there_may_be() -> None:
    assert connections.room(Settings(max_connections=3)) == 1


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], int]:
    """Writes the first files where so many may be open. Returns the exit status."""

    def init(most: int) -> int:
        config = tmp_path / "gateway.yaml"
        config.write_text(f"runDirectory: {tmp_path}\n")
        monkeypatch.setattr(resource, "getrlimit", lambda _unused: (most, most))
        return main(["--config", str(config), "--init"])

    return init


def test_fewer_clients_than_asked_for_are_told_of(
    start: Callable[[int], int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert start(4096) == 0
    assert "maxConnections is 10000, but with 4096 open files only 774 clients" in caplog.text
    assert "maxconn 774" in (tmp_path / "haproxy.cfg").read_text()
    caplog.clear()
    assert start(1_048_576) == 0
    assert not caplog.records


def test_a_gateway_for_hardly_anybody_does_not_start(
    start: Callable[[int], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(1399) == 2
    assert "1399 files may be open, and 100 clients need 1400" in capsys.readouterr().err
    assert not (tmp_path / "haproxy.cfg").exists()
    assert start(1400) == 0
