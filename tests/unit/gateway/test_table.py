"""The routing table: ids, conflicts, endpoints."""

from __future__ import annotations

import json
from typing import Any

from slipway.gateway.table import build

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
    return {"addresses": [address], "conditions": conditions}


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


def test_the_port_is_chosen_by_name_also_where_it_has_none() -> None:
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


def test_of_two_models_of_one_name_the_oldest_wins_and_the_other_keeps_its_qualified_name() -> None:
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


def test_of_two_services_that_give_one_name_in_their_namespace_the_oldest_has_the_qualified_id() -> None:
    old, new = service("b", since="2026-01-01T00:00:00Z"), service("a", since="2026-01-02T00:00:00Z")
    old["metadata"]["annotations"] = {LABEL: '{"name": "llama", "models": ["llama"]}'}
    new["metadata"]["annotations"] = {LABEL: '{"name": "llama", "models": ["llama-2"]}'}
    table, faults = build([new, old], [])
    assert table.models == {"llama": "default:b", "llama-2": "default:a", "default/llama": "default:b"}
    assert [(fault.service, "default/llama" in fault.message) for fault in faults] == [("a", True)]


def test_a_route_says_how_its_endpoints_are_chosen_and_an_adapter_is_a_model_of_its_own() -> None:
    hashed = {"strategy": "PrefixHash", "prefixHash": {"meanLoadFactor": 150}}
    services = [service("model-m", models=["m"], **hashed), service("model-m-a", models=["m_a"], **hashed)]
    table, _unused = build(services, [])
    assert {table.backends[table.models[model]].service for model in ("m", "m_a")} == {"model-m", "model-m-a"}
    assert table.backends["default:model-m-a"].route.prefix_hash.mean_load_factor == 150
    assert table.listed == ("m", "m_a")


def test_cards_say_what_the_route_says() -> None:
    route = {"models": ["llama", "alias"], "created": 1700000000, "ownedBy": "team", "source": "hf:a/b"}
    table, _unused = build([service("m1", **route)], [])
    assert table.listed == ("alias", "llama")
    assert table.cards["llama"].public() == {
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
    assert len(faults) == 3


def test_the_order_of_the_input_does_not_matter() -> None:
    services = [service("a"), service("b"), service("c", models=["a", "x"])]
    pieces = [piece("a", endpoint("10.0.0.2"), endpoint("10.0.0.1")), piece("b", endpoint("10.0.0.3"))]
    assert build(services, pieces) == build(services[::-1], pieces[::-1])
