"""Scaling: how many replicas a model's requests need. Pure; the controller's autoscaler calls it.

There are two measures of the same requests. The steady one is the mean over the window. The quick one is the minimum of
the samples of the last few seconds, so that a burst counts immediately and a single outlier does not; a load slightly
above the replicas' target is not a burst. The replicas increase if either measure needs more. They decrease only if
neither has needed them for the delay.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from slipway.kube.objects import Kind

QUICK_SAMPLES = 3
"""Number of consecutive samples that must show a burst."""
BURST = 1.2
"""Load from which there is a burst, relative to the target of the current replicas."""
ROUNDING = 1e-9
"""Rounding errors in sums of fractions must not add a replica."""
WAKE = ("get", "update")
"""The gateway's RBAC verbs on scales that it sets from zero to one."""
STATE = "slipway-autoscaler"


class ScaleTarget(msgspec.Struct, frozen=True):
    """A child of a resource that has its own scale subresource, such as a Deployment."""

    kind: Kind
    name: str
    namespace: str = ""
    """Empty: the resource's namespace."""


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and timing for one model. Times are in seconds."""

    replicas: int
    """The current replicas in the resource's spec."""
    min_replicas: int
    max_replicas: int | None
    """None: unlimited."""
    target_requests: int
    """Target for the average requests in flight per replica."""
    interval: float
    """Length of an interval, whose samples become one mean of the window."""
    window: float
    """Time over which the steady load is averaged."""
    scale_down_delay: float
    """How long demand must stay lower before scaling down."""
    state: str = STATE
    """Name of the ConfigMap in the controller's namespace that preserves the averages across restarts."""
    target: ScaleTarget | None = None
    """The object to scale; None: the resource itself."""
    services: tuple[str, ...] | None = None
    """Names of the resource's Services whose requests count; None: all of them."""

    def bounded(self, replicas: int) -> int:
        """Limits the number to the bounds; the lower bound takes precedence if they conflict."""
        upper = replicas if self.max_replicas is None else min(replicas, self.max_replicas)
        return max(upper, self.min_replicas)


class High(NamedTuple):
    """The highest required number at a time, unless a later one was as high."""

    at: float
    replicas: int


class Load(msgspec.Struct, frozen=True):
    """The stored measurements of one model's requests."""

    window: tuple[float, ...]
    """The mean of each interval, oldest first."""
    began: float
    """Start of the current interval."""
    gathered: tuple[float, ...] = ()
    recent: tuple[float, ...] = ()
    highs: tuple[High, ...] = ()
    replicas: int = 0
    """Replicas in the resource's spec at the last sample."""

    @property
    def average(self) -> float:
        """Average requests in flight over the window."""
        return sum(self.window) / len(self.window)


def intervals(scaling: Scaling) -> int:
    """Returns the number of intervals in the window."""
    return max(1, math.ceil(scaling.window / scaling.interval))


def begin(scaling: Scaling, average: float, now: float) -> Load:
    """Returns the load of a model that was not measured before. ``average``: its stored average, or 0."""
    return Load(window=(average,) * intervals(scaling), began=now)


def add_sample(load: Load, scaling: Scaling, sample: float, now: float, *, complete: bool = True) -> tuple[Load, int]:
    """Adds a sample of the requests in flight and waiting. Returns the new load and the required replicas.

    ``complete``: False if a gateway did not answer; the replicas then do not decrease.
    """
    window, began, gathered = load.window, load.began, (*load.gathered, sample)
    if now - began >= scaling.interval:
        window = (*window, sum(gathered) / len(gathered))[-intervals(scaling) :]
        began, gathered = now, ()
    recent = (*load.recent, sample)[-QUICK_SAMPLES:]
    desired = _required_replicas(sum(window) / len(window), recent, scaling)
    # Replicas set by another client also stay for the delay.
    replicas = scaling.replicas if not complete or scaling.replicas != load.replicas else 0
    highs = _highs(load.highs, max(desired, replicas), now, scaling.scale_down_delay)
    load = Load(window, began, gathered, recent, highs, scaling.replicas)
    if scaling.bounded(desired) > scaling.replicas:
        return load, scaling.bounded(desired)
    return load, min(scaling.replicas, scaling.bounded(highs[0].replicas))


def _required_replicas(average: float, recent: tuple[float, ...], scaling: Scaling) -> int:
    target, replicas = scaling.target_requests, scaling.replicas
    steady = math.ceil(average / target - ROUNDING)
    lasting = min(recent) if len(recent) == QUICK_SAMPLES else 0.0
    quick = math.ceil(lasting / target)
    if lasting <= BURST * replicas * target:
        quick = min(quick, replicas)
    return max(steady, quick, 1 if recent[-1] > 0 else 0)


def _highs(highs: tuple[High, ...], replicas: int, now: float, delay: float) -> tuple[High, ...]:
    """Adds a number to the list of highs. The highest one within the delay comes first; lower or older ones are
    dropped."""
    recent = [high for high in highs if high.replicas > replicas and now - high.at < delay]
    return (*recent, High(now, replicas))
