"""What a canary gets, and what canaries cost: shares under load, and CPU time per request with and without one.

    canary.py [--quick]

Shares: one model is asked at a fixed rate while its canary's share goes from 0 to 10, 50 and 100 percent. Cost: three
gateways in interleaved rounds, of which one has a model with a canary, one has none, and of the third HAProxy's rules
for canaries were taken away. The exit status is 1 where a request fails or a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import bodies
import toolchain
from generator import Load, measure
from peers import KEY, Place, Running, free_port
from report import ENOUGH

from slipway.gateway.haproxy.metrics import LABELS
from slipway.gateway.rules import targets

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

from outcome import Goal, Outcome, finish

from tests.gateway.standalone import Standalone

PERCENT = (0, 10, 50, 100)
RATE = 200
POINTS = 1.0
"""By how many percent of the requests a share may be missed."""
SETTLED = 1.0
"""Seconds after which a changed share is surely in use."""
COSTED = 10
"""Percent that the canary has whose cost is measured."""
BEFORE, WITHOUT, WITH = "no rules", "no canary", "a canary"
MOST = {WITHOUT: 1.01, WITH: 1.03}
"""CPU time beside the gateway without the rules."""

RULES, RULE_LINES = ("proc.draw", "set-var(txn.targets)", "lua.choose_target"), 5
"""What the lines of haproxy.cfg have in them that only requests for several targets need, and how many they are."""

Models = Mapping[str, Mapping[str, object]]


def models(stable: Sequence[str], canary: Sequence[str], percent: int | None) -> Models:
    """The model that is asked, and its canary; None: it names none."""
    shares = [{"weight": 100 - (percent or 0)}, {"service": "new", "weight": percent}]
    route = {} if percent is None else {"targets": shares}
    return {
        bodies.MODEL: {"endpoints": stable, "route": route},
        "new": {"endpoints": canary, "route": {"internal": True}},
    }


def started(stack: ExitStack, folder: Path, table: Models) -> tuple[Standalone, int]:
    """A gateway, and its port."""
    folder.mkdir()
    public = free_port()
    addresses = {"listen": f"127.0.0.1:{public}", "controlListen": f"127.0.0.1:{free_port()}"}
    gateway = Standalone(folder, {**addresses, "threads": 1, "apiKeysSecret": "bench"})
    gateway.route(table, {"b": KEY})
    return stack.enter_context(gateway), public


def engines(stack: ExitStack, folder: Path, number: int) -> list[str]:
    ports = [free_port() for _engine in range(number)]
    for port in ports:
        engine = Place(folder, port, (0, 0)).spawn([toolchain.native("mock"), str(port)])
        stack.callback(Running(port, [engine]).stop)
    return [f"127.0.0.1:{port}" for port in ports]


def answered(gateway: Standalone) -> dict[str, float]:
    """Requests that each model has answered."""
    with urllib.request.urlopen(f"{gateway.control_url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    counts = {bodies.MODEL: 0.0, "new": 0.0}
    for line in lines:
        name, _unused, value = line.rpartition(" ")
        for model in counts:
            if name.startswith("slipway_gateway_requests_total{") and f'{LABELS[1]}="{model}"' in name:
                counts[model] += float(value)
    return counts


def shares(folder: Path, requests: int) -> tuple[dict[int, float], dict[str, float]]:
    """Percent that the canary got of each share, and what the load generator says."""
    seconds = requests / RATE
    with ExitStack() as stack:
        old, new = engines(stack, folder, 2)
        gateway, public = started(stack, folder / "shares", models([old], [], PERCENT[0]))
        body = folder / "shares.json"
        body.write_bytes(bodies.chat(1024))
        command = [
            toolchain.native("load"),
            "-c",
            "64",
            "-d",
            f"{seconds}",
            "-r",
            f"{RATE}",
            "-k",
            KEY,
            f"{public}",
            body,
        ]
        load = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        got, began = {}, time.monotonic()
        for number, percent in enumerate(PERCENT, 1):
            gateway.route(models([old], [new], percent), {"b": KEY})
            time.sleep(SETTLED)
            before = answered(gateway)
            time.sleep(max(0.0, began + number * seconds / len(PERCENT) - time.monotonic()))
            counted = {model: total - before[model] for model, total in answered(gateway).items()}
            got[percent] = 100 * counted["new"] / max(1.0, sum(counted.values()))
        return got, json.loads(load.communicate(timeout=60)[0])


def alone(gateway: Standalone, *, rules: bool) -> None:
    """Starts HAProxy anew, without its control process; `rules`: with what canaries need."""
    if gateway.control:
        gateway.control.kill()
        gateway.control.wait()
    gateway.kill_haproxy()
    if not rules:
        file = gateway.run / "haproxy.cfg"
        file.write_text(without_rules(file.read_text()))
    gateway.start_haproxy()


def without_rules(configuration: str) -> str:
    """Without the lines that look for targets and draw one of them, and without what they add to other conditions."""
    lines = configuration.splitlines(keepends=True)
    kept = [line for line in lines if not any(word in line for word in RULES)]
    if len(lines) - len(kept) != RULE_LINES:
        raise SystemExit(f"{len(lines) - len(kept)} lines of haproxy.cfg choose targets, not {RULE_LINES}: see RULES")
    return "".join(kept).replace(f" !{targets.ROUTED}", "")


def await_answer(public: int, body: Path) -> None:
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{public}/v1/chat/completions", body.read_bytes(), headers)
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(request, timeout=10):
                return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def costs(folder: Path, rounds: int, seconds: float) -> dict[str, list[float]]:
    """CPU microseconds per request of 1 KB, of each round in which all were asked often enough."""
    program, body = toolchain.native("load"), folder / "costs.json"
    body.write_bytes(bodies.chat(1024))
    cpu_times: dict[str, list[float]] = {kind: [] for kind in (BEFORE, WITHOUT, WITH)}
    with ExitStack() as stack:
        endpoints = engines(stack, folder, 4)
        running = {}
        for kind in cpu_times:
            # As many engines behind one model in each case: more of them cost more.
            stable, canary = (endpoints[:2], endpoints[2:]) if kind == WITH else (endpoints, [])
            table = models(stable, canary, COSTED if kind == WITH else None)
            running[kind] = started(stack, folder / kind.replace(" ", "-"), table)
        for kind, (gateway, public) in running.items():
            await_answer(public, body)
            alone(gateway, rules=kind != BEFORE)
            await_answer(public, body)
        for number in range(rounds):
            results = {}
            for kind in list(cpu_times)[:: 1 if number % 2 else -1]:
                gateway, public = running[kind]
                results[kind] = measure(program, public, KEY, gateway.haproxy_pids()[1:], Load(body), seconds)
                if results[kind].failed:
                    raise SystemExit(f"{kind}: {results[kind].failed} requests failed")
            if all(result.completed >= ENOUGH for result in results.values()):
                for kind, result in results.items():
                    cpu_times[kind].append(result.cpu_us / result.completed)
    return cpu_times


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures canaries.")
    parser.add_argument("--quick", action="store_true", help="4,000 requests, and 15 rounds of 0.3 s")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_signal: sys.exit(143))
    number, rounds, seconds = (4000, 15, 0.3) if options.quick else (20000, 60, 0.5)
    with tempfile.TemporaryDirectory(prefix="slipway-bench-") as name:
        got, stats = shares(Path(name), number)
        cpu = costs(Path(name), rounds, seconds)
    failed = sum(stats[count] for count in ("client_errors", "server_errors", "broken", "unanswered"))
    print(f"{failed:,} of {stats['started']:,} requests failed; load {os.getloadavg()[0]:.1f}")
    for percent, share in got.items():
        print(f"  {percent:3} percent: {share:6.2f}")
    print(f"CPU us per request, and ratio within a round: medians of {len(cpu[BEFORE])} rounds")
    # A few percent are less than what other work on the machine changes from one moment to the next.
    ratios = {
        kind: median(cost / before for cost, before in zip(values, cpu[BEFORE], strict=True))
        for kind, values in cpu.items()
    }
    for kind, ratio in ratios.items():
        print(f"  {kind:>9}  {median(cpu[kind]):6.2f}  {ratio:.3f}")
    goals = [Goal("failed requests", failed, 0)]
    goals += [
        Goal(f"share of {want} percent missed by", abs(share - want), POINTS, "points") for want, share in got.items()
    ]
    goals += [Goal(f"CPU of {kind} beside {BEFORE}", ratios[kind], most, "times") for kind, most in MOST.items()]
    figures = {"failed": failed, "shares": got, "ratios": ratios}
    return finish(Outcome("gateway-canary", options.quick, goals, figures, cpu))


if __name__ == "__main__":
    sys.exit(main())
