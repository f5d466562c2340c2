"""Measures the controller beside kopf on a real API server: one command, interleaved rounds.

    run.py            1,000 Models, 2 rounds, 60 s of watching for writes: about ten minutes
    run.py --quick    200 Models, 1 round, 15 s: about two minutes

It makes a kind cluster of its own, stops the controllers of Kubernetes there (as in envtest, nobody then makes pods of
the Deployments) and removes it at the end. The controllers run as processes on this machine, which should have nothing
else to do; the API server, the load and the observer share its cores with them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from contestants import ALONE, CONTESTANTS, KOPF, Running, running
from observer import Observer, observing
from plane import KUBEAI, LLMKUBE, Api, cluster

sys.path.insert(0, str(Path(__file__).parents[1]))

from outcome import Goal, Outcome, finish

CLIENTS = 16
"""Models that are created at a time in the burst."""
SINGLE = 100
RATE = 10.0
"""Models a second, one after the other, for the time that a single one takes on a controller that is idle."""
PATIENCE = 900.0


@dataclass
class Asked:
    """The size of a run."""

    models: int
    rounds: int
    watch_seconds: float


@dataclass
class Round:
    """What one controller did in one round."""

    burst_seconds: float = 0.0
    """From the first create request to the last child seen."""
    burst_cpu_seconds: float = 0.0
    writes_per_model: float = 0.0
    requests_per_model: float = 0.0
    writes: dict[str, float] = field(default_factory=dict)
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    peak_mebibytes: float = 0.0
    idle_writes: int = 0
    idle_changes: int = 0
    idle_cpu_percent: float = 0.0
    change_reconciliations: int = 0
    restart_seconds: float = 0.0
    restart_writes: int = 0
    restart_changes: int = 0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


async def burst(api: Api, observer: Observer, process: Running, count: int, result: Round) -> None:
    names = [f"burst-{number:04d}" for number in range(count)]
    before, requests_before, cpu = await api.writes(), await api.requests(), process.cpu_seconds()
    limit = asyncio.Semaphore(CLIENTS)

    async def create(name: str) -> None:
        async with limit:
            await api.model(name)

    started = time.monotonic()
    await asyncio.gather(*(create(name) for name in names))
    done = await observer.children_of(names, PATIENCE)
    result.burst_seconds = max(done.values()) - started
    await observer.quiet(3.0, PATIENCE)
    result.burst_cpu_seconds = process.cpu_seconds() - cpu
    own = Counter({f"POST {resource}": count for resource in api.dialect.created})  # the benchmark's
    writes, requests = await api.writes() - before - own, await api.requests() - requests_before - own
    result.writes = {what: round(number / count, 2) for what, number in sorted(writes.items())}
    result.writes_per_model = sum(writes.values()) / count
    result.requests_per_model = sum(requests.values()) / count


async def single(api: Api, observer: Observer, result: Round) -> None:
    sent: dict[str, float] = {}
    for number in range(SINGLE):
        due = time.monotonic() + 1 / RATE
        name = f"single-{number:03d}"
        sent[name] = time.monotonic()
        await api.model(name)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
    done = await observer.children_of(sent, 120)
    taken = sorted((done[name] - sent[name]) * 1000 for name in sent)
    result.p50_ms, result.p99_ms = statistics.median(taken), taken[int(0.99 * (len(taken) - 1))]
    await observer.quiet(3.0, PATIENCE)


async def idle(api: Api, observer: Observer, process: Running, seconds: float, result: Round) -> None:
    writes, changes, cpu = await api.writes(), observer.changes.total(), process.cpu_seconds()
    await asyncio.sleep(seconds)  # the time over which writes are counted
    result.idle_writes = (await api.writes() - writes).total()
    result.idle_changes = observer.changes.total() - changes
    result.idle_cpu_percent = 100 * (process.cpu_seconds() - cpu) / seconds
    result.peak_mebibytes = process.peak_mebibytes()


async def change(api: Api, observer: Observer, process: Running, result: Round) -> None:
    """How many reconciliations one change of one Model costs."""
    before = process.reconciliations()
    await api.change("burst-0000")
    await observer.quiet(3.0, PATIENCE)
    result.change_reconciliations = process.reconciliations() - before


async def one_round(api: Api, name: str, kubeconfig: Path, workload: Asked) -> Round:
    result = Round()
    await api.clean()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (CONTESTANTS | ALONE)[name], kubeconfig, Path(folder), free_port()
        async with observing(api) as observer:
            with running(*arguments) as process:
                await burst(api, observer, process, workload.models, result)
                say(f"  {name}: {workload.models} Models in {result.burst_seconds:.1f} s")
                await single(api, observer, result)
                await idle(api, observer, process, workload.watch_seconds, result)
                if name in ALONE:
                    await change(api, observer, process, result)
            writes, changes, started = await api.writes(), observer.changes.total(), time.monotonic()
            with running(*arguments):
                result.restart_seconds = time.monotonic() - started
                await asyncio.sleep(workload.watch_seconds)
                result.restart_writes = (await api.writes() - writes).total()
                result.restart_changes = observer.changes.total() - changes
    return result


ROWS = (
    ("burst_seconds", "all children of the burst, s", 30.0),
    ("burst_cpu_seconds", "CPU for it, s", None),
    ("writes_per_model", "writes per Model", None),
    ("requests_per_model", "API requests per Model", None),
    ("p50_ms", "one Model to its children, p50, ms", 60.0),
    ("p99_ms", "one Model to its children, p99, ms", 500.0),
    ("peak_mebibytes", "memory at most, MiB", 400.0),
    ("idle_writes", "writes while nothing changes", 0),
    ("idle_cpu_percent", "CPU while nothing changes, %", None),
    ("restart_seconds", "restart until ready, s", 5.0),
    ("restart_writes", "writes after a restart", None),
    ("restart_changes", "objects changed after a restart", 0),
)
"""Field, what it says, and Slipway's goal."""
GOALS_ALONE = (
    ("burst_seconds", "all children of the burst, s", {"slipway, KubeAI": 45.0, "slipway, LLMKube": 60.0}),
    ("burst_cpu_seconds", "CPU for it, s", {}),
    ("writes_per_model", "writes per Model", {}),
    ("idle_writes", "writes while nothing changes", dict.fromkeys(ALONE, 0)),
    ("change_reconciliations", "reconciliations for one change", dict.fromkeys(ALONE, 1)),
    ("restart_writes", "writes after a restart", dict.fromkeys(ALONE, 0)),
    ("restart_changes", "objects changed after a restart", dict.fromkeys(ALONE, 0)),
)
"""The same for KubeAI's Models of six engines, and for LLMKube's Models with a service each."""
DIALECTS = {"slipway, KubeAI": KUBEAI, "slipway, LLMKube": LLMKUBE}


Medians = dict[str, dict[str, float]]
"""Contestant -> field -> the median of its rounds."""


def medians(results: dict[str, list[Round]]) -> Medians:
    fields = {row for row, _text, _goal in ROWS} | {row for row, _text, _goals in GOALS_ALONE}
    return {
        name: {row: statistics.median(getattr(one, row) for one in rounds) for row in sorted(fields)}
        for name, rounds in results.items()
    }


def judge(median: Medians) -> list[Goal]:
    goals = [Goal(text, median["slipway"][row], goal) for row, text, goal in ROWS if goal is not None]
    for name in ALONE:
        goals += [
            Goal(f"{name}: {text}", median[name][row], bounds[name])
            for row, text, bounds in GOALS_ALONE
            if name in bounds
        ]
    return goals


def table(median: Medians, results: dict[str, list[Round]]) -> str:
    """The medians side by side."""
    lines = [f"{'':36}{'slipway':>10}{'kopf':>10}{'kopf / slipway':>16}"]
    for row, text, _goal in ROWS:
        ours, theirs = median["slipway"][row], median["kopf"][row]
        lines.append(f"{text:36}{ours:>10.1f}{theirs:>10.1f}{f'{theirs / ours:.1f}' if ours else '-':>16}")
    for name in ALONE:
        lines.append(f"\n{name}")
        lines += [f"{text:36}{median[name][row]:>10.1f}" for row, text, _goals in GOALS_ALONE]
    for name, rounds in results.items():
        writes = ", ".join(f"{what} {count}" for what, count in rounds[0].writes.items())
        lines.append(f"writes per Model of {name}: {writes}")
    return "\n".join(lines)


async def measure(kubeconfig: Path, workload: Asked) -> dict[str, list[Round]]:
    results: dict[str, list[Round]] = {name: [] for name in CONTESTANTS}
    async with Api.connect(kubeconfig) as api:
        await api.prepare()
        for number in range(workload.rounds):
            say(f"round {number + 1} of {workload.rounds}")
            for name in CONTESTANTS:
                results[name].append(await one_round(api, name, kubeconfig, workload))
        for name, dialect in DIALECTS.items():
            own = Api(api.session, dialect)
            await own.prepare()
            results[name] = [await one_round(own, name, kubeconfig, workload) for _unused in range(workload.rounds)]
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller run")
    options = parser.parse_args()
    workload = Asked(200, 1, 15.0) if options.quick else Asked(1000, 2, 60.0)
    say("making the cluster (half a minute)")
    with cluster(free_port()) as kubeconfig:
        results = asyncio.run(measure(kubeconfig, workload))
    median = medians(results)
    print(f"\nController: {workload.models} Models, median of {workload.rounds} round(s)\n\n{table(median, results)}")
    return finish(
        Outcome(
            "controller",
            options.quick,
            judge(median),
            {**asdict(workload), "rows": {row: text for row, text, _goal in ROWS}, "medians": median},
            rounds={name: [asdict(one) for one in rounds] for name, rounds in results.items()},
            versions=dict(one.split("==") for one in KOPF),
        )
    )


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)
