"""What the strategy PrefixHash costs: CPU time per request beside LeastLoad, in one gateway with keys, guard and log.

    hashing.py [--quick] [--engines N]

Rounds are interleaved: each asks for a model of either strategy in turn. The exit status is 1 where hashing costs more
than a tenth.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import bodies
import toolchain
from generator import Load, measure
from peers import KEY, Place, Running, free_port
from report import ENOUGH

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

from outcome import Goal, Outcome, finish

from tests.gateway.standalone import Standalone

SIZES = {"1 KB": 1 << 10, "32 KB": 32 << 10, "1 MB": 1 << 20}
JUDGED = ("1 KB", "32 KB")
MOST = 1.1
MODELS = {"least": {}, "prefix": {"strategy": "PrefixHash", "prefixHash": {"meanLoadFactor": 1000}}}
"""All requests begin alike, so the bound is set where they do not reach it: the choice alone is measured."""


def write_bodies(folder: Path, size: int) -> dict[str, Path]:
    """The same request for either model."""
    written = {}
    for model in MODELS:
        written[model] = folder / f"{size}-{model}.json"
        written[model].write_bytes(bodies.chat(size).replace(b'"bench"', json.dumps(model).encode(), 1))
    return written


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures what PrefixHash costs.")
    parser.add_argument("--quick", action="store_true", help="8 rounds of 0.3 s")
    parser.add_argument("--engines", type=int, default=2, help="endpoints of each model")
    return parser.parse_args()


def measured(folder: Path, engines: int, rounds: int, seconds: float) -> dict[str, dict[str, list[float]]]:
    """CPU microseconds per request, by size and model, of each round."""
    program = toolchain.native("load")
    ports = [free_port() for _engine in range(engines)]
    cpu_times: dict[str, dict[str, list[float]]] = {size: {model: [] for model in MODELS} for size in SIZES}
    with ExitStack() as stack:
        for port in ports:
            engine = Place(folder, port, (0, 0)).spawn([toolchain.native("mock"), str(port)])
            stack.callback(Running(port, [engine]).stop)
        public = free_port()
        addresses = {"listen": f"127.0.0.1:{public}", "controlListen": f"127.0.0.1:{free_port()}"}
        gateway = Standalone(folder, {**addresses, "threads": 1, "apiKeysSecret": "bench"})
        endpoints = [f"127.0.0.1:{port}" for port in ports]
        gateway.route({name: {"endpoints": endpoints, "route": route} for name, route in MODELS.items()}, {"b": KEY})
        stack.enter_context(gateway)
        requests = {size: write_bodies(folder, count) for size, count in SIZES.items()}
        for number in range(rounds):
            for size, by_model in requests.items():
                for model in list(MODELS)[:: 1 if number % 2 else -1]:
                    load = Load(by_model[model], 16 if size == "1 MB" else 32)
                    result = measure(program, public, KEY, gateway.haproxy_pids()[1:], load, seconds)
                    if result.failed:
                        raise SystemExit(f"{model}, {size}: {result.failed} requests failed")
                    if result.completed >= ENOUGH:
                        cpu_times[size][model].append(result.cpu_us / result.completed)
    return cpu_times


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_signal: sys.exit(143))
    rounds, seconds = (8, 0.3) if options.quick else (8, 2.0)
    with tempfile.TemporaryDirectory(prefix="slipway-bench-") as name:
        cpu_times = measured(Path(name), options.engines, rounds, seconds)
    load = os.getloadavg()[0]
    print(f"CPU us per request, {options.engines} endpoints, least (median) of {rounds} rounds; load {load:.1f}")
    ratios = {}
    for size, by_model in cpu_times.items():
        middle = {model: median(costs) for model, costs in by_model.items()}
        # Other work on the machine only adds: the least of all rounds is nearest to the truth.
        ratios[size] = min(by_model["prefix"]) / min(by_model["least"])
        costs = "  ".join(f"{model} {min(by_model[model]):8.1f} ({middle[model]:.1f})" for model in MODELS)
        print(f"  {size:>6}  {costs}  {ratios[size]:.2f}")
    goals = [Goal(f"{size}: CPU of PrefixHash in parts of LeastLoad's", ratios[size], MOST, "times") for size in JUDGED]
    figures = {
        "ratios": ratios,
        "cpu_us": {size: {m: min(c) for m, c in row.items()} for size, row in cpu_times.items()},
    }
    return finish(Outcome("gateway-hashing", options.quick, goals, figures, cpu_times))


if __name__ == "__main__":
    sys.exit(main())
