"""Engines as LLMKube runs them: their typed settings, in which order, and what they leave to the user."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from slipway.apis.llmkube.rules.engines import ENGINES, tensor_split
from slipway.apis.llmkube.services import resolve, service
from slipway.artifacts.locations.weights import HubRepository, MountedFolder, Unnamed, Weights
from slipway.engines.definition.engine import Draft, Engine, Launch, Sharding
from slipway.engines.definition.flags import Value
from slipway.engines.programs.llamacpp import LLAMACPP

from .services import HUB as REPOSITORY
from .services import refusal

LLAMA, VLLM, SGLANG, TGI = (ENGINES[name] for name in ("llamacpp", "vllm", "sglang", "tgi"))
FILE, HUB = MountedFolder("/models/ab", "tiny.gguf"), HubRepository("acme/tiny", "v2")


def launch(weights: Weights, *extra: str, gpus: int = 0, settings: dict[str, Value] | None = None) -> Launch:
    return Launch(weights=weights, served_name="tiny", port=8080, extra_args=extra, gpus=gpus, settings=settings or {})


@pytest.mark.parametrize("engine", ENGINES.values(), ids=lambda engine: engine.name)
def test_a_table_names_each_setting_and_each_flag_once(engine: Engine) -> None:
    names = [row.name for row in engine.flags]
    spelled = [flag for row in engine.flags for flag in (row.flag, *row.short) if flag]
    assert len(set(names)) == len(names)
    assert len(set(spelled)) == len(spelled)
    assert all(re.fullmatch(r"--?[a-z0-9][a-z0-9-]*", flag) for flag in spelled)
    assert {row.needs for row in engine.flags} <= {"", *names}


def test_llama_cpp_has_its_model_first_and_its_metrics_last() -> None:
    args = LLAMA.args(launch(FILE, "--seed", "1", settings={"jinja": True}))
    assert args == (
        "--model", "/models/ab/tiny.gguf", "--host", "0.0.0.0", "--port", "8080", "--alias", "tiny",
        "--jinja", "--seed", "1", "--metrics",
    )  # fmt: skip


@pytest.mark.parametrize("engine", [LLAMA, VLLM, SGLANG, TGI], ids=lambda engine: engine.name)
def test_an_address_of_the_users_own_is_given_once(engine: Engine) -> None:
    flag = "--hostname" if engine is TGI else "--host"
    weights = FILE if engine is LLAMA else HUB
    assert engine.args(launch(weights, flag, "::")).count(flag) == 1
    assert engine.conflicting_args(launch(weights, flag, "::")) == ()
    assert engine.conflicting_args(launch(weights, flag, "127.0.0.1", "--port=1")) == (flag, "--port")


def test_llama_cpp_takes_a_name_and_metrics_of_the_users_own() -> None:
    args = LLAMA.args(launch(FILE, "-a", "mine", "--metrics"))
    assert "--alias" not in args
    assert args.count("--metrics") == 1


def test_llama_cpp_with_weights_in_its_image_gets_no_path() -> None:
    assert LLAMA.args(launch(Unnamed()))[0] == "--host"
    with pytest.raises(ValueError, match="weights that nothing names"):
        VLLM.args(launch(Unnamed()))


def test_a_runtime_is_given_no_repository_that_it_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    blind = replace(VLLM, schemes=frozenset({"pvc"}))
    for module in (resolve, service):
        monkeypatch.setattr(module, "ENGINES", {**ENGINES, "vllm": blind})
    assert refusal(runtime="vllm", model=REPOSITORY).message.startswith(
        "The runtime vllm does not support repositories"
    )


def test_llama_cpp_refuses_a_revision_that_it_would_ignore() -> None:
    with pytest.raises(ValueError, match="v2"):
        LLAMA.args(launch(HUB))


def test_llama_cpp_has_a_place_for_what_it_downloads_only_where_it_does() -> None:
    assert LLAMA.env(launch(FILE)) == {"LLAMA_ARG_THREADS_HTTP": "128"}
    assert LLAMA.env(launch(HubRepository("a/b")))["LLAMA_CACHE"] == "/cache/llama.cpp"


@pytest.mark.parametrize(
    ("ranges", "gpus", "split"),
    [
        ((), 2, "1,1"),
        (("0-24", "25-39"), 2, "5,3"),
        (("0-9", "10-19", "20-39"), 3, "1,1,2"),
        (("0-9",), 2, "1,1"),
        (("9-0", "10-19"), 2, "1,1"),
        (("-1-9", "10-19"), 2, "1,1"),
        (("a-b", "10-19"), 2, "1,1"),
        ((" 0-0 ", "1-3"), 2, "1,3"),
    ],
)
def test_a_tensor_split_is_in_lowest_terms_and_equal_where_ranges_make_no_sense(
    ranges: tuple[str, ...], gpus: int, split: str
) -> None:
    assert tensor_split(Sharding("layer", ranges), gpus) == split


def test_vllm_serves_a_revision_under_its_public_name_and_its_own() -> None:
    args = VLLM.args(launch(HUB, gpus=2))
    assert args == (
        "acme/tiny", "--revision", "v2", "--host", "0.0.0.0", "--port", "8080",
        "--served-model-name", "tiny", "acme/tiny", "--tensor-parallel-size", "2",
    )  # fmt: skip
    assert "--enable-metrics" not in args


def test_vllm_takes_a_draft_model_in_the_form_that_it_reads() -> None:
    engine_launch = Launch(weights=HUB, served_name="tiny", port=8000, draft=Draft(MountedFolder("/draft"), 4))
    assert VLLM.args(engine_launch)[-2:] == (
        "--speculative-config", '{"model": "/draft", "num_speculative_tokens": 4}'
    )  # fmt: skip


def test_sglang_and_tgi_get_several_gpus() -> None:
    assert SGLANG.args(launch(HUB, gpus=4))[-3:-1] == ("--tp-size", "4")
    assert TGI.args(launch(HUB, gpus=4))[-2:] == ("--num-shard", "4")
    assert "--num-shard" not in TGI.args(launch(HUB, "--sharded", "true", gpus=4))


def test_images_are_those_that_can_use_the_accelerator() -> None:
    assert LLAMA.image("cuda") != LLAMA.image("") != ""
    assert VLLM.image("cuda") == VLLM.image("")
    assert "rocm" in VLLM.image("rocm")
    assert (ENGINES["generic"].image("cuda"), ENGINES["personaplex"].image("")) == ("", "")
    images = [engine.image(backend) for engine in ENGINES.values() for backend in ("", "cuda", "rocm")]
    assert not any(image.endswith(":latest") for image in images)


def test_typed_settings_leave_the_engine_of_other_apis_as_it_is() -> None:
    assert LLAMACPP.flags == ()
    assert LLAMACPP.args(launch(FILE))[0] == "--host"
