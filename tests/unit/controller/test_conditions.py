"""What resources say of themselves, as metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from slipway.apis.krypton.types import KIND
from slipway.controller.metrics.conditions import ConditionsCollector
from slipway.kube.api.client import Client
from slipway.kube.caches.informer import Informer
from slipway.kube.objects import Key, Object


def condition(kind: str, status: str, reason: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason}


def resource(name: str, *conditions: dict[str, str]) -> Object:
    metadata = {"name": name, "namespace": "models", "uid": name, "resourceVersion": "1"}
    return {"metadata": metadata, "status": {"conditions": [*conditions]} if conditions else None}


def series(informer: Informer) -> list[str]:
    registry = CollectorRegistry(auto_describe=True)
    registry.register(ConditionsCollector([informer]))
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def informer() -> Informer:
    client: Client = None  # type: ignore[assignment]  # nothing is read from a server here
    return Informer(client, KIND)


def test_each_condition_of_each_resource_is_one_series() -> None:
    models = informer()
    killed, going = condition("Available", "False", "OOMKilled"), condition("Progressing", "True", "RollingOut")
    models.store.put(resource("tiny", killed, going))

    of_tiny = 'kind="models.krypton.ai",name="tiny",namespace="models"'
    assert series(models) == [
        f'slipway_resource_condition{{{of_tiny},reason="OOMKilled",type="Available"}} 0.0',
        f'slipway_resource_condition{{{of_tiny},reason="RollingOut",type="Progressing"}} 1.0',
    ]


def test_unknown_values_are_not_shown() -> None:
    models = informer()
    models.store.put(resource("new"))
    models.store.put(resource("unsure", condition("Accepted", "Unknown", "Retrying")))
    models.store.put(resource("of-another-controller", {"type": "Ready"}))

    assert series(models) == []


def test_a_resource_that_is_gone_leaves_nothing_behind() -> None:
    models = informer()
    models.store.put(resource("tiny", condition("Available", "True", "Ready")))
    models.store.drop(Key("models", "tiny"))

    assert series(models) == []
