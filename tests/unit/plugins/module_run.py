# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the fixture `run` is and gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class Result:
    """What a module printed. ``failed`` as Ansible sees it."""

    failed: bool
    data: dict[str, Any]

    @property
    def cause(self) -> str:
        """The message without the advice at its end."""
        return str(self.data["msg"]).partition("To see more:")[0].rstrip()

    def __getitem__(self, key: str) -> Any:
        return self.data[key]


Run = Callable[..., Result]
