"""HAProxy as a local program, extracted from the public image: unlike a container, it starts fast and is easy to kill.

The cluster tests run it in a container.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tarfile
from functools import cache
from pathlib import Path

IMAGE = "haproxy:3.4.6"
_PACK = """\
set -e
program=$(command -v haproxy)
libraries=$(ldd "$program" | sed -n 's/^[^/]*\\(\\/[^ ]*\\).*/\\1/p')
tar --absolute-names --dereference --hard-dereference --create --file - "$program" $libraries
"""
"""Archives the program and its libraries, including the loader."""
_LAUNCH = """\
#!/bin/sh
# Runs HAProxy with the libraries in this directory. On a reload, HAProxy executes its argv[0] again.
exec "${0%/*}/LOADER" --library-path "${0%/*}" --argv0 "$0" "${0%/*}/haproxy.elf" "$@"
"""


@cache
def haproxy() -> str:
    """The path of HAProxy: SLIPWAY_HAPROXY, else the program from the image. Raises RuntimeError if it is missing."""
    return os.environ.get("SLIPWAY_HAPROXY") or str(_of_image() / "haproxy")


def _of_image() -> Path:
    """The directory for the current image, created once. Concurrent processes wait."""
    programs = _cache() / "bin"
    folder = programs / f"haproxy-{_image_id()[:16]}"
    programs.mkdir(parents=True, exist_ok=True)
    with (programs / "haproxy.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            new = folder.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            _extract(new)
            new.rename(folder)
    return folder


def _cache() -> Path:
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slipway"
    return Path(os.environ.get("SLIPWAY_CACHE") or default)


def _image_id() -> str:
    command = ["docker", "image", "inspect", "--format", "{{.Id}}", IMAGE]
    process = subprocess.run(command, check=False, capture_output=True, text=True)
    if process.returncode:
        raise RuntimeError(
            f"HAProxy is missing: {process.stderr.strip()}. Run `images/public.sh auto {IMAGE}`, or set "
            "SLIPWAY_HAPROXY to a program."
        )
    return process.stdout.strip().removeprefix("sha256:")


def _extract(folder: Path) -> None:
    """Extracts all files into one directory: the libraries of a program have distinct names."""
    command = ["docker", "run", "--rm", "--network", "none", "--entrypoint", "sh", IMAGE, "-c", _PACK]
    archive = folder / "files.tar"
    with archive.open("wb") as packed:
        subprocess.run(command, check=True, stdout=packed)
    with tarfile.open(archive) as files:
        for file in files:
            name = Path(file.name).name
            file.name = "haproxy.elf" if name == "haproxy" else name
            files.extract(file, folder, filter="data")
    archive.unlink()
    loader = next(path.name for path in folder.iterdir() if path.name.startswith("ld-"))
    launch = folder / "haproxy"
    launch.write_text(_LAUNCH.replace("LOADER", loader))
    launch.chmod(0o755)
