"""Asks a running engine everything of some sets of exchanges, and writes down what it answers.

usage: record.py ENGINE VERSION URL MODEL ADAPTER SET... > FILE

MODEL is the name that it serves; ADAPTER a folder with a LoRA adapter, or '' where it takes none. The sets are those of
tests/engines/exchanges.py. It needs Python alone, so that it runs wherever the engine does.
"""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.engines.exchanges import SETS, Exchange, Json, filled, read

AUDIO = Path(__file__).parent / "recorded/speech.opus"
BOUNDARY = "0123456789abcdef"
METRIC = re.compile(r"^# TYPE (\S+) (\S+)$", re.MULTILINE)


def ask(url: str, exchange: Exchange, model: str, adapter: str) -> dict[str, Any]:
    """Status, type and body of an answer."""
    sent, data = written(exchange, model, adapter)
    request = urllib.request.Request(url + exchange.path, data, {"Content-Type": sent}, method=exchange.method)
    try:
        answer = urllib.request.urlopen(request, timeout=300)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        kind = answer.headers.get("Content-Type", "").partition(";")[0]
        body = answer.read()
    return {"status": answer.status, "type": kind, "body": placed(read(kind, body), adapter)}


def written(exchange: Exchange, model: str, adapter: str) -> tuple[str, bytes | None]:
    """Type and bytes of a request's body."""
    if exchange.form is None:
        body = filled(exchange.body, model, adapter)
        return "application/json", None if body is None else json.dumps(body).encode()
    head = f"--{BOUNDARY}\r\nContent-Disposition: form-data; name="
    parts = [f'{head}"{name}"\r\n\r\n{filled(text, model, adapter)}\r\n' for name, text in exchange.form.items()]
    file = f'{head}"file"; filename="speech.opus"\r\nContent-Type: audio/ogg\r\n\r\n'.encode() + AUDIO.read_bytes()
    data = "".join(parts).encode() + (file + b"\r\n" if exchange.speech else b"") + f"--{BOUNDARY}--\r\n".encode()
    return f"multipart/form-data; boundary={BOUNDARY}", data


def placed(value: Json, adapter: str) -> Json:
    """A body with one path of the adapter, wherever its folder is. Empty: there is none."""
    if isinstance(value, dict):
        return {key: placed(one, adapter) for key, one in value.items()}
    if isinstance(value, list):
        return [placed(one, adapter) for one in value]
    return value.replace(adapter, "/adapter") if adapter and isinstance(value, str) else value


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
    head = {"engine": engine, "version": version, "at": time.strftime("%Y-%m-%d", time.gmtime()), "sets": sets}
    print(json.dumps(head | {"answers": answers, "metrics": metrics(url, engine)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
