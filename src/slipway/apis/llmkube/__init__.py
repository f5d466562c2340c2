"""LLMKube: ``inference.llmkube.dev/v1alpha1``. A Model is weights and where they come from; an InferenceService serves
one on one of six runtimes."""

from __future__ import annotations

from slipway.apis.llmkube.model import Models
from slipway.apis.llmkube.service import Services

__all__ = ["Models", "Services"]
