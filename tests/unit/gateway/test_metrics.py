"""HAProxy's answers as Prometheus metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from slipway.gateway.haproxy.metrics import HaproxyCollector, RawCounters, count_requests
from slipway.gateway.rules import tokens

COLUMNS = (
    "pxname svname scur act bin bout wretr wredis cli_abrt srv_abrt"
    " hrsp_1xx hrsp_2xx hrsp_3xx hrsp_4xx hrsp_5xx hrsp_other"
)
STATISTICS = f"""# {COLUMNS.replace(" ", ",")}
public,FRONTEND,7,,100,200,,,,,0,5,0,2,1,0
ns:m,10.0.0.1:80,2,1,10,20,1,0,0,0,0,3,0,0,0,0
ns:m,BACKEND,2,1,10,20,1,4,6,5,0,3,0,0,1,0
control,BACKEND,0,1,1,1,0,0,0,0,0,9,0,0,0,0"""
FIRST_BYTES = "# table: x\n0x7f: key=ns:m use=0 exp=0 shard=0 gpc0=1500 gpc1=3"


def text(answers: RawCounters | None) -> str:
    registry, collector = CollectorRegistry(), HaproxyCollector()
    registry.register(collector)
    collector.counters = answers
    return generate_latest(registry).decode()


def test_each_model_is_counted_by_its_backend() -> None:
    exported = text(RawCounters(STATISTICS, FIRST_BYTES, "ns:m 2 3 4 0\n"))
    model = 'model="m",namespace="ns"'
    for line in (
        f'slipway_gateway_requests_total{{code="2xx",{model}}} 3.0',
        f"slipway_gateway_requests_in_flight{{{model}}} 2.0",
        f"slipway_gateway_requests_waiting{{{model}}} 2.0",
        f'slipway_gateway_requests_refused_total{{{model},reason="full"}} 3.0',
        f'slipway_gateway_requests_refused_total{{{model},reason="timeout"}} 4.0',
        f"slipway_gateway_redispatches_total{{{model}}} 4.0",
        f"slipway_gateway_cut_answers_total{{{model}}} 5.0",
        f"slipway_gateway_time_to_first_byte_seconds_sum{{{model}}} 1.5",
        f"slipway_gateway_time_to_first_byte_seconds_count{{{model}}} 3.0",
        'slipway_gateway_responses_total{code="4xx"} 2.0',
        "slipway_gateway_haproxy_up 1.0",
    ):
        assert line in exported.splitlines(), exported
    assert '"control"' not in exported


def test_a_request_that_waited_for_another_server_is_counted_once() -> None:
    waited = "ns:m,unanswered,1,0,0,0,0,0,0,0,0,1,0,0,0,0"
    exported = text(RawCounters(f"{STATISTICS}\n{waited}", FIRST_BYTES, "")).splitlines()
    assert 'slipway_gateway_requests_total{code="2xx",model="m",namespace="ns"} 2.0' in exported
    assert 'slipway_gateway_requests_in_flight{model="m",namespace="ns"} 1.0' in exported


def test_requests_in_flight_and_waiting_are_added_by_backend() -> None:
    retried = "ns:m,unanswered,1,0,0,0,0,0,0,0,0,1,0,0,0,0"
    assert count_requests(f"{STATISTICS}\n{retried}", "ns:m 5 3 4 0\nns:other 9 0 0 0\n") == {"ns:m": 6}


def test_each_model_has_a_metric_of_servers_that_are_passed_over() -> None:
    answers = RawCounters(STATISTICS, FIRST_BYTES, "", passed_over={"ns:m": 1, "ns:gone": 1})
    exported = [line for line in text(answers).splitlines() if line.startswith("slipway_gateway_passed_over_servers{")]
    assert exported == ['slipway_gateway_passed_over_servers{model="m",namespace="ns"} 1.0']


def test_a_model_that_refused_nothing_yet_counts_zero() -> None:
    exported = text(RawCounters(STATISTICS, FIRST_BYTES, ""))
    assert 'slipway_gateway_requests_waiting{model="m",namespace="ns"} 0.0' in exported
    assert 'slipway_gateway_requests_refused_total{model="m",namespace="ns",reason="full"} 0.0' in exported


def test_without_haproxy_only_its_absence_is_exported() -> None:
    assert "slipway_gateway_haproxy_up 0.0" in text(None)


def test_models_that_are_gone_are_shown_no_more() -> None:
    first_bytes = f"{FIRST_BYTES}\n0x80: key=ns:gone use=0 exp=0 shard=0 gpc0=15 gpc1=3"
    exported = text(RawCounters(STATISTICS, first_bytes, "ns:gone 0 3 4 0\nns:m 1 0 0 0\n"))
    assert "gone" not in exported
    assert 'slipway_gateway_requests_waiting{model="m",namespace="ns"} 1.0' in exported


def test_tokens_are_the_sum_of_the_threads_and_those_of_deleted_models_are_left_out() -> None:
    threads = ("ns:m alice 10 4 5 1 0 5\nns:gone alice 1 1 1 1 1 1\n", "ns:m alice 1 0 2 0 1 0\nns:m - 7 0 0 0 0 0\n")
    exported = text(RawCounters(STATISTICS, FIRST_BYTES, "", threads)).splitlines()
    for key, kind, count in (
        ("alice", "input", 11.0),
        ("alice", "cached", 4.0),
        ("alice", "output", 7.0),
        ("alice", "reasoning", 1.0),
        ("-", "input", 7.0),
    ):
        assert f'slipway_gateway_tokens_total{{key="{key}",kind="{kind}",model="m",namespace="ns"}} {count}' in exported
    labels = 'key="alice",kind="output",model="m",namespace="ns"'
    assert f"slipway_gateway_estimated_tokens_total{{{labels}}} 5.0" in exported
    assert not [line for line in exported if "gone" in line]


def row(key: str, *numbers: int) -> str:
    counters = " ".join(f"gpc{index}={number}" for index, number in enumerate(numbers))
    return f"0x7f1e396dec10: key={key} use=1 exp=0 shard=0 {counters}\n"


def test_tokens_that_rules_counted_are_read_like_those_of_a_thread() -> None:
    table = "# table: token_counts, type: string, size:20480, used:2\n"
    table += row("ns:m!alice", 60, 1, 54, 2) + row("static:org/m!jwt:a\\=b/c", 3, 0, 4, 0)
    rows = tokens.TableCounters().rows("1", table)
    assert tokens.sum_answers([rows, "ns:m alice 1 0 1 0 1 1"]) == {
        ("ns:m", "alice"): tokens.Counts(61, 1, 55, 2, 1, 1),
        ("static:org/m", "jwt:a=b/c"): tokens.Counts(3, 0, 4),
    }


def test_a_counter_of_32_bits_that_wraps_goes_on() -> None:
    counters, sums = tokens.TableCounters(), []
    for number in (4_000_000_000, 4_294_967_295, 4, 4, 5):
        rows = counters.rows("1", row("ns:m!alice", 1, 0, number, 0))
        sums.append(tokens.sum_answers([rows])["ns:m", "alice"].output)
    assert sums == [4_000_000_000, 4_294_967_295, 4_294_967_300, 4_294_967_300, 4_294_967_301]


def test_counters_restart_with_the_next_process_of_haproxy() -> None:
    counters = tokens.TableCounters()
    counters.rows("1", row("ns:m!alice", 10, 0, 10, 0) + row("ns:m!bob", 1, 0, 1, 0))
    assert counters.rows("2", row("ns:m!alice", 3, 0, 4, 0)) == "ns:m alice 3 0 4 0 0 0"


def test_without_token_counts_none_are_shown() -> None:
    assert "slipway_gateway_tokens" not in text(RawCounters(STATISTICS, FIRST_BYTES, ""))
