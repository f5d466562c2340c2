"""Removal of downloaded directories. Symbolic links are removed but never followed, and nothing outside of the volume
is removed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from slipway.loader.transport.errors import LoadError


def evict(path: Path, below: Path | None = None) -> bool:
    """Remove the file or directory ``path``, or only the content if ``path`` is a mounted volume. Return False if there
    was nothing to remove.

    Raise LoadError if ``path`` cannot be removed, or is not below ``below``, which must not be the root directory. The
    default of ``below`` is the volume that contains ``path``, so a mounted volume itself is emptied only if ``below``
    is set.
    """
    target = Path(os.path.realpath(path.parent)) / path.name
    top = Path(os.path.realpath(below)) if below else _volume(target)
    if path.name in ("", "..") or top == Path("/") or top not in target.parents:
        raise LoadError(f"{path} is not inside {below or 'a volume'}: nothing was removed; check the command")
    try:
        if target.is_symlink() or target.is_file():
            target.unlink()
        elif target.is_mount():
            return _emptied(target)
        elif target.exists():
            shutil.rmtree(target)
        else:
            return False
    except FileNotFoundError:
        return evict(path, below)  # another loader is removing it at the same time
    except OSError as error:
        raise LoadError(f"cannot remove {path}: {error.strerror}: check the volume and its owner") from error
    return True


def _emptied(folder: Path) -> bool:
    """Remove the content of a directory. Return False if the directory was empty."""
    children = list(folder.iterdir())
    for path in children:
        if path.is_symlink() or not path.is_dir():
            path.unlink()
        else:
            shutil.rmtree(path)
    return bool(children)


def _volume(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if os.path.ismount(place))
