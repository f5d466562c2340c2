"""What workloads of others that ask for no model cost the controller that delivers models: memory, and requests.

    strangers.py [--count 5000] [--kubeconfig FILE]

It makes that many Deployments without replicas in a namespace of its own, once without and once with them has a process
of its own list and watch what the controller does, and removes them. Any cluster will do; none of them runs a pod.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from slipway.kube.api.client import Client
from slipway.kube.api.errors import ConflictError
from slipway.kube.metrics import Metrics
from slipway.kube.objects import DEPLOYMENT, NAMESPACE, Key, Object

SOURCE = Path(__file__).parents[2] / "src"
PLACE = "slipway-strangers"
AT_ONCE = 8
SETTLED_SECONDS = 5.0
"""How long the process is watched for requests when it has its lists."""
WATCHER = """
import asyncio, json, sys
from slipway.apis import APIS
from slipway.controller.inputs.caches import Caches
from slipway.kube.api.client import Client
from slipway.kube.metrics import Metrics
from slipway.serving.contract.delivery import OBSERVED
from slipway.serving.contract.settings import Settings


def requests(metrics):
    counted = (one for family in metrics.registry.collect() for one in family.samples)
    return sum(one.value for one in counted if one.name == "rest_client_requests_total")


async def main(kubeconfig, seconds):
    metrics = Metrics()
    client = await Client.connect(kubeconfig, metrics=metrics)
    apis = [api for api in APIS if api.name == "deckhouse"]
    caches = Caches(client, apis, Settings(system_namespace="default"))
    informers = [caches.informer(kind) for kind in OBSERVED]
    tasks = [asyncio.create_task(informer.run()) for informer in informers]
    for informer in informers:
        await informer.synced.wait()
    await asyncio.sleep(1)
    before = requests(metrics)
    await asyncio.sleep(seconds)
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    told = {name: int(lines[name].split()[0]) for name in ("VmHWM", "VmRSS")}
    told |= {"kept": sum(len(informer.store) for informer in informers), "requests": requests(metrics) - before}
    print(json.dumps(told))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await client.close()

asyncio.run(main(sys.argv[1], float(sys.argv[2])))
"""


def deployment(number: int) -> Object:
    """One as people have them: two containers with variables, probes and resources."""
    env = [{"name": f"VARIABLE_{one}", "value": "x" * 40} for one in range(20)]
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10}
    limits = {"limits": {"memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}
    containers = [
        {"name": name, "image": "registry.example/image:1", "env": env, "readinessProbe": probe, "resources": limits}
        for name in ("app", "beside")
    ]
    labels = {"app": f"stranger-{number}"}
    metadata = {"name": f"stranger-{number}", "namespace": PLACE, "annotations": {"description": "x" * 200}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


async def fill(client: Client, count: int) -> None:
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            try:
                await client.create(DEPLOYMENT, deployment(number))
            except ConflictError:
                continue

    await asyncio.gather(*(work() for _unused in range(AT_ONCE)))


async def measured(kubeconfig: str) -> dict[str, int]:
    """KiB that a process has that watches, and had at most; the objects that it keeps; its requests at rest."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "MALLOC_ARENA_MAX": "2"}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        WATCHER,
        kubeconfig,
        str(SETTLED_SECONDS),
        stdout=asyncio.subprocess.PIPE,
        env=environment,
    )
    output, _unused = await process.communicate()
    figures: dict[str, int] = json.loads(output)
    return figures


async def main() -> None:
    parser = argparse.ArgumentParser(description="What workloads of others cost the controller.")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--kubeconfig", default=os.environ.get("KUBECONFIG", ""))
    options = parser.parse_args()
    client = await Client.connect(options.kubeconfig, metrics=Metrics(), further_connections=AT_ONCE)
    try:
        before = await measured(options.kubeconfig)
        await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}})
        await fill(client, options.count)
        after = await measured(options.kubeconfig)
        sys.stdout.write(f"{options.count} Deployments: kept {after['kept']}, requests at rest {after['requests']:g}\n")
        for name, word in (("VmRSS", "memory"), ("VmHWM", "at most")):
            grown = (after[name] - before[name]) / 1024
            sys.stdout.write(f"{word}: {after[name] / 1024:.1f} MiB, {grown:.1f} MiB more than without\n")
    finally:
        await client.delete(NAMESPACE, Key("", PLACE))
        await client.close()


if __name__ == "__main__":
    asyncio.run(main())
