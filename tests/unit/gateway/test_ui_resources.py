"""The page follows users' resources, even if the API server lacks or denies some kinds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from slipway.gateway import main
from slipway.gateway.control.reconcile_loop import ReconcileLoop
from slipway.gateway.haproxy.dataplane import DataPlane
from slipway.gateway.settings import DeclaredKind, Settings
from slipway.gateway.ui import overview
from slipway.gateway.ui.resources import Resources
from slipway.kube.api.client import Client
from slipway.kube.metrics import Metrics
from slipway.kube.objects import Kind

from ..kube.conftest import ApiServer, client, eventually, kubeconfig, metrics, refuse, server, start

__all__ = ["client", "eventually", "kubeconfig", "metrics", "server", "start"]
MODELS = Kind("kubeai.org", "v1", "Model", "models")
SERVICES = Kind("ome.io", "v1beta1", "InferenceService", "inferenceservices")
PATH = "/apis/kubeai.org/v1/namespaces/ns/models"
Start = Callable[[Any], Any]
Eventually = Callable[..., Awaitable[None]]
READY = {"type": "Ready", "status": "True", "reason": "Ready", "message": "It is ready."}


async def test_resources_come_change_and_go(
    server: ApiServer, client: Client, start: Start, eventually: Eventually
) -> None:
    resources = Resources(client, [MODELS])
    await server.put(f"{PATH}/a", spec={"replicas": 2, "url": "hf://a/b"})
    start(resources.run())
    await eventually(lambda: [(one.name, one.desired, one.conditions) for one in resources.all()] == [("a", 2, ())])
    await server.put(f"{PATH}/a", spec={"replicas": 2}, status={"conditions": [READY]})
    await eventually(lambda: [condition.type for one in resources.all() for condition in one.conditions] == ["Ready"])
    await server.remove(f"{PATH}/a")
    await eventually(lambda: resources.all() == [])
    assert resources.unread() == ()


async def test_a_kind_that_may_not_be_read_is_named_and_keeps_no_other_away(
    server: ApiServer, client: Client, start: Start, eventually: Eventually
) -> None:
    forbidden = server.fault("GET", "inferenceservices", refuse(403, "Forbidden"), times=10**6)
    resources = Resources(client, [MODELS, SERVICES])
    await server.put(f"{PATH}/a")
    start(resources.run())
    await eventually(lambda: resources.unread() == ("inferenceservices.ome.io",))
    await eventually(lambda: [one.name for one in resources.all()] == ["a"])
    forbidden.times = 0
    await eventually(lambda: resources.unread() == ())


async def test_a_missing_kind_is_not_reported(
    server: ApiServer, client: Client, start: Start, eventually: Eventually
) -> None:
    server.fault("GET", "inferenceservices", refuse(404, "NotFound"), times=10**6)
    resources = Resources(client, [MODELS, SERVICES])
    await server.put(f"{PATH}/a")
    start(resources.run())
    await eventually(lambda: [one.name for one in resources.all()] == ["a"])
    assert resources.unread() == ()


async def test_the_control_process_shows_models_with_the_services_that_they_own(
    server: ApiServer,
    client: Client,
    tmp_path: Path,
    start: Start,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def connect(*, metrics: Metrics) -> Client:
        return client

    monkeypatch.setattr(Client, "connect", connect)
    await server.put(f"{PATH}/a", status={"conditions": [READY]})
    owner = {
        "apiVersion": "kubeai.org/v1",
        "kind": "Model",
        "name": "a",
        "uid": server.objects[f"{PATH}/a"]["metadata"]["uid"],
        "controller": True,
    }
    labels = {"slipway.inference/route": "true"}
    await server.put(
        "/api/v1/namespaces/ns/services/model-a",
        metadata={"labels": labels, "annotations": {}, "ownerReferences": [owner]},
        spec={"ports": [{"name": "http", "port": 80}]},
    )
    kinds = (DeclaredKind("kubeai.org", "v1", "Model", "models"),)
    settings = Settings(ui=True, ui_kinds=kinds, run_directory=str(tmp_path))
    dataplane = DataPlane(settings)
    reconciler = ReconcileLoop(dataplane)
    stack = AsyncExitStack()  # the client is closed by its fixture
    feeds, look = await main._connect_cluster(settings, Metrics(), dataplane, reconciler, stack)
    for feed in feeds:
        start(feed())

    def list_models() -> list[tuple[str, str, tuple[str, ...]]]:
        models = overview.build_models(look(), reconciler.table, {})
        return [(model.kind, model.name, model.ids) for model in models]

    await eventually(lambda: list_models() == [("models.kubeai.org", "a", ("model-a", "ns/model-a"))])
