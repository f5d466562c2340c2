"""The Krypton API, ``krypton.ai/v1alpha1``. Its kind Model serves one GGUF file of a Hugging Face repository with
llama.cpp."""

from __future__ import annotations

from slipway.apis.krypton.api import KRYPTON
from slipway.apis.krypton.describe import DESCRIPTION

__all__ = ["APIS", "DESCRIPTION", "KRYPTON"]

APIS = (KRYPTON,)
