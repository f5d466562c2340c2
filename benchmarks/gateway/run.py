"""Measures the gateway beside its peers: one command, interleaved rounds, tables on the screen and JSON in a file.

    run.py            the whole grid, 5 rounds of 4 s: about an hour and a half
    run.py --quick    four cases, 5 rounds of 0.3 s: a few minutes

Everything runs on 127.0.0.1 of this machine, which should have nothing else to do. Needs cc, Go and the image of
HAProxy; what is built and installed lies in the cache. A peer that cannot be had or fails is reported as such.
The exit status is 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import bodies
import goals
import instructions
import report
import toolchain
from cases import Case, cases
from generator import LoadError, Result, measure
from peers import KEY, PEERS, Peer, Place, Running, StartError, free_port, start
from report import FLOOR, OURS, Measured

sys.path.insert(0, str(Path(__file__).parents[1]))

from outcome import Outcome, finish

COUNTED = {"1 KB": 300, "32 KB": 100, "1 MB": 10}
"""Sizes whose instructions are counted, and by how many requests."""
SPARE = 0.7
"""A fixed rate above this part of a peer's capacity says nothing but that it cannot."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Benchmark:
    """Started peers, and what was measured so far."""

    def __init__(self, seconds: float, folder: Path) -> None:
        self._seconds = seconds
        self._folder = folder
        self._program = toolchain.native("load")
        self.running: dict[str, Running] = {}
        self.missing: dict[str, str] = {}
        self._results: defaultdict[tuple[str, str], list[Result]] = defaultdict(list)
        self._floors: defaultdict[tuple[str, str], list[Result]] = defaultdict(list)
        self._problems: dict[tuple[str, str], str] = {}
        self._rates: dict[tuple[str, str], float] = {}
        self._capacity: dict[str, float] = {}
        self._upstreams = (free_port(), free_port())
        self._instructions: defaultdict[str, dict[str, float | str]] = defaultdict(dict)

    def start(self, chosen: list[Peer], stack: ExitStack) -> None:
        for port in self._upstreams:
            engine = Place(self._folder, port, (0, 0)).spawn([toolchain.native("mock"), str(port)])
            stack.callback(Running(port, [engine]).stop)
        for peer in chosen:
            begin = time.monotonic()
            try:
                running = start(peer, self._folder / peer.name, self._upstreams, bodies.chat(1024))
            except (toolchain.BuildError, StartError, OSError, RuntimeError) as error:
                self.missing[peer.name] = str(error)
                say(f"{peer.name}: cannot be measured: {error}")
                continue
            stack.callback(running.stop)
            self.running[peer.name] = running
            say(f"{peer.name}: ready after {time.monotonic() - begin:.1f} s")

    def round(self, case: Case, peer: Peer) -> None:
        """Measure one peer once. After a failure it is not asked this again."""
        place = (case.name, peer.name)
        if peer.name not in self.running or place in self._problems:
            return
        if case.kind == "half" and peer.name == FLOOR:
            return  # it is measured at each peer's rate instead
        load = case.load
        if case.kind in ("rate", "half"):
            capacity = self._capacity.get(peer.name, 0.0)
            rate = load.rate or (self._rates.get(place) or capacity / 2)
            if not rate or (load.rate and rate > capacity * SPARE):
                self._problems[place] = f"{capacity:,.0f}/s is all that it can"
                return
            self._rates[place] = rate
            load = dataclasses.replace(load, rate=rate)
        try:
            self._results[place].append(self._measure(peer.name, load))
            if case.kind in ("rate", "half") and peer.name != FLOOR:
                self._floors[place].append(self._measure(FLOOR, load))
        except LoadError as error:
            self._problems[place] = str(error)
            return
        if case.kind == "closed":
            reached = report.per_second(self._results[place][-1])
            self._capacity[peer.name] = max(reached, self._capacity.get(peer.name, 0.0))

    def count(self, chosen: list[Peer], grid: list[Case], *, quick: bool) -> None:
        """Counts the instructions of a request in a second start of each peer, after its rounds."""
        sizes = dict(list(COUNTED.items())[:1]) if quick else COUNTED
        names = {f"{size}, model first": number for size, number in sizes.items()}
        requests = {case.name: (case.load.body, names[case.name]) for case in grid if case.name in names}
        for peer in chosen:
            if peer.name == FLOOR or peer.name in self.missing:
                continue
            if peer.slow:
                self._instructions[peer.name] = dict.fromkeys(requests, "it starts too slowly below callgrind")
                continue
            say(f"{peer.name}: counting instructions")
            try:
                folder = self._folder / f"{peer.name}-counted"
                counts = instructions.count(peer, folder, self._upstreams, requests)
                self._instructions[peer.name] = {case: round(number, 1) for case, number in counts.items()}
            except (instructions.CountError, toolchain.BuildError, StartError) as error:
                self._instructions[peer.name] = dict.fromkeys(requests, str(error))

    def _measure(self, name: str, load: object) -> Result:
        running = self.running[name]
        pids = [] if name == FLOOR else running.pids()
        return measure(self._program, running.port, KEY, pids, load, self._seconds)  # type: ignore[arg-type]

    def measured(self, case: Case, chosen: list[Peer]) -> tuple[list[Measured], dict[str, Measured]]:
        """What is known of a case: a row for each peer, and the engine alone at each peer's rate."""
        rows, floors = [], {}
        for peer in chosen:
            if case.kind == "half" and peer.name == FLOOR:
                continue
            place = (case.name, peer.name)
            problem = self.missing.get(peer.name) or self._problems.get(place) or "left out"
            rate = self._rates.get(place, 0.0)
            counted = self._instructions[peer.name].get(case.name, "")
            rows.append(Measured(case, peer.name, tuple(self._results[place]), problem, rate, counted))
            if self._floors[place]:
                floors[peer.name] = Measured(case, FLOOR, tuple(self._floors[place]), rate=rate)
        return rows, floors


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures the gateway beside its peers.")
    parser.add_argument("--quick", action="store_true", help="four cases, 5 rounds of 0.3 s")
    parser.add_argument("--rounds", type=int, help="how often each is measured")
    parser.add_argument("--seconds", type=float, help="length of each measurement")
    parser.add_argument("--peers", nargs="+", choices=[peer.name for peer in PEERS], help="beside direct and slipway")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    # So that whoever ends this early leaves nothing running.
    signal.signal(signal.SIGTERM, lambda *_signal: sys.exit(143))
    rounds, seconds = options.rounds or 5, options.seconds or (0.3 if options.quick else 4.0)
    chosen = [peer for peer in PEERS if not options.peers or peer.name in (FLOOR, OURS, *options.peers)]
    with tempfile.TemporaryDirectory(prefix="slipway-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        grid = cases(folder / "bodies", quick=options.quick)
        bench = Benchmark(seconds, folder)
        bench.start(chosen, stack)
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            for case in grid:
                # Each round begins with another peer, so that none is always measured after the same neighbour.
                for peer in chosen[number % len(chosen) :] + chosen[: number % len(chosen)]:
                    if not (case.heavy and peer.slow):
                        bench.round(case, peer)
        bench.count(chosen, grid, quick=options.quick)
        measurements = [bench.measured(case, chosen) for case in grid]
    counter = instructions.method()
    print(
        f"best of {rounds} interleaved rounds of {seconds:g} s; one thread or process each; spread: worst to best round"
    )
    print(f"instructions of the program, not of the kernel, by {counter or 'nothing: not available'}")
    for peer in chosen:
        print(f"  {peer.name}: {bench.missing.get(peer.name) or peer.note}")
    for rows, floors in measurements:
        print(report.table(rows, floors))
    peers = [peer.name for peer in chosen]
    return finish(outcome(options.quick, measurements, bench.missing, peers, rounds, seconds))


def outcome(
    quick: bool, measurements: list[goals.Table], missing: dict[str, str], peers: list[str], rounds: int, seconds: float
) -> Outcome:
    documents = []
    for rows, floors in measurements:
        ours = next((row for row in rows if row.peer == OURS and row.results), None)
        documents += [report.document(row, ours, floors.get(row.peer)) for row in rows]
    return Outcome(
        "gateway",
        quick,
        goals.judge(measurements),
        {
            "rounds": rounds,
            "seconds": seconds,
            "instructions_by": instructions.method() or "not available",
            "rows": documents,
        },
        rounds=[report.rounds(row) for rows, floors in measurements for row in [*rows, *floors.values()]],
        versions=toolchain.versions(peers),
        missing=missing,
    )


if __name__ == "__main__":
    sys.exit(main())
