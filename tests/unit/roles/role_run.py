"""Runs an entry point of a role, or a few tasks, against an API server of the tests, as a play of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .cluster_api import ClusterApi

ROOT = Path(__file__).parents[3]
CORE = ROOT / ".venv/collections/ansible_collections/kubernetes/core"


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
    if shutil.which("ansible-playbook") is None or not CORE.exists():
        pytest.skip("needs ansible-playbook and the collection kubernetes.core")
    home = folder / "ansible_collections"
    for name, target in (("slipway/inference", ROOT), ("kubernetes/core", CORE)):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).unlink(missing_ok=True)
        (home / name).symlink_to(target)
    plays = [
        {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "environment": {"K8S_AUTH_HOST": api.url, "K8S_AUTH_API_KEY": "of-nobody"},
            "vars": {"ansible_python_interpreter": sys.executable, **variables},
            "tasks": tasks,
        }
    ]
    (folder / "play.yml").write_text(json.dumps(plays))
    environment = os.environ | {
        "ANSIBLE_COLLECTIONS_PATH": str(folder),
        "ANSIBLE_STDOUT_CALLBACK": "default",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_HOME": str(folder / "home"),
    }
    for name in ("PYTHONPATH", "ANSIBLE_CONFIG"):
        environment.pop(name, None)
    command = ["ansible-playbook", "-i", "localhost,", "play.yml", *flags]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    output = done.stdout + done.stderr
    assert (done.returncode != 0) is failing, output
    return " ".join(output.split())
