# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release. It runs on the nodes, whose Python may be 3.8.

"""The files that a kernel and a system tell of themselves by, below any directory that stands for ``/``."""

from __future__ import annotations

import os


class Tree:
    """What is not there, or may not be read, is empty: these files come and go with kernels and drivers."""

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
        """A decimal number, or a hexadecimal one that says so."""
        try:
            return int(self.text(name), 0)
        except ValueError:
            return None

    def names(self, name: str) -> list[str]:
        """What lies in a directory, in order."""
        try:
            return sorted(os.listdir(self.path(name)))
        except OSError:
            return []

    def target(self, name: str) -> str:
        """The last part of what a link points to."""
        try:
            return os.path.basename(os.readlink(self.path(name)))
        except OSError:
            return ""
