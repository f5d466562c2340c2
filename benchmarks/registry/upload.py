"""Measures an upload through the depot beside a direct push to the same registry, both over TLS, on one disk.

    upload.py [--mebibytes N] [--rounds N] [--directory DIR]

`curl` sends the same file both ways in one request: to the depot, which runs as a process of its own with an API server
in memory behind it, and straight to the registry as one upload, with a token and a digest that cost it nothing. They
take turns, each round with an empty registry; what counts is the median of the parts of the rounds, as a busy machine
disturbs both halves of a round alike. CPU seconds are those of the depot (or, of the direct push, none), of curl and of
the registry. The registry is the program that SLIPWAY_REGISTRY names. Exit status 1: a goal was missed.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from slipway.depot import certificates, signing  # noqa: E402 - found by the line before
from slipway.depot.signing import Access, Signer  # noqa: E402
from slipway.serving.depot_token import Claim, sign  # noqa: E402
from slipway.serving.repositories import repository  # noqa: E402
from tests.ports import reserved_port  # noqa: E402
from tests.registry.real import RealRegistry  # noqa: E402
from tests.unit.kube.conftest import ApiServer, kubeconfig_of, serving  # noqa: E402

UID = "11111111-2222-3333-4444-555555555555"
THING = "/apis/toys.test/v1/namespaces/team/things/tiny"
HMAC = bytes(range(32))
SPEED, MEBIBYTES = 0.6, 96.0
"""The goals: parts of a direct push's speed, and memory at most."""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Taken:
    """By one way of the file."""

    seconds: float
    depot_cpu: float
    curl_cpu: float
    registry_cpu: float
    depot_mebibytes: float = 0.0


def cpu(pid: int) -> float:
    """Seconds that a process has computed so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak(pid: int) -> float:
    """MiB of memory that a process had at most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def fill(path: Path, mebibytes: int) -> str:
    """Writes a file that passes for GGUF. Returns its digest."""
    block, found = os.urandom(1 << 20), hashlib.sha256()
    with path.open("wb") as stream:
        for number in range(mebibytes):
            chunk = b"GGUF" + number.to_bytes(8, "big") + block[12:]
            found.update(chunk)
            stream.write(chunk)
    return f"sha256:{found.hexdigest()}"


class Bench:
    def __init__(self, place: Path, mebibytes: int) -> None:
        self._place, self._file, self._turn = place, place / "model.gguf", 0
        self._digest = fill(self._file, mebibytes)
        self._keys = place / "keys"
        self._keys.mkdir()
        self._pem = signing.made()
        now = datetime.now(UTC)
        authority = certificates.authority(now, None)
        pair = certificates.server(authority, ["127.0.0.1"], now)
        written = {"ca.crt": authority.certificate, "tls.crt": pair.certificate, "tls.key": pair.key}
        for name, content in {**written, "token.key": self._pem, "hmac": HMAC}.items():
            (self._keys / name).write_bytes(content)
        (self._keys / "keys.json").write_text(signing.key_set(self._pem))

    async def round(self, *, depot_first: bool) -> dict[str, Taken]:
        """Both ways, each into an empty registry."""
        ways = {"depot": self._depot, "direct": self._direct}
        return {name: await ways[name]() for name in (sorted(ways) if depot_first else sorted(ways, reverse=True))}

    def _registry(self) -> RealRegistry:
        self._turn += 1
        auth = {
            "realm": "https://depot.test/token",
            "service": "slipway-registry",
            "issuer": "slipway-depot",
            "jwks": str(self._keys / "keys.json"),
        }
        tls = (self._keys / "tls.crt", self._keys / "tls.key", self._keys / "ca.crt")
        folder = self._place / f"turn-{self._turn}"
        folder.mkdir()
        return RealRegistry(folder, reserved_port(), auth, tls)

    async def _curl(self, *words: str) -> tuple[str, float, float]:
        """What it printed, its seconds and its CPU seconds."""
        before, started = os.times(), time.monotonic()
        program = ["curl", "-fsS", "--cacert", str(self._keys / "ca.crt"), *words]
        found = await asyncio.to_thread(subprocess.run, program, capture_output=True, text=True, check=False)
        seconds, after = time.monotonic() - started, os.times()
        if found.returncode:
            raise SystemExit(f"curl ended with {found.returncode}: {found.stderr}")
        children = after.children_user + after.children_system - before.children_user - before.children_system
        return found.stdout, seconds, children

    async def _direct(self) -> Taken:
        with self._registry() as registry:
            place = repository("team", "tiny", UID)
            signer = Signer(self._pem, issuer="slipway-depot", audience="slipway-registry", seconds=3600)
            token = signer.signed("bench", [Access("repository", place, ("pull", "push"))], time.time())
            bearer = ["-H", f"Authorization: Bearer {token}"]
            os.sync()
            before, started, used = cpu(registry.pid), time.monotonic(), 0.0
            begin = f"https://{registry.host}/v2/{place}/blobs/uploads/"
            said, _seconds, some = await self._curl("-X", "POST", "-D", "-", *bearer, begin)
            used += some
            said, _seconds, some = await self._curl(
                "-X", "PATCH", "-D", "-", "-H", "Content-Type: application/octet-stream", *bearer,
                "--http1.1", "-T", str(self._file), location(said),
            )  # fmt: skip
            used += some
            await self._curl("-X", "PUT", *bearer, f"{location(said)}&digest={self._digest}")
            taken = Taken(time.monotonic() - started, 0.0, used, cpu(registry.pid) - before)
        shutil.rmtree(registry.directory)
        return taken

    async def _depot(self) -> Taken:
        with self._registry() as registry:
            async with serving() as api, self._serving(registry, api) as (pid, address):
                claim = Claim(use="upload", namespace="team", name="tiny", uid=UID, expires=int(time.time()) + 3600)
                os.sync()
                before, served = cpu(registry.pid), cpu(pid)
                bearer = ["-H", f"Authorization: Bearer {sign(HMAC, claim)}"]
                _said, seconds, used = await self._curl(*bearer, "-T", str(self._file), f"{address}/{UID}")
                taken = Taken(seconds, cpu(pid) - served, used, cpu(registry.pid) - before, peak(pid))
        shutil.rmtree(registry.directory)
        return taken

    @asynccontextmanager
    async def _serving(self, registry: RealRegistry, api: ApiServer) -> AsyncIterator[tuple[int, str]]:
        """The depot's process, and the address of the model's upload less its uid."""
        await api.put(THING, metadata={"uid": UID}, spec={})
        port, config = reserved_port(), registry.directory / "depot.yml"
        settings = {
            "namespace": "slipway-system",
            "registry": registry.host,
            "keys": str(self._keys),
            "listen": f"127.0.0.1:{port}",
            "operationsListen": f"127.0.0.1:{reserved_port()}",
            "model": {"group": "toys.test", "version": "v1", "kind": "Thing", "plural": "things"},
            "clusterModel": {"group": "toys.test", "version": "v1", "kind": "Box", "plural": "boxes"},
        }
        config.write_text(yaml.safe_dump(settings))
        words = ["depot", "serve", "--config", str(config), "--kubeconfig", kubeconfig_of(api, registry.directory)]
        with (registry.directory / "depot.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "slipway", *words, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, stderr=log
            )
        address = f"https://127.0.0.1:{port}/v1/upload/team/tiny"
        try:
            await self._curl(
                "--retry", "600", "--retry-delay", "1", "--retry-connrefused", "-X", "OPTIONS", f"{address}/{UID}"
            )
            yield process.pid, address
        finally:
            process.terminate()
            await process.wait()


def location(headers: str) -> str:
    """Where an upload goes on."""
    return next(line for line in headers.splitlines() if line.lower().startswith("location:")).partition(":")[2].strip()


async def measured(place: Path, mebibytes: int, rounds: int) -> bool:
    """Prints what was found. Returns whether all goals were met."""
    bench = Bench(place, mebibytes)
    found = [await bench.round(depot_first=bool(number % 2)) for number in range(rounds)]
    print("way     seconds   MiB/s  depot CPU s/GiB  curl CPU s/GiB  registry CPU s/GiB  depot peak MiB")
    for one in found:
        for name, taken in one.items():
            gib = mebibytes / 1024
            print(
                f"{name:<7} {taken.seconds:7.2f} {mebibytes / taken.seconds:7.0f} {taken.depot_cpu / gib:16.2f}"
                f" {taken.curl_cpu / gib:15.2f} {taken.registry_cpu / gib:19.2f} {taken.depot_mebibytes:15.0f}"
            )
    part = statistics.median(one["direct"].seconds / one["depot"].seconds for one in found)
    memory = max(one["depot"].depot_mebibytes for one in found)
    print(f"{part:.2f} of a direct push's speed, {memory:.0f} MiB of memory (goals: {SPEED}, {MEBIBYTES:.0f})")
    return part >= SPEED and memory <= MEBIBYTES


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure an upload through the depot beside a direct push.")
    parser.add_argument("--mebibytes", type=int, default=1024, help="size of the file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where everything lies; by default that of temporary files")
    options = parser.parse_args()
    if not os.environ.get("SLIPWAY_REGISTRY"):
        print("name the registry's program in SLIPWAY_REGISTRY: a container's CPU seconds are not to be had")
        return 2
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        return 0 if asyncio.run(measured(Path(place), options.mebibytes, options.rounds)) else 1


if __name__ == "__main__":
    sys.exit(main())
