"""OME: ``ome.io/v1beta1``. Models come onto nodes, runtimes say how they are served, InferenceServices serve them."""

from __future__ import annotations

from slipway.apis.ome.api import APIS
from slipway.apis.ome.describe import DESCRIPTION

__all__ = ["APIS", "DESCRIPTION"]
