"""The OME API, ``ome.io/v1beta1``: models are loaded onto nodes, runtimes define how to serve them, and
InferenceServices serve them."""

from __future__ import annotations

from slipway.apis.ome.api import APIS
from slipway.apis.ome.describe import DESCRIPTION

__all__ = ["APIS", "DESCRIPTION"]
