"""Facts in a model's files: config.json of transformers, model_index.json of diffusers, and the headers of safetensors
and GGUF files. The files are untrusted, so an invalid value counts as unknown. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from slipway.artifacts.facts.capabilities import of_model, of_pipeline
from slipway.artifacts.facts.parameters import estimated, format_size, number
from slipway.artifacts.headers.gguf import Gguf
from slipway.artifacts.quantization.counts import ParameterCount, Shapes, by_names, by_types
from slipway.artifacts.quantization.methods import scheme_of, stated
from slipway.decoding import decode_json

CONFIG, PIPELINE = "config.json", "model_index.json"
FOLDERS = ("", "safetensors/", "pytorch_model/", "model/")
"""Directories in which to look for config.json first, in this order."""
EMBEDDING_FILES = ("modules.json", "config_sentence_transformers.json")
"""Files next to config.json in models for sentence-transformers."""
MOST_BYTES = 4 << 20
"""Maximum size of a configuration in bytes. Most have a few KiB; some list thousands of classes."""
MOST_COMPONENTS = 32
LONGEST = 128
"""Maximum length, in characters, of a string taken from a model's files. Longer strings are cut off."""
MOST_TOKENS = (1 << 31) - 1
CONTEXT = ("seq_length", "max_position_embeddings", "n_positions", "max_seq_len", "model_max_length", "n_ctx")
TEXT = ("text_config", "llm_config", "language_config", "thinker_config")
"""Fields with which multimodal models describe their text component. A component may be nested."""
POSITIONS = ("rope_scaling", "rope_parameters")
"""Fields for the scaling of positions: the name before transformers 5, and the name since then."""
EYES = ("vision_config", "vision_tower", "mm_vision_tower", "img_processor", "visual")
"""Fields in configurations of models with image input."""
ARCHITECTURES: Mapping[str, str] = {
    "deepseek_vl_v2": "DeepseekVLV2ForCausalLM",
    "multi_modality": "MultiModalityCausalLM",
}
"""Model type whose repositories omit the architecture -> its architecture."""
QUANTIZATION_FILES: Mapping[str, str] = {
    "hf_quant_config.json": "modelopt",
    "quantize_config.json": "gptq",
    "quant_config.json": "awq",
}
"""File that describes the quantization in place of config.json -> the quantization method."""
SAFETENSORS, SAFETENSORS_VERSION = "safetensors", "1.0.0"
PYTORCH = "pytorch"
GGUF, PROJECTOR = ".gguf", "mmproj"
OTHER_FORMATS: Mapping[str, str] = {".bin": PYTORCH, ".pt": PYTORCH, ".pth": PYTORCH, ".onnx": "onnx"}
"""File extension -> the format of models without safetensors."""
PARTS: Mapping[str, str] = {
    "scheduler": "scheduler",
    "text_encoder": "textEncoder",
    "tokenizer": "tokenizer",
    "transformer": "transformer",
    "vae": "vae",
}
"""Component of a diffusion pipeline -> its field in a model's spec. All others are in ``additionalComponents``."""
_NUMBERS = re.compile(r'"(?:[^"\\]|\\.)*"?|-?Infinity|NaN', re.DOTALL)
"""Matches numbers that JSON does not allow, and strings, which may contain the same text. It also matches an
unterminated string, because searching for its end repeatedly would take quadratic time."""


class VersionedName(msgspec.Struct, frozen=True, omit_defaults=True):
    """The name and version of a format or a framework."""

    name: str
    version: str = ""
    """Version; empty if it is not declared."""


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Facts about a model. A field is empty, 0 or None if its value is unknown."""

    model_type: str = ""
    """Name of the model type in transformers or llama.cpp, such as ``llama``."""
    architecture: str = ""
    """Class name in transformers or diffusers, such as ``LlamaForCausalLM``."""
    format: VersionedName | None = None
    framework: VersionedName | None = None
    parameter_size: str = ""
    """Formatted number of parameters, such as ``8.03B``."""
    parameters: int = 0
    exact: bool = False
    """Whether the parameters were counted instead of estimated."""
    stored_size: str = ""
    """Formatted number of values in all tensors, such as ``4.65B``. It is lower than ``parameters`` if several weights
    share a value, and higher if it includes scales."""
    max_tokens: int = 0
    quantization: str = ""
    capabilities: tuple[str, ...] = ()
    diffusion_pipeline: Mapping[str, Any] | None = None
    """The components of a diffusion model, as in a model's spec."""


def described_by(files: Collection[str]) -> str:
    """Return the path of the file that describes a model; empty if there is none. The candidates are a
    model_index.json, the first GGUF file that is not a projector if there are no safetensors, and a config.json, in
    this order."""
    index = sorted((path for path in files if _has_name(path, PIPELINE)), key=_depth)
    gguf = sorted(path for path in files if path.endswith(GGUF) and not path.rpartition("/")[2].startswith(PROJECTOR))
    safetensors = any(path.endswith(f".{SAFETENSORS}") for path in files)
    usual = [f"{folder}{CONFIG}" for folder in FOLDERS if f"{folder}{CONFIG}" in files]
    others = sorted((path for path in files if _has_name(path, CONFIG)), key=_depth)
    return next(iter((*index, *(() if safetensors else gguf), *usual, *others)), "")


def parse_config(text: bytes) -> Mapping[str, Any]:
    """Parse a configuration. Python writes numbers that JSON does not allow: infinity becomes 1e308, and NaN becomes
    null. Raise DecodingError if the text is invalid or too long."""
    plain = text.decode("utf-8", "replace") if len(text) <= MOST_BYTES else ""
    if "Infinity" in plain or "NaN" in plain:
        text = _NUMBERS.sub(_json_number, plain).encode()
    return decode_json(text, dict[str, Any], most=2 * MOST_BYTES)


def facts_of(
    configuration: Mapping[str, Any],
    *,
    files: Collection[str] = (),
    tensors: Mapping[str, int] | None = None,
    shapes: Shapes | None = None,
) -> ModelFacts:
    """Return the facts in a config.json or a model_index.json. Only the latter has a ``_class_name``.

    ``files`` are the paths of all files of the model; if empty, the format is safetensors. ``tensors`` maps a data type
    such as ``BF16`` to the number of its values in all safetensors headers. If it is empty, or has too many values of
    unknown encoding, the parameters of a transformers model are estimated. ``shapes`` are the tensors by name. Without
    them, scales count as weights if both have the same type.
    """
    if _text(configuration.get("_class_name")):
        return _of_pipeline(configuration, tensors or {})
    text = text_part(configuration)
    model_type = _text(configuration.get("model_type"))
    architecture = _architecture(configuration) or ARCHITECTURES.get(model_type, "")
    quantization = _quantization(configuration) or _quantization(text)
    named = bool(model_type or architecture)
    sees, embeds = _sees(configuration), _embeds(configuration, files)
    counted = counted_in(configuration, tensors or {}, shapes)
    estimate = 0 if counted.complete and counted.parameters else estimated(configuration, text)
    parameters = estimate or counted.parameters
    return ModelFacts(
        model_type=model_type,
        architecture=architecture,
        format=_format(files),
        framework=VersionedName("transformers", _text(configuration.get("transformers_version"))) if named else None,
        parameter_size=format_size(parameters),
        parameters=parameters,
        exact=counted.exact and counted.parameters > 0,
        stored_size=format_size(sum((tensors or {}).values())),
        max_tokens=_context(text) or _context(configuration),
        quantization=quantization,
        capabilities=of_model(model_type, architecture, sees=sees, embeds=embeds) if named else (),
    )


def facts_of_gguf(headers: Sequence[Gguf]) -> ModelFacts:
    """Return the facts in the headers of a GGUF model, one header per part in order. The number of parameters is
    unknown if any header lacks it. Omit the quantization: GGUF engines support every quantization, and a value would
    exclude runtimes that declare none."""
    first, parameters = headers[0], [header.parameters for header in headers]
    total = sum(parameters) if all(parameters) else 0
    return ModelFacts(
        model_type=first.architecture,
        format=VersionedName("gguf"),
        framework=VersionedName("ggml"),
        parameter_size=format_size(total),
        parameters=total,
        exact=bool(total),
        max_tokens=min(first.context_length, MOST_TOKENS),
        capabilities=of_model(first.architecture, "") if first.architecture else (),
    )


def counted_in(configuration: Mapping[str, Any], tensors: Mapping[str, int], shapes: Shapes | None) -> ParameterCount:
    """Count the parameters in a model's tensors, by the encoding in the configuration. Use only the number of values
    per data type in ``tensors`` if ``shapes`` are unknown or the model is not quantized."""
    scheme = scheme_of(configuration, _parts(configuration))
    return by_names(scheme, shapes) if scheme is not None and shapes else by_types(scheme, tensors)


def text_part(configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration of a multimodal model's text component, or the whole configuration of another model."""
    return next(iter(_parts(configuration)), configuration)


def completed(configuration: Mapping[str, Any], beside: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return a config.json, completed with the quantization from one of ``QUANTIZATION_FILES`` if it declares none.
    ``beside``: file name -> content of these files."""
    if stated(configuration, _parts(configuration)):
        return configuration
    for name, method in QUANTIZATION_FILES.items():
        if document := beside.get(name):
            inner = document.get("quantization")
            own = inner if isinstance(inner, Mapping) else document
            return {**configuration, "quantization_config": {"quant_method": method, **own}}
    return configuration


def _parts(configuration: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    parts = [part for name in TEXT if isinstance(part := configuration.get(name), Mapping)]
    inner = [deeper for part in parts for name in TEXT if isinstance(deeper := part.get(name), Mapping)]
    return [*inner, *parts]


def _of_pipeline(index: Mapping[str, Any], tensors: Mapping[str, int]) -> ModelFacts:
    name, version = _text(index["_class_name"]), _text(index.get("_diffusers_version"))
    components = {
        part: {"library": _text(pair[0]), "type": _text(pair[1])}
        for part, pair in index.items()
        if isinstance(pair, list) and len(pair) == 2 and _text(pair[0]) and _text(pair[1])
    }
    others = [part for part in components if part not in PARTS][:MOST_COMPONENTS]
    pipeline = {"className": name, **{PARTS[part]: components[part] for part in PARTS if part in components}}
    if others:
        pipeline["additionalComponents"] = {part[:LONGEST]: components[part] for part in others}
    counted = by_types(None, tensors)
    parameters = counted.parameters
    return ModelFacts(
        architecture=name,
        format=VersionedName("diffusers", version),
        framework=VersionedName("diffusers", version),
        parameter_size=format_size(parameters),
        parameters=parameters,
        exact=counted.exact and parameters > 0,
        stored_size=format_size(parameters),
        capabilities=of_pipeline(name),
        diffusion_pipeline=pipeline,
    )


def _format(files: Collection[str]) -> VersionedName:
    others = [name for ending, name in OTHER_FORMATS.items() if any(path.endswith(ending) for path in files)]
    if others and not any(path.endswith(f".{SAFETENSORS}") for path in files):
        return VersionedName(others[0])
    return VersionedName(SAFETENSORS, SAFETENSORS_VERSION)


def _has_name(path: str, name: str) -> bool:
    return path.rpartition("/")[2] == name


def _depth(path: str) -> tuple[int, str]:
    return path.count("/"), path


def _architecture(config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    return _text(names[0]) if isinstance(names, list) and names else ""


def _quantization(config: Mapping[str, Any]) -> str:
    method = _method(config)
    return next((precision for precision in ("int4", "fp8") if precision in method), method)


def _method(config: Mapping[str, Any]) -> str:
    quantization_config = config.get("quantization_config") or config.get("compression_config")
    return _text(quantization_config.get("quant_method")).lower() if isinstance(quantization_config, Mapping) else ""


def _context(config: Mapping[str, Any]) -> int:
    """Return the context length in tokens; 0 if it is unknown. With YaRN it may exceed the declared number of
    positions."""
    scalings = [scaling for name in POSITIONS if isinstance(scaling := config.get(name), Mapping)]
    # Models with several kinds of attention have a scaling for each.
    scalings += [inner for scaling in scalings for inner in scaling.values() if isinstance(inner, Mapping)]
    stretched = max(map(_stretched, scalings), default=0)
    return min(max(number(config, *CONTEXT), stretched), MOST_TOKENS)


def _stretched(scaling: Mapping[str, Any]) -> int:
    if "yarn" not in (scaling.get("rope_type"), scaling.get("type")):
        return 0
    original, factor = number(scaling, "original_max_position_embeddings"), scaling.get("factor")
    return int(original * factor) if isinstance(factor, int | float) and 1 <= factor <= 1024 else 0


def _sees(config: Mapping[str, Any]) -> bool:
    layer = config.get("embd_layer")
    return any(config.get(name) for name in EYES) or (
        isinstance(layer, Mapping) and layer.get("embedding_cls") == "image"
    )


def _embeds(config: Mapping[str, Any], files: Collection[str]) -> bool:
    return config.get("is_causal") is False or any(name in files for name in EMBEDDING_FILES)


def _text(value: Any) -> str:
    """Return a string on one line, without control characters, cut to ``LONGEST``. Empty if it is not a string."""
    words = " ".join(value[: 4 * LONGEST].split()) if isinstance(value, str) else ""
    return "".join(character for character in words if character.isprintable())[:LONGEST]


def _json_number(match: re.Match[str]) -> str:
    text = match[0]
    if text == "NaN":
        return "null"
    return text if text.startswith('"') else text.replace("Infinity", "1e308")
