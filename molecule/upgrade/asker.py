"""Sends one short chat after the other through the gateway, each on a connection of its own, until it is told to end.

The arguments are the models' names; one that is named twice is asked by two at once. Each request is tried once, so
that nothing hides one that was lost. At the end it prints how many were answered, how long the slowest took, and what
went wrong. Outside of the cluster GATEWAY says where the gateway is.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request

GATEWAY = os.environ.get("GATEWAY", "http://slipway-gateway.slipway-system.svc") + "/v1/chat/completions"
stop = threading.Event()
lock = threading.Lock()
answered: dict[str, int] = {}
failures: list[str] = []
times: list[float] = []


def ask(model: str) -> str:
    """What went wrong; empty where an answer came."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}
    request = urllib.request.Request(GATEWAY, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return "" if "choices" in json.load(answer) else "an answer without choices"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read()[:300]!r}"
    except (OSError, ValueError) as error:
        return repr(error)


def ask_on(model: str) -> None:
    while not stop.is_set():
        started = time.time()
        failure = ask(model)
        took = time.time() - started
        with lock:
            times.append(took)
            if failure:
                told = time.strftime("%H:%M:%S", time.gmtime(started))
                failures.append(f"{model}, sent at {told}, after {took:.1f} s: {failure}")
            else:
                answered[model] = answered.get(model, 0) + 1
        stop.wait(0.3)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    threads = [threading.Thread(target=ask_on, args=(model,)) for model in sys.argv[1:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({"answered": answered, "slowest": round(max(times, default=0), 2), "failures": failures[:10]}))
