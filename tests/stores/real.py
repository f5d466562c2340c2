"""Real stores on this machine: programs that `images/tools.sh` compiles, or that a variable names.

Where one is missing, its tests skip. `make test-all` compiles them, and names them so that nothing can skip.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import pytest
import requests
from minio import Minio

REGION = "eu-west-1"
OWNER = ("AKIAOWNER", "secret-of-the-owner")
STRANGER = ("AKIASTRANGER", "secret-of-a-stranger")
"""Key and secret of somebody whom the store knows, and who may read nothing."""
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0


def program(name: str) -> str:
    """Its path. SLIPWAY_VERSITYGW and SLIPWAY_FAKE_GCS_SERVER name those that lie elsewhere."""
    named = os.environ.get(f"SLIPWAY_{name.upper().replace('-', '_')}", "")
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    made = Path(os.environ.get("SLIPWAY_CACHE") or f"{cache}/slipway", "bin", name)
    if not named and not made.exists():
        pytest.skip(f"needs {name}, a program: run images/tools.sh {name}, which compiles it")
    return named or str(made)


class Running:
    """A program that serves HTTP, from entering the context until leaving it. ``directory`` gets its log."""

    def __init__(self, command: list[str], directory: Path, port: int, env: dict[str, str] | None = None) -> None:
        self._command, self._directory, self._env = command, directory, env or {}
        self.host, self.url = f"127.0.0.1:{port}", f"http://127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Running:
        with (self._directory / "log").open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=output, env={**os.environ, **self._env}
            )
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with urllib.request.urlopen(self.url, timeout=10):
                    return self
            except urllib.error.HTTPError as error:
                error.close()
                return self
            except OSError:
                time.sleep(0.05)
        self.__exit__(None, None, None)
        raise RuntimeError(f"{self._command[0]} does not answer; its log is {self._directory / 'log'}")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process:
            self._process.terminate()
            self._process.wait(_STOP_SECONDS)


class S3(Running):
    """versitygw over a folder: buckets are folders, objects are files. Metadata lies apart, as not every file system
    takes it."""

    def __init__(self, directory: Path, port: int) -> None:
        self.data, people, metadata = directory / "data", directory / "people", directory / "metadata"
        for folder in (self.data, people, metadata):
            folder.mkdir()
        key, secret = STRANGER
        stranger = {"access": key, "secret": secret, "role": "user"}
        (people / "users.json").write_text(json.dumps({"accessAccounts": {key: stranger}}))
        words = ["--port", f"127.0.0.1:{port}", "--region", REGION, "--iam-dir", str(people)]
        command = [program("versitygw"), *words, "posix", "--sidecar", str(metadata), str(self.data)]
        super().__init__(command, directory, port, {"ROOT_ACCESS_KEY": OWNER[0], "ROOT_SECRET_KEY": OWNER[1]})

    @property
    def client(self) -> Minio:
        """The owner's."""
        return Minio(self.host, access_key=OWNER[0], secret_key=OWNER[1], secure=False, region=REGION)


class Google(Running):
    """fake-gcs-server, with its buckets in memory. It begins with those that are folders of ``data``."""

    def __init__(self, directory: Path, port: int, data: Path) -> None:
        words = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory", "-data", str(data)]
        super().__init__([program("fake-gcs-server"), *words], directory, port)

    def make_bucket(self, name: str) -> None:
        """Raises HTTPError."""
        requests.post(f"{self.url}/storage/v1/b", json={"name": name}, timeout=_START_SECONDS).raise_for_status()

    def put(self, key: str, body: bytes) -> None:
        """Into the bucket ``models``. Raises HTTPError."""
        address = f"{self.url}/upload/storage/v1/b/models/o?uploadType=media&name={quote(key, safe='')}"
        requests.post(address, data=body, timeout=_START_SECONDS).raise_for_status()

    def remove(self, key: str) -> None:
        """Raises HTTPError."""
        address = f"{self.url}/storage/v1/b/models/o/{quote(key, safe='')}"
        requests.delete(address, timeout=_START_SECONDS).raise_for_status()
