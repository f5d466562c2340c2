"""How long the controller takes for 1,000 InferenceServices of OME that come at once, and what it holds then.

    python benchmarks/controller/services.py [--services 1000] [--router]

Runs the controller as a process against the API server of the unit tests, which shares the processor with it: that
server, and not etcd, is most of what one waits for. Nobody makes pods. Then the controller is watched for a minute, in
which it should write nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from process import cpu_seconds, mebibytes  # noqa: E402

from tests.unit.kube.conftest import ApiServer, kubeconfig_of, serving  # noqa: E402

API, NAMESPACE = "/apis/ome.io/v1beta1", "bench"
SERVICES = f"{API}/namespaces/{NAMESPACE}/inferenceservices"
FORMAT = {"modelFormat": {"name": "safetensors"}, "modelFramework": {"name": "transformers"}}
ONE = {"minReplicas": 1, "maxReplicas": 1}
CLIENTS, PAUSE = 16, 0.01
"""Services that are made at a time, and the seconds between."""
WARM = 5
"""Services before the others, with which the controller starts, loads and connects what it needs."""
REST_SECONDS = 60.0
PATIENCE = 900.0


def runner(name: str, *command: str) -> dict[str, object]:
    return {"name": name, "image": "example/engine:1", "command": [*command, "--port", "8080"]}


async def prepare(server: ApiServer) -> None:
    """A model that its nodes have, and a runtime for it."""
    storage = {"storageUri": "hf://acme/tiny", "path": "/raid/models/tiny"}
    own = {"apiVersion": "ome.io/v1beta1"}
    await server.put(
        f"{API}/clusterbasemodels/tiny",
        **own,
        kind="ClusterBaseModel",
        metadata={"finalizers": ["clusterbasemodels.ome.io/finalizer"]},
        spec={"storage": storage, **FORMAT},
        status={"state": "Ready"},
    )
    engine = runner("ome-container", "python3", "-m", "sglang.launch_server", "--model-path", "$(MODEL_PATH)")
    router = runner("router", "python3", "-m", "sglang_router.launch_router")
    spec = {
        "supportedModelFormats": [{**FORMAT, "autoSelect": True}],
        "engineConfig": {"runner": engine},
        "routerConfig": {"runner": router},
    }
    await server.put(f"{API}/clusterservingruntimes/sglang", **own, kind="ClusterServingRuntime", spec=spec)


async def burst(server: ApiServer, first: int, count: int, *, router: bool) -> float:
    """Seconds from the first service to the last of all children, of those before as well."""
    spec = {"model": {"name": "tiny"}, "engine": ONE, **({"router": ONE} if router else {})}
    started = time.monotonic()
    for number in range(first, first + count):
        path = f"{SERVICES}/chat-{number:04d}"
        await server.put(path, apiVersion="ome.io/v1beta1", kind="InferenceService", spec=spec)
        if number % CLIENTS == CLIENTS - 1:
            await asyncio.sleep(PAUSE)
    each = 8 if router else 3
    """Of an engine a Deployment and two Services; a router adds as many, and its account."""
    async with asyncio.timeout(PATIENCE), server.changed:
        await server.changed.wait_for(lambda: len(children(server)) >= each * (first + count))
    return time.monotonic() - started


def children(server: ApiServer) -> list[str]:
    mine = f"/namespaces/{NAMESPACE}/"
    return [path for path in server.objects if mine in path and SERVICES not in path and "/events/" not in path]


def written(server: ApiServer) -> int:
    """Writes so far, but for those of the lease."""
    return sum("/leases" not in one.path for one in server.writes)


async def quiet(server: ApiServer) -> None:
    while True:
        before = written(server)
        await asyncio.sleep(5.0)
        if before == written(server):
            return


async def measure(count: int, *, router: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "controller.yaml"
        with socket.create_server(("127.0.0.1", 0)) as listener:
            config.write_text(f"apis: [ome]\nlisten: 127.0.0.1:{listener.getsockname()[1]}\n")
        async with serving() as server:
            await prepare(server)
            environment = {"KUBECONFIG": kubeconfig_of(server, folder), "PYTHONPATH": "src"}
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "slipway", "controller", "--config", config),
                cwd=ROOT,
                env=os.environ | environment,
            )
            try:
                await burst(server, 0, WARM, router=router)
                cpu = cpu_seconds(process.pid)
                took = await burst(server, WARM, count, router=router)
                await quiet(server)
                cpu = cpu_seconds(process.pid) - cpu
                writes = written(server)
                await asyncio.sleep(REST_SECONDS)
                print(
                    f"{count} services{' with a router' * router}: all {len(children(server))} children in {took:.1f} s"
                    f" and {cpu:.1f} s of a processor, {writes / (WARM + count):.1f} writes for each; at rest"
                    f" {written(server) - writes} writes in"
                    f" {REST_SECONDS:.0f} s, {mebibytes(process.pid, 'VmRSS'):.0f} MiB,"
                    f" at most {mebibytes(process.pid, 'VmHWM'):.0f} MiB"
                )
            finally:
                process.terminate()
                await process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=1000)
    parser.add_argument("--router", action="store_true", help="each with a router")
    options = parser.parse_args()
    asyncio.run(measure(options.services, router=options.router))


if __name__ == "__main__":
    main()
