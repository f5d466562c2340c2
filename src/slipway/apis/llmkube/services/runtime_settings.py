"""The conditions that report whether the settings of vLLM and SGLang are valid. Pure."""

from __future__ import annotations

from slipway.apis.llmkube.rules import ranks
from slipway.apis.llmkube.services.service import Service
from slipway.apis.llmkube.services.surroundings import draft_of
from slipway.kube.objects import Object
from slipway.kube.schemas.conditions import Condition
from slipway.serving.contract.api import Rejection, World

SPEC_VALID = {"vllm": "VLLMSpecValid", "sglang": "SGLangSpecValid"}
"""Runtime -> type of the condition about its settings."""


def conditions(world: World, service: Service) -> list[Condition]:
    """Return the conditions about the runtime's settings for a valid service. The result is empty unless the runtime is
    vLLM, or is SGLang and the spec has ``sglangConfig``."""
    if service.spec.runtime == "vllm":
        return _vllm(world, service)
    if service.spec.runtime == "sglang" and world.resource["spec"].get("sglangConfig"):
        return [_sglang(service)]
    return []


def invalid(spec: Object, rejection: Rejection | None) -> tuple[Condition, ...]:
    """Return the condition about the runtime's settings if they are the reason for the rejection, otherwise an empty
    tuple. ``spec`` is the raw spec."""
    kind = SPEC_VALID.get(spec.get("runtime", ""))
    if kind and rejection and rejection.message.startswith(ranks.PLACES):
        return (Condition(kind, "False", rejection.reason, rejection.message),)
    return ()


def _vllm(world: World, service: Service) -> list[Condition]:
    """Return the conditions that report whether vLLM's settings have an effect."""
    config = service.spec.vllm_config
    speculative = config.speculative
    if speculative.enabled and not (speculative.model and draft_of(world)):
        what = f"there is no Model {speculative.model}" if speculative.model else "speculative.model names no Model"
        text = f"Speculative decoding is off: {what}."
        return [
            Condition("VLLMSpecValid", "False", "SpeculativeMissingModel", text),
            Condition("SpeculativeInvalid", "True", "SpeculativeMissingModel", text),
        ]
    return [Condition("VLLMSpecValid", "True", "Valid", "The vLLM settings are valid.")]


def _sglang(service: Service) -> Condition:
    speculative = service.spec.sglang_config.speculative
    if speculative.enabled and not speculative.active:
        text = "Speculative decoding is off: sglangConfig.speculative needs algorithm and draftModelPath."
        return Condition("SGLangSpecValid", "False", "SpeculativeMissingConfig", text)
    return Condition("SGLangSpecValid", "True", "Valid", "The SGLang settings are valid.")
