"""What a burst of new Krypton Models costs the controller, in instructions of a processor: unlike its time, they stay
the same whatever else the machine does.

    python benchmarks/controller/instructions.py [--models 100] [TREE ...]

Runs the controller of each tree (a folder with ``src``; this one by default) under valgrind, against the API server of
the unit tests, and compares them with the first. A release beside the tree, for example:

    git worktree add ../release <commit>
    python benchmarks/controller/instructions.py ../release .

The kernel's part is not counted, nor is the start. Two runs of a tree differ by half a percent.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.unit.kube.conftest import ApiServer, kubeconfig_of, serving  # noqa: E402

NAMESPACE = "/namespaces/bench/"
MODELS = f"/apis/krypton.ai/v1alpha1{NAMESPACE}models"
CHILDREN = 3
"""Of each Model: a ServiceAccount, a Service, a Deployment."""
SPEC = {"source": {"huggingface": "acme/tiny", "file": "tiny.gguf"}}
WARM = 5
"""Models before the others, with which the controller loads and connects what it needs."""
AT_A_TIME, PAUSE = 16, 0.02
QUIET_SECONDS = 4.0
"""Without a request but those of the lease: then nothing more is done."""
PATIENCE = 300.0


async def burst(server: ApiServer, name: str, count: int) -> None:
    """Creates Models and waits until the controller has done all that there is to do for them."""
    for number in range(count):
        metadata = {"kind": "Model", "apiVersion": "krypton.ai/v1alpha1"}
        await server.put(f"{MODELS}/{name}-{number:04d}", **metadata, spec=SPEC)
        if number % AT_A_TIME == AT_A_TIME - 1:
            await asyncio.sleep(PAUSE)
    async with asyncio.timeout(PATIENCE):
        async with server.changed:
            await server.changed.wait_for(lambda: done(server))
        while True:
            before = asked(server)
            await asyncio.sleep(QUIET_SECONDS)
            if before == asked(server):
                return


def done(server: ApiServer) -> bool:
    models = [obj for path, obj in server.objects.items() if path.startswith(MODELS)]
    paths = [path for path in server.objects if NAMESPACE in path]
    return all(model.get("status") for model in models) and len(paths) == (1 + CHILDREN) * len(models)


def asked(server: ApiServer) -> int:
    return sum("leases" not in one.path for one in server.log)


async def control(process: asyncio.subprocess.Process, state: str) -> None:
    asking = await asyncio.create_subprocess_exec(
        "callgrind_control", "-i", state, str(process.pid), stdout=asyncio.subprocess.DEVNULL
    )
    if await asking.wait():
        raise SystemExit("the controller has ended: see its output above")


async def measure(tree: Path, count: int) -> float:
    """Instructions for one Model."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config, counted = folder / "controller.yaml", folder / "counted"
        with socket.create_server(("127.0.0.1", 0)) as listener:
            config.write_text(f"apis: [krypton]\nlisten: 127.0.0.1:{listener.getsockname()[1]}\n")
        async with serving() as server:
            environment = {"KUBECONFIG": kubeconfig_of(server, folder), "PYTHONPATH": "src", "PYTHONHASHSEED": "0"}
            under: list[Any] = ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no"]
            program = [sys.executable, "-m", "slipway", "controller", "--config", config]
            process = await asyncio.create_subprocess_exec(
                *under, f"--callgrind-out-file={counted}", *program, cwd=tree, env=os.environ | environment
            )
            try:
                await burst(server, "warm", WARM)
                await control(process, "on")
                await burst(server, "burst", count)
                await control(process, "off")
            finally:
                process.terminate()
                await process.wait()
        return total(counted) / count


def total(counted: Path) -> int:
    lines = counted.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("totals:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("trees", type=Path, nargs="*", default=[ROOT], metavar="TREE")
    options = parser.parse_args()
    first = 0.0
    for tree in options.trees:
        instructions = asyncio.run(measure(tree.resolve(), options.models))
        first = first or instructions
        print(f"{tree}: {instructions / 1e6:.2f} million instructions a Model, ratio {instructions / first:.3f}")


if __name__ == "__main__":
    main()
