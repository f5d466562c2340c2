"""Model facts: the facts in a publication, derived from a model's files and its source. Pure.

Facts are exact, derived from exact values, or declared by the source. Estimates are omitted, and the facts are then
marked as partial.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from slipway.artifacts.documents.publication import Facts
from slipway.artifacts.facts import capabilities, config
from slipway.artifacts.facts.parameters import number
from slipway.artifacts.files.file_rules import Format
from slipway.artifacts.headers.gguf import Gguf

SUFFIXES = (
    "ForCausalLM",
    "ForConditionalGeneration",
    "ForSequenceClassification",
    "ForTokenClassification",
    "ForQuestionAnswering",
    "LMHeadModel",
    "Model",
)
TOOLS = re.compile(r"{%-?\s*if\s+tools|for\s+tool\s+in\s+tools|<tools>|tool_call|\.Tools\b")
"""Matches chat templates of models that can call tools."""
CONTEXT = (
    "max_position_embeddings",
    "model_max_length",
    "max_sequence_length",
    "max_seq_len",
    "seq_length",
    "n_positions",
    "n_ctx",
)
MOST_WORDS, LONGEST = 32, 128


class ModelMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata in the files and in the source of a model."""

    format: Format
    tasks: tuple[str, ...] = ()
    """Tasks as the source declares them."""
    features: tuple[str, ...] = ()
    configuration: Mapping[str, Any] = {}
    """Content of config.json or model_index.json."""
    files: tuple[str, ...] = ()
    tensors: Mapping[str, int] = {}
    """Data type -> number of values in all safetensors files; empty if some could not be counted."""
    shapes: Mapping[str, tuple[str, Sequence[int]]] = {}
    """Tensor name -> data type and shape."""
    headers: tuple[tuple[Gguf, ...], ...] = ()
    """For each GGUF model, the headers of its parts in order."""
    template: str = ""
    """The chat template; empty if there is none."""


def derive_facts(metadata: ModelMetadata) -> Facts:
    """Derive the published facts from a model's metadata."""
    model, can = {"Safetensors": _safetensors, "GGUF": _gguf, "Diffusers": _diffusers}[metadata.format](metadata)
    features = _words((*metadata.features, *(("tools",) if TOOLS.search(metadata.template) else ())))
    named = model.architecture if metadata.format == "Safetensors" else ""
    declared = tuple(task for task in metadata.tasks if capabilities.usual(task) != capabilities.ANY)
    tasks = _words(declared) or _words((capabilities.task_of(can, named),))
    endpoints, supported = capabilities.endpoints(tasks)
    if "tools" in features and "Chat" in endpoints:
        supported = (*supported, "ToolCalling")
    text = "Chat" in endpoints or "Embeddings" in endpoints
    needed = (model.family, model.architecture, model.parameters, endpoints, model.context or not text)
    return msgspec.structs.replace(
        model,
        tasks=_words(metadata.tasks),
        features=features,
        endpoint_types=endpoints,
        supported_features=supported,
        partial=not all(needed),
    )


def _safetensors(metadata: ModelMetadata) -> tuple[Facts, Sequence[str]]:
    config_facts = config.facts_of(
        metadata.configuration, files=metadata.files, tensors=metadata.tensors, shapes=metadata.shapes
    )
    declared = _declared(metadata.configuration)
    text = config.text_part(metadata.configuration)
    model = Facts(
        format="Safetensors",
        family=_word(config_facts.model_type.lower() or _family(config_facts.architecture)),
        architecture=_word(config_facts.architecture),
        parameters=declared or (config_facts.parameters if config_facts.exact else 0),
        quantization=_word(quantization(metadata.configuration) or quantization(text)),
        context=config_facts.max_tokens or number(metadata.configuration, *CONTEXT),
    )
    return model, config_facts.capabilities


def _gguf(metadata: ModelMetadata) -> tuple[Facts, Sequence[str]]:
    """Return the facts that all GGUF models of a source share, and their capabilities."""
    firsts = [parts[0] for parts in metadata.headers if parts]
    if not firsts:
        return Facts(format="GGUF"), ()
    counts = [sum(part.parameters for part in parts) for parts in metadata.headers]
    architecture = _word(_common_value([first.architecture for first in firsts]))
    model = Facts(
        format="GGUF",
        family=architecture,
        architecture=architecture,
        parameters=_common_value(counts) or 0,
        quantization=_common_value([first.quantization for first in firsts]) or "",
        context=min(_common_value([first.context_length for first in firsts]) or 0, config.MOST_TOKENS),
    )
    return model, capabilities.of_model(architecture, "") if architecture else ()


def _diffusers(metadata: ModelMetadata) -> tuple[Facts, Sequence[str]]:
    name = metadata.configuration.get("_class_name")
    architecture = _word(name) if isinstance(name, str) else ""
    model = Facts(
        format="Diffusers",
        family=_word(re.sub(r"pipeline$", "", architecture, flags=re.IGNORECASE).lower()),
        architecture=architecture,
        parameters=sum(metadata.tensors.values()),
    )
    return model, capabilities.of_pipeline(architecture)


def quantization(configuration: Mapping[str, Any]) -> str:
    """Return the quantization in a config.json, such as ``gptq-4bit`` or ``fp8``; empty if the config.json declares
    none."""
    quantization_config = configuration.get("quantization_config") or configuration.get("compression_config")
    if not isinstance(quantization_config, Mapping):
        return ""
    method = quantization_config.get("quant_method")
    method = method.lower() if isinstance(method, str) else ""
    bits = number(quantization_config, "bits", "w_bit", "num_bits")
    kind = quantization_config.get("bnb_4bit_quant_type")
    if quantization_config.get("load_in_4bit") is True or quantization_config.get("load_in_8bit") is True:
        if isinstance(kind, str) and kind and quantization_config.get("load_in_4bit") is True:
            return f"bnb-{kind.lower()}"
        bits = 8 if quantization_config.get("load_in_8bit") is True else 4
        method = method or "bitsandbytes"
    if method and bits:
        return f"{method}-{bits}bit"
    return method or (f"{bits}bit" if bits else "")


def _declared(configuration: Mapping[str, Any]) -> int:
    for name in ("num_parameters", "parameter_count"):
        value = configuration.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 60:
            return value
    return 0


def _family(architecture: str) -> str:
    for suffix in SUFFIXES:
        if architecture.endswith(suffix) and architecture != suffix:
            return architecture.removesuffix(suffix).lower()
    return architecture.lower()


def _common_value(values: Sequence[Any]) -> Any:
    """Return the value that all elements share, or None if they differ or there are none."""
    return values[0] if values and all(value == values[0] for value in values) else None


def _word(text: str | None) -> str:
    return "".join(character for character in text or "" if character.isprintable())[:LONGEST]


def _words(texts: Sequence[str]) -> tuple[str, ...]:
    words = dict.fromkeys(word for text in texts if (word := _word(text).strip()))
    return tuple(words)[:MOST_WORDS]
