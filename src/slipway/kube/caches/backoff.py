"""Waiting times after consecutive failures, with jitter so that clients do not retry at the same time."""

from __future__ import annotations

import random


class Backoff:
    """Delays of ``base * 2^n`` seconds, limited to ``cap`` seconds and reduced by a random share of up to half. n is
    the number of earlier failures since the last success."""

    def __init__(self, base: float, cap: float) -> None:
        self._base = base
        self._cap = cap
        self._failures = 0

    def next(self) -> float:
        """Return the seconds to wait after another failure."""
        delay = min(self._cap, self._base * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return delay * random.uniform(0.5, 1.0)  # noqa: S311  # spreads load, needs no security

    def reset(self) -> None:
        """Restart the series after a success."""
        self._failures = 0
