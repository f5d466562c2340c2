"""The number of replicas that a model's requests need. Pure.

The controller's autoscaler measures the same requests in two ways. The steady measure is the average over the window.
The quick measure is the minimum of the last few samples, so that a burst counts immediately and a single outlier does
not. A load slightly above the replicas' target is not a burst. The number of replicas increases if either measure needs
more. It decreases only if neither measure has needed the replicas for the delay.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from slipway.kube.objects import Kind

QUICK_SAMPLES = 3
"""Number of consecutive samples that must show a burst."""
BURST = 1.2
"""Load that counts as a burst, relative to the target of the current replicas."""
ROUNDING = 1e-9
"""Tolerance for rounding errors in sums of fractions, so that they do not add a replica."""
WAKE = ("get", "update")
"""RBAC verbs that the gateway needs for the scale subresources that it sets from zero to one."""
STATE = "slipway-autoscaler"


class ScaleTarget(msgspec.Struct, frozen=True):
    """A child of a resource with its own scale subresource, such as a Deployment."""

    kind: Kind
    name: str
    namespace: str = ""
    """Namespace of the child. Empty means the resource's namespace."""


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and timing of the autoscaling of one model. Times are in seconds."""

    replicas: int
    """The current number of replicas in the spec of the object to scale."""
    min_replicas: int
    max_replicas: int | None
    """The upper limit, or None for no limit."""
    target_requests: int
    """Target for the average number of requests in flight or waiting per replica."""
    interval: float
    """Length of an interval. The samples of an interval become one average in the window."""
    window: float
    """Time over which the steady load is averaged."""
    scale_down_delay: float
    """Time for which demand must stay lower before the number of replicas decreases."""
    state: str = STATE
    """Name of the ConfigMap in the controller's namespace that keeps the averages across restarts."""
    target: ScaleTarget | None = None
    """The object to scale. None means the resource itself."""
    services: tuple[str, ...] | None = None
    """Names of the resource's Services whose requests count. None means all of them."""

    def bounded(self, replicas: int) -> int:
        """Return the number of replicas, limited to the bounds. The lower bound takes precedence if they conflict."""
        upper = replicas if self.max_replicas is None else min(replicas, self.max_replicas)
        return max(upper, self.min_replicas)


class High(NamedTuple):
    """A required number of replicas, and the time at which it was last required. The time is in seconds of the
    autoscaler's clock."""

    at: float
    replicas: int


class Load(msgspec.Struct, frozen=True):
    """The measured requests of one model."""

    window: tuple[float, ...]
    """Average number of requests in flight or waiting in each interval, oldest first."""
    began: float
    """Time at which the current interval began, in seconds of the autoscaler's clock."""
    gathered: tuple[float, ...] = ()
    """Samples of the current interval."""
    recent: tuple[float, ...] = ()
    """The last samples, at most :data:`QUICK_SAMPLES`."""
    highs: tuple[High, ...] = ()
    """Required numbers of replicas within the delay before a decrease, the highest and oldest first."""
    replicas: int = 0
    """Number of replicas in the spec of the scaled object at the last sample."""

    @property
    def average(self) -> float:
        """Average number of requests in flight or waiting over the window."""
        return sum(self.window) / len(self.window)


def intervals(scaling: Scaling) -> int:
    """Return the number of intervals in the window."""
    return max(1, math.ceil(scaling.window / scaling.interval))


def begin(scaling: Scaling, average: float, now: float) -> Load:
    """Return the initial load of a model. ``average`` is its stored average number of requests, or 0 if there is none.
    ``now`` is in seconds of the autoscaler's clock."""
    return Load(window=(average,) * intervals(scaling), began=now)


def add_sample(load: Load, scaling: Scaling, sample: float, now: float, *, complete: bool = True) -> tuple[Load, int]:
    """Add a sample, the number of requests in flight or waiting. Return the new load and the required number of
    replicas, which is within the bounds of ``scaling`` if it differs from the current number.

    ``complete`` is False if a gateway did not answer. In this case, the number of replicas does not decrease.
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
    """Add a required number to the list of highs. The highest number within the delay comes first. Lower and older
    numbers are dropped."""
    recent = [high for high in highs if high.replicas > replicas and now - high.at < delay]
    return (*recent, High(now, replicas))
