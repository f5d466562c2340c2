"""Backoff: how long to wait after the n-th failure in a row, with jitter so that many clients do not come at once."""

from __future__ import annotations

import random


class Backoff:
    """Delays of ``base * 2^n`` seconds, at most ``cap``, of which a random half is taken off."""

    def __init__(self, base: float, cap: float) -> None:
        self._base = base
        self._cap = cap
        self._failures = 0

    def next(self) -> float:
        """Seconds to wait after one more failure."""
        delay = min(self._cap, self._base * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return delay * random.uniform(0.5, 1.0)  # noqa: S311  # spreads load, hides nothing

    def reset(self) -> None:
        """Starts again after a success."""
        self._failures = 0
