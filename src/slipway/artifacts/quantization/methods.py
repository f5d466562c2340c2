"""Quantization methods: the number of weights per value, according to the configuration of each method. Pure.

The number depends on the method, its format, and the bits of a tensor's group. It is unknown if the configuration does
not define it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from slipway.artifacts.quantization import name_patterns
from slipway.artifacts.quantization.counts import FP8, SMALL, UNKNOWN, Group, Rates, Scheme, merged

MOST_GROUPS = 4096
MOST_BITS = 16
WILD = frozenset("*?[")
EXPERTS = "expert_dtype"
"""Field of a config.json with FP8 quantization: the data type of the experts, if it differs."""
OF_EXPERTS = ("*.experts", "*.experts.*")
"""Patterns for modules of experts, without shared experts."""


def scheme_of(configuration: Mapping[str, Any], parts: Sequence[Mapping[str, Any]] = ()) -> Scheme | None:
    """Return the quantization in a config.json or in its components. Return None if the model is not quantized, and
    ``UNKNOWN`` if the encoding cannot be derived from the settings."""
    settings = stated(configuration, parts)
    if not settings:
        return None
    method = _word(settings.get("quant_method"))
    reader = next((reader for names, reader in READERS if _begins(method, names)), None)
    if not method:
        reader = _reader_without_method(settings)
    if reader is _fp8:
        settings = {
            **settings,
            EXPERTS: next((place[EXPERTS] for place in (configuration, *parts) if place.get(EXPERTS)), None),
        }
    return reader(settings) if reader else UNKNOWN


def stated(configuration: Mapping[str, Any], parts: Sequence[Mapping[str, Any]] = ()) -> Mapping[str, Any]:
    """Return the quantization settings in a config.json or in its components; empty if there are none."""
    for place in (configuration, *parts):
        for name in ("quantization_config", "compression_config", "quantization"):
            settings = place.get(name)
            if isinstance(settings, Mapping) and settings:
                return settings
    return {}


def bits_in(settings: Mapping[str, Any], *more: str) -> int:
    """Return the number of bits per weight in quantization settings; 0 if it is undefined or not a whole number. Read
    the fields in ``more`` first."""
    for name in (*more, "bits", "w_bit", "wbits", "num_bits", "nbits", "weight_bits"):
        value = settings.get(name)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 2:
            value = int(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= MOST_BITS:
            return int(value) if int(value) == value else 0
    return 0


# How values encode weights


def _whole() -> Rates:
    return {"I8": Fraction(1), "U8": Fraction(1), **dict.fromkeys(SMALL, Fraction(1))}


def _bytes(bits: int) -> Rates:
    rate = Fraction(8 // bits) if 0 < bits <= 8 else None
    return {} if rate is None else {"U8": rate, "I8": rate}


def _words(bits: int, *, dense: bool = False) -> Rates:
    """Return the number of weights per 32-bit value. If ``dense``, a weight may cross the boundary between two
    values."""
    if not 0 < bits <= 8:
        return {}
    rate = Fraction(32, bits) if dense else Fraction(32 // bits)
    return {"I32": rate, "U32": rate}


def _fp4(size: int) -> tuple[Rates, Mapping[str, Fraction]]:
    """Return the rates for two weights per byte, with an 8-bit scale for each block of ``size``."""
    return {"U8": Fraction(2), "I8": Fraction(2), "F4": Fraction(1)}, {"F8_E4M3": Fraction(1, size)}


def _build_group(targets: Sequence[str] | None, rates: Rates, scales: Mapping[str, Fraction] | None = None) -> Group:
    """Build a group of modules with the same quantization. ``targets`` are names and wildcard patterns of modules. If
    they are empty, or None for unknown, the group may contain any module that no other group names."""
    patterns = tuple(one for one in targets or () if WILD & set(one[: name_patterns.LONGEST]))
    names = frozenset(targets or ()).difference(patterns)
    return Group(rates=rates, scales=scales or {}, names=names, patterns=patterns, rest=not targets)


def _scheme(groups: Sequence[Group], *, apart: bool = True) -> Scheme:
    return Scheme(groups=merged(groups), apart=apart)


# The configurations of each method


def _gptq(settings: Mapping[str, Any]) -> Scheme:
    """Return the encoding of GPTQ, AWQ and similar methods."""
    dense = not _begins(_word(settings.get("quant_method")), ("awq",))
    bits = bits_in(settings) or (0 if dense else 4)
    others = [
        _build_group(patterns, _words(bits_in(own), dense=dense))
        for name in ("dynamic", "extra_config")
        for key, own in _entries(settings.get(name))
        if bits_in(own) in (2, 3, 4, 5, 6, 7, 8)
        for patterns in [name_patterns.wildcards(key.removeprefix("+:"))]
    ]
    return _scheme((_build_group((), _words(bits, dense=dense)), *others), apart=False)


def _bitsandbytes(settings: Mapping[str, Any]) -> Scheme:
    eight = any(settings.get(name) is True for name in ("load_in_8bit", "_load_in_8bit"))
    return _scheme((_build_group((), _whole() if eight else _bytes(4)),), apart=False)


def _mxfp4(_settings: Mapping[str, Any]) -> Scheme:
    """Return the encoding of MXFP4: blocks of 32 weights in 16 bytes, each with a one-byte scale."""
    return _scheme((_build_group((), {"U8": Fraction(2)}, {"U8": Fraction(1, 32)}),), apart=False)


def _eight(_settings: Mapping[str, Any]) -> Scheme:
    """Return the encoding of methods with one weight per 8-bit value."""
    return _scheme((_build_group((), _whole()),))


def _fp8(settings: Mapping[str, Any]) -> Scheme:
    """Return the encoding of FP8: one weight per 8-bit value. Experts with 4 bits have two weights per integer of 8
    bits, and scales that are powers of two."""
    small = dict.fromkeys(SMALL, Fraction(1))
    packed = _build_group(OF_EXPERTS, small | {"I8": Fraction(2), "U8": Fraction(2)})
    return _scheme((_build_group((), small), *([packed] if _word(settings.get(EXPERTS)) in ("fp4", "mxfp4") else [])))


def _mxfp8(_settings: Mapping[str, Any]) -> Scheme:
    """Return the encoding of MXFP8: a one-byte scale for each block of 32 weights."""
    return _scheme((_build_group((), *_algorithm("mxfp8", {})),))


def _modelopt(settings: Mapping[str, Any]) -> Scheme:
    inner = settings.get("quantization")
    own = {**settings, **inner} if isinstance(inner, Mapping) else settings
    algorithm = _word(own.get("quant_algo"))
    layers = [
        _build_group((name,), *_algorithm(_word(one.get("quant_algo")), one))
        for name, one in _entries(own.get("quantized_layers"))
    ]
    if layers:
        return _scheme((*layers, _build_group((), _whole())))
    if not algorithm and _word(own.get("quant_method")).endswith(("fp4", "nvfp4")):
        algorithm = "nvfp4"
    if not algorithm and own.get("config_groups"):
        return _compressed(own)
    rates, scales = _algorithm(algorithm, own)
    return _scheme((_build_group((), rates, scales),)) if rates else UNKNOWN


def _algorithm(algorithm: str, own: Mapping[str, Any]) -> tuple[Rates, Mapping[str, Fraction]]:
    """Return the rates and scales for an algorithm of NVIDIA's Model Optimizer; both are empty if it is unknown."""
    size = own.get("group_size")
    if "mxfp8" in algorithm:
        return dict.fromkeys(FP8, Fraction(1)), {"U8": Fraction(1, 32)}
    if "nvfp4" in algorithm:
        return _fp4(size if isinstance(size, int) and size in (16, 32) else 16)
    if "fp4" in algorithm:
        return _fp4(32)[0], {}
    if algorithm.startswith(("w4", "int4")):
        return _bytes(4), {}
    return (_whole(), {}) if "8" in algorithm else ({}, {})


def _compressed(settings: Mapping[str, Any]) -> Scheme:
    """Return the encoding of compressed-tensors. A group without its own format has the format of the whole model."""
    groups, shared, apart = [], _word(settings.get("format")), True
    for _name, group in _entries(settings.get("config_groups")):
        weights = group.get("weights")
        if not isinstance(weights, Mapping):
            continue
        named = _word(group.get("format")) or ("" if shared == "mixed-precision" else shared)
        rates, scales = _format(named, bits_in(weights), _word(weights.get("type")))
        apart = apart and weights.get("symmetric") is not False and bool(rates.keys() & {"I8", "U8", *FP8})
        groups.append(_build_group(_targets(group.get("targets")), rates, scales))
    return _scheme(groups, apart=apart)


def _format(name: str, bits: int, kind: str) -> tuple[Rates, Mapping[str, Fraction]]:
    if "nvfp4" in name:
        return _fp4(16)
    if "mxfp4" in name:
        return _fp4(32)[0], {"U8": Fraction(1, 32)}
    if name == "marlin-24":
        return {type_: 2 * rate for type_, rate in _words(bits).items()}, {}  # every second weight is zero
    if "sparse" in name or not bits:
        return {}, {}
    if name == "pack-quantized":
        return _words(bits), {}
    if name in ("int-quantized", "float-quantized", "naive-quantized", "mxfp8-quantized", "dense"):
        return _whole(), {}
    if kind == "float" and bits == 4:
        return _fp4(16)
    if name:
        return {}, {}
    return {**_whole(), **_words(bits)} if bits < 8 else {**_whole(), **_words(8)}, {}


def _quark(settings: Mapping[str, Any]) -> Scheme:
    groups = [
        _build_group((key,), rates, scales)
        for key, own in _entries(settings.get("layer_quant_config"))
        for rates, scales in [_quark_weights(own)]
    ]
    shared = settings.get("global_quant_config")
    rates, scales = _quark_weights(shared if isinstance(shared, Mapping) else settings)
    return _scheme((_build_group((), rates, scales), *groups), apart=False)


def _quark_weights(own: Mapping[str, Any]) -> tuple[Rates, Mapping[str, Fraction]]:
    weight = own.get("weight")
    first = weight[0] if isinstance(weight, list) and weight else weight
    type_ = _word(first.get("dtype")) if isinstance(first, Mapping) else ""
    if type_ in ("fp4", "mx4", "mxfp4"):
        return {"U8": Fraction(2)}, {}
    if type_ in ("int4", "uint4", "int3", "int2"):
        return {**_words(int(type_[-1])), **_bytes(int(type_[-1]))}, {}
    return (_whole(), {}) if "8" in type_ else ({}, {})


def _hqq(settings: Mapping[str, Any]) -> Scheme:
    inner = settings.get("quant_config")
    own = inner if isinstance(inner, Mapping) else settings
    shared = own.get("weight_quant_params")
    whole = bits_in(shared if isinstance(shared, Mapping) else settings)
    groups = [
        _build_group((name,), _hqq_rates(bits))
        for name, one in _entries(own)
        if name != "weight_quant_params"
        for inside in [one.get("weight_quant_params")]
        if (bits := bits_in(inside if isinstance(inside, Mapping) else one))
    ]
    return _scheme((_build_group((), _hqq_rates(whole)), *groups), apart=False)


def _hqq_rates(bits: int) -> Rates:
    return _words(3) if bits == 3 else _bytes(bits)


def _quanto(settings: Mapping[str, Any]) -> Scheme:
    kind = _word(settings.get("weights"))
    bits = int(kind[-1]) if kind[-1:].isdigit() else 0
    return _scheme((_build_group((), _whole() if bits == 8 else _bytes(bits)),), apart=False)


def _torchao(settings: Mapping[str, Any]) -> Scheme:
    """Return the encoding of torchao: 4-bit weights packed into 32-bit values, or one weight per 8-bit value. The
    number of weights per value is unknown for ``intx``, ``uintx`` and all other types."""
    kind = settings.get("quant_type")
    text = repr(kind).lower()[:4096]
    if "int4" in text or "uintx" in text or "intx" in text:
        return _scheme((_build_group((), _words(4) if "int4" in text else {}),), apart=False)
    return _eight(settings) if "8" in text else UNKNOWN


def _aqlm(settings: Mapping[str, Any]) -> Scheme:
    """Return the encoding of AQLM, in which each code represents a group of weights."""
    inside, outside, books = (
        bits_in({"bits": settings.get(name)}) for name in ("in_group_size", "out_group_size", "num_codebooks")
    )
    rate = Fraction(inside * outside, books) if inside and outside and books else None
    rates = dict.fromkeys(("I8", "I16", "U8", "U16"), rate) if rate else {}
    return _scheme((_build_group((), rates),), apart=False)


def _bitnet(_settings: Mapping[str, Any]) -> Scheme:
    return _scheme((_build_group((), _bytes(2)),))


def _mlx(settings: Mapping[str, Any]) -> Scheme:
    groups = [
        _build_group((name,), _words(bits_in(own), dense=True))
        for name, own in _entries(settings)
        if 0 < bits_in(own) <= 8
    ]
    return _scheme((_build_group((), _words(bits_in(settings), dense=True)), *groups))


def _exl2(settings: Mapping[str, Any]) -> Scheme:
    """Return the encoding of exl2. The bits differ between rows, and the configuration has their average."""
    bits = settings.get("bits")
    if not isinstance(bits, int | float) or isinstance(bits, bool) or not 1 <= bits <= MOST_BITS:
        return UNKNOWN
    return _scheme((_build_group((), {"I32": Fraction(32) / Fraction(bits).limit_denominator(1000)}),), apart=False)


READERS: Sequence[tuple[tuple[str, ...], Callable[[Mapping[str, Any]], Scheme]]] = (
    (("gptq", "awq", "auto-round", "autoround", "intel/auto-round", "auto_round", "marlin", "inc", "bitblas"), _gptq),
    (("bitsandbytes", "bnb"), _bitsandbytes),
    (("mxfp4",), _mxfp4),
    (("modelopt", "nvfp4", "petit_nvfp4"), _modelopt),
    (("mxfp8",), _mxfp8),
    (("fp8", "fbgemm_fp8", "ptpc_fp8"), _fp8),
    (("w8a8", "eetq", "smoothquant", "int8", "deepspeedfp"), _eight),
    (("compressed-tensors", "compressed_tensors"), _compressed),
    (("quark",), _quark),
    (("hqq",), _hqq),
    (("quanto",), _quanto),
    (("torchao",), _torchao),
    (("aqlm",), _aqlm),
    (("bitnet",), _bitnet),
    (("exl2",), _exl2),
)
"""Prefixes of method names -> the function that reads their configuration."""


def _reader_without_method(settings: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Scheme] | None:
    """Detect the method by fields that only one method has. Return None if no such field is set."""
    if any(settings.get(name) is True for name in ("load_in_4bit", "load_in_8bit")):
        return _bitsandbytes
    if isinstance(settings.get("config_groups"), Mapping):
        return _compressed
    if "quant_algo" in settings:
        return _modelopt
    if "desc_act" in settings:
        return _gptq
    return _mlx if "bits" in settings and "group_size" in settings else None


def _entries(value: Any) -> list[tuple[str, Mapping[str, Any]]]:
    if not isinstance(value, Mapping):
        return []
    return [(key, own) for key, own in list(value.items())[:MOST_GROUPS] if isinstance(own, Mapping)]


def _targets(value: Any) -> tuple[str, ...] | None:
    """Return the names and wildcard patterns of the modules in a compressed-tensors group, or None if a regular
    expression is not supported. Ignore the names of layer classes, which include all layers."""
    patterns: list[str] = []
    for one in value[:MOST_GROUPS] if isinstance(value, list) else ():
        if not isinstance(one, str):
            continue
        if one.startswith("re:"):
            wildcards = name_patterns.wildcards(one[3:])
            if wildcards is None:
                return None
            patterns += wildcards
        elif one[:1].islower():
            patterns.append(one)
    return tuple(patterns)


def _word(value: Any) -> str:
    return value.strip().lower()[:64] if isinstance(value, str) else ""


def _begins(method: str, names: Sequence[str]) -> bool:
    return bool(method) and method.startswith(tuple(names))
