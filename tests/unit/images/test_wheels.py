"""Scripts of the images' Python programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from .conftest import IMAGES

PROGRAM = """
import multiprocessing, sys

def report():
    print("child", flush=True)

def main():
    print(sys.argv, flush=True)
    child = multiprocessing.get_context("spawn").Process(target=report)
    child.start()
    child.join()
    return child.exitcode
"""


def test_a_program_may_start_child_processes(tmp_path: Path) -> None:
    """vLLM starts its engine by multiprocessing's spawn, which imports the script again."""
    (tmp_path / "usr/local/bin").mkdir(parents=True)
    (tmp_path / "library").mkdir()
    (tmp_path / "library/program.py").write_text(PROGRAM)
    write = f'CLOSED_DIR=x; source "{IMAGES}/closed-network/wheels.sh"; python_program "$1" tool program main'
    subprocess.run(["bash", "-euo", "pipefail", "-c", write, "bash", str(tmp_path)], check=True)
    script = tmp_path / "usr/local/bin/tool"
    assert os.access(script, os.X_OK)

    ended = subprocess.run(
        [sys.executable, str(script), "--flag"],
        env=os.environ | {"PYTHONPATH": str(tmp_path / "library")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (0, "['tool', '--flag']\nchild\n"), ended.stderr
