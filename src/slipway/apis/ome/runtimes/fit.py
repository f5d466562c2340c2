"""Fit: the mismatches between a runtime and a model, as a number for sorting and as text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from slipway.apis.ome.runtimes.candidates import NOTHING, Candidate, Entry, covers, parse_size
from slipway.apis.ome.runtimes.versions import GREATER, GREATER_OR_EQUAL, agrees
from slipway.apis.ome.types.model import QUANTIZATIONS, ModelFormat
from slipway.artifacts.facts.config import ModelFacts, VersionedName

# The reasons why a runtime does not fit, least important first. A runtime with a smaller sum is closer to fitting.
NOT_OFFERED, DISABLED, CLASSES, SIZES, FRAMEWORK_VERSION, FORMAT_VERSION = 1, 2, 4, 8, 16, 32
QUANTIZATION, ARCHITECTURE, FRAMEWORK, FORMAT, DIFFUSION, NO_ENTRY = 64, 128, 256, 512, 1024, 2048


class Match(NamedTuple):
    """The result of comparing a runtime with a model."""

    gaps: int
    """Sum of the mismatches, such as ``SIZES + DISABLED``. 0 means that the runtime fits."""
    candidate: Candidate
    entry: Entry | None
    """The runtime's entry that matches the model best. None if the runtime lists no model format."""
    score: int


class Matcher:
    """Comparison of one model with any number of runtimes. The model's fields are parsed only once."""

    def __init__(self, model: ModelFacts, classes: frozenset[str]) -> None:
        self.model, self.classes = model, classes
        self.format, self.framework = model.format or VersionedName(""), model.framework or VersionedName("")
        self.size, self.size_fault = None, ""
        try:
            self.size = parse_size(model.parameter_size) if model.parameter_size else None
        except ValueError as error:
            self.size_fault = str(error)

    def match(self, candidate: Candidate) -> Match:
        """Compare a runtime with the model. If no entry has the model's format, framework, architecture and diffusion
        pipeline, the score is 0, and nothing else is compared."""
        gaps, closest = NO_ENTRY, None
        for entry in candidate.entries:
            entry_gaps = self._gaps(entry)
            if entry_gaps < gaps:
                gaps, closest = entry_gaps, entry
                if not entry_gaps:
                    break
        if gaps >= ARCHITECTURE:
            return Match(gaps, candidate, closest, 0)
        score = closest.score if closest and not gaps else 0
        if not self._fits_size(candidate):
            gaps |= SIZES
        if not self.classes <= candidate.classes:
            gaps |= CLASSES
        if candidate.disabled:
            gaps |= DISABLED
        if not gaps and not (candidate.is_selectable and closest and closest.auto_select is not False and score > 0):
            gaps = NOT_OFFERED
        return Match(gaps, candidate, closest, score)

    def _gaps(self, entry: Entry) -> int:
        gaps, model = 0, self.model
        if entry.architecture != model.architecture:
            gaps |= ARCHITECTURE
        if entry.format.name != self.format.name:
            gaps |= FORMAT
        if entry.framework.name != self.framework.name:
            gaps |= FRAMEWORK
        if entry.diffusion is not None and not covers(entry.diffusion, model.diffusion_pipeline):
            gaps |= DIFFUSION
        if gaps:
            return gaps
        # In OME, a runtime cannot name any other quantization, so an unknown one does not rule it out.
        quantization = model.quantization if model.quantization in QUANTIZATIONS else ""
        if entry.quantization not in (model.quantization, quantization):
            gaps |= QUANTIZATION
        if not agrees(entry.format.version, self.format.version, entry.format.operator):
            gaps |= FORMAT_VERSION
        if not agrees(entry.framework.version, self.framework.version, entry.framework.operator):
            gaps |= FRAMEWORK_VERSION
        return gaps

    def _fits_size(self, candidate: Candidate) -> bool:
        if not (candidate.size_range and self.model.parameter_size):
            return True
        smallest, largest = candidate.smallest, candidate.largest
        return self.size is not None and (smallest or 0) <= self.size and (largest is None or self.size <= largest)

    def order(self, match: Match) -> tuple[Any, ...]:
        """Return the sort key of a runtime that fits, best runtime first. As in OME, namespaced runtimes come first,
        then runtimes with a higher score, then runtimes whose size limits are closer to the model's size, and then the
        names. The distance to a missing limit counts as 0."""
        one, size = match.candidate, self.size
        bounds = [bound for bound in (one.smallest, one.largest) if size is not None and bound is not None]
        distance = sum(abs(bound - (size or 0)) for bound in bounds)
        return not one.reference.kind.namespaced, -match.score, distance, one.reference.name

    def reasons(self, match: Match) -> tuple[str, ...]:
        """Return all reasons why the runtime does not fit the model, most important first. The tuple is empty if the
        runtime fits."""
        return tuple(
            word(self, match.candidate, match.entry or Entry(format=NOTHING))
            for gap, word in REASONS
            if match.gaps & gap
        )

    def describe_size(self) -> str:
        """Return a description of the model's size, for the end of a message about a size range."""
        return (
            f"but the model's {self.size_fault}"
            if self.size_fault
            else f"the model has {self.model.parameter_size:.64}"
        )


def _describe_mismatch(what: str, runtimes: str, models: str) -> str:
    ours = f"it is for the {what} {runtimes:.64}" if runtimes else f"it is for models without {what}"
    return f"{ours}, the model's is {models:.64}" if models else f"{ours}, the model has none"


def _other_version(entry: ModelFormat, model: VersionedName) -> str:
    relation = {GREATER: "before ", GREATER_OR_EQUAL: "up to "}.get(entry.operator, "")
    ours = f"{relation}{entry.version:.64}" if entry.version else "no version"
    return f"it is for {ours} of {entry.name:.64}, the model's is {model.version or 'not said':.64}"


REASONS: Sequence[tuple[int, Callable[[Matcher, Candidate, Entry], str]]] = (
    (NO_ENTRY, lambda *_: "it lists no model format"),
    (DIFFUSION, lambda *_: "it is for another diffusion pipeline"),
    (FORMAT, lambda request, _, entry: _describe_mismatch("format", entry.format.name, request.format.name)),
    (
        FRAMEWORK,
        lambda request, _, entry: _describe_mismatch("framework", entry.framework.name, request.framework.name),
    ),
    (
        ARCHITECTURE,
        lambda request, _, entry: _describe_mismatch("architecture", entry.architecture, request.model.architecture),
    ),
    (
        QUANTIZATION,
        lambda request, _, entry: _describe_mismatch("quantization", entry.quantization, request.model.quantization),
    ),
    (FORMAT_VERSION, lambda request, _, entry: _other_version(entry.format, request.format)),
    (FRAMEWORK_VERSION, lambda request, _, entry: _other_version(entry.framework, request.framework)),
    (SIZES, lambda request, one, _: f"it is for models of {one.size_range}, {request.describe_size()}"),
    (
        CLASSES,
        lambda request, one, _: f"it does not list the accelerator class {min(request.classes - one.classes):.64}",
    ),
    (DISABLED, lambda *_: "it is disabled"),
    (NOT_OFFERED, lambda *_: "it matches, but is not for automatic selection: set it in spec.runtime"),
)
"""Mismatch -> function that returns its text for messages, most important mismatch first."""
