"""Which engine gets a request if Services claim IDs of others or are recreated: a real HAProxy, fake Services."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from slipway.gateway.haproxy.dataplane import DataPlane
from slipway.gateway.haproxy.render import DesiredState
from slipway.gateway.routing.table import build
from slipway.gateway.settings import load_settings
from slipway.serving.routing.claims import DEFAULT, Rules
from slipway.serving.routing.route import ROUTE
from tests.gateway.conftest import Engine
from tests.gateway.standalone import PATIENCE, Standalone


class Steered:
    """A HAProxy that gets tables from the test instead of its control process."""

    def __init__(self, gateway: Standalone) -> None:
        self._url = gateway.url
        self._plane = DataPlane(load_settings(gateway.config))

    async def serve(self, *services: tuple[dict[str, Any], Engine], rules: Rules = DEFAULT) -> None:
        table, _unused = build([obj for obj, _engine in services], [slice_of(*pair) for pair in services], rules)
        await self._plane.apply(DesiredState(table, ready=True))

    def ask(self, model: str) -> tuple[int, str]:
        """Returns status and the name of the engine that answered."""
        answer = requests.post(f"{self._url}/v1/completions", json={"model": model}, timeout=PATIENCE)
        return answer.status_code, answer.headers.get("x-engine", "")


def service(namespace: str, name: str, day: int, *models: str) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "creationTimestamp": f"2026-01-{day:02}T00:00:00Z",
            "annotations": {ROUTE: json.dumps({"models": models})},
        },
        "spec": {"ports": [{"name": "http", "port": 80}]},
    }


def slice_of(obj: dict[str, Any], engine: Engine) -> dict[str, Any]:
    namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
    pod = {"addresses": ["127.0.0.1"], "targetRef": {"kind": "Pod", "namespace": namespace, "name": "p"}}
    labels = {"kubernetes.io/service-name": name}
    return {
        "metadata": {"namespace": namespace, "name": f"{name}-x", "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": engine.port}],
        "endpoints": [pod],
    }


@pytest.fixture(scope="module")
def steered(make_gateway: Callable[..., Standalone]) -> Iterator[Steered]:
    with make_gateway(holdSeconds=1) as gateway:
        assert gateway.control
        gateway.control.kill()  # after SIGTERM, it would wait for HAProxy to stop
        gateway.control.wait()
        yield Steered(gateway)


@pytest.fixture(scope="module")
def bank(make_engine: Callable[..., Engine]) -> Engine:
    return make_engine("bank")


@pytest.fixture(scope="module")
def tenant(make_engine: Callable[..., Engine]) -> Engine:
    return make_engine("tenant")


async def test_while_a_model_is_recreated_no_other_service_gets_its_qualified_id(
    steered: Steered, bank: Engine, tenant: Engine
) -> None:
    thief = service("tenant", "thief", 2, "advisor", "bank/advisor", "gpt-4o"), tenant
    await steered.serve((service("bank", "advisor", 1, "advisor"), bank), thief)
    assert steered.ask("bank/advisor") == (200, "bank")
    await steered.serve(thief)
    assert steered.ask("bank/advisor") == (404, "")
    await steered.serve((service("bank", "advisor", 3, "advisor"), bank), thief)
    assert steered.ask("bank/advisor") == (200, "bank")
    assert not any(b"bank/advisor" in body for body in tenant.bodies)


async def test_an_owned_id_has_no_backend_while_its_owner_is_missing(
    steered: Steered, bank: Engine, tenant: Engine
) -> None:
    rules, thief = Rules(owners={"advisor": "bank"}), (service("tenant", "thief", 1, "advisor"), tenant)
    await steered.serve(thief, rules=rules)
    assert steered.ask("advisor") == (404, "")
    await steered.serve((service("bank", "advisor", 2, "advisor"), bank), thief, rules=rules)
    assert steered.ask("advisor") == (200, "bank")


async def test_thousands_of_ids_come_and_go_at_once(steered: Steered, bank: Engine, tenant: Engine) -> None:
    crowd = [(service("tenant", f"s{n}", 2, *(f"{n}-{i}" for i in range(64))), tenant) for n in range(40)]
    await steered.serve((service("bank", "advisor", 1, "advisor"), bank), *crowd)
    for model in ("0-0", "19-31", "39-63", "tenant/s7"):
        assert steered.ask(model) == (200, "tenant")
    assert steered.ask("advisor") == (200, "bank")
    await steered.serve((service("bank", "advisor", 1, "advisor", "39-63"), bank))
    assert steered.ask("19-31") == (404, "")
    assert steered.ask("39-63") == (200, "bank")
