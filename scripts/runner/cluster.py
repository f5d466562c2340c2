"""The kind cluster that CI and lanes run on, by way of scripts/cluster.sh."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .checkout import ROOT
from .machine import CannotStartError
from .process import run
from .table import NEEDS

SCRIPT = "scripts/cluster.sh"
SECONDS = 2700
"""For one step: on a machine where no image can be pulled, it may build several."""


class TestCluster:
    """One cluster, which gets what the lanes need one after the other."""

    __test__ = False

    def __init__(self, log: Path) -> None:
        self._log = log
        self._state = "nothing"
        self._parts: set[str] = set()

    def provide(self, needs: str, parts: Sequence[str] = ()) -> None:
        """Brings the cluster to one of ``NEEDS``; one that has more already is replaced.

        Raises:
            CannotStartError: A step failed.
        """
        if needs == "nothing":
            return
        if NEEDS.index(self._state) > NEEDS.index(needs):
            self.remove()
        if self._state == "nothing":
            self._call("make")
        if needs == "definitions" != self._state:
            self._call("crds")
        if needs == "images" != self._state:
            self._call("images")
        if needs == "installation" and (self._state != needs or not self._parts.issuperset(parts)):
            self._parts.update(parts)
            self._call("install", *(sorted(self._parts) or ["none"]))
        self._state = needs

    def diagnose(self) -> None:
        """Prints what a person would look at first."""
        run([SCRIPT, "diagnose"], self._log, SECONDS, {})

    def remove(self) -> None:
        """Removes the cluster, also one that an earlier run has left."""
        done = subprocess.run(
            [SCRIPT, "remove"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode:
            print(f"{done.stdout[-2000:]}\nThe test cluster could not be removed: run {SCRIPT} remove", flush=True)
        self._state = "nothing"
        self._parts.clear()

    def _call(self, *arguments: str) -> None:
        if run([SCRIPT, *arguments], self._log, SECONDS, {}).status:
            raise CannotStartError(f"{SCRIPT} {' '.join(arguments)} failed; its output is in {self._log}")


def environment() -> dict[str, str]:
    """The variables by which tests find the cluster.

    Raises:
        CannotStartError: There is no cluster. Without these variables tests would skip, and roles would use the
            cluster that the user works with.
    """
    done = subprocess.run([SCRIPT, "env"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotStartError(done.stderr.strip().removeprefix("error: "))
    return read_exports(done.stdout)


def read_exports(text: str) -> dict[str, str]:
    """The variables in lines such as ``export NAME=VALUE``, without those that extend another one, such as PATH."""
    pairs = [shlex.split(line)[1].partition("=") for line in text.splitlines() if line.startswith("export ")]
    return {name: value for name, _equals, value in pairs if "$" not in value}
