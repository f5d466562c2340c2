"""The Deckhouse API, ``ai.deckhouse.io/v1alpha1``: models are published once, and delivered to ordinary workloads."""

from __future__ import annotations

from slipway.apis.deckhouse.api import APIS
from slipway.apis.deckhouse.delivery.workloads import DELIVERY
from slipway.apis.deckhouse.describe import DESCRIPTION

__all__ = ["APIS", "DELIVERY", "DESCRIPTION"]
