"""Asks a running engine everything of some sets of exchanges, and writes down what it answers.

usage: record.py ENGINE VERSION URL MODEL ADAPTER SET... > FILE

MODEL is the name that it serves; ADAPTER a folder with a LoRA adapter, or - where it takes none. The sets are those of
tests/engines/exchanges.py. It needs Python alone, so that it runs wherever the engine does.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.engines.exchanges import SETS, Exchange, filled, read

METRIC = re.compile(r"^# TYPE (\S+) (\S+)$", re.MULTILINE)


def ask(url: str, exchange: Exchange, model: str, adapter: str) -> dict[str, Any]:
    """Status, type and body of an answer."""
    data = None if exchange.body is None else json.dumps(filled(exchange.body, model, adapter)).encode()
    request = urllib.request.Request(
        url + exchange.path, data, {"Content-Type": "application/json"}, method=exchange.method
    )
    try:
        answer = urllib.request.urlopen(request, timeout=300)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        kind = answer.headers.get("Content-Type", "").partition(";")[0]
        body = answer.read()
    content = read(kind, body)
    return {"status": answer.status, "type": kind, "body": json.loads(json.dumps(content).replace(adapter, "/adapter"))}


def metrics(url: str, engine: str) -> dict[str, str]:
    """Name -> kind of the engine's own metrics, without those that say when another one began."""
    try:
        with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
            kinds = dict(sorted(METRIC.findall(answer.read().decode())))
    except urllib.error.HTTPError:
        return {}
    return {name: kind for name, kind in kinds.items() if name.startswith(engine) and not name.endswith("_created")}


def main(arguments: list[str]) -> int:
    if len(arguments) < 6:
        print(__doc__, file=sys.stderr)
        return 2
    engine, version, url, model, adapter, *sets = arguments
    exchanges = [exchange for name in sets for exchange in SETS[name]]
    answers = {exchange.name: ask(url, exchange, model, adapter) for exchange in exchanges}
    record = {"engine": engine, "version": version, "sets": sets, "answers": answers, "metrics": metrics(url, engine)}
    print(json.dumps(record, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
