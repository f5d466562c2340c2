"""LLMKube: ``inference.llmkube.dev/v1alpha1``. A Model is weights and their source, an InferenceService serves one on
one of six runtimes, and a ModelRouter sends the requests of one model ID to several services."""

from __future__ import annotations

from slipway.apis.llmkube.api import ADAPTERS, MODELS, POOLS, QUOTAS, SERVICES
from slipway.apis.llmkube.describe import DESCRIPTION
from slipway.apis.llmkube.routing.routers import ROUTERS

__all__ = ["ADAPTERS", "APIS", "DESCRIPTION", "MODELS", "POOLS", "QUOTAS", "ROUTERS", "SERVICES"]

APIS = (MODELS, SERVICES, ROUTERS, ADAPTERS, QUOTAS, POOLS)
