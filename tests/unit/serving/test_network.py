"""Who reaches the pods of a model, by the policies that are made for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.kube.objects import NETWORK_POLICY
from slipway.serving.containers.drain import Drain
from slipway.serving.contract.settings import NetworkPolicies, Settings
from slipway.serving.pods.network import ingress
from slipway.serving.pods.server import Container, ModelServer, Probe, Probes

from ..network_policy import ALL, CONTROLLER, FORGED, GATEWAY, NEIGHBOUR, PROMETHEUS, STRANGER, who

PROBE = Probe(period=1, timeout=1, failures=1)
SERVER = ModelServer(
    name="tiny",
    namespace="models",
    labels={"app": "model"},
    selector={"model": "tiny"},
    engine=Container(name="server", image="engine:1"),
    port=8000,
    probes=Probes(PROBE, PROBE, PROBE),
    drain=Drain(seconds=1),
)
LOADER = msgspec.structs.replace(SERVER, sidecars=(Container(name="loader", image="slipway:1"),))


def policies(server: ModelServer, *, policed: bool = False, **chosen: Any) -> tuple[dict[str, Any], ...]:
    settings = Settings(system_namespace="slipway-system", network_policies=NetworkPolicies(**chosen))
    return ingress(server, settings, policed=policed)


def test_by_default_a_loader_is_reached_by_the_controller_alone_and_the_engine_by_all() -> None:
    [policy] = policies(LOADER)
    assert who(policy, 8001) == {CONTROLLER}
    assert all(who(policy, port) == ALL for port in (1, 8000, 8002, 65535))
    assert all(who(policy, port, protocol) == ALL for port in (1, 65535) for protocol in ("UDP", "SCTP"))


def test_a_policy_is_for_the_pods_of_its_model_and_says_nothing_of_what_they_ask() -> None:
    [policy] = policies(LOADER)
    assert (policy["apiVersion"], policy["kind"]) == (NETWORK_POLICY.api_version, NETWORK_POLICY.kind)
    assert policy["metadata"] == {"name": "tiny-ingress", "namespace": "models", "labels": {"app": "model"}}
    assert policy["spec"]["podSelector"] == {"matchLabels": {"model": "tiny"}}
    assert policy["spec"]["policyTypes"] == ["Ingress"]


def test_without_known_port_ranges_the_engine_still_answers() -> None:
    [policy] = policies(LOADER)
    for rule in policy["spec"]["ingress"]:
        for port in rule["ports"]:
            port.pop("endPort", None)
    assert who(policy, 8000) == ALL
    assert who(policy, 8001) == {CONTROLLER}


def test_pods_without_a_loader_get_no_policy_unless_asked() -> None:
    assert policies(SERVER) == ()
    assert policies(LOADER, loaders=False) == ()


def test_ours_does_not_open_what_the_policies_of_the_namespace_close() -> None:
    assert policies(LOADER, policed=True) == ()


@pytest.mark.parametrize("policed", [False, True])
def test_when_asked_engines_take_requests_of_the_gateway_and_prometheus_only(policed: bool) -> None:
    [policy] = policies(SERVER, policed=policed, models=True)
    assert who(policy, 8000) == {GATEWAY, PROMETHEUS}
    assert who(policy, 8001) == who(policy, 9000) == set()
    [policy] = policies(LOADER, policed=policed, models=True)
    assert who(policy, 8000) == {GATEWAY, PROMETHEUS}
    assert who(policy, 8001) == {CONTROLLER}


def test_without_prometheus_namespaces_only_the_gateway_reaches_models() -> None:
    [policy] = policies(SERVER, models=True, prometheus_namespaces=())
    assert who(policy, 8000) == {GATEWAY}


def test_clients_that_the_operator_lists_may_send_requests() -> None:
    peers = ({"namespaceSelector": {"matchLabels": {"team": "blue"}}}, {"podSelector": {}})
    [policy] = policies(LOADER, models=True, clients=peers)
    assert who(policy, 8000) == {GATEWAY, PROMETHEUS, STRANGER, FORGED, NEIGHBOUR}
    assert who(policy, 8001) == {CONTROLLER}
