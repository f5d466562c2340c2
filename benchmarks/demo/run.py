"""Measures the way from nothing to the first token, `make demo`, and then what a run costs that changes nothing.

    run.py            makes the demo's cluster and removes it: about five minutes, if the images are there
    run.py --quick    makes no cluster, and measures nothing

The images and the Python packages are on the machine already: `make cold` measures a machine without them. The second
part runs the demo's playbook again without its cluster and images: `site` with two models, and a request to each.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from outcome import Goal, Outcome, finish  # noqa: E402 - found by the line before

CLUSTER = "slipway"
STAGE = re.compile(r"^ *\d+/\d+ +(.+?) +ok +(\d+) s", re.MULTILINE)
RECAP = re.compile(r"^localhost +: ok=\d+ +changed=(\d+)", re.MULTILINE)
GOAL_CPU_SECONDS = 40.0
GOAL_NAME = "CPU of a site run of two models without a change"
SKIPPED = "verify,local_cluster,images"
RUNS = 3
PATIENCE = 3600


class DemoError(Exception):
    """The demo cannot be measured. The message is the reason."""


def obstacle() -> str:
    """Why no demo can be made here; empty: it can."""
    try:
        names = subprocess.run(
            ["docker", "ps", "--all", "--format", "{{.Names}}"], capture_output=True, text=True, check=True, timeout=60
        ).stdout.split()
    except (OSError, subprocess.SubprocessError) as error:
        return f"there is no Docker: {error}"
    if f"{CLUSTER}-control-plane" in names:
        return "the demo's cluster exists already, so it would not begin with nothing: remove it"
    return ""


def demo() -> dict[str, object]:
    """Seconds of `make demo`, and of each of its stages. Raises DemoError."""
    started = time.monotonic()
    command = ["make", "--no-print-directory", "demo"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    seconds = time.monotonic() - started
    print(done.stdout, end="")
    if done.returncode:
        raise DemoError(f"make demo failed: {(done.stderr or done.stdout).strip()[-300:]}")
    return {"seconds": seconds, "stages": {name: int(taken) for name, taken in STAGE.findall(done.stdout)}}


def again() -> tuple[float, float, int]:
    """Seconds, CPU seconds and changes of a run that should change nothing. Raises DemoError."""
    environment = {**os.environ, "ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_NOCOLOR": "1"}
    environment.setdefault("ANSIBLE_COLLECTIONS_PATH", str(ROOT / ".venv/collections"))
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = ["ansible-playbook", "playbooks/demo.yml", "--skip-tags", SKIPPED]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    recap = RECAP.search(done.stdout)
    if done.returncode or not recap:
        raise DemoError(f"the second run failed: {done.stdout[-1500:]}{done.stderr[-500:]}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, int(recap[1])


def remove() -> None:
    settings = {"local_cluster_name": CLUSTER, "local_cluster_state": "absent"}
    command = ["ansible-playbook", "playbooks/local.yml", "-e", json.dumps(settings)]
    subprocess.run(command, cwd=ROOT, capture_output=True, timeout=600, check=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    reason = "a quick run makes no cluster" if quick else obstacle()
    if reason:
        missing = {"make demo": reason}
        return finish(
            Outcome("demo", quick, [Goal(GOAL_NAME, None, GOAL_CPU_SECONDS, "s", note=reason)], {}, missing=missing)
        )
    try:
        first = demo()
        runs = [again() for _run in range(RUNS)]
    except DemoError as error:
        raise SystemExit(str(error)) from None
    finally:
        remove()
    best = min(runs, key=lambda run: run[1])
    figures = {**first, "again": {"seconds": best[0], "cpu_seconds": best[1], "runs": RUNS}}
    goals = [
        Goal(GOAL_NAME, best[1], GOAL_CPU_SECONDS, "s"),
        Goal("changes of that run", max(changes for _seconds, _cpu, changes in runs), 0),
    ]
    return finish(Outcome("demo", quick, goals, figures, runs))


if __name__ == "__main__":
    sys.exit(main())
