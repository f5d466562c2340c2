"""What strangers store does not fill the memory of the controller and of the gateway's control."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from slipway.kube.objects import CONFIG_MAP, DEPLOYMENT, MANAGED_BY, SERVICE, Kind
from slipway.serving.contract.api import USES
from slipway.serving.routing.route import ROUTE

SOURCE = Path(__file__).parents[3] / "src"
BOUND = 10_000
"""KiB by which a process may grow."""
PROCESS = """
import asyncio, json, sys
from slipway.apis.kubeai.api import KUBEAI
from slipway.controller.inputs.caches import Caches
from slipway.gateway.sources.kubernetes import KubernetesSource
from slipway.kube.api.client import Client
from slipway.kube.metrics import Metrics
from slipway.serving.contract.settings import Settings


async def main(role, kubeconfig):
    metrics = Metrics()
    client = await Client.connect(kubeconfig, metrics=metrics)
    if role == "controller":
        informers = Caches(client, [KUBEAI], Settings(system_namespace="system")).informers
        tasks = [asyncio.create_task(informer.run()) for informer in informers]
        for informer in informers:
            await informer.synced.wait()
    else:
        published = asyncio.Event()
        source = KubernetesSource(client, metrics, None)
        tasks = [asyncio.create_task(source.run(lambda _snapshot: published.set()))]
        await published.wait()
    # Watches tell the same once more.
    await asyncio.sleep(float(sys.argv[3]))
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    print(json.dumps({name: int(lines[name].split()[0]) for name in ("VmHWM", "VmRSS")}))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.close()

asyncio.run(main(*sys.argv[1:3]))
"""


async def measured(role: str, kubeconfig: str, seconds: float = 0.0) -> dict[str, int]:
    """KiB that a process with the informers of ``role`` has, and had at most."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "MALLOC_ARENA_MAX": "2"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROCESS, role, kubeconfig, str(seconds), stdout=asyncio.subprocess.PIPE, env=environment
    )
    output, _unused = await asyncio.wait_for(process.communicate(), 240)
    assert process.returncode == 0
    sizes: dict[str, int] = json.loads(output)
    return sizes


async def fill(server: Any, kind: Kind, count: int, metadata: dict[str, Any], **fields: Any) -> None:
    for number in range(count):
        await server.put(kind.path("tenant", f"x{number:03d}"), metadata=dict(metadata), **fields)


async def growth(server: Any, kubeconfig: str, role: str, *filled: Any, **fields: Any) -> dict[str, int]:
    before = await measured(role, kubeconfig)
    await fill(server, *filled, **fields)
    after = await measured(role, kubeconfig)
    return {name: after[name] - before[name] for name in before}


MINE = {"labels": {MANAGED_BY: "slipway"}}
MODEL = {"apiVersion": "kubeai.org/v1", "kind": "Model", "name": "m", "uid": "u", "controller": True}


@pytest.mark.parametrize("owner", [(), (MODEL,)], ids=["without an owner", "a Model's"])
async def test_500_config_maps_of_a_megabyte_with_our_label_fill_no_memory(server, kubeconfig, owner) -> None:
    metadata = {**MINE, "ownerReferences": list(owner)}
    grown = await growth(server, kubeconfig, "controller", CONFIG_MAP, 500, metadata, data={"x": "x" * 1_000_000})
    assert max(grown.values()) <= BOUND, grown


async def test_deployments_and_annotations_of_strangers_fill_no_memory(server, kubeconfig) -> None:
    before = await measured("controller", kubeconfig)
    await fill(server, DEPLOYMENT, 60, MINE, spec={"template": {"x": "x" * 1_000_000}})
    for name in (ROUTE, "other"):
        annotated = {"labels": {ROUTE: "true", MANAGED_BY: "slipway"}, "annotations": {name: "x" * 250_000}}
        for number in range(60):
            path = SERVICE.path("tenant", f"{len(name)}-{number}")
            await server.put(path, metadata=annotated, spec={"ports": [{"name": "http", "port": 80}]})
    pods = Kind("", "v1", "Pod", "pods")
    await fill(server, pods, 60, {**MINE, "annotations": {USES: "x" * 250_000}}, spec={"x": "x" * 500_000})
    after = await measured("controller", kubeconfig)
    # Three kinds are listed at the same time, with a page of each in memory.
    assert max(after[name] - before[name] for name in before) <= 2 * BOUND


async def test_annotations_of_strangers_fill_no_memory_of_the_gateway(server, kubeconfig) -> None:
    metadata = {"labels": {ROUTE: "true"}, "annotations": {ROUTE: "x" * 256_000, "other": "y" * 1000}}
    ports = {"ports": [{"name": "http", "port": 80}]}
    grown = await growth(server, kubeconfig, "gateway", SERVICE, 300, metadata, spec=ports)
    assert max(grown.values()) <= BOUND, grown


async def test_a_watch_of_large_objects_fills_no_memory(server, kubeconfig) -> None:
    """Each arrives after the list, in a separate line."""

    async def later() -> None:
        while not any("deployments" in one.path for one in server.watches):  # noqa: ASYNC110  # of another process
            await asyncio.sleep(0.05)
        await fill(server, DEPLOYMENT, 40, MINE, spec={"template": {"x": "x" * 1_000_000}})

    before = await measured("controller", kubeconfig)
    server.log.clear()
    grown, _unused = await asyncio.gather(measured("controller", kubeconfig, 6.0), later())
    assert max(grown[name] - before[name] for name in before) <= BOUND
