"""LLMKube: ``inference.llmkube.dev/v1alpha1``. A Model is weights and where they come from; an InferenceService serves
one on one of six runtimes; a ModelRouter leads an id to several of these."""

from __future__ import annotations

from slipway.apis.llmkube.api import ADAPTERS, MODELS, POOLS, QUOTAS, SERVICES
from slipway.apis.llmkube.describe import DESCRIPTION
from slipway.apis.llmkube.routing.routers import ROUTERS

__all__ = ["ADAPTERS", "APIS", "DESCRIPTION", "MODELS", "POOLS", "QUOTAS", "ROUTERS", "SERVICES"]

APIS = (MODELS, SERVICES, ROUTERS, ADAPTERS, QUOTAS, POOLS)
