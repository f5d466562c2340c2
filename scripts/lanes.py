#!/usr/bin/env python3
"""Runs the tests: the CI stages, and the lanes, which run separately. tests/lanes.toml defines both.

usage: lanes.py ci [STAGE...]           all CI stages, or the given ones, in order; stops at the first failure
       lanes.py run LANE... | --all     lanes by name or pattern, such as 'molecule-*'; writes a record for each
       lanes.py list                    all lanes, and what each one needs
       lanes.py touched [BASE]          the lanes whose inputs changed since BASE (default: the merge base)
       lanes.py status                  the state of each lane's record: green, red, stale or missing
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from runner import checkout
from runner.execution import print_status, run_lanes, run_stages
from runner.machine import CannotStartError, cache_folder, check_machine, only_run
from runner.process import InterruptedRunError, describe_interrupt, interruptible, keep_busy
from runner.table import Table, choose, touched


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(usage=(__doc__ or "").partition("usage: ")[2])
    parts = parser.add_subparsers(dest="command", required=True)
    ci = parts.add_parser("ci")
    ci.add_argument("names", nargs="*", metavar="STAGE")
    lanes = parts.add_parser("run")
    lanes.add_argument("names", nargs="*", metavar="LANE")
    lanes.add_argument("--all", action="store_true", help="all lanes except those that run by name only")
    lanes.add_argument("--keep", action="store_true", help="leave the test cluster for the next call")
    for part in (ci, lanes):
        part.add_argument("--load", type=int, default=0, metavar="N", help="keep N CPU cores busy during the run")
    parts.add_parser("list")
    parts.add_parser("touched").add_argument("base", nargs="?", metavar="BASE")
    parts.add_parser("status")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace, table: Table) -> int:
    chosen = choose(table, options.names, everything=options.all) if options.command == "run" else []
    if options.command == "run" and not chosen:
        raise CannotStartError("no lane is given. Name a lane or use --all; `lanes.py list` shows all lanes.")
    isolate()
    check_machine()
    with only_run(), keep_busy(options.load):
        if options.command == "ci":
            return run_stages(table, options.names)
        return run_lanes(table, chosen, keep=options.keep)


def isolate() -> None:
    """Hides the user's own cluster from the tests, and adds the cached programs to PATH."""
    for name in ("KUBECONFIG", "K8S_AUTH_KUBECONFIG", "SLIPWAY_TEST_KUBECONFIG"):
        os.environ.pop(name, None)
    os.environ["PATH"] += f":{cache_folder() / 'bin'}"


def show_touched(table: Table, base: str) -> None:
    changed = checkout.git("diff", "--name-only", base).splitlines()
    names = {lane.name for lane in touched(table, changed)}
    print(f"{len(changed)} files changed since {base}.")
    if names:
        print_status(table, names)


def main() -> int:
    options = parse()
    try:
        table = Table.read((checkout.ROOT / "tests/lanes.toml").read_text())
        if options.command in ("ci", "run"):
            with interruptible():
                return run(options, table)
        if options.command == "list":
            for lane in table.lanes.values():
                print(f"{lane.name:24} needs {' '.join([lane.needs, *lane.parts])}{' (by name only)' * lane.by_name}")
        elif options.command == "touched":
            show_touched(table, options.base or checkout.base_commit())
        else:
            print_status(table)
    except (CannotStartError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except InterruptedRunError as error:
        print(describe_interrupt(error), file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
