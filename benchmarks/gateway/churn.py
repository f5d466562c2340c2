"""Endpoints that come and go under load: how many changes a second HAProxy follows, and whether a request is lost.

    churn.py [--quick] [--changes N]

Every model has half of the engines, then the other half, and so on, steered by the code that the control process runs:
each exchange is one change of the table. Every second model has the strategy PrefixHash. Two of the models are asked at
a fixed rate meanwhile. The exit status is 1 where a request fails, or where HAProxy had to be loaded anew.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import bodies
import toolchain
from peers import Place, Running, free_port

from slipway.gateway.haproxy.dataplane import DataPlane
from slipway.gateway.haproxy.render import DesiredState
from slipway.gateway.routing.table import EMPTY, Backend, RoutingTable
from slipway.gateway.settings import load_settings
from slipway.serving.routing.route import Route

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

from outcome import Goal, Outcome, finish

from tests.gateway.standalone import Standalone

ENGINES = 32
MODELS = 20
RATE = 150
"""Requests a second for each of the two models."""
PACE = 2000
"""Changes a second by which the time of asking is reckoned."""


def table(endpoints: tuple[str, ...]) -> RoutingTable:
    """Every model with these endpoints."""
    routes = (Route(), Route(strategy="PrefixHash"))
    backends = [Backend("churn", f"m{number}", endpoints, routes[number % 2]) for number in range(MODELS)]
    return EMPTY._replace(backends={b.name: b for b in backends}, models={b.service: b.name for b in backends})


async def exchange(directory: Path, endpoints: list[str], changes: int) -> tuple[float, float]:
    """Makes the changes; returns the seconds that it took and those of CPU that the control process would have used."""
    dataplane = DataPlane(load_settings(directory / "gateway.yaml"))
    halves = [DesiredState(table(tuple(sorted(endpoints[half::2]))), ready=True) for half in (0, 1)]
    began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    count = number = 0
    while count < changes:
        await dataplane.apply(halves[number % 2])
        count += ENGINES * MODELS
        number += 1
        await asyncio.sleep(0.03)  # as the control process gathers changes
    after = resource.getrusage(resource.RUSAGE_SELF)
    return time.monotonic() - began, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime


def loads(folder: Path, port: int, seconds: float) -> list[subprocess.Popen[str]]:
    """Starts to ask one model of each strategy."""
    started = []
    for model in ("m0", "m1"):
        body = folder / f"{model}.json"
        body.write_bytes(bodies.chat(1024).replace(b'"bench"', json.dumps(model).encode(), 1))
        command = [toolchain.native("load"), "-c", "64", "-d", f"{seconds}", "-r", f"{RATE}", str(port), body]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    return started


def cpu_seconds(pids: list[int]) -> float:
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split() for pid in pids]
    return sum(int(field[11]) + int(field[12]) for field in fields) / os.sysconf("SC_CLK_TCK")


def measured(folder: Path, changes: int, seconds: float) -> dict[str, float]:
    ports = [free_port() for _engine in range(ENGINES)]
    with ExitStack() as stack:
        for port in ports:
            stack.callback(
                Running(port, [Place(folder, port, (0, 0)).spawn([toolchain.native("mock"), str(port)])]).stop
            )
        public = free_port()
        addresses = {"listen": f"127.0.0.1:{public}", "controlListen": f"127.0.0.1:{free_port()}"}
        # The control process would lower the default to what open files allow; what takes its place here does not.
        settings = {**addresses, "threads": 1, "maxConnections": 2000}
        gateway = stack.enter_context(Standalone(folder, settings))
        gateway.stop(gateway.control)  # what it does is done here
        endpoints = [f"127.0.0.1:{port}" for port in ports]
        asyncio.run(exchange(folder, endpoints, 1))
        asking = loads(folder, public, seconds)
        before, workers = cpu_seconds(gateway.haproxy_pids()), gateway.haproxy_pids()
        took, used = asyncio.run(exchange(folder, endpoints, changes))
        spent = cpu_seconds(gateway.haproxy_pids()) - before
        stats = [json.loads(process.communicate(timeout=seconds + 60)[0]) for process in asking]
        failed = sum(s["client_errors"] + s["server_errors"] + s["broken"] + s["unanswered"] for s in stats)
        return {
            "changes": changes,
            "seconds": took,
            "control_cpu_seconds": used,
            "haproxy_cpu_seconds": spent,
            "asked": sum(s["started"] for s in stats),
            "failed": failed,
            "p99_us": max(s["p99_us"] for s in stats),
            "reloads": float(gateway.haproxy_pids() != workers),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description="Changes endpoints under load.")
    parser.add_argument("--quick", action="store_true", help="5,000 changes")
    parser.add_argument("--changes", type=int, help="endpoints that come or go, in all (50,000)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_signal: sys.exit(143))
    changes = options.changes or (5000 if options.quick else 50000)
    with tempfile.TemporaryDirectory(prefix="slipway-bench-") as name:
        figures = measured(Path(name), changes, changes / PACE)
    rate = figures["changes"] / figures["seconds"]
    print(f"{changes:,} changes in {figures['seconds']:.1f} s: {rate:,.0f} a second; load {os.getloadavg()[0]:.1f}")
    for who in ("control", "haproxy"):
        print(f"  {who}: {figures[f'{who}_cpu_seconds'] / changes * 1e6:.0f} us of CPU a change")
    print(
        f"  {figures['failed']:,.0f} of {figures['asked']:,.0f} requests failed, p99 {figures['p99_us'] / 1000:.1f} ms"
    )
    goals = [Goal("failed requests", figures["failed"], 0), Goal("reloads of HAProxy", figures["reloads"], 0)]
    return finish(Outcome("gateway-churn", options.quick, goals, figures))


if __name__ == "__main__":
    sys.exit(main())
