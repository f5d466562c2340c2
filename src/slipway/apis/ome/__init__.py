"""OME: ``ome.io/v1beta1``. Models are loaded onto nodes, runtimes define how they are served, and InferenceServices
serve them."""

from __future__ import annotations

from slipway.apis.ome.api import APIS
from slipway.apis.ome.describe import DESCRIPTION

__all__ = ["APIS", "DESCRIPTION"]
