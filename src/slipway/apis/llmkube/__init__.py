"""The LLMKube API, ``inference.llmkube.dev/v1alpha1``. A Model describes weights and their source, an InferenceService
serves a Model with one of several runtimes, and a ModelRouter distributes the requests for one model ID over several
services."""

from __future__ import annotations

from slipway.apis.llmkube.api import ADAPTERS, MODELS, POOLS, QUOTAS, SERVICES
from slipway.apis.llmkube.describe import DESCRIPTION
from slipway.apis.llmkube.routing.routers import ROUTERS

__all__ = ["ADAPTERS", "APIS", "DESCRIPTION", "MODELS", "POOLS", "QUOTAS", "ROUTERS", "SERVICES"]

APIS = (MODELS, SERVICES, ROUTERS, ADAPTERS, QUOTAS, POOLS)
