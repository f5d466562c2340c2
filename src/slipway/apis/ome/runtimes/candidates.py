"""Candidates: ServingRuntimes and ClusterServingRuntimes, parsed for the selection. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec

from slipway.apis.ome import names
from slipway.apis.ome.types.model import DiffusionPipelineSpec, ModelFormat
from slipway.apis.ome.types.runtime import AcceleratorRequirements, ModelSizeRangeSpec
from slipway.decoding import describe_error
from slipway.kube.objects import Object, key
from slipway.serving.contract.api import Reference

NOTHING = ModelFormat(name="")
FORMAT_WEIGHT, FRAMEWORK_WEIGHT = 10, 5
"""Default weights of an entry's format and framework. They apply if the runtime sets no weight, or 0."""
SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)([KMBT]?)", re.IGNORECASE | re.ASCII)
UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a runtime's ``supportedModelFormats``."""

    format: ModelFormat
    framework: ModelFormat = NOTHING
    architecture: str = ""
    quantization: str = ""
    diffusion: Mapping[str, Any] | None = None
    """The required diffusion pipeline, in the form of a model's spec. Parts that are None match any pipeline, and empty
    fields of a part match any value. None if the entry requires no pipeline."""
    auto_select: bool | None = None
    """Whether the entry takes part in automatic selection. None means that it does so only if another entry of the
    runtime has True."""
    priority: int = 1

    @property
    def score(self) -> int:
        """Score of the runtime if the entry matches the model."""
        weight = self.format.weight or FORMAT_WEIGHT
        if self.framework.name:
            weight += self.framework.weight or FRAMEWORK_WEIGHT
        return self.priority * weight


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed runtime, cached for all selections."""

    reference: Reference
    entries: tuple[Entry, ...]
    """The runtime's entries that name a format. Entries that are excluded from automatic selection come last, and
    otherwise entries with higher scores come first."""
    smallest: int | None
    """Minimum number of parameters of a model, or None for no limit. ``largest`` is the maximum in the same form."""
    largest: int | None
    size_range: str
    """The size limits in words, such as ``7B to 13B``. Empty if the runtime has none."""
    disabled: bool
    protocols: frozenset[str]
    classes: frozenset[str]
    """Names of the accelerator classes that the runtime supports."""

    @property
    def is_selectable(self) -> bool:
        """Whether any entry explicitly takes part in automatic selection."""
        return any(entry.auto_select for entry in self.entries)


class InvalidRuntime(msgspec.Struct, frozen=True):
    """A runtime that cannot be parsed."""

    reference: Reference
    message: str
    """Reason in the form that follows the runtime's name in a message, such as ``cannot be read: ...``."""


class _Format(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of a SupportedModelFormat that a selection uses. Format and framework are optional, because a runtime
    may be older than the CRD that requires them."""

    model_format: ModelFormat | None = None
    model_framework: ModelFormat | None = None
    model_architecture: str | None = None
    quantization: str | None = None
    diffusion_pipeline: DiffusionPipelineSpec | None = None
    auto_select: bool | None = None
    priority: int | None = None


class _Spec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of a runtime's spec that a selection uses. Errors in other fields are reported by the services that
    use the runtime."""

    supported_model_formats: tuple[_Format, ...] | None = None
    model_size_range: ModelSizeRangeSpec | None = None
    disabled: bool | None = None
    protocol_versions: tuple[str, ...] | None = None
    accelerator_requirements: AcceleratorRequirements | None = None


class _IdentityKey:
    """A cache key that is equal only to keys of the identical object. A changed object is a new object, and therefore a
    new key."""

    __slots__ = ("object",)

    def __init__(self, object_: Object) -> None:
        self.object = object_

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _IdentityKey) and self.object is other.object

    def __hash__(self) -> int:
        return id(self.object)


def candidate(runtime: Object) -> Candidate | InvalidRuntime:
    """Parse a ServingRuntime or a ClusterServingRuntime. Return an InvalidRuntime instead of raising an error if the
    runtime is invalid."""
    return _parse_cached(_IdentityKey(runtime))


def parse_size(text: str) -> int:
    """Parse a model size such as ``7B``, ``1.5b``, ``350M``, ``20K`` or ``1000``, and return the number of parameters.
    Raise ValueError for any other string."""
    match = SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:32]!r} is not a size such as 7B or 350M")
    return int(Decimal(match[1]) * UNITS[match[2].upper()])


def covers(entry: Mapping[str, Any], pipeline: Mapping[str, Any] | None) -> bool:
    """Whether a model's diffusion pipeline has every part that an entry requires, with the required values. Always
    False if the model has no pipeline."""
    if pipeline is None:
        return False
    for name, requirement in entry.items():
        component = pipeline.get(name)
        if isinstance(requirement, Mapping):
            if not covers(requirement, component if isinstance(component, Mapping) else None):
                return False
        elif requirement and requirement != component:
            return False
    return True


def _parse_runtime(identity: _IdentityKey) -> Candidate | InvalidRuntime:
    runtime = identity.object
    namespace, name = key(runtime)
    reference = Reference(names.SERVING_RUNTIME if namespace else names.CLUSTER_SERVING_RUNTIME, namespace, name)
    try:
        spec = msgspec.convert(runtime.get("spec") or {}, _Spec)
        bounds = spec.model_size_range or ModelSizeRangeSpec()
        smallest, largest = _bound("min", bounds.min), _bound("max", bounds.max)
    except ValueError as error:  # msgspec's errors are also ValueErrors
        return InvalidRuntime(reference, f"cannot be read: {describe_error(error)}")
    entries = [_entry(one, one.model_format) for one in spec.supported_model_formats or () if one.model_format]
    requirements = spec.accelerator_requirements or AcceleratorRequirements()
    return Candidate(
        reference=reference,
        entries=tuple(sorted(entries, key=lambda entry: (entry.auto_select is False, -entry.score))),
        smallest=smallest,
        largest=largest,
        size_range=_describe_range(bounds.min, bounds.max),
        disabled=bool(spec.disabled),
        protocols=frozenset(spec.protocol_versions or ()),
        classes=frozenset(requirements.accelerator_classes),
    )


_parse_cached = lru_cache(maxsize=1024)(_parse_runtime)


def _entry(one: _Format, format_: ModelFormat) -> Entry:
    return Entry(
        format=format_,
        framework=one.model_framework or NOTHING,
        architecture=one.model_architecture or "",
        quantization=one.quantization or "",
        diffusion=msgspec.to_builtins(one.diffusion_pipeline) if one.diffusion_pipeline else None,
        auto_select=one.auto_select,
        priority=one.priority or 1,
    )


def _bound(field: str, text: str | None) -> int | None:
    try:
        return parse_size(text) if text else None
    except ValueError as error:
        raise ValueError(f"modelSizeRange.{field} {error}") from error


def _describe_range(smallest: str | None, largest: str | None) -> str:
    if smallest and largest:
        return f"{smallest} to {largest}"
    return f"{smallest} and more" if smallest else f"{largest} and less" if largest else ""
