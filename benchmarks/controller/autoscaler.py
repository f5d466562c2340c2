"""Simulates the autoscaler in time beside the original's formula: one command, a second.

    PYTHONPATH=src autoscaler.py

Both get the same requests; what they want is there at once, so that only the decision is measured. The original's
settings are its defaults: a look each 10 s, a mean over 10 minutes, 100 requests a replica, 30 s before going down.
Exit status 1: a goal was missed.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec

from slipway.serving.routing.scaling import Scaling, add_sample, begin

sys.path.insert(0, str(Path(__file__).parents[1]))

from outcome import Goal, Outcome, finish

INTERVAL, WINDOW, TARGET, DELAY = 10, 600, 100, 30
SAMPLE = 2
GOAL_SECONDS = 15
HOUR = 3600

Requests = Callable[[int], float]


class Original:
    """KubeAI's formula: the mean of all looks in the window, a ring of zeros at the start; down after the delay."""

    def __init__(self) -> None:
        self.replicas = 0
        self._ring = deque([0.0] * (WINDOW // INTERVAL), maxlen=WINDOW // INTERVAL)
        self._less = 0

    def second(self, now: int, requests: float) -> int:
        if now % INTERVAL:
            return self.replicas
        self._ring.append(requests)
        replicas = math.ceil(sum(self._ring) / len(self._ring) / TARGET)
        self._less = self._less + 1 if replicas < self.replicas else 0
        if replicas > self.replicas or self._less >= DELAY // INTERVAL:
            self.replicas = replicas
        return self.replicas


class Ours:
    """:mod:`slipway.serving.routing.scaling`, with the same settings."""

    def __init__(self) -> None:
        self._scaling = Scaling(
            replicas=0,
            min_replicas=0,
            max_replicas=None,
            target_requests=TARGET,
            interval=INTERVAL,
            window=WINDOW,
            scale_down_delay=DELAY,
        )
        self._load = begin(self._scaling, 0, 0)

    def second(self, now: int, requests: float) -> int:
        if now % SAMPLE == 0:
            self._load, replicas = add_sample(self._load, self._scaling, requests, now)
            self._scaling = msgspec.structs.replace(self._scaling, replicas=replicas)
        return self._scaling.replicas


def course(of: Original | Ours, requests: Requests, seconds: int) -> list[int]:
    """The replicas at the end of each second from 1 on."""
    return [of.second(now, requests(now)) for now in range(1, seconds + 1)]


def until(replicas: list[int], predicate: Callable[[int], bool], since: int = 0) -> int | None:
    """Seconds from ``since`` on."""
    return next((now - since for now, number in enumerate(replicas, 1) if now > since and predicate(number)), None)


def overloaded(replicas: list[int], requests: Requests) -> float:
    """Share of the requests that were beyond the target of the replicas."""
    beyond = sum(max(0.0, requests(now) - number * TARGET) for now, number in enumerate(replicas, 1))
    return beyond / max(1.0, sum(requests(now) for now in range(1, len(replicas) + 1)))


def burst(now: int) -> float:
    return 1000.0 if now <= HOUR / 2 else 0.0


def blips(now: int) -> float:
    """One second in a hundred has twenty times the requests."""
    return 3000.0 if now % 100 == 0 else 150.0


def waves(now: int) -> float:
    """Five busy minutes, five quiet ones."""
    return 1000.0 if now // 300 % 2 else 100.0


def measured(make: Callable[[], Original | Ours]) -> dict[str, float | None]:
    steady, noisy, wavy = (course(make(), requests, HOUR) for requests in (burst, blips, waves))
    return {
        "burst 0 -> 1000: seconds until 10 replicas are required": until(steady, lambda number: number >= 10),
        "burst ends: seconds until 0 are required": until(steady, lambda number: number == 0, HOUR // 2),
        "steady 150 with blips of one second: most replicas": max(noisy),
        "waves of 5 minutes: requests beyond the target, percent": round(100 * overloaded(wavy, waves), 1),
        "waves of 5 minutes: replica hours in an hour": round(sum(wavy) / HOUR, 2),
    }


def main() -> int:
    original, ours = measured(Original), measured(Ours)
    width = max(map(len, ours))
    sys.stdout.write(f"{'':{width}}  {'original':>9}  {'here':>9}\n")
    for name, value in ours.items():
        sys.stdout.write(f"{name:{width}}  {original[name]!s:>9}  {value!s:>9}\n")
    goals = [
        Goal(name, ours[name], bound, "s", note="" if ours[name] is not None else "never")
        for name, bound in zip(ours, (GOAL_SECONDS, WINDOW + DELAY + 2 * INTERVAL), strict=False)
    ]
    return finish(
        Outcome("controller-autoscaler", "--quick" in sys.argv[1:], goals, {"original": original, "here": ours})
    )


if __name__ == "__main__":
    sys.exit(main())
