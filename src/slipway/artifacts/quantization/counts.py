"""Quantization: counts the weights in a model's tensors, by the encoding of each group of tensors. Pure.

Scales, zero points and lookup tables are not weights. The names of their tensors identify them, and often the types.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import msgspec

from slipway.artifacts.quantization import name_patterns
from slipway.artifacts.quantization.tensor_names import is_auxiliary, module_of

Rates = Mapping[str, Fraction]
"""Tensor type -> number of weights per value."""
Shapes = Mapping[str, tuple[str, Sequence[int]]]
"""Tensor name -> type and shape."""
FLOATS = frozenset(("F64", "F32", "F16", "BF16", "C64"))
FP8 = ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
POWERS = "F8_E8M0"
"""The type for powers of two, which are always scales."""
SMALL = frozenset((*FP8, "F4", "F6_E2M3", "F6_E3M2"))
OTHERS = frozenset(("I64", "U64", "BOOL"))
"""Types of indexes and masks, which also occur in unquantized models."""
MOST_PARTS, MOST_PATTERNS = 32, 128
"""Maximum number of components of a module name to compare, and of patterns in all groups."""
MOST_PARAMETERS = (1 << 63) - 1
FEW = 1000
"""One value in this many may have an unknown type, because buffers may have one."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A group of modules whose weights have the same encoding."""

    rates: Rates
    scales: Mapping[str, Fraction] = {}
    """Scale type -> number of scales per weight; empty if the format does not define the number."""
    names: frozenset[str] = frozenset()
    """Names of the group's modules, or suffixes of the names after a dot."""
    patterns: tuple[str, ...] = ()
    """Wildcard patterns for the names of the group's modules."""
    rest: bool = False
    """Whether the group may contain any module that no other group names."""

    def has(self, module: str) -> bool:
        """Whether a name or a pattern of the group matches a module."""
        parts = module.split(".")[-MOST_PARTS:]
        ends = (".".join(parts[start:]) for start in range(len(parts)))
        return (bool(self.names) and any(end in self.names for end in ends)) or name_patterns.matches_any(
            module, self.patterns
        )


class Scheme(msgspec.Struct, frozen=True, kw_only=True):
    """The quantization of a model: the encoding of each group of modules."""

    groups: tuple[Group, ...] = ()
    """Groups with different encodings; empty if the quantization is unknown."""
    apart: bool = True
    """Whether zero points and scales never have a type of quantized weights, so that types alone distinguish them."""

    def rate(self, module: str, type_: str) -> Fraction | None:
        """Return the number of weights per value of a tensor, or None if it is unknown."""
        own = [group for group in self.groups if group.has(module)]
        return _common_rate(group.rates.get(type_) for group in own or [group for group in self.groups if group.rest])


def merged(groups: Iterable[Group]) -> tuple[Group, ...]:
    """Merge groups with the same encoding, because a configuration may list thousands of layers. If there are too many
    patterns, remove them all and let every group contain any module."""
    by_encoding: dict[tuple[object, ...], list[Group]] = {}
    for group in groups:
        by_encoding.setdefault((*sorted(group.rates.items()), *sorted(group.scales.items()), group.rest), []).append(
            group
        )
    together = [
        msgspec.structs.replace(
            same[0],
            names=frozenset().union(*(one.names for one in same)),
            patterns=tuple(dict.fromkeys(pattern for one in same for pattern in one.patterns)),
        )
        for same in by_encoding.values()
    ]
    if sum(len(group.patterns) for group in together) <= MOST_PATTERNS:
        return tuple(together)
    return tuple(msgspec.structs.replace(group, patterns=(), rest=True) for group in together)


class ParameterCount(msgspec.Struct, frozen=True):
    """The number of parameters of a model, and its accuracy."""

    parameters: int
    exact: bool
    complete: bool = True
    """Whether the encoding of the tensors is known, except for at most one weight in ``FEW``. A value of unknown
    encoding counts as one weight."""


UNKNOWN = Scheme()


def by_names(scheme: Scheme, tensors: Shapes) -> ParameterCount:
    """Count the parameters in all tensors of a quantized model, by the names, types and shapes of the tensors."""
    total, odd = Fraction(0), 0
    for name, (type_, shape) in tensors.items():
        if not is_auxiliary(name) and type_ != POWERS:
            rate = _rate_of(scheme, name, type_, shape, tensors)
            total += math.prod(shape) * (1 if rate is None else rate)
            odd += math.prod(shape) if rate is None else 0
    complete = odd * FEW <= total
    return _limit_count(total, exact=complete, complete=complete)


def by_types(scheme: Scheme | None, tensors: Mapping[str, int]) -> ParameterCount:
    """Count the parameters if only the number of values per tensor type is known. ``scheme`` is None for an
    unquantized model."""
    if scheme is None:
        numbers, odd = sum(tensors.values()), sum(count for type_, count in tensors.items() if _may_hold_several(type_))
        few = odd * FEW <= numbers
        return ParameterCount(numbers, exact=few, complete=few)
    total, packed, exact, odd = Fraction(0), Fraction(0), scheme.apart, 0
    scales = {type_: share for group in scheme.groups for type_, share in group.scales.items()}
    for type_, count in tensors.items():
        rates = {group.rates[type_] for group in scheme.groups if type_ in group.rates}
        if type_ in FLOATS or type_ in OTHERS:
            rates = {Fraction(1)}
        elif type_ in scales and rates and max(rates) > 1:
            rates = {1 / (1 / max(rates) + scales[type_])}  # blocks and their scales have one type
        elif type_ in scales or type_ == POWERS:
            continue
        total += count * max(rates, default=Fraction(1))
        packed += count * max(rates, default=Fraction(0)) if type_ not in FLOATS else 0
        exact, odd = exact and len(rates) <= 1, odd + (0 if rates else count)
    complete = odd * FEW <= total
    for type_, share in scales.items():
        if any(group.rates.get(type_) == 1 for group in scheme.groups) and type_ in tensors:
            # The type is used for scales of one group and weights of another.
            total, exact = total + max(Fraction(0), tensors[type_] - packed * share), False
    return _limit_count(total, exact=exact and complete, complete=complete)


def _limit_count(total: Fraction, *, exact: bool, complete: bool) -> ParameterCount:
    """Limit the number of parameters to the maximum in a report, and mark a larger number as inexact."""
    return ParameterCount(min(int(total), MOST_PARAMETERS), exact=exact and total <= MOST_PARAMETERS, complete=complete)


def _rate_of(scheme: Scheme, name: str, type_: str, shape: Sequence[int], tensors: Shapes) -> Fraction | None:
    module, leaf = module_of(name), name.rpartition(".")[2]
    if leaf == "q_weight" and f"{module}.q_invperm" in tensors and shape:  # exl2: bits differ between rows
        return Fraction(math.prod(tensors[f"{module}.q_invperm"][1]) * shape[-1], max(1, math.prod(shape)))
    if leaf == "trellis" and len(shape) == 3:  # exl3: tiles of 16 by 16 weights
        return Fraction(256, max(1, shape[2]))
    if f"{name}.absmax" in tensors:  # bitsandbytes may store its bytes in values of any type
        return Fraction(tensor_bits(type_), 4)
    if type_ in FLOATS or type_ in SMALL or type_ in OTHERS:
        return Fraction(1)
    return scheme.rate(module, type_)


def tensor_bits(type_: str) -> int:
    """Return the number of bits of a tensor type; 8 for types without a number in their name."""
    digits = "".join(character for character in type_.partition("_")[0] if character.isdigit())
    return int(digits or 8)


def _may_hold_several(type_: str) -> bool:
    return type_ not in FLOATS and type_ not in OTHERS and type_ not in SMALL


def _common_rate(rates: Iterable[Fraction | None]) -> Fraction | None:
    different = set(rates)
    return different.pop() if len(different) == 1 else None
