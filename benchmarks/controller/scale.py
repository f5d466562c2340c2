"""What 1,000 resources of each of the five APIs cost the controller, and one change among 5,000 beside one among 1.

    scale.py [--api NAME ...]     about half an hour for all
    scale.py --quick              100 and 300 resources: about two minutes

Runs the controller as a process against the API server of the unit tests, which shares the processor with it: that
server is most of what one waits for, so CPU time and requests say more than seconds. There are no pods. A burst ends
with the last write, and all children exist then. A change is a new label of one resource, which is reconciled. Its
cost is the CPU time of many changes of different resources, less what the process needs at rest in that time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT), str(ROOT / "src")]

import services  # noqa: E402 - found by the line before
from outcome import Goal, Outcome, finish  # noqa: E402
from plane import KRYPTON, KUBEAI, LLMKUBE, Dialect  # noqa: E402
from process import cpu_seconds, mebibytes  # noqa: E402

from tests.unit.apis.deckhouse.cluster import KEY, OWN  # noqa: E402
from tests.unit.kube.conftest import ApiServer, kubeconfig_of, serving  # noqa: E402

Object = dict[str, Any]
NAMESPACE = "bench"
AT_A_TIME, PAUSE = 16, 0.01
QUIET_SECONDS = 4.0
"""Without a write: then nothing more is done."""
CHANGES, CHANGE_PAUSE = 200, 0.05
MOST_TIMES = 1.5
"""What a change among many may cost, in parts of a change among one."""
PATIENCE = 1800.0


@dataclass(frozen=True)
class Subject:
    """An API, and the resources of it that are made."""

    dialect: Dialect
    children: int
    """Of each resource, all kinds together."""
    settings: Mapping[str, Any]
    """Of the API, in the controller's file."""
    shared: int = 0
    """Objects of the namespace that all resources share."""

    @property
    def resources(self) -> str:
        """Path of the collection whose resources are counted and changed."""
        return self.dialect.created[self.dialect.services or "models"]


def _ome(_number: int) -> Object:
    return {"model": {"name": "tiny"}, "engine": services.ONE}


def _deckhouse(_number: int) -> Object:
    return {"source": {"upload": {}}}


OME = Dialect("ome", "ome.io", "v1beta1", {}, "", _ome, services="inferenceservices")
DECKHOUSE = Dialect("deckhouse", "ai.deckhouse.io", "v1alpha1", {}, "", _deckhouse)
SUBJECTS = {
    # A Deployment, a Service and a ServiceAccount.
    "krypton": Subject(KRYPTON, 3, {}),
    # A Deployment and a Service.
    "kubeai": Subject(KUBEAI, 2, {}),
    # A Deployment, a Service and a PodDisruptionBudget.
    "llmkube": Subject(LLMKUBE, 3, {}),
    # A Deployment and two Services, and the claim of the model.
    "ome": Subject(OME, 3, {}, shared=1),
    # The Secret with the token of an upload.
    "deckhouse": Subject(DECKHOUSE, 1, OWN),
}


@dataclass
class Sizes:
    many: int
    most: int
    rest_seconds: float
    changes: int


@dataclass
class Figures:
    """Of one API."""

    resources: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    requests_per_resource: float = 0.0
    writes_per_resource: float = 0.0
    memory_mib: float = 0.0
    writes_at_rest: int = 0
    rest_seconds: float = 0.0
    cpu_percent_at_rest: float = 0.0
    change_ms_among_one: float = 0.0
    most: int = 0
    change_ms_among_most: float = 0.0
    memory_mib_of_most: float = 0.0

    @property
    def change_ratio(self) -> float:
        return self.change_ms_among_most / self.change_ms_among_one


class Bench:
    """One API, its server and its controller."""

    def __init__(self, subject: Subject, server: ApiServer, pid: int) -> None:
        self._subject, self._server, self._pid = subject, server, pid
        self._made = 0

    async def burst(self, count: int) -> float:
        """Makes resources and waits until all is done for them. Returns the seconds to the last write."""
        started = time.monotonic()
        for _unused in range(count):
            await self._make(self._made)
            self._made += 1
            if self._made % AT_A_TIME == 0:
                await asyncio.sleep(PAUSE)
        async with asyncio.timeout(PATIENCE):
            await self._quiet()
            while len(self._children()) < self._expected or not self._all_have_status():
                await self._quiet()
        children = len(self._children())
        if children != self._expected:
            raise SystemExit(f"{children} children of {self._made} resources: see {self._children()[:8]}")
        return max(one.at for one in self._server.writes if "/leases" not in one.path) - started

    async def rest(self, seconds: float) -> tuple[int, float]:
        """Writes, and CPU seconds, while nothing changes."""
        writes, cpu = self.writes(), cpu_seconds(self._pid)
        await asyncio.sleep(seconds)
        return self.writes() - writes, cpu_seconds(self._pid) - cpu

    async def change(self, changes: int) -> float:
        """Milliseconds of CPU for a change of one resource."""
        _writes, idle = await self.rest(changes * CHANGE_PAUSE)
        cpu = cpu_seconds(self._pid)
        for number in range(changes):
            path = f"{self._subject.resources}/{self._name(number * 7919 % self._made)}"
            resource = self._server.objects[path]
            labels = {**resource["metadata"].get("labels", {}), "changed": f"at-{time.monotonic_ns()}"}
            await self._server.store(path, {**resource, "metadata": {**resource["metadata"], "labels": labels}})
            await asyncio.sleep(CHANGE_PAUSE)
        return max(0.0, 1000 * (cpu_seconds(self._pid) - cpu - idle) / changes)

    @property
    def _expected(self) -> int:
        return self._subject.children * self._made + self._subject.shared

    def requests(self) -> int:
        return sum("/leases" not in one.path and "watch" not in one.query for one in self._server.log)

    def writes(self) -> int:
        return sum("/leases" not in one.path for one in self._server.writes)

    @staticmethod
    def _name(number: int) -> str:
        return f"m-{number:05d}"

    async def _make(self, number: int) -> None:
        dialect, name = self._subject.dialect, self._name(number)
        version = f"{dialect.group}/{dialect.version}"
        kinds = {"models": "Model", "inferenceservices": "InferenceService"}
        for resource, collection in dialect.created.items():
            spec = dialect.spec(number)
            if dialect is LLMKUBE and resource == dialect.services:
                spec = {"modelRef": name, "runtime": "vllm"}
            if dialect is OME and resource == "models":
                continue  # one model serves all
            await self._server.put(f"{collection}/{name}", apiVersion=version, kind=kinds[resource], spec=spec)

    def _all_have_status(self) -> bool:
        prefix = f"{self._subject.resources}/"
        return all(one.get("status") for path, one in self._server.objects.items() if path.startswith(prefix))

    def _children(self) -> list[str]:
        mine = tuple(f"{collection}/" for collection in self._subject.dialect.created.values())
        inside = f"/namespaces/{NAMESPACE}/"
        return [p for p in self._server.objects if inside in p and not p.startswith(mine) and "/events/" not in p]

    async def _quiet(self) -> None:
        while True:
            before = self.writes()
            await asyncio.sleep(QUIET_SECONDS)
            if before == self.writes():
                return


async def measure(name: str, sizes: Sizes) -> Figures:
    subject, result = SUBJECTS[name], Figures(resources=sizes.many, most=sizes.most, rest_seconds=sizes.rest_seconds)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        async with serving() as server:
            if subject.dialect is OME:
                await services.prepare(server)
            process = await _start(name, subject, server, folder)
            try:
                bench = Bench(subject, server, process.pid)
                await bench.burst(1)
                result.change_ms_among_one = await bench.change(sizes.changes)
                cpu, requests, writes = cpu_seconds(process.pid), bench.requests(), bench.writes()
                result.seconds = await bench.burst(sizes.many)
                result.cpu_seconds = cpu_seconds(process.pid) - cpu
                result.requests_per_resource = (bench.requests() - requests) / sizes.many
                result.writes_per_resource = (bench.writes() - writes) / sizes.many
                result.memory_mib = mebibytes(process.pid, "VmHWM")
                result.writes_at_rest, idle = await bench.rest(sizes.rest_seconds)
                result.cpu_percent_at_rest = 100 * idle / sizes.rest_seconds
                await bench.burst(sizes.most - sizes.many - 1)
                result.change_ms_among_most = await bench.change(sizes.changes)
                result.memory_mib_of_most = mebibytes(process.pid, "VmHWM")
            finally:
                if process.returncode is None:
                    process.terminate()
                await process.wait()
    return result


async def _start(name: str, subject: Subject, server: ApiServer, folder: Path) -> asyncio.subprocess.Process:
    """The controller, serving one API."""
    settings = dict(subject.settings)
    if name == "deckhouse":
        (folder / "hmac").write_bytes(KEY)
        settings["keyFile"] = str(folder / "hmac")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listen = f"127.0.0.1:{listener.getsockname()[1]}"
    config = folder / "controller.yaml"
    config.write_text(json.dumps({"apis": {name: settings}, "listen": listen}))
    environment = {"KUBECONFIG": kubeconfig_of(server, folder), "PYTHONPATH": "src"}
    with (folder / "controller.log").open("wb") as log:
        command = (sys.executable, "-m", "slipway", "controller", "--config", config)
        return await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, env=os.environ | environment, stdout=log, stderr=log
        )


def judge(results: Mapping[str, Figures]) -> list[Goal]:
    goals = []
    for name, one in results.items():
        goals.append(Goal(f"{name}: writes at rest in {one.rest_seconds:.0f} s", one.writes_at_rest, 0))
        times = f"{name}: CPU of a change among {one.most:,} in parts of one among 1"
        if one.change_ms_among_one:
            goals.append(Goal(times, one.change_ratio, MOST_TIMES, "times"))
        else:
            goals.append(Goal(times, None, MOST_TIMES, "times", note="less CPU than the clock shows"))
    return goals


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--api", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))
    options = parser.parse_args()
    sizes = Sizes(100, 300, 2.0, 20) if options.quick else Sizes(1000, 5000, 60.0, CHANGES)
    results, missing = {}, {}
    for name in options.api:
        try:
            one = results[name] = asyncio.run(measure(name, sizes))
        except TimeoutError:
            missing[name] = f"the children of all resources did not exist within {PATIENCE:.0f} s"
            continue
        print(
            f"{name:10} {one.resources} resources: {one.seconds:.1f} s, {one.cpu_seconds:.1f} s of CPU,"
            f" {one.requests_per_resource:.1f} requests each, {one.memory_mib:.0f} MiB; at rest {one.writes_at_rest}"
            f" writes; a change {one.change_ms_among_one:.1f} ms among 1, {one.change_ms_among_most:.1f} ms among"
            f" {one.most}",
            flush=True,
        )
    figures = {name: asdict(one) for name, one in results.items()}
    return finish(Outcome("controller-scale", options.quick, judge(results), figures, missing=missing))


if __name__ == "__main__":
    sys.exit(main())
