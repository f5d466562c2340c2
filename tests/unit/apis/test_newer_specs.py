"""A definition of the original system may be newer than this version, and have words that it does not know."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from slipway.kube.objects import DEPLOYMENT, deleting
from slipway.serving.contract.api import Api, InvalidSpecError, World
from tests import worlds
from tests.tables import each

from .test_golden import EXAMPLES, GOLDEN, api_of, world_of

WORD = "NewerThanThis"


def texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all texts in a spec."""
    if isinstance(value, str):
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in items:
        yield from texts(one, (*path, name))


def with_word(world: World, path: tuple[Any, ...], word: str = WORD) -> World:
    resource = copy.deepcopy(world.resource)
    parent = resource["spec"]
    for name in path[:-1]:
        parent = parent[name]
    parent[path[-1]] = word
    return msgspec.structs.replace(world, resource=resource)


def rows() -> Iterator[tuple[str, Api[Any], World]]:
    """Every golden example, with each of its texts replaced."""
    for example in EXAMPLES:
        api, world = api_of(example), world_of(example)
        for path in texts(world.resource["spec"]):
            name = f"{example.parent.name}/{example.stem} {'.'.join(map(str, path))}"
            yield name, api, with_word(world, path)


@each(rows(), ids=lambda row: row[0])
def test_a_word_that_is_not_known_is_at_most_a_rejection(name: str, api: Api[Any], world: World) -> None:
    view = api.resolve(world)
    with contextlib.suppress(InvalidSpecError):
        api.finalize(view) if deleting(world.resource) else api.plan(view)
    api.scaling(view)
    assert api.status(view, None).status, name


KUBEAI = "Known engines: FasterWhisper, Infinity, LlamaCpp, OLlama, SGLang, VLLM"
LLMKUBE = "Known runtimes: generic, llamacpp, llamacpp-router, personaplex, sglang, tgi, vllm"


@pytest.mark.parametrize(
    ("example", "path", "word", "message", "is_known"),
    [
        ("kubeai/ready", "engine", "TensorRT", "engine 'TensorRT'.", KUBEAI),
        ("kubeai/ready", "engine", "VLMM", "engine 'VLMM'; did you mean VLLM?", KUBEAI),
        ("kubeai/ready", "engine", "x" * 300, f"engine '{'x' * 100}'.", KUBEAI),
        ("llmkube/ready", "runtime", "tensorrt", "runtime 'tensorrt'.", LLMKUBE),
        ("llmkube/ready", "runtime", "sglan", "runtime 'sglan'; did you mean sglang?", LLMKUBE),
    ],
)
def test_an_engine_that_is_not_known_is_rejected_with_the_known_ones(
    example: str, path: str, word: str, message: str, is_known: str
) -> None:
    file = GOLDEN / f"{example}.yaml"
    api, world = api_of(file), with_word(world_of(file), (path,), word)
    with pytest.raises(InvalidSpecError) as caught:
        worlds.plan(api, world)
    assert (caught.value.reason, caught.value.message) == (
        "InvalidSpec",
        f"spec.{path}: this version does not know the {message} {is_known}",
    )
    kept = any(kind == DEPLOYMENT for kind, _name in world.children)
    conditions = {one["type"]: one for one in worlds.status(api, world).status["conditions"]}
    assert kept
    assert conditions["Available"]["status"] == "True", "the pods of the last valid spec keep serving"
