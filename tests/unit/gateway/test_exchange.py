"""The exchange between gateways with a fake HAProxy, network and clock: starts, restarts, ends and faults."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from slipway.gateway.control import exchange as module
from slipway.gateway.control.exchange import FILE, Clock, Exchange, ExchangeSnapshot, select_shared_limits
from slipway.gateway.haproxy.socket import CommandError
from slipway.gateway.routing.keys import Rights
from slipway.gateway.rules.limits import HolderEntry
from slipway.gateway.settings import Settings
from slipway.gateway.shared_limits.seal import Request, Seal
from slipway.gateway.shared_limits.usage import Report, Used
from tests.ports import reserved_port

START = 1_800_000_000.0
DAY, MINUTE = {"a": Rights(requests_per_day=90)}, {"a": Rights(requests_per_minute=90)}


class Time(Clock):
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = self.set = START

    def wall(self) -> float:
        return self.set

    def steady(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds
        self.set += seconds


class Haproxy:
    """Counts requests and enforces grants like limits.lua."""

    def __init__(self) -> None:
        self.births = 0
        self.entries: dict[str, HolderEntry] = {}
        self.changed: set[str] = set()
        self.tokens: Counter[str] = Counter()
        self.before_drop: Callable[[], object] = lambda: None
        self.fails: set[str] = set()
        """Commands that fail after HAProxy has run them."""
        self.calls: list[str] = []

    def send(self, holder: str = "a") -> bool:
        """Sends a request. Returns whether it passes; otherwise it waits."""
        if holder not in self.entries:
            self.births += 1
            self.entries[holder] = HolderEntry(f"b{self.births}", 0)
        entry = self.entries[holder]
        passes = entry.requests < max(entry.until)
        self.entries[holder] = entry._replace(requests=entry.requests + passes, waiting=not passes)
        self.changed.add(holder)
        return passes

    def _ran(self, command: str) -> None:
        self.calls.append(command)
        if command in self.fails:
            raise CommandError(command)

    async def read_entries(self, *, everything: bool = False) -> dict[str, HolderEntry]:
        rows = {name: one for name, one in self.entries.items() if everything or name in self.changed}
        self.changed = set()
        self._ran("limited")
        return rows

    async def collect_tokens(self, spent: Counter[str]) -> None:
        spent.update(self.tokens)
        self.tokens = Counter()
        self._ran("spent")

    async def grant(self, grants: Iterable[tuple[str, str, str]]) -> None:
        for holder, birth, text in grants:
            fields = text.split(":")
            until = tuple(int(fields[index].replace("-", "0")) for index in (1, 6))
            if holder in self.entries and self.entries[holder].birth == birth:
                self.entries[holder] = self.entries[holder]._replace(until=until)
        self._ran("grant")

    async def drop(self, drops: Iterable[tuple[str, str, int]]) -> list[tuple[str, str]]:
        drops = list(drops)
        if drops:
            self.before_drop()
        dropped = []
        for holder, birth, requests in drops:
            entry = self.entries.get(holder)
            if entry and entry.birth == birth and entry.requests == requests:
                del self.entries[holder]
            if holder not in self.entries or self.entries[holder].birth != birth:
                dropped.append((holder, birth))
        self._ran("drop")
        return dropped


class Pod:
    """A gateway's pod."""

    def __init__(self, cluster: Cluster, host: str, port: int) -> None:
        self.cluster, self.host = cluster, host
        self.name = f"{host}:{port}"
        self.directory = cluster.directory / host
        self.haproxy = Haproxy()
        self.snapshot = True
        self.start()

    def start(self) -> None:
        """Starts a new control process."""
        settings = Settings(
            run_directory=str(self.directory),
            exchange_listen=self.name,
            exchange_key_file=str(self.cluster.key),
            api_keys_secret="keys",
        )
        self.registry = CollectorRegistry()
        self.exchange = Exchange(settings, self.haproxy, self._view, self.registry, self.cluster.time)
        self.exchange.restore()
        self.ledger = self.exchange.ledger

    def _view(self) -> ExchangeSnapshot | None:
        return ExchangeSnapshot(self.cluster.rights, dict(self.cluster.ready)) if self.snapshot else None

    def silent(self) -> float | None:
        return self.registry.get_sample_value("slipway_gateway_exchange_silent")

    def day(self, holder: str = "a") -> int:
        return self.ledger.days.total(holder).requests


class Cluster:
    """Gateway pods and the network between them."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.key = directory, directory / "key"
        self.key.write_text("k" * 64)
        self.time = Time()
        self.rights = DAY
        self.ready: dict[str, bool] = {}
        self.pods: dict[str, Pod] = {}
        self.broken: set[tuple[str, str]] = set()
        """Pairs of a gateway and one that it cannot ask."""

    def add(self, host: str, *, port: int = 8082, ready: bool = True) -> Pod:
        pod = Pod(self, host, port)
        self.pods[pod.name], self.ready[pod.name] = pod, ready
        return pod

    async def ask(self, _seal: Seal, gateway: str, request: Request) -> Report:
        if gateway not in self.pods or (request.address, gateway) in self.broken:
            raise OSError("no answer")
        return self.pods[gateway].exchange.build_report(request)

    async def round(self, *pods: Pod) -> None:
        self.time.pass_(0.1)
        for pod in pods:
            await pod.exchange.step()
        for _unused in range(5):
            await asyncio.sleep(0)  # for the questions to those that were silent

    async def spend(self, *pods: Pod, rounds: int = 60) -> int:
        """Returns how many requests pass."""
        passed = 0
        for _unused in range(rounds):
            for pod in pods:
                passed += sum(pod.haproxy.send() for _unused in range(10))
            await self.round(*pods)
        return passed


async def test_both_gateways_log_why_a_request_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(tmp_path)
    one, two = cluster.add("one"), cluster.add("127.0.0.1", port=reserved_port())
    seal = one.exchange._load_seal()
    cluster.key.write_text("x" * 64)
    two.start()
    server = await asyncio.start_server(two.exchange.port.serve, *two.name.split(":"))
    assert seal
    for _unused in range(2):
        assert not await one.exchange._poll_gateway(seal, two.name, 60)
    server.close()
    lines = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert lines == [
        "Refused a request of gateway 127.0.0.1 for the use of limits: not signed by a gateway",
        f"Gateway {two.name} does not report its use of limits: it refused the request, or has just started",
    ]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster(tmp_path)
    monkeypatch.setattr(module, "_request_report", cluster.ask)
    monkeypatch.setattr(module, "_RETRY_SECONDS", 0)
    monkeypatch.setattr(module.asyncio, "timeout", lambda _seconds: asyncio.timeout_at(None))
    return cluster


async def test_two_gateways_accept_exactly_the_limit(cluster: Cluster) -> None:
    assert await cluster.spend(cluster.add("one"), cluster.add("two")) == 90


async def test_requests_during_an_outage_of_the_control_process_count_even_if_the_snapshot_is_late(
    cluster: Cluster,
) -> None:
    one = cluster.add("one")
    one.haproxy.send()
    await cluster.round(one)
    assert [one.haproxy.send() for _unused in range(3)] == [True] * 3
    cluster.time.pass_(2)
    await cluster.round(one)
    assert [one.haproxy.send() for _unused in range(20)] == [True] * 20
    one.haproxy.tokens["a"] = 50
    one.haproxy.calls = []
    one.snapshot = False
    one.start()
    await cluster.round(one)
    assert one.haproxy.calls == []
    one.snapshot = True
    await cluster.round(one)
    assert one.ledger.days.total("a") == Used(23, 50)


async def test_a_restarted_control_process_holds_what_haproxy_may_accept(cluster: Cluster) -> None:
    one, two = cluster.add("one"), cluster.add("two")
    one.haproxy.send()
    two.haproxy.send()
    for _unused in range(6):
        await cluster.round(one, two)
    until = one.haproxy.entries["a"].until[1]
    assert until > 20
    one.start()
    with pytest.raises(ValueError, match="just started"):
        one.exchange.build_report(Request(one.name, "0" * 32, int(START), "e"))
    await cluster.round(one, two)
    record = two.ledger.gateways.peers[one.name].records.get("a")
    assert record
    assert record.reserved[1] >= until
    assert await cluster.spend(one, two) == 90


async def test_a_request_that_comes_before_its_entry_is_dropped_counts_once(cluster: Cluster) -> None:
    one = cluster.add("one")
    await cluster.spend(one, rounds=4)
    used = one.day()
    assert used == 30
    cluster.time.pass_(61)
    one.haproxy.before_drop = one.haproxy.send
    await cluster.round(one)
    one.haproxy.before_drop = lambda: None
    await cluster.round(one)
    assert (one.day(), one.haproxy.entries["a"].requests) == (31, 31)
    cluster.time.pass_(61)
    await cluster.round(one)
    assert not one.haproxy.entries
    one.haproxy.send()
    await cluster.round(one)
    assert one.haproxy.send()
    await cluster.round(one)
    assert one.day() == 32


async def test_an_entry_whose_drop_was_not_confirmed_counts_once(cluster: Cluster) -> None:
    one = cluster.add("one")
    await cluster.spend(one, rounds=4)
    cluster.time.pass_(61)
    one.haproxy.fails = {"drop"}
    await cluster.round(one)
    assert "a" in one.ledger.holders
    one.haproxy.fails = set()
    await cluster.round(one)
    assert one.ledger.holders["a"].birth == ""
    assert one.day() == 30


@pytest.mark.parametrize("command", ["spent", "limited", "grant", "drop"])
async def test_a_command_that_fails_loses_nothing_and_gives_nothing_away(cluster: Cluster, command: str) -> None:
    one, two = cluster.add("one"), cluster.add("two")
    passed = await cluster.spend(one, two, rounds=4)
    one.haproxy.fails = {command}
    one.haproxy.tokens["a"] = 70
    for _unused in range(3):
        passed += sum(one.haproxy.send() for _unused in range(5))
        passed += await cluster.spend(two, rounds=5)
        await cluster.round(one)
    one.haproxy.fails = set()
    await cluster.round(one)
    own = one.ledger.days.used_by(one.ledger.instance, "a").requests
    assert own == one.haproxy.entries["a"].requests
    assert passed + await cluster.spend(one, two) == 90
    assert one.ledger.days.total("a") == Used(90, 70)


async def test_a_terminating_pod_has_no_part_once_it_is_silent(cluster: Cluster) -> None:
    pods = [cluster.add(host) for host in ("one", "two", "three")]
    for pod in pods:
        pod.haproxy.send()
    for _unused in range(6):
        await cluster.round(*pods)
    cluster.ready[pods[2].name] = False
    await cluster.round(*pods)
    assert pods[2].name in pods[0].ledger.gateways.addresses, "it answers, and may still accept"
    del cluster.pods[pods[2].name]
    assert await cluster.spend(*pods[:2]) == 90
    assert pods[0].silent() == 0


async def test_a_ready_pod_that_is_silent_keeps_its_part(cluster: Cluster) -> None:
    one, two = cluster.add("one"), cluster.add("two")
    cluster.ready["three:8082"] = True
    assert await cluster.spend(one, two, rounds=120) == 60
    assert one.silent() == 1
    del cluster.ready["three:8082"]
    await cluster.round(one, two)
    assert one.silent() == 0
    cluster.ready = {one.name: True, "two:8082": True}
    del cluster.pods[two.name]
    await cluster.round(one)
    await cluster.round(one)
    assert one.silent() == 1
    cluster.rights = {}
    for _unused in range(3):
        cluster.time.pass_(71)
        await cluster.round(one)
    assert one.silent() == 0, "there is nothing to be silent about"


async def test_a_new_pod_is_ready_when_the_others_have_answered(cluster: Cluster) -> None:
    one, two = cluster.add("one"), cluster.add("two")
    passed = await cluster.spend(one, two, rounds=20)
    new = cluster.add("new", ready=False)
    assert not new.exchange.prepared.is_set()
    await cluster.round(one, two, new)
    assert not new.exchange.prepared.is_set()
    await cluster.round(one, two, new)
    assert new.exchange.prepared.is_set()
    cluster.ready[new.name] = True
    assert passed + await cluster.spend(one, two, new) == 90


async def test_a_new_pod_waits_a_while_for_a_ready_one_and_not_for_one_that_is_not(cluster: Cluster) -> None:
    new = cluster.add("new", ready=False)
    cluster.ready["starting:8082"] = False
    await cluster.round(new)
    assert new.exchange.prepared.is_set()
    cluster.ready["silent:8082"] = True
    later = cluster.add("later", ready=False)
    await cluster.round(later)
    await cluster.round(later)
    assert not later.exchange.prepared.is_set()
    cluster.time.pass_(5)
    await cluster.round(later)
    assert later.exchange.prepared.is_set()


@pytest.mark.parametrize("rights", [{}, {"a": Rights(requests_at_once=9)}])
async def test_pods_without_limits_ask_nothing_and_are_ready_at_once(
    cluster: Cluster, rights: dict[str, Rights]
) -> None:
    cluster.rights = rights
    one = cluster.add("one", ready=False)
    cluster.ready["silent:8082"] = True
    await cluster.round(one)
    assert one.exchange.prepared.is_set()
    assert (one.haproxy.calls, one.silent()) == ([], 0)


async def test_a_first_limit_does_not_wait_for_pods_without_it(cluster: Cluster) -> None:
    cluster.rights = {}
    one = cluster.add("one")
    cluster.ready["two:8082"] = True
    await cluster.round(one)
    cluster.time.pass_(10)
    cluster.rights = DAY
    one.haproxy.send()
    await cluster.round(one)
    assert one.haproxy.send(), "it uses its part at once"


async def test_limits_are_read_once_for_each_change_of_rights(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    monkeypatch.setattr(
        module, "select_shared_limits", lambda rights: read.append(rights) or select_shared_limits(rights)
    )
    one = cluster.add("one")
    for rights in (DAY, DAY, MINUTE):
        cluster.rights = rights
        await cluster.round(one)
    assert read == [DAY, MINUTE]


@pytest.mark.parametrize("rights", [DAY, MINUTE])
async def test_a_pod_that_another_cannot_ask_uses_its_equal_part(cluster: Cluster, rights: dict[str, Rights]) -> None:
    cluster.rights = rights
    one, two = cluster.add("one"), cluster.add("two")
    one.haproxy.send()
    two.haproxy.send()
    for _unused in range(4):
        await cluster.round(one, two)
    cluster.broken = {(two.name, one.name)}
    assert await cluster.spend(one, two) == 90
    assert [pod.haproxy.entries["a"].requests for pod in (one, two)] == [45, 45]


@pytest.mark.parametrize("seconds", [86400.0, -86400.0])
async def test_a_clock_that_is_set_changes_no_minute(cluster: Cluster, seconds: float) -> None:
    cluster.rights = MINUTE
    one = cluster.add("one")
    assert await cluster.spend(one, rounds=20) == 90
    cluster.time.set += seconds
    await cluster.round(one)
    assert await cluster.spend(one, rounds=3) == 0
    cluster.time.set -= seconds
    cluster.time.pass_(61)
    await cluster.round(one)
    assert await cluster.spend(one, rounds=20) == 90


async def test_a_clock_that_was_a_day_ahead_finds_the_day_at_the_others(cluster: Cluster) -> None:
    one, two = cluster.add("one"), cluster.add("two")
    assert await cluster.spend(one, two) == 90
    cluster.time.set += 86400
    await cluster.round(one)
    assert one.day() == 0
    cluster.time.set -= 86400
    for _unused in range(3):
        await cluster.round(one, two)
    assert one.day() == 90
    assert await cluster.spend(one, two, rounds=5) == 0


async def test_without_a_usable_key_a_pod_uses_its_equal_part_until_there_is_one(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.key.write_text("short")
    one = cluster.add("one")
    cluster.ready["two:8082"] = True
    cluster.time.pass_(1)
    await cluster.round(one)
    cluster.time.pass_(5)
    assert await cluster.spend(one) == 45
    assert caplog.text.count("needs at least 32") == 1
    cluster.key.write_text("k" * 64)
    two = cluster.add("two")
    assert 45 + await cluster.spend(one, two) == 90


async def test_a_file_that_would_fill_the_directory_is_not_written(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_MOST_FILE", 100)
    one = cluster.add("one")
    assert await cluster.spend(one) == 90
    assert not (one.directory / FILE).exists()
    assert caplog.text.count("it would take more than 100 bytes") == 1


async def test_a_directory_that_is_full_stops_no_exchange(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_unused: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_files", full)
    one, two = cluster.add("one"), cluster.add("two")
    assert await cluster.spend(one, two) == 90
    assert caplog.text.count("No space left") == 2, "once for each"
    assert not (one.directory / FILE).exists()
