"""Starts stand-ins as processes, as a pod does, and talks to them over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from http.client import HTTPMessage
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.ports import reserved_port

PACKAGES = Path(__file__).parents[2] / "standins" / "packages"
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGES), "STANDIN_LLAMA_SERVER": "not-installed"}
Start = Callable[..., str]
"""(module, *arguments, **environment) -> address of the running server. ``{port}`` becomes a free port."""


class Reply(NamedTuple):
    status: int
    headers: HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(url: str, body: Any = None, headers: Mapping[str, str] | None = None, method: str | None = None) -> Reply:
    """GET, or POST where there is a body: bytes as they are, else JSON."""
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return Reply(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        return Reply(error.code, error.headers, error.read())


def run(module: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program that ends by itself."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(
        command, env=ENVIRONMENT | environment, capture_output=True, text=True, timeout=120, check=False
    )


def launch(module: str, *arguments: str, **environment: str) -> tuple[subprocess.Popen[bytes], str]:
    """A program that serves, and its address, before it answers."""
    port = str(reserved_port())
    command = [sys.executable, "-m", module, *(argument.replace("{port}", port) for argument in arguments)]
    values = {name: value.replace("{port}", port) for name, value in environment.items()}
    return subprocess.Popen(command, env=ENVIRONMENT | values), f"http://127.0.0.1:{port}"


def wait_for(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + 90
    while process.poll() is None and time.monotonic() < deadline:
        try:
            ask(url)
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError(f"{url} did not answer; the process: {process.poll()}")


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    with ExitStack() as stack:

        def started(module: str, *arguments: str, **environment: str) -> str:
            process, url = launch(module, *arguments, **environment)
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
            wait_for(process, url)
            return url

        yield started
