"""The ranks of an engine: processes that each need a GPU of its pod. Pure.

The number of ranks is the product of the sizes of several kinds of parallelism. The command line sets these sizes, from
the API's settings or the author's arguments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from slipway.engines.definition.engine import Launch
from slipway.engines.definition.flags import flag_names


class Axis(NamedTuple):
    """One kind of parallelism."""

    flags: tuple[str, ...]
    field: str = ""
    """Path of the field in the spec; empty: there is none."""


TENSOR = "tensor_parallel_size"
AXES: Mapping[str, Sequence[Axis]] = {
    "vllm": (
        Axis(("--tensor-parallel-size", "-tp"), "vllmConfig.tensorParallelSize"),
        Axis(("--pipeline-parallel-size", "-pp")),
        Axis(("--data-parallel-size", "-dp")),
    ),
    "sglang": (
        Axis(("--tp-size", "--tp", "--tensor-parallel-size"), "sglangConfig.tensorParallelSize"),
        Axis(("--dp-size", "--dp", "--data-parallel-size"), "sglangConfig.dataParallelSize"),
        Axis(("--pp-size", "--pp", "--pipeline-parallel-size")),
    ),
    "tgi": (Axis(("--num-shard",)),),
}
"""Runtime -> the kinds of parallelism whose sizes are multiplied, tensor parallelism first."""
EXPERTS = Axis(("--ep-size", "--ep", "--expert-parallel-size"), "sglangConfig.expertParallelSize")
"""Expert parallelism. It distributes experts over the ranks of tensor parallelism, so it adds no ranks."""
WITHIN = {"--dp-size": "--enable-dp-attention"}
"""First flag of a kind of parallelism -> the flag that makes its ranks part of tensor parallelism."""
PLACES = ("spec.vllmConfig.", "spec.sglangConfig.", "spec.extraArgs -")
"""Prefixes of the messages with which a service is rejected for its number of ranks."""
ELSEWHERE = frozenset(
    (
        *("--nnodes", "-n", "--data-parallel-size-local", "-dpl", "--data-parallel-address", "-dpa"),
        *("--data-parallel-rank", "-dpn", "--data-parallel-start-rank", "-dpr"),
        *("--data-parallel-hybrid-lb", "-dph", "--data-parallel-external-lb", "-dpe"),
    )
)
"""Flags that place some of the ranks in other pods."""
BACKENDS = frozenset(("--distributed-executor-backend", "--data-parallel-backend", "-dpb"))
"""Flags that place ranks in other pods if their value is ``ray``."""


def fault(runtime: str, args: Sequence[str], extra: Sequence[str], gpus: int) -> str | None:
    """Return the reason why a pod has too few GPUs for the command line ``args`` of an engine. Return None if it has
    enough, or if that is unknown. ``extra`` contains the author's own arguments."""
    flags = flag_names(args)
    if not gpus or flags & ELSEWHERE or any(flag in BACKENDS and text == "ray" for flag, text in _pairs(args)):
        return None
    sizes = {_name(axis, extra): size for axis in _axes(runtime, flags) if (size := value(args, axis.flags)) > 1}
    if runtime == "sglang" and (experts := value(args, EXPERTS.flags)) > gpus:
        sizes = {_name(EXPERTS, extra): experts}
    ranks = math.prod(sizes.values())
    if ranks <= gpus:
        return None
    first, *others = (f"{name} {size}" for name, size in sizes.items())
    need = f"need {ranks} GPUs in total, and a pod has {gpus}" if others else f"is more than the {gpus} GPUs of a pod"
    return f"{' and '.join((first, *others))} {need}. Lower {'one' if others else 'it'}, or request more GPUs"


def tensor(runtime: str, launch: Launch) -> int:
    """Return the default size of tensor parallelism: the pod's GPUs divided by the sizes of the other kinds. Return 0
    without GPUs."""
    flags = flag_names(launch.extra_args)
    settings = {"sglang": {"--dp-size": launch.settings.get("data_parallel_size", 1)}}.get(runtime, {})
    others = (
        value(launch.extra_args, axis.flags, settings.get(axis.flags[0], 1)) for axis in _axes(runtime, flags)[1:]
    )
    return max(launch.gpus // math.prod(others), 1) if launch.gpus else 0


def value(args: Sequence[str], flags: Sequence[str], usual: object = 1) -> int:
    """Return the value of the last flag in ``args`` that is one of ``flags``, or else ``usual``. An invalid value
    counts as 1."""
    for flag, argument in reversed(list(_pairs(args))):
        if flag in flags:
            usual = argument
            break
    text = str(usual)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 and int(text) else 1


def _pairs(args: Sequence[str]) -> list[tuple[str, str]]:
    following = (*args, "")[1:]
    pairs = []
    for arg, after in zip(args, following, strict=True):
        flag, equals, text = arg.partition("=")
        flag = flag.replace("_", "-") if flag.startswith("--") else flag
        if arg.startswith("-"):
            pairs.append((flag, text if equals else after))
    return pairs


def _axes(runtime: str, flags: frozenset[str]) -> list[Axis]:
    axes = AXES.get(runtime, ())
    return [axis for axis in axes if WITHIN.get(axis.flags[0]) not in flags]


def _name(axis: Axis, extra: Sequence[str]) -> str:
    """Return the name of an axis for messages: the flag that the author used, otherwise the field of the spec."""
    own = next((flag for flag in axis.flags if flag in flag_names(extra)), "")
    return f"extraArgs {own}" if own or not axis.field else axis.field
