"""Holds the registry read-only for as long as this program runs: the collector's window.

First it has the depot remove from the registry what no model names. It runs in the collector's pod, as a container that
starts first and stops last. Once the registry takes no writes, and every pod that took any is gone, it writes
the file ``open``, and the collector starts. Told to stop, it makes the registry writable again, however the collector
ended.

The argument is JSON: ``deployment``, ``container``, ``open``, ``seconds`` that the registry may take to restart,
``folders``, which the collector expects and an empty registry does not have, and ``depot``: its ``url``, the files with
its authority (``ca``) and with a ``token`` for it, and the ``seconds`` that the removal can take.
"""

from __future__ import annotations

import json
import signal
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SERVER = "https://kubernetes.default.svc"
VARIABLE = {"name": "REGISTRY_STORAGE_MAINTENANCE_READONLY", "value": '{"enabled": true}'}
TRIES = 20
"""Of a request that fails."""
PAUSE = 3.0
"""Seconds between two tries, and between two looks at the Deployment."""

Request = Callable[..., dict[str, Any]]


class Server:
    """The API server, as the pod's account sees it. A request that fails is sent again, a minute long."""

    def __init__(self, deployment: str) -> None:
        namespace = (ACCOUNT / "namespace").read_text()
        self._url = f"{SERVER}/apis/apps/v1/namespaces/{namespace}/deployments/{deployment}"
        self._trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))

    def __call__(self, patch: dict[str, Any] | None = None) -> dict[str, Any]:
        """The Deployment, after a strategic merge patch where one is given. Raises OSError."""
        for left in reversed(range(TRIES)):
            try:
                return self._once(patch)
            except OSError as error:
                if not left:
                    raise
                say(f"the API server did not do it, trying again: {error}")
                time.sleep(PAUSE)
        raise AssertionError

    def _once(self, patch: dict[str, Any] | None) -> dict[str, Any]:
        headers = {
            "Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}",
            "Content-Type": "application/strategic-merge-patch+json",
        }
        request = urllib.request.Request(f"{self._url}?fieldManager=slipway-registry-collection", headers=headers)
        if patch is not None:
            request.method, request.data = "PATCH", json.dumps(patch).encode()
        with urllib.request.urlopen(request, timeout=10, context=self._trust) as answer:
            content: dict[str, Any] = json.load(answer)
            return content


class Depot:
    """The depot's door for the collector."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given

    def __call__(self) -> dict[str, Any]:
        """The answer to one request. Raises OSError or ValueError."""
        headers = {"Authorization": f"Bearer {Path(self._given['token']).read_text()}"}
        request = urllib.request.Request(self._given["url"], headers=headers, method="POST")
        trust = ssl.create_default_context(cafile=self._given["ca"])
        with urllib.request.urlopen(request, timeout=180, context=trust) as answer:
            content: dict[str, Any] = json.load(answer)
            return content


def sweep(depot: Callable[[], dict[str, Any]], seconds: float, stop: threading.Event) -> None:
    """Has the depot remove what no model names. What remains is for the next collection."""
    end, left = time.monotonic() + seconds, TRIES
    while left and time.monotonic() < end:
        try:
            answer = depot()
            say(f"the depot removed {answer['removed']} manifests that no model names")
            if answer["complete"]:
                return
        except (OSError, ValueError, KeyError, TypeError) as error:
            left -= 1
            say(f"the depot did not remove what no model names, trying again: {error}")
        if stop.wait(PAUSE):
            return
    say("not all that no model names was removed: the next collection tries again")


def say(what: str) -> None:
    print(what, flush=True)


def read_only(container: str, *, on: bool) -> dict[str, Any]:
    """The patch of the Deployment that turns it on or off."""
    variable = VARIABLE if on else {"name": VARIABLE["name"], "$patch": "delete"}
    return {"spec": {"template": {"spec": {"containers": [{"name": container, "env": [variable]}]}}}}


def settled(deployment: dict[str, Any]) -> bool:
    """Whether every pod is of the latest template. Its strategy is Recreate: then no other is left, not even one that
    is about to end."""
    status, wanted = deployment.get("status", {}), deployment["spec"].get("replicas", 1)
    return status.get("observedGeneration", 0) >= deployment["metadata"]["generation"] and all(
        status.get(field, 0) == wanted for field in ("replicas", "updatedReplicas", "availableReplicas")
    )


def opened(request: Request, container: str, seconds: float, stop: threading.Event) -> bool:
    """Makes the registry read-only. False where it was not so in time, or was no longer wanted."""
    end = time.monotonic() + seconds
    deployment = request(read_only(container, on=True))
    while not settled(deployment):
        if time.monotonic() > end or stop.wait(PAUSE):
            return False
        deployment = request()
    return True


def hold(request: Request, given: dict[str, Any], stop: threading.Event, depot: Callable[[], dict[str, Any]]) -> int:
    """The whole window. Exit status: 1 where there was none."""
    file, container = Path(given["open"]), given["container"]
    for folder in given["folders"]:
        Path(folder).mkdir(parents=True, exist_ok=True)
    # Else it was restarted in its pod, and the collector is at work.
    if not file.exists():
        sweep(depot, given["depot"]["seconds"], stop)
        if not opened(request, container, given["seconds"], stop):
            request(read_only(container, on=False))
            say(f"the registry was not read-only after {given['seconds']} s: nothing is collected, and it is writable")
            return 1
        file.touch()
        say("the registry is read-only")
    stop.wait()
    request(read_only(container, on=False))
    say("the registry is writable again")
    return 0


def main() -> int:
    given, stop = json.loads(sys.argv[1]), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return hold(Server(given["deployment"]), given, stop, Depot(given["depot"]))


if __name__ == "__main__":
    sys.exit(main())
