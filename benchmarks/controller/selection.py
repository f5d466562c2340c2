"""What it costs to select a runtime for each of 1,000 OME models among 200 runtimes, with the table of reasons where
none fits, beside a straight translation of the original's selection.

    PYTHONPATH=src python benchmarks/controller/selection.py

The original reads each runtime anew for each model, parses every version at each comparison, and words a reason for
every pair; the translation does the same. Half of the models have a runtime, the other half have none. The milliseconds
are a processor's, of the best of several rounds. What counts is their ratio.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable, Sequence

import msgspec

from slipway.apis.ome.runtimes.candidates import candidate, parse_size
from slipway.apis.ome.runtimes.selection import excluded_status, facts, runtime_status, select
from slipway.apis.ome.runtimes.versions import GREATER, GREATER_OR_EQUAL, parse
from slipway.apis.ome.types.model import BaseModelSpec, ModelFormat
from slipway.apis.ome.types.runtime import ServingRuntimeSpec, SupportedModelFormat
from slipway.kube.objects import Object

MODELS, RUNTIMES = 1000, 200
MOST_SECONDS = 0.5
ROUNDS = 5
ARCHITECTURES = [f"{name}ForCausalLM" for name in ("Llama", "Qwen2", "Qwen3", "Mistral", "Mixtral", "Gemma2", "Phi3")]


def described(number: int) -> Object:
    """What models and runtimes say alike."""
    return {
        "modelFormat": {"name": "safetensors", "version": "1.0.0"},
        "modelFramework": {"name": "transformers", "version": f"4.{number % 12 + 40}.0"},
        "modelArchitecture": ARCHITECTURES[number % len(ARCHITECTURES)],
    }


def runtime(number: int) -> Object:
    entry = {**described(number), "autoSelect": True, "priority": 1 + number % 3}
    least = number % 8
    spec = {"supportedModelFormats": [entry], "modelSizeRange": {"min": f"{least}B", "max": f"{least + 4}B"}}
    return {"metadata": {"name": f"runtime-{number}"}, "spec": spec}


def model(number: int) -> BaseModelSpec:
    size = {"modelParameterSize": f"{number % 8 + 2}.03B"}
    odd = {"quantization": "fp8"} if number % 2 else {}
    spec = {"storage": {"storageUri": "hf://a/b"}, **described(number), **size, **odd}
    return msgspec.convert(spec, BaseModelSpec)


def ours(models: Sequence[BaseModelSpec], runtimes: Sequence[Object]) -> list[str]:
    """The runtime of each model; empty: none."""
    chosen = []
    for one in models:
        selection = select(facts(one), [candidate(runtime) for runtime in runtimes])
        chosen.append((runtime_status(selection) or {}).get("name", ""))
        assert chosen[-1] or len(excluded_status(selection)) == 50
    return chosen


def theirs(models: Sequence[BaseModelSpec], runtimes: Sequence[Object]) -> list[str]:
    """The same as the original does it."""
    chosen = []
    for one in models:
        fitting, reasons = [], []
        for each in runtimes:
            spec = msgspec.convert(each["spec"], ServingRuntimeSpec)
            reason = _misfit(one, spec)
            if reason:
                reasons.append(f"{each['metadata']['name']} ({reason})")
            else:
                fitting.append((-_score(spec), _distance(one, spec), each["metadata"]["name"]))
        chosen.append(min(fitting)[2] if fitting else "")
        assert chosen[-1] or "; ".join(reasons)
    return chosen


def _misfit(model: BaseModelSpec, runtime: ServingRuntimeSpec) -> str:
    reasons = [_entry_misfit(model, entry) for entry in runtime.supported_model_formats]
    if all(reasons):
        return f"model format {_label(model)!r} not in supported formats: {'; '.join(reasons)}"
    if model.model_parameter_size and runtime.model_size_range:
        least, most = runtime.model_size_range.min or "0", runtime.model_size_range.max or "0"
        if not parse_size(least) <= parse_size(model.model_parameter_size) <= parse_size(most):
            return f"model size {model.model_parameter_size} is outside supported range [{least}, {most}]"
    return ""


def _entry_misfit(model: BaseModelSpec, entry: SupportedModelFormat) -> str:
    if model.model_architecture != entry.model_architecture:
        return f"architecture mismatch (model={model.model_architecture}, runtime={entry.model_architecture})"
    if model.quantization != entry.quantization:
        return f"quantization mismatch (model={model.quantization}, runtime={entry.quantization})"
    for what, required, had in (
        ("format", entry.model_format, model.model_format),
        ("framework", entry.model_framework, model.model_framework),
    ):
        if had is None or required.name != had.name or not _agree(required, had):
            return f"{what} mismatch (model={had}, runtime={required})"
    return ""


def _agree(required: ModelFormat, had: ModelFormat) -> bool:
    if not required.version or not had.version:
        return not required.version and not had.version
    ours, theirs = parse(required.version), parse(had.version)
    if required.operator == GREATER:
        return ours.release > theirs.release
    if required.operator == GREATER_OR_EQUAL:
        return ours.release >= theirs.release
    return ours.identity == theirs.identity


def _label(model: BaseModelSpec) -> str:
    named = [
        part for one in (model.model_format, model.model_framework) if one for part in (one.name, one.version or "")
    ]
    return ":".join(["mt", *named, model.model_architecture or "", model.quantization or ""])


def _score(runtime: ServingRuntimeSpec) -> int:
    return max(
        (one.priority or 1) * (one.model_format.weight + one.model_framework.weight)
        for one in runtime.supported_model_formats
    )


def _distance(model: BaseModelSpec, runtime: ServingRuntimeSpec) -> int:
    if not model.model_parameter_size or not runtime.model_size_range:
        return 0
    size, bounds = parse_size(model.model_parameter_size), runtime.model_size_range
    return sum(abs(parse_size(bound) - size) for bound in (bounds.min, bounds.max) if bound)


def seconds(contestant: Callable[[Sequence[BaseModelSpec], Sequence[Object]], list[str]], rounds: int) -> float:
    """The best round, each of which sees its runtimes for the first time."""
    models = [model(number) for number in range(MODELS)]
    best = float("inf")
    for _unused in range(rounds):
        runtimes = copy.deepcopy([runtime(number) for number in range(RUNTIMES)])
        begun = time.process_time()
        contestant(models, runtimes)
        best = min(best, time.process_time() - begun)
    return best


def main() -> int:
    models, runtimes = [model(number) for number in range(MODELS)], [runtime(number) for number in range(RUNTIMES)]
    chosen = ours(models, runtimes)
    assert chosen == theirs(models, runtimes)
    print(f"{MODELS} models, {sum(map(bool, chosen))} of them with a runtime, {RUNTIMES} runtimes")
    took, peer = seconds(ours, ROUNDS), seconds(theirs, 2)
    print(f"ours {took * 1000:.0f} ms, a translation of the original's {peer * 1000:.0f} ms: {peer / took:.1f} times")
    return int(took > MOST_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
