"""A campaign: every attack again and again for some time, several at once. Each turn of an attack counts.

An attack is a function that does something as the tenant and then proves that it failed. It raises an error if it
succeeded, and also if it could not run: an attack that never happened shows nothing.
"""

from __future__ import annotations

import itertools
import logging
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

World = TypeVar("World")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Attack(Generic[World]):
    """``finding``: its number in the security reviews. ``run`` gets the world and the number of the turn."""

    finding: str
    run: Callable[[World, int], None]

    @property
    def name(self) -> str:
        return self.run.__name__

    def __str__(self) -> str:
        return f"{self.finding}-{self.name}"


@dataclass
class Outcome:
    """What became of one attack."""

    turns: int = 0
    """Turns that ended with the proof that the attack failed."""
    failures: list[str] = field(default_factory=list)
    """Turns that ended in any other way."""

    @property
    def fault(self) -> str:
        """Why the attack shows nothing, or that it succeeded; empty: it ran and always failed."""
        if self.failures:
            return self.failures[0]
        return "" if self.turns else "it never ran"


class Campaign(Generic[World]):
    """``with Campaign(attacks, world, seconds) as campaign:`` starts the attacks and waits for their end."""

    def __init__(
        self,
        attacks: Sequence[Attack[World]],
        world: World,
        seconds: float,
        at_once: int = 4,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.outcomes = {str(attack): Outcome() for attack in attacks}
        assert len(self.outcomes) == len(attacks), "two attacks have the same name"
        self._attacks, self._world, self._seconds, self._at_once, self._clock = attacks, world, seconds, at_once, clock

    def __enter__(self) -> Campaign[World]:
        self._until = self._clock() + self._seconds
        shares = [self._attacks[first :: self._at_once] for first in range(self._at_once)]
        self._pool = ThreadPoolExecutor(self._at_once)
        self._running = [self._pool.submit(self._repeat, share) for share in shares if share]
        return self

    def __exit__(self, *_error: object) -> None:
        self._pool.shutdown(wait=True)
        for one in self._running:
            one.result()

    @property
    def active(self) -> bool:
        """Whether an attack still runs."""
        return not all(one.done() for one in self._running)

    def _repeat(self, attacks: Sequence[Attack[World]]) -> None:
        """All attacks of one thread in turn, each at least once."""
        for turn in itertools.count():
            for attack in attacks:
                if turn and self._clock() >= self._until:
                    return
                self._run(attack, turn)

    def _run(self, attack: Attack[World], turn: int) -> None:
        outcome = self.outcomes[str(attack)]
        try:
            attack.run(self._world, turn)
        except Exception:  # also a missing right, or an object that is not there
            outcome.failures.append(f"turn {turn}: {traceback.format_exc()}")
            log.warning("%s did not fail as it should in turn %d", attack, turn, exc_info=True)
        else:
            outcome.turns += 1
            log.info("%s failed in turn %d", attack, turn)
