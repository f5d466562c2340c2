"""Scaling: how many replicas a model's requests ask for. Pure; the controller's autoscaler feeds it."""

from __future__ import annotations

import msgspec


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
