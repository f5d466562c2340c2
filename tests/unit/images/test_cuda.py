"""A library that needs CUDA's libraries starts without them, and finds no device."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import IMAGES

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the recipes of torch need a C compiler")
USES = """
int cudaGetDeviceCount(int *);
const char *cudaGetErrorString(int);
int ncclGetVersion(int *);
int count(void) { int number; return cudaGetDeviceCount(&number); }
int version(void) { int number; return ncclGetVersion(&number); }
const char *text(void) { return cudaGetErrorString(0); }
"""
LOADS = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.text.restype = ctypes.c_char_p
print(library.count(), library.version(), library.text().decode())
"""


def compile_library(folder: Path, name: str, source: str, *options: str) -> None:
    (folder / "source.c").write_text(source)
    command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", name, "source.c", *options]
    subprocess.run(command, cwd=folder, check=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """``torch/lib``: a library that needs libcudart, whose functions have versions, and libnccl, whose do not."""
    libraries = tmp_path / "program/torch/lib"
    libraries.mkdir(parents=True)
    (tmp_path / "versions").write_text("libcudart.so.13 { global: *; };")
    cuda = 'int cudaGetDeviceCount(int *n) { return 0; } const char *cudaGetErrorString(int n) { return "real"; }'
    compile_library(libraries, "libcudart.so.13", cuda, f"-Wl,--version-script={tmp_path}/versions")
    compile_library(libraries, "libnccl.so.2", "int ncclGetVersion(int *n) { return 0; }")
    compile_library(libraries, "libtorch_cuda.so", USES, "-L.", "-l:libcudart.so.13", "-l:libnccl.so.2")
    return tmp_path / "program"


def load(root: Path) -> subprocess.CompletedProcess[str]:
    libraries = root / "torch/lib"
    return subprocess.run(
        [sys.executable, "-c", LOADS, str(libraries / "libtorch_cuda.so")],
        env=os.environ | {"LD_LIBRARY_PATH": str(libraries), "LD_BIND_NOW": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def leave_out_cuda(root: Path) -> None:
    script = f'set -euo pipefail; shopt -s inherit_errexit; source "{IMAGES}/closed-network/cuda.sh"; without_cuda "$1"'
    subprocess.run(["bash", "-c", script, "bash", str(root)], check=True)


def test_a_library_starts_without_cuda_and_finds_no_device(root: Path) -> None:
    for name in ("libcudart.so.13", "libnccl.so.2"):
        (root / "torch/lib" / name).unlink()
    assert load(root).returncode != 0

    leave_out_cuda(root)

    loaded = load(root)
    assert (loaded.stdout, loaded.stderr) == ("100 100 no device\n", "")
    assert sorted(path.name for path in root.parent.iterdir()) == ["program", "versions"]


def test_libraries_that_are_there_stay(root: Path) -> None:
    leave_out_cuda(root)

    assert load(root).stdout == "0 0 real\n"


def test_packages_for_nvidia_gpus_are_left_out_of_a_list(tmp_path: Path) -> None:
    listed = "# by pip-compile\ntorch==2.9.0 \\\n    --hash=sha256:00\n"
    cuda = "nvidia-nccl-cu13==2.28 \\\n    --hash=sha256:11\n    # via torch\ntriton==3.5.0 \\\n    --hash=sha256:22\n"
    (tmp_path / "list.txt").write_text(f"{listed}{cuda}zipp==3.23 \\\n    --hash=sha256:33\n")

    subprocess.run([IMAGES.parent / "scripts/without-cuda.sh", tmp_path / "list.txt"], check=True)

    assert (tmp_path / "list.txt").read_text() == f"{listed}zipp==3.23 \\\n    --hash=sha256:33\n"
    assert [path.name for path in tmp_path.iterdir()] == ["list.txt"]
