"""The routing table: IDs, conflicts, endpoints."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from slipway.gateway.routing.table import FOREIGN_IGNORED, MOST_ENDPOINTS, TableBuilder, build
from slipway.serving.routing.claims import Rules
from slipway.serving.status.unready import Unready

LABEL = "slipway.inference/route"


def service(name: str, namespace: str = "default", since: str = "2026-01-01T00:00:00Z", **route: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "creationTimestamp": since,
            "labels": {LABEL: "true"},
            "annotations": {LABEL: json.dumps(route)} if route else {},
        },
        "spec": {"ports": [{"name": "http", "port": 80}, {"name": "other", "port": 81}]},
    }


def piece(
    name: str, *endpoints: dict[str, Any], namespace: str = "default", family: str = "IPv4", port: str | None = "http"
) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{name}-x", "namespace": namespace, "labels": {"kubernetes.io/service-name": name}},
        "addressType": family,
        "ports": [{"name": port, "port": 8000}, {"name": "other", "port": 9000}],
        "endpoints": list(endpoints),
    }


def endpoint(address: str, **conditions: bool) -> dict[str, Any]:
    """A pod of the slice's namespace."""
    return {"addresses": [address], "conditions": conditions, "targetRef": {"kind": "Pod", "name": "p"}}


def test_a_labelled_service_is_served_under_its_name_and_its_qualified_name() -> None:
    table, faults = build([service("m1")], [piece("m1", endpoint("10.0.0.1", ready=True))])
    assert table.models == {"m1": "default:m1", "default/m1": "default:m1"}
    assert table.backends["default:m1"].endpoints == ("10.0.0.1:8000",)
    assert table.listed == ("m1",)
    assert faults == ()


def test_only_ready_endpoints_that_do_not_terminate_take_requests() -> None:
    pieces = [
        piece("m1", endpoint("10.0.0.2", ready=True, serving=True), endpoint("10.0.0.1")),
        piece("m1", endpoint("10.0.0.3", ready=False), endpoint("10.0.0.4", ready=True, terminating=True)),
        piece("m1", endpoint("10.0.0.2", ready=True)),
        piece("m1", endpoint("10.9.9.9", ready=True), namespace="elsewhere"),
    ]
    table, _unused = build([service("m1")], pieces)
    assert table.backends["default:m1"].endpoints == ("10.0.0.1:8000", "10.0.0.2:8000")


def test_a_service_without_ready_endpoints_is_known() -> None:
    table, _unused = build([service("m1")], [])
    assert table.backends["default:m1"].endpoints == ()
    assert "m1" in table.models


def test_the_port_is_selected_by_name_also_if_the_name_is_empty() -> None:
    table, _unused = build([service("m1", port="other")], [piece("m1", endpoint("10.0.0.1"))])
    assert table.backends["default:m1"].endpoints == ("10.0.0.1:9000",)
    nameless = service("m2")
    nameless["spec"]["ports"] = [{"port": 80}]
    table, _unused = build([nameless], [piece("m2", endpoint("10.0.0.1"), port=None)])
    assert table.backends["default:m2"].endpoints == ("10.0.0.1:8000",)


def test_of_two_families_one_is_used_and_ipv6_is_bracketed() -> None:
    six = piece("m1", endpoint("fd00::1", ready=True), family="IPv6")
    table, _unused = build([service("m1")], [six])
    assert table.backends["default:m1"].endpoints == ("[fd00::1]:8000",)
    table, _unused = build([service("m1")], [six, piece("m1", endpoint("10.0.0.1"))])
    assert table.backends["default:m1"].endpoints == ("10.0.0.1:8000",)


def test_the_oldest_of_two_models_with_one_name_wins_and_the_other_keeps_its_qualified_name() -> None:
    old = service("m1", "b", since="2026-01-01T00:00:00Z")
    new = service("m1", "a", since="2026-01-02T00:00:00Z")
    table, _unused = build([new, old], [])
    assert table.models == {"m1": "b:m1", "a/m1": "a:m1", "b/m1": "b:m1"}
    assert table.listed == ("a/m1", "m1")


def test_a_qualified_name_cannot_be_taken_by_another_service() -> None:
    thief = service("thief", since="2020-01-01T00:00:00Z", models=["default/m1", "mine"])
    table, _unused = build([thief, service("m1")], [])
    assert table.models["default/m1"] == "default:m1"
    assert table.models["mine"] == "default:thief"


def test_the_oldest_of_two_services_with_one_name_in_a_namespace_has_the_qualified_id() -> None:
    old, new = service("b", since="2026-01-01T00:00:00Z"), service("a", since="2026-01-02T00:00:00Z")
    old["metadata"]["annotations"] = {LABEL: '{"name": "llama", "models": ["llama"]}'}
    new["metadata"]["annotations"] = {LABEL: '{"name": "llama", "models": ["llama-2"]}'}
    table, faults = build([new, old], [])
    assert table.models == {"llama": "default:b", "llama-2": "default:a", "default/llama": "default:b"}
    assert [(fault.service, "default/llama" in fault.message) for fault in faults] == [("a", True)]


def test_a_route_sets_the_strategy_and_an_adapter_is_a_separate_model() -> None:
    hashed = {"strategy": "PrefixHash", "prefixHash": {"meanLoadFactor": 150}}
    services = [service("model-m", models=["m"], **hashed), service("model-m-a", models=["m_a"], **hashed)]
    table, _unused = build(services, [])
    assert {table.backends[table.models[model]].service for model in ("m", "m_a")} == {"model-m", "model-m-a"}
    assert table.backends["default:model-m-a"].route.prefix_hash.mean_load_factor == 150
    assert table.listed == ("m", "m_a")


def test_cards_contain_the_fields_of_the_route() -> None:
    route = {"models": ["llama", "alias"], "created": 1700000000, "ownedBy": "team", "source": "hf:a/b"}
    table, _unused = build([service("m1", **route)], [])
    assert table.listed == ("alias", "llama")
    assert table.cards["llama"].to_json() == {
        "id": "llama",
        "object": "model",
        "created": 1700000000,
        "owned_by": "team",
        "namespace": "default",
        "features": (),
        "source": "hf:a/b",
    }


def test_a_broken_route_is_reported_and_breaks_no_other() -> None:
    broken = service("broken")
    broken["metadata"]["annotations"] = {LABEL: "{nonsense"}
    portless = service("portless", port="none")
    table, faults = build([broken, service("m1"), portless], [])
    assert list(table.backends) == ["default:m1"]
    assert [(fault.service, LABEL in fault.message) for fault in faults] == [("broken", True), ("portless", True)]


def test_an_id_that_haproxy_cannot_hold_is_reported_and_the_others_are_served() -> None:
    table, faults = build([service("m1", models=["bad id", 'quo"te', "new\nline", "good:1.5b@main"])], [])
    assert set(table.models) == {"good:1.5b@main", "default/m1"}
    assert [fault.service for fault in faults] == ["m1"]
    assert all(repr(bad) in faults[0].message for bad in ("bad id", 'quo"te', "new\nline"))


def test_the_order_of_the_input_does_not_matter() -> None:
    services = [service("a"), service("b"), service("c", models=["a", "x"])]
    pieces = [piece("a", endpoint("10.0.0.2"), endpoint("10.0.0.1")), piece("b", endpoint("10.0.0.3"))]
    assert build(services, pieces) == build(services[::-1], pieces[::-1])


def steps(work: Callable[[], object]) -> int:
    """Returns the number of executed Python lines."""
    count = 0

    def trace(_frame: object, event: str, _unused: object) -> Any:
        nonlocal count
        count += event in ("line", "call")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def versioned(obj: dict[str, Any], version: str = "1") -> dict[str, Any]:
    metadata = obj["metadata"]
    metadata |= {"uid": f"{metadata['namespace']}-{metadata['name']}", "resourceVersion": version}
    return obj


def test_services_of_36000_ids_are_one_fault_each_and_cost_the_others_nothing() -> None:
    hostile = [service(f"evil{n}", "evil", models=[f"{n}x{i:x}" for i in range(36000)]) for n in range(5)]
    table, faults = build([*hostile, service("m1")], [piece("m1", endpoint("10.0.0.1"))])
    assert set(table.models) == {"m1", "default/m1"}
    assert [(fault.service, "longer than 16384 bytes" in fault.message) for fault in faults] == [
        (f"evil{n}", True) for n in range(5)
    ]
    assert steps(lambda: build(hostile, [])) < 2000


def test_more_than_64_ids_are_one_fault() -> None:
    table, faults = build([service("m1", models=[f"m{number}" for number in range(65)])], [])
    assert not table.models
    assert len(faults) == 1
    table, faults = build([service("m1", models=[f"m{number}" for number in range(64)])], [])
    assert len(table.models) == 65
    assert not faults


def test_however_many_ids_are_wrong_a_service_has_one_fault_of_bounded_length() -> None:
    models = [f"bad {number}" + "x" * 200 for number in range(63)]
    table, faults = build([service("m1", models=[*models, "good"])], [])
    assert set(table.models) == {"good", "default/m1"}
    assert len(faults) == 1
    assert "and 60 more IDs cannot be served" in faults[0].message
    assert len(faults[0].message) < 1000


def test_the_cost_of_a_table_grows_with_its_services_and_not_with_their_square() -> None:
    def many(number: int) -> list[dict[str, Any]]:
        return [service(f"s{n}", f"ns{n}", models=[f"{n}-{i}" for i in range(64)]) for n in range(number)]

    few, more = many(10), many(80)
    assert steps(lambda: build(more, [])) < 10 * steps(lambda: build(few, []))


def test_a_change_of_one_service_or_slice_does_not_read_the_others_again(monkeypatch: pytest.MonkeyPatch) -> None:
    services = [versioned(service(f"s{n}", models=[f"m{n}"])) for n in range(50)]
    slices = [versioned(piece(f"s{n}", endpoint(f"10.0.0.{n + 1}"))) for n in range(50)]
    assembler = TableBuilder()
    assembler.build(services, slices)
    read: list[str] = []

    def fail(text: str) -> None:
        read.append(text)
        raise KeyError

    monkeypatch.setattr("slipway.serving.routing.route._parse_route", fail)
    pieces: list[Any] = []
    monkeypatch.setattr("slipway.gateway.routing.table._parse_slice", lambda obj, **_unused: pieces.append(obj))
    services[7] = versioned(service("s7", models=["other"]), "2")
    slices[9] = versioned(piece("s9", endpoint("10.0.0.99")), "2")
    table, faults = assembler.build(services, slices)
    assert len(read) == 1
    assert "other" in read[0]
    assert pieces == [slices[9]]
    assert len(table.backends) == 49
    assert [fault.service for fault in faults] == ["s7"]


def test_a_service_made_again_is_read_again() -> None:
    assembler = TableBuilder()
    old = versioned(service("s", models=["old"]))
    assembler.build([old], [])
    new = service("s", models=["new"])
    new["metadata"] |= {"uid": "other", "resourceVersion": "1"}
    table, _unused = assembler.build([new], [])
    assert set(table.models) == {"new", "default/s"}


def test_one_namespace_cannot_fill_the_table_and_its_oldest_services_stay() -> None:
    crowd = [
        service(f"s{n:04}", "crowd", since=f"2026-01-01T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}Z")
        for n in range(5000)
    ]
    table, faults = build([*crowd, service("m1")], [])
    kept = [name for name in table.backends if name.startswith("crowd:")]
    assert 1000 < len(kept) < 5000
    assert kept == [f"crowd:s{n:04}" for n in range(len(kept))]
    assert len(kept) + len(faults) == 5000
    assert "one namespace" in faults[0].message
    assert "m1" in table.models


@pytest.mark.parametrize("model", ["bank/advisor", "bank/advisor/v2", "bank/", "1-a/x"])
def test_an_id_with_a_namespace_belongs_to_it_even_without_its_service(model: str) -> None:
    thief = service("thief", "tenant", since="2020-01-01T00:00:00Z", models=[model, "mine"])
    table, faults = build([thief], [])
    assert set(table.models) == {"mine", "tenant/thief"}
    assert [fault.service for fault in faults] == ["thief"]
    assert f"belongs to namespace {model.partition('/')[0]}" in faults[0].message


def test_ids_of_hubs_that_cannot_be_namespaces_are_free_and_others_are_named_by_the_operator() -> None:
    ids = ["Qwen/Qwen2.5-0.5B", "bert.ai/x", "meta-llama/Llama-3.1-8B"]
    table, faults = build([service("m1", models=ids)], [])
    assert set(table.models) == {*ids[:2], "default/m1"}
    assert len(faults) == 1
    table, faults = build([service("m1", models=ids)], [], Rules(organizations=frozenset({"meta-llama"})))
    assert set(table.models) == {*ids, "default/m1"}
    assert not faults


def test_a_namespace_may_have_further_ids_with_its_name() -> None:
    table, faults = build([service("m1", "bank", models=["bank/alias"])], [])
    assert set(table.models) == {"bank/alias", "bank/m1"}
    assert not faults


def test_an_owned_id_belongs_to_its_owner_even_without_its_service() -> None:
    rules = Rules(owners={"advisor": "bank", "tenant/held": "bank"})
    thief = service("thief", "tenant", since="2020-01-01T00:00:00Z", models=["advisor", "free"])
    table, faults = build([thief], [], rules)
    assert set(table.models) == {"free", "tenant/thief"}
    assert "belongs to namespace bank" in faults[0].message
    table, _unused = build([thief, service("advisor", "bank")], [], rules)
    assert table.models["advisor"] == "bank:advisor"
    held = service("held", "tenant")
    table, _unused = build([held], [], rules)
    assert set(table.models) == {"held"}


def test_only_chosen_namespaces_are_served() -> None:
    services = [service("m1", "bank"), service("m2", "tenant")]
    table, faults = build(services, [], Rules(namespaces=frozenset({"bank"})))
    assert set(table.models) == {"m1", "bank/m1"}
    assert [(fault.service, "routedNamespaces" in fault.message) for fault in faults] == [("m2", True)]


@pytest.mark.parametrize(
    "target",
    [None, {}, {"kind": "Node", "name": "n"}, {"kind": "Pod", "name": "p", "namespace": "bank"}],
    ids=["none", "empty", "node", "elsewhere"],
)
def test_endpoints_that_are_not_pods_in_their_namespace_need_the_setting(target: Any) -> None:
    foreign = {"addresses": ["10.96.0.1"], "conditions": {"ready": True}, "targetRef": target}
    slices = [piece("m1", foreign, endpoint("10.0.0.1"))]
    table, faults = build([service("m1")], slices)
    assert table.backends["default:m1"].endpoints == ("10.0.0.1:8000",)
    assert [fault.message for fault in faults] == [FOREIGN_IGNORED]
    table, faults = build([service("m1")], slices, foreign_endpoints=True)
    assert table.backends["default:m1"].endpoints == ("10.0.0.1:8000", "10.96.0.1:8000")
    assert not faults


def test_a_pod_with_its_namespace_is_used() -> None:
    pod = {"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "name": "p", "namespace": "default"}}
    assert build([service("m1")], [piece("m1", pod)])[0].backends["default:m1"].endpoints == ("10.0.0.1:8000",)


def test_endpoints_of_a_service_are_bounded() -> None:
    slices = [piece("m1", *(endpoint(f"10.{a}.{b}.1") for b in range(200))) for a in range(6)]
    table, faults = build([service("m1")], slices)
    assert len(table.backends["default:m1"].endpoints) == MOST_ENDPOINTS
    assert len(faults) == 1


@pytest.mark.parametrize(
    "broken",
    [
        {"endpoints": [{}]},
        {"endpoints": 7},
        {"ports": [7]},
        {"endpoints": [{"addresses": []}], "addressType": "IPv4"},
        {"addressType": "FQDN"},
    ],
)
def test_an_unreadable_slice_does_not_affect_other_services(broken: dict[str, Any]) -> None:
    bad = piece("m1", endpoint("10.0.0.9")) | broken
    table, _unused = build([service("m1"), service("m2")], [bad, piece("m2", endpoint("10.0.0.2"))])
    assert table.backends["default:m1"].endpoints == ()
    assert table.backends["default:m2"].endpoints == ("10.0.0.2:8000",)


@pytest.mark.parametrize(
    "fields",
    [
        {"spec": {}},
        {"spec": {"ports": [7]}},
        {"spec": {"ports": [{"name": f"p{n}"} for n in range(101)]}},
        {"metadata": {"name": "bad", "namespace": "default", "creationTimestamp": "yesterday"}},
    ],
)
def test_a_service_that_cannot_be_read_is_one_fault(fields: dict[str, Any]) -> None:
    table, faults = build([service("bad") | fields, service("m2")], [])
    assert set(table.models) == {"m2", "default/m2"}
    assert [fault.service for fault in faults] == ["bad"]


def stand_in(
    name: str, *models: str, namespace: str = "default", since: str = "2025-01-01T00:00:00Z"
) -> dict[str, Any]:
    refusal = {"reason": "InvalidSpec", "models": models}
    return service(f"refused-{name}", namespace, since, internal=True, refusal=refusal)


def test_ids_of_refused_models_lead_nowhere_and_have_a_reason() -> None:
    table, faults = build([stand_in("bad", "bad", "default/bad")], [])
    assert table.refused == {"bad": "InvalidSpec", "default/bad": "InvalidSpec"}
    assert (table.models, table.listed, faults) == ({}, (), ())


def test_a_refusal_never_takes_an_id_even_if_it_is_older() -> None:
    table, _faults = build([stand_in("m1", "m1", "default/m1"), service("m1", "other")], [])
    assert table.models["m1"] == "other:m1"
    assert table.refused == {"default/m1": "InvalidSpec"}


def test_a_refusal_does_not_affect_ids_of_other_namespaces() -> None:
    table, _faults = build([stand_in("bad", "other/bad", "no\nid")], [])
    assert table.refused == {}


def test_a_service_reports_why_it_has_no_endpoint() -> None:
    unready_service = service("m1")
    unready_service["metadata"]["annotations"]["slipway.inference/unready"] = (
        '{"reason": "ImagePullBackOff", "final": true}'
    )
    table, _faults = build([unready_service, service("m2")], [])
    assert table.backends["default:m1"].unready == Unready("ImagePullBackOff", final=True)
    assert table.backends["default:m2"].unready is None
