"""Runs plays: an entry point of a role or a few tasks against an API server of the tests, or a whole play."""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from .cluster_api import ClusterApi
from .preloaded import Play, preloaded

ROOT = Path(__file__).parents[3]
CORE = ROOT / ".venv/collections/ansible_collections/kubernetes/core"
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
SECONDS = 600
"""After which a play is ended."""


def run_role(
    folder: Path, api: ClusterApi, role: str, entry: str, *flags: str, failing: bool = False, **variables: object
) -> str:
    """Output of the play, in one line. ``folder`` is the play's own; variables are those of the play."""
    task = {"ansible.builtin.import_role": {"name": f"slipway.inference.{role}", "tasks_from": entry}}
    return run_tasks(folder, api, [task], *flags, failing=failing, **variables)


def run_tasks(
    folder: Path, api: ClusterApi, tasks: list[dict[str, Any]], *flags: str, failing: bool = False, **variables: object
) -> str:
    """The same of a play of these tasks."""
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "environment": {"K8S_AUTH_HOST": api.url, "K8S_AUTH_API_KEY": "no-rights"},
        "vars": {"ansible_python_interpreter": sys.executable, **variables},
        "tasks": tasks,
    }
    return run_play(folder, play, *flags, failing=failing)


def run_play(
    folder: Path,
    play: dict[str, Any],
    *flags: str,
    inventory: str = "localhost,",
    failing: bool = False,
    **environment: str,
) -> str:
    """Returns the output of a play in one line. It uses this checkout, kubernetes.core, and no user settings."""
    if find_spec("ansible") is None or not CORE.exists():
        pytest.skip("needs ansible-playbook and the collection kubernetes.core")
    home = _home(folder.parent / "ansible")
    around = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "ANSIBLE_CONFIG")}
    own = {
        "PATH": PATH,
        "ANSIBLE_COLLECTIONS_PATH": str(home),
        "ANSIBLE_STDOUT_CALLBACK": "default",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_HOME": str(home),
    }
    (folder / "play.yml").write_text(json.dumps([play]))
    log = folder / "said"
    arguments = ["-i", inventory, "play.yml", *flags]
    request = Play(arguments, str(folder), str(log), around | own | environment, SECONDS)
    status = preloaded(str(home), *own.items()).run(request)
    output = log.read_text()
    assert (status != 0) is failing, output
    return " ".join(output.split())


def _home(folder: Path) -> Path:
    """Ansible's, with the collections that plays use."""
    for name, target in (("slipway/inference", ROOT), ("kubernetes/core", CORE)):
        link = folder / "ansible_collections" / name
        if not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)
    return folder
