"""Scaling: how many replicas a model's requests need. Pure; the controller's autoscaler calls it.

There are two measures of the same requests. The steady one is the mean over the window, in requests of one replica. The
quick one is the minimum of the last seconds' samples, so that a burst counts at once and a single outlier does not; a
load slightly above the replicas' target is not a burst. The replicas rise if either measure needs more. They fall only
if neither has needed them for the delay.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from slipway.kube.objects import Kind

QUICK_SAMPLES = 3
"""Samples in a row that must show a burst."""
BURST = 1.2
"""Requests in those that the replicas are made for, from which on there is a burst."""
ROUNDING = 1e-9
"""Sums of fractions may be larger than they are: that is no reason for a replica."""
WAKE = ("get", "update")
"""Verbs of the gateway on scales that it sets from zero to one."""
STATE = "slipway-autoscaler"


class ScaleTarget(msgspec.Struct, frozen=True):
    """A child of a resource that has a scale subresource of its own, such as a Deployment."""

    kind: Kind
    name: str
    namespace: str = ""
    """Empty: the resource's."""


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds and pace of one model. Times are seconds."""

    replicas: int
    """What the resource asks for now."""
    min_replicas: int
    max_replicas: int | None
    """None: without a limit."""
    target_requests: int
    """Requests in flight that one replica shall have on average."""
    interval: float
    """Between two looks at the steady state."""
    window: float
    """Over which the steady state is averaged; also the time that it takes to come down."""
    scale_down_delay: float
    """How long less must have been wanted before replicas go."""
    state: str = STATE
    """Name of the ConfigMap in the controller's namespace that keeps the averages over restarts."""
    target: ScaleTarget | None = None
    """What is scaled; None: the resource itself."""
    services: tuple[str, ...] | None = None
    """Names of the resource's Services whose requests count; None: all of them."""

    def bounded(self, replicas: int) -> int:
        """The number within the bounds; the lower one counts where they cross."""
        upper = replicas if self.max_replicas is None else min(replicas, self.max_replicas)
        return max(upper, self.min_replicas)


class High(NamedTuple):
    """The highest desired number at a time, if nothing later was as high."""

    at: float
    replicas: int


class Load(msgspec.Struct, frozen=True):
    """The stored measurements of one model's requests."""

    window: tuple[float, ...]
    """The mean of each interval, oldest first."""
    began: float
    """Of the interval that is gathered now."""
    gathered: tuple[float, ...] = ()
    recent: tuple[float, ...] = ()
    highs: tuple[High, ...] = ()
    replicas: int = 0
    """What the resource asked for at the last sample."""

    @property
    def average(self) -> float:
        """Requests in flight over the window."""
        return sum(self.window) / len(self.window)


def intervals(scaling: Scaling) -> int:
    """How many intervals the window has."""
    return max(1, math.ceil(scaling.window / scaling.interval))


def begin(scaling: Scaling, average: float, now: float) -> Load:
    """Returns the load of a model that was not measured before. ``average``: its stored average, else 0."""
    return Load(window=(average,) * intervals(scaling), began=now)


def add_sample(load: Load, scaling: Scaling, sample: float, now: float, *, complete: bool = True) -> tuple[Load, int]:
    """Adds a sample of the requests in flight and waiting. Returns the new load and the required replicas.

    ``complete``: False where some gateway could not be asked; then nothing goes down.
    """
    window, began, gathered = load.window, load.began, (*load.gathered, sample)
    if now - began >= scaling.interval:
        window = (*window, sum(gathered) / len(gathered))[-intervals(scaling) :]
        began, gathered = now, ()
    recent = (*load.recent, sample)[-QUICK_SAMPLES:]
    desired = _required_replicas(sum(window) / len(window), recent, scaling)
    # Replicas that someone else asked for get their time, too.
    kept = scaling.replicas if not complete or scaling.replicas != load.replicas else 0
    highs = _highs(load.highs, max(desired, kept), now, scaling.scale_down_delay)
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
    """The highest number within the delay comes first; what was exceeded or is older does not count any more."""
    kept = [high for high in highs if high.replicas > replicas and now - high.at < delay]
    return (*kept, High(now, replicas))
