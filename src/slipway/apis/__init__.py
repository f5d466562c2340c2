"""The serving APIs: one folder each, data types and two pure functions (see :class:`slipway.serving.plan.Api`)."""

from __future__ import annotations

from slipway.apis.krypton import Krypton
from slipway.apis.kubeai import KubeAI
from slipway.apis.llmkube import Models, Services
from slipway.serving.plan import Api

APIS: tuple[Api, ...] = (Krypton(), KubeAI(), Models(), Services())
"""Every API that slipway implements; one object for each kind, where the kinds of an API have little in common."""
