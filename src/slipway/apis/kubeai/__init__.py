"""The KubeAI API, ``kubeai.org/v1``: its kind Model serves weights from many sources on six engines, with adapters,
caches and autoscaling."""

from __future__ import annotations

from slipway.apis.kubeai.api import KUBEAI
from slipway.apis.kubeai.describe import DESCRIPTION

__all__ = ["APIS", "DESCRIPTION", "KUBEAI"]

APIS = (KUBEAI,)
