"""Commands that change a running HAProxy, and the parsers of its answers."""

from __future__ import annotations

from slipway.gateway.haproxy.config.maps import SPECIAL_MAP
from slipway.gateway.haproxy.runtime_diff import (
    HOLD_MAP,
    Command,
    RunningBackend,
    RunningState,
    arrivals,
    batches,
    list_busy_backends,
    parse_backends,
    parse_counts,
    parse_map,
    removals,
    withdrawals,
)
from slipway.gateway.routing.outliers import Count
from slipway.gateway.routing.table import Backend, RoutingTable
from slipway.gateway.rules import fallback_server

NAMED = "pool-conn-name var(txn.attempt,0),add(1),set-var(txn.attempt),concat(-,txn.alone)"
LAST = f"ns:m/unanswered {fallback_server.server('/run')} backup"
HEAD = "# pxname,svname,status,scur\n"


def table(**backends: list[str]) -> RoutingTable:
    services = {f"ns:{name}": Backend("ns", name, tuple(endpoints)) for name, endpoints in backends.items()}
    return RoutingTable(services, {backend.service: name for name, backend in services.items()}, {}, ())


def running(models: dict[str, str] | None = None, **backends: dict[str, bool]) -> RunningState:
    states = {
        f"ns:{name}": RunningBackend(True, {**servers, fallback_server.NAME: True})
        for name, servers in backends.items()
    }
    return RunningState("v", states, {"models.map": models or {}})


def commands_for(now: RunningState, desired: RoutingTable, special: dict[str, str] | None = None) -> list[str]:
    maps = {
        "models.map": dict(desired.models),
        SPECIAL_MAP: special or {},
        HOLD_MAP: {name: "1" for name, b in desired.backends.items() if not b.endpoints},
    }
    commands = [*arrivals("/run", now, desired, maps), *withdrawals("/run", now, desired, maps)]
    return [command.text for command in commands]


def test_equal_states_need_no_commands() -> None:
    assert commands_for(running({"m": "ns:m"}, m={"10.0.0.1:80": True}), table(m=["10.0.0.1:80"])) == []


def test_a_new_model_exists_before_the_map_leads_to_it() -> None:
    assert commands_for(running(), table(m=["10.0.0.1:80", "[fd00::1]:80"])) == [
        "add map /run/hold.map ns:m 1",
        "add backend ns:m from model",
        f"add server ns:m/10.0.0.1:80 10.0.0.1:80 cookie 10.0.0.1:80 {NAMED} {fallback_server.CHECK}",
        "enable health ns:m/10.0.0.1:80",
        "set server ns:m/10.0.0.1:80 state ready",
        f"add server ns:m/fd00::1:80 [fd00::1]:80 cookie fd00::1:80 {NAMED} {fallback_server.CHECK}",
        "enable health ns:m/fd00::1:80",
        "set server ns:m/fd00::1:80 state ready",
        f"add server {LAST}",
        "set server ns:m/unanswered state ready",
        "publish backend ns:m",
        "add map /run/models.map m ns:m",
        "del map /run/hold.map ns:m",
    ]


def test_new_servers_come_before_old_ones_leave() -> None:
    now = running({"m": "ns:m"}, m={"10.0.0.1:80": True})
    assert commands_for(now, table(m=["10.0.0.2:80"])) == [
        f"add server ns:m/10.0.0.2:80 10.0.0.2:80 cookie 10.0.0.2:80 {NAMED} {fallback_server.CHECK}",
        "enable health ns:m/10.0.0.2:80",
        "set server ns:m/10.0.0.2:80 state ready",
        "set server ns:m/10.0.0.1:80 state maint",
    ]


def test_a_server_that_returns_while_it_drains_is_used_again() -> None:
    now = running({"m": "ns:m"}, m={"10.0.0.1:80": False})
    assert "set server ns:m/10.0.0.1:80 state ready" in commands_for(now, table(m=["10.0.0.1:80"]))


def test_requests_are_held_before_the_last_server_goes_and_until_the_first_is_in_use() -> None:
    awake, asleep = running({"m": "ns:m"}, m={"10.0.0.1:80": True}), running({"m": "ns:m"}, m={"10.0.0.1:80": False})
    asleep.maps[HOLD_MAP] = {"ns:m": "1"}  # type: ignore[index]
    assert commands_for(awake, table(m=[])) == [
        "add map /run/hold.map ns:m 1",
        "set server ns:m/10.0.0.1:80 state maint",
    ]
    assert commands_for(asleep, table(m=[])) == []
    assert commands_for(asleep, table(m=["10.0.0.1:80"])) == [
        "set server ns:m/10.0.0.1:80 state ready",
        "del map /run/hold.map ns:m",
    ]


def test_a_model_that_goes_leaves_the_map_first() -> None:
    now = running({"m": "ns:m"}, m={"10.0.0.1:80": True})
    assert commands_for(now, table()) == [
        "del map /run/models.map m",
        "set server ns:m/10.0.0.1:80 state maint",
        "set server ns:m/unanswered state maint",
        "unpublish backend ns:m",
    ]


def test_a_name_that_changes_hands_is_set_in_one_step() -> None:
    now = running({"m": "ns:old"}, m={}, old={})
    assert "set map /run/models.map m ns:m" in commands_for(now, table(m=[], old=[])._replace(models={"m": "ns:m"}))


def test_a_model_that_becomes_special_or_ordinary_passes_all_rules_meanwhile() -> None:
    now = running({"a": "ns:x", "b": "ns:x"}, x={"10.0.0.1:80": True}, y={"10.0.0.2:80": True})
    now = now._replace(maps={**now.maps, SPECIAL_MAP: {"a": "1"}})
    desired = table(x=["10.0.0.1:80"], y=["10.0.0.2:80"])._replace(models={"a": "ns:y", "b": "ns:y"})
    assert commands_for(now, desired, {"b": "1"}) == [
        "add map /run/special.map b 1",
        "set map /run/models.map a ns:y",
        "set map /run/models.map b ns:y",
        "del map /run/special.map a",
    ]


def test_only_unused_servers_and_backends_are_deleted() -> None:
    now = running(m={"10.0.0.1:80": False, "10.0.0.2:80": True, "10.0.0.3:80": False}, gone={"10.0.0.9:80": False})
    now.backends["ns:gone"] = RunningBackend(False, {"10.0.0.9:80": False})  # type: ignore[index]
    commands = [command.text for command in removals(now, table(m=["10.0.0.3:80"]))]
    assert commands == ["del server ns:m/10.0.0.1:80", "del server ns:gone/10.0.0.9:80", "del backend ns:gone"]


def test_statistics_are_read_without_our_own_backends() -> None:
    text = HEAD + (
        "control,control,no check,0\ncontrol,BACKEND,UP,0\n"
        "ns:m,10.0.0.1:80,no check,3\nns:m,10.0.0.2:80,MAINT,1\nns:m,BACKEND,UP,4\n"
        "ns:n,BACKEND,UP (UNPUB),0\n"
    )
    assert parse_backends(text) == {
        "ns:m": RunningBackend(True, {"10.0.0.1:80": True, "10.0.0.2:80": False}),
        "ns:n": RunningBackend(False, {}),
    }


def test_a_map_is_read() -> None:
    assert parse_map("0x55 m ns:m\n0x56 a/b ns:b") == {"m": "ns:m", "a/b": "ns:b"}
    assert parse_map("") == {}


def test_entries_of_maps_are_sent_together_and_nothing_else_is() -> None:
    entries = [Command(f"add map /m k{number} v") for number in range(150)]
    others = [Command("add backend b from model", "New backend registered."), Command("publish backend b", "x")]
    sent = list(batches([entries[0], *others, *entries[1:]]))
    assert [len(batch) for batch in sent] == [1, 1, 1, 100, 49]
    assert [command for batch in sent for command in batch] == [entries[0], *others, *entries[1:]]


def test_states_of_servers_are_sent_together() -> None:
    texts = [
        "add server a/b c",
        "enable health a/b",
        "set server a/b state ready",
        "add map /m k v",
        "publish backend a",
    ]
    sent = list(batches(map(Command, texts)))
    assert [[command.text for command in batch] for batch in sent] == [texts[:1], texts[1:3], texts[3:4], texts[4:]]


def test_the_fallback_server_is_not_an_endpoint() -> None:
    now = running({"m": "ns:m"}, m={})
    assert now.backends["ns:m"].endpoints == {}
    assert commands_for(now, table(m=["10.0.0.1:80"]))[0] == "add map /run/hold.map ns:m 1"


COUNTED = "# pxname,svname,status,act,scur,lastsess,eresp,hrsp_1xx,hrsp_2xx,hrsp_3xx,hrsp_4xx,hrsp_5xx\n"


def test_backends_with_one_server_or_without_requests_are_not_busy() -> None:
    rows = {"ns:one": "1,5,0", "ns:idle": "2,0,16", "ns:new": "2,0,-1", "control": "2,5,0", "ns:asked": "2,0,3"}
    statistics = COUNTED + "\n".join(f"{name},BACKEND,UP,{row},0,0,0,0,0,0" for name, row in rows.items())
    assert list_busy_backends(statistics) == ["ns:asked"]
    assert list_busy_backends(f"{COUNTED}ns:slow,BACKEND,UP,2,4,900,0,0,0,0,0,0") == ["ns:slow"]


def test_4xx_are_good_and_an_error_that_closes_the_connection_counts_once() -> None:
    rows = (
        "ns:m,10.0.0.1:80,UP,1,2,0,3,0,4,0,5,3",
        "ns:m,10.0.0.2:80,MAINT,0,0,0,0,0,0,0,0,9",
        "ns:m,unanswered,UP,0,0,0,0,0,0,0,0,9",
    )
    assert parse_counts(COUNTED + "\n".join(rows)) == {"10.0.0.1:80": Count(9, 3, 2)}
