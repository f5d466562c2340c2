"""Measures `make demo` on a machine where nothing was ever built or downloaded: runs `scripts/cold.sh`.

cold.py             needs root, 15 GB and 20 minutes
cold.py --quick     measures nothing
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from outcome import Outcome, finish  # noqa: E402 - found by the line before

ROW = re.compile(r"^ *(\d+) s  (\S.*)$", re.MULTILINE)
TOTAL = re.compile(r"^ *(\d+) s  in all", re.MULTILINE)
PATIENCE = 7200


def steps(output: str) -> dict[str, int]:
    """Step -> seconds, of the first run; steps within a step are left out."""
    first = output.partition("Once more,")[0]
    return {name: int(seconds) for seconds, name in ROW.findall(first) if not name.startswith("in all")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    if quick:
        return finish(Outcome("demo-cold", quick, [], {}, missing={"make cold": "a quick run makes no cluster"}))
    done = subprocess.run(["scripts/cold.sh"], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    print(done.stdout, end="")
    total = TOTAL.search(done.stdout)
    if not total:
        raise SystemExit(f"scripts/cold.sh failed: {(done.stderr or done.stdout).strip()[-1000:]}")
    return finish(Outcome("demo-cold", quick, [], {"seconds": int(total[1]), "steps": steps(done.stdout)}))


if __name__ == "__main__":
    sys.exit(main())
