"""The serving APIs: one folder each, data types and two pure functions (see :class:`slipway.serving.plan.Api`)."""

from __future__ import annotations

from slipway.apis.krypton import Krypton
from slipway.apis.kubeai import KubeAI
from slipway.serving.plan import Api

APIS: tuple[Api, ...] = (Krypton(), KubeAI())
"""Every API that slipway implements."""
