"""Git queries about this checkout."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
OUTPUT = ROOT / "tests/output"
RECORDS = ROOT / "tests/lanes"


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def committed() -> dict[str, str]:
    """Path -> blob hash, for all files in the latest commit."""
    entries = [line.split("\t", 1) for line in git("ls-tree", "-r", "HEAD").splitlines()]
    return {path: meta.split()[2] for meta, path in entries}


def present() -> list[str]:
    """All files that git tracks or would add."""
    listed = git("ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    return sorted(path for path in listed if (ROOT / path).exists())


def is_clean() -> bool:
    """Whether the checkout has no uncommitted changes, apart from lane records."""
    return not git("status", "--porcelain", "--", ".", ":(exclude)tests/lanes").strip()


def base_commit() -> str:
    """The commit on which the current change is based, as far as this clone knows."""
    for name in ("origin/main", "main~0"):
        with contextlib.suppress(ValueError):
            commit = git("merge-base", "HEAD", name).strip()
            if commit != git("rev-parse", "HEAD").strip():
                return commit
    return "HEAD~1"
