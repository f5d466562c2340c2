"""A real registry on this machine, and the token service that one with tokens sends to.

The registry is the program that SLIPWAY_REGISTRY names, else the public image.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from base64 import urlsafe_b64encode
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

IMAGE = "registry:3.1.2"
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class RealRegistry:
    """Starts on entering the context, stops on leaving it. Everything lies below `directory`, the log too."""

    def __init__(self, directory: Path, port: int, auth: dict[str, Any] | None = None) -> None:
        self.directory, self.host = directory, f"127.0.0.1:{port}"
        self.store = directory / "store"
        self._auth, self._container = auth, f"slipway-registry-{os.getpid()}-{port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RealRegistry:
        self.store.mkdir(parents=True, exist_ok=True)
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self, *, read_only: bool = False) -> None:
        """Serves what is in the store."""
        self._configure(read_only=read_only)
        with (self.directory / "registry.log").open("ab") as output:
            self._process = subprocess.Popen(
                [*self._program(self._container), "serve", str(self._config)],
                stdout=output,
                stderr=output,
                env={**os.environ, "OTEL_TRACES_EXPORTER": "none"},
            )
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"http://{self.host}/v2/", timeout=10):
                    return
            except urllib.error.HTTPError as error:
                error.close()
                return
            except OSError:
                time.sleep(0.05)
        raise TimeoutError(f"the registry does not answer; see the log in {self.directory}")

    def stop(self) -> None:
        """As SIGTERM does."""
        process, self._process = self._process, None
        if process is None:
            return
        if not os.environ.get("SLIPWAY_REGISTRY"):
            subprocess.run(["docker", "stop", self._container], check=False, capture_output=True)
        process.terminate()
        process.wait(_STOP_SECONDS)

    def collect(self) -> None:
        """Its own collector, while it is read-only."""
        self.stop()
        self.start(read_only=True)
        command = [*self._program(f"{self._container}-gc"), "garbage-collect", "--delete-untagged", str(self._config)]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OTEL_TRACES_EXPORTER": "none"})
        self.stop()
        self.start()

    @property
    def stored(self) -> int:
        """Bytes of all blobs."""
        blobs = self.store / "docker/registry/v2/blobs"
        return sum(map(_size, self.find_files(f"{blobs}/**/data")))

    @property
    def uploads(self) -> list[Path]:
        """Those that are open."""
        return self.find_files(f"{self.store}/**/_uploads/*")

    @staticmethod
    def find_files(pattern: str) -> list[Path]:
        """Files while the registry makes and removes others: Path.rglob would fail on a folder that has just gone."""
        return [Path(path) for path in glob.glob(pattern, recursive=True)]

    @property
    def _config(self) -> Path:
        return self.directory / "config.yml"

    def _configure(self, *, read_only: bool) -> None:
        storage: dict[str, Any] = {
            "filesystem": {"rootdirectory": str(self.store)},
            "delete": {"enabled": True},
            "maintenance": {"readonly": {"enabled": read_only}},
        }
        settings: dict[str, Any] = {
            "version": 0.1,
            "log": {"level": "warn"},
            "storage": storage,
            "http": {"addr": self.host, "secret": "the same after a restart"},
        }
        if self._auth:
            settings["auth"] = {"token": self._auth}
        self._config.write_text(yaml.safe_dump(settings))

    def _program(self, container: str) -> list[str]:
        program = os.environ.get("SLIPWAY_REGISTRY")
        if program:
            return [program]
        user, folder = f"{os.getuid()}:{os.getgid()}", f"{self.directory}:{self.directory}"
        options = ["--rm", "--network", "host", "--user", user, "--cap-drop", "ALL", "-v", folder, "--name", container]
        return ["docker", "run", *options, IMAGE]


class Signer:
    """Signs tokens as the depot does: ES256, and the registry has the public half as a key set."""

    ISSUER, SERVICE = "slipway-depot", "slipway-registry"

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())

    def key_set(self) -> str:
        """For the registry."""
        numbers = self._key.public_key().public_numbers()
        x, y = (_text(number.to_bytes(32, "big")) for number in (numbers.x, numbers.y))
        key = {"kty": "EC", "crv": "P-256", "kid": "one", "use": "sig", "alg": "ES256", "x": x, "y": y}
        return json.dumps({"keys": [key]})

    def token(self, scopes: list[str]) -> str:
        """For five minutes; each scope is ``repository:NAME:ACTIONS``."""
        now = int(time.time())
        access = [
            {"type": kind, "name": name, "actions": actions.split(",")}
            for kind, name, actions in (scope.split(":") for scope in scopes)
        ]
        claims = {
            "iss": self.ISSUER,
            "sub": "test",
            "aud": self.SERVICE,
            "exp": now + 300,
            "nbf": now - 10,
            "iat": now,
            "jti": "1",
            "access": access,
        }
        words = [{"typ": "JWT", "alg": "ES256", "kid": "one"}, claims]
        signed = ".".join(_text(json.dumps(word).encode()) for word in words)
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signed}.{_text(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
