# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plays run by ansible-playbook with this checkout's collection, and nothing of the person who runs the tests."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

COLLECTION = Path(__file__).resolve().parents[3]


def provide_collection(folder: Path) -> None:
    """Makes the folder one that has collections: this one."""
    home = folder / "ansible_collections" / "slipway"
    home.mkdir(parents=True)
    (home / "inference").symlink_to(COLLECTION)


def ansible_playbook(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a play in the folder, and asserts that it ends well."""
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "ANSIBLE_CONFIG")},
        "ANSIBLE_COLLECTIONS_PATH": str(folder),
        "ANSIBLE_STDOUT_CALLBACK": "default",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_HOME": str(folder / "home"),
    }
    done = subprocess.run(
        ["ansible-playbook", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done
