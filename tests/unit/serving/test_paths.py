"""The table of paths, and what engines say of it."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.engines import ENGINES
from slipway.engines.definition.engine import Engine
from slipway.serving.pods.server import Container
from slipway.serving.routing import paths


def test_each_path_has_a_number_of_its_own_that_tells_its_kind() -> None:
    assert len(set(paths.BITS.values())) == len(paths.PATHS) + 2
    for one in paths.PATHS:
        assert one.form == (paths.BITS[one.path] >= paths.FIRST_FORM)
        assert one.anthropic == (paths.BITS[one.path] < paths.FIRST_OPENAI)


def test_undeclared_paths_are_unknown_unless_no_path_is_declared() -> None:
    assert paths.unknown(paths.NAMES) == paths.unknown(()) == 0
    assert paths.unknown(paths.all_but("/tokenize", "/v1/score")) == paths.BITS["/tokenize"] | paths.BITS["/v1/score"]
    assert paths.unknown(["/of/a/later/release"]) == sum(paths.BITS.values())


@pytest.mark.parametrize("engine", ENGINES.values(), ids=lambda engine: engine.name)
def test_engines_declare_paths_that_there_are_and_one_for_each_of_their_tasks(engine: Engine) -> None:
    assert set(engine.paths) <= set(paths.NAMES)
    if engine.paths:
        first = {
            "generate": "/v1/chat/completions",
            "embed": "/v1/embeddings",
            "rerank": "/v1/rerank",
            "transcribe": "/v1/audio/transcriptions",
        }
        assert {first[task] for task in engine.tasks} <= set(engine.paths)


def test_an_engine_of_which_the_user_replaced_something_declares_nothing() -> None:
    container = Container(name="engine", image="an:image")
    assert ENGINES["vllm"].paths_of(container, "") == ENGINES["vllm"].paths != ()
    assert ENGINES["vllm"].paths_of(container, "registry.example/mine:1") == ()


@pytest.mark.parametrize(
    ("settings", "served"),
    [
        ({}, set()),
        ({"args": ("--alias", "--embeddings-of-mine", "--ctx-size=512")}, set()),
        ({"args": ("--embedding",)}, {"/v1/embeddings"}),
        ({"args": ("--embeddings", "--pooling", "rank")}, {"/v1/embeddings", "/v1/rerank"}),
        ({"args": ("--reranking",)}, {"/v1/embeddings", "/v1/rerank"}),
        ({"env": ({"name": "LLAMA_ARG_EMBEDDINGS", "value": "1"},)}, {"/v1/embeddings"}),
        ({"env": ({"name": "LLAMA_ARG_RERANKING", "value": "1"},)}, {"/v1/embeddings", "/v1/rerank"}),
        ({"env_from": ({"secretRef": {"name": "unknown"}},)}, {"/v1/embeddings", "/v1/rerank"}),
    ],
)
def test_llamacpp_serves_embeddings_and_rankings_only_if_they_are_enabled(
    settings: dict[str, Any], served: set[str]
) -> None:
    paths_of_container = ENGINES["llamacpp"].paths_of(Container(name="llama-server", image="an:image", **settings))
    assert set(paths_of_container) & {"/v1/embeddings", "/v1/rerank"} == served
    assert "/v1/chat/completions" in paths_of_container


@pytest.mark.parametrize("engine", ENGINES.values(), ids=lambda engine: engine.name)
def test_only_declared_paths_are_optional(engine: Engine) -> None:
    assert set(engine.optional_paths) <= set(engine.paths)
