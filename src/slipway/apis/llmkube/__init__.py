"""LLMKube: ``inference.llmkube.dev/v1alpha1``. A Model is weights and where they come from; an InferenceService serves
one on one of six runtimes."""

from __future__ import annotations

from slipway.apis.llmkube.api import MODELS, SERVICES
from slipway.apis.llmkube.describe import DESCRIPTION

__all__ = ["APIS", "DESCRIPTION", "MODELS", "SERVICES"]

APIS = (MODELS, SERVICES)
