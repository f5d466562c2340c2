"""llama-server processes, one for each model that was asked for. They stay as long as the server does."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from ..web import Answer, Request

MAGIC = b"GGUF"


class Runners:
    def __init__(self) -> None:
        self.program = shutil.which(os.environ.get("STANDIN_LLAMA_SERVER", "llama-server"))
        self._ports: dict[str, int] = {}
        self._lock = threading.Lock()

    def fits(self, weights: Path) -> bool:
        """Whether there is a real model and a program to run it."""
        with weights.open("rb") as file:
            return bool(self.program) and file.read(4) == MAGIC

    def port(self, name: str, weights: Path) -> int:
        """Starts the model's process where it does not run yet; returns when it answers."""
        with self._lock:
            if name not in self._ports:
                self._ports[name] = self._start(name, weights)
            return self._ports[name]

    def _start(self, name: str, weights: Path) -> int:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = int(listener.getsockname()[1])
        flags = ["--host", "127.0.0.1", "--port", str(port), "--alias", name, "--embeddings", "--pooling", "mean"]
        process = subprocess.Popen([str(self.program), "--model", str(weights), *flags])
        while process.poll() is None:
            if healthy(port):
                return port
            time.sleep(0.05)
        raise RuntimeError(f"llama runner process has terminated: exit status {process.returncode}")


def healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def passed_on(request: Request, port: int) -> Answer:
    """The answer of the process behind ``port``, piece by piece as it comes."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request(request.method, request.target, request.body, {"Content-Type": "application/json"})
    answer = connection.getresponse()

    def chunks() -> Iterator[bytes]:
        while piece := answer.read1(65536):
            yield piece
        connection.close()

    return Answer(status=answer.status, kind=answer.headers.get("Content-Type", "text/plain"), chunks=chunks())
