# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release. It runs on the nodes, whose Python may be 3.8.

"""Files by which a kernel and a system describe themselves, below any directory that stands for ``/``."""

from __future__ import annotations

import os


class Tree:
    """The files below a root directory. A file that does not exist or cannot be read is empty, because these files
    depend on kernels and drivers."""

    def __init__(self, root: str) -> None:
        self.root = root

    def path(self, name: str) -> str:
        return os.path.join(self.root, name.lstrip("/"))

    def exists(self, name: str) -> bool:
        return os.path.exists(self.path(name))

    def data(self, name: str) -> bytes:
        try:
            with open(self.path(name), "rb") as file:
                return file.read()
        except OSError:
            return b""

    def text(self, name: str) -> str:
        return self.data(name).decode("utf-8", "replace").strip()

    def number(self, name: str) -> int | None:
        """Return the number in a file, decimal or with the prefix ``0x``. The result is None if the file contains no
        number."""
        try:
            return int(self.text(name), 0)
        except ValueError:
            return None

    def names(self, name: str) -> list[str]:
        """Return the sorted names in a directory. The result is empty if it does not exist."""
        try:
            return sorted(os.listdir(self.path(name)))
        except OSError:
            return []

    def target(self, name: str) -> str:
        """Return the last part of a symbolic link's target. The result is empty if the link does not exist."""
        try:
            return os.path.basename(os.readlink(self.path(name)))
        except OSError:
            return ""
