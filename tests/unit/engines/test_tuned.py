"""Engines with typed settings: what their tables say, in which order, and what they leave to the user."""

from __future__ import annotations

import re

import pytest

from slipway.artifacts.weights import HubRepository, MountedFolder, Unnamed, Weights
from slipway.engines.engine import Draft, Engine, Launch, Sharding
from slipway.engines.generic import GENERIC
from slipway.engines.llamacpp import LLAMACPP, LLAMACPP_TUNED, tensor_split
from slipway.engines.personaplex import PERSONAPLEX
from slipway.engines.settings import Setting, Value, arguments, flags, idle
from slipway.engines.sglang import SGLANG_TUNED
from slipway.engines.tgi import TGI
from slipway.engines.vllm import VLLM_TUNED

TUNED = (LLAMACPP_TUNED, VLLM_TUNED, SGLANG_TUNED, TGI, PERSONAPLEX, GENERIC)
FILE, HUB = MountedFolder("/models/ab", "tiny.gguf"), HubRepository("acme/tiny", "v2")
TABLE = (
    Setting("size", "--size", ("-s",)),
    Setting("fast", "--fast", on="yes", gpu=True),
    Setting("each", "--each", repeats=True),
    Setting("text", "--text", needs="size"),
    Setting("off", "--off", unless=("--no-off",)),
)
ALL: dict[str, Value] = {"off": True, "text": "a b", "each": ("1", "2"), "fast": True, "size": 0}


def launch(weights: Weights, *extra: str, gpus: int = 0, settings: dict[str, Value] | None = None) -> Launch:
    return Launch(weights=weights, served_name="tiny", port=8080, extra_args=extra, gpus=gpus, settings=settings or {})


def test_settings_become_flags_in_the_tables_order() -> None:
    words = ["--size", "0", "--fast", "yes", "--each", "1", "--each", "2", "--text"]
    assert arguments(TABLE, ALL, (), gpus=1) == (*words, "a b", "--off")


@pytest.mark.parametrize(
    ("extra", "gpus", "left_out"),
    [
        ((), 1, {}),
        ((), 0, {"fast": "there is no GPU"}),
        (("--size", "3"), 1, {"size": "extraArgs has --size"}),
        (("-s=3",), 1, {"size": "extraArgs has -s"}),
        (("--no_off",), 1, {"off": "extraArgs has --no-off"}),
        (("--each", "3"), 1, {}),
    ],
)
def test_a_setting_without_effect_is_left_out_and_told(
    extra: tuple[str, ...], gpus: int, left_out: dict[str, str]
) -> None:
    assert idle(TABLE, ALL, extra, gpus) == left_out
    given = flags(arguments(TABLE, ALL, extra, gpus))
    assert not {f"--{name}" for name in left_out} & given
    assert {f"--{name}" for name in ALL.keys() - left_out.keys()} <= given


def test_a_setting_that_no_engine_has_or_that_needs_another_one_is_told() -> None:
    assert idle(TABLE, {"text": "x", "wing": 1}, (), 0) == {
        "text": "it needs a size",
        "wing": "the runtime has no such setting",
    }


@pytest.mark.parametrize("engine", TUNED, ids=lambda engine: engine.name)
def test_a_table_names_each_setting_and_each_flag_once(engine: Engine) -> None:
    names = [row.name for row in engine.settings]
    spelled = [flag for row in engine.settings for flag in (row.flag, *row.short)]
    assert len(set(names)) == len(names)
    assert len(set(spelled)) == len(spelled)
    assert all(re.fullmatch(r"--?[a-z0-9][a-z0-9-]*", flag) for flag in spelled)
    assert {row.needs for row in engine.settings} <= {"", *names}


def test_llama_cpp_has_its_model_first_and_its_metrics_last() -> None:
    args = LLAMACPP_TUNED.args(launch(FILE, "--seed", "1", settings={"jinja": True}))
    assert args == (
        "--model", "/models/ab/tiny.gguf", "--host", "0.0.0.0", "--port", "8080", "--alias", "tiny",
        "--jinja", "--seed", "1", "--metrics",
    )  # fmt: skip


@pytest.mark.parametrize("engine", [LLAMACPP_TUNED, VLLM_TUNED, SGLANG_TUNED, TGI], ids=lambda engine: engine.name)
def test_an_address_of_the_users_own_is_given_once(engine: Engine) -> None:
    flag = "--hostname" if engine is TGI else "--host"
    weights = FILE if engine is LLAMACPP_TUNED else HUB
    assert engine.args(launch(weights, flag, "::")).count(flag) == 1
    assert engine.redefined(launch(weights, flag, "::")) == ()
    assert engine.redefined(launch(weights, flag, "127.0.0.1", "--port=1")) == (flag, "--port")


def test_llama_cpp_takes_a_name_and_metrics_of_the_users_own() -> None:
    args = LLAMACPP_TUNED.args(launch(FILE, "-a", "mine", "--metrics"))
    assert "--alias" not in args
    assert args.count("--metrics") == 1


def test_llama_cpp_with_weights_that_are_in_its_image_is_told_of_none() -> None:
    assert LLAMACPP_TUNED.args(launch(Unnamed()))[0] == "--host"
    with pytest.raises(ValueError, match="weights that nothing names"):
        VLLM_TUNED.args(launch(Unnamed()))


def test_llama_cpp_refuses_a_revision_that_it_would_ignore() -> None:
    with pytest.raises(ValueError, match="v2"):
        LLAMACPP_TUNED.args(launch(HUB))


def test_llama_cpp_has_a_place_for_what_it_downloads_only_where_it_does() -> None:
    assert LLAMACPP_TUNED.env(launch(FILE)) == {"LLAMA_ARG_THREADS_HTTP": "128"}
    assert LLAMACPP_TUNED.env(launch(HubRepository("a/b")))["LLAMA_CACHE"] == "/cache/llama.cpp"


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
    args = VLLM_TUNED.args(launch(HUB, gpus=2))
    assert args == (
        "acme/tiny", "--revision", "v2", "--host", "0.0.0.0", "--port", "8080",
        "--served-model-name", "tiny", "acme/tiny", "--tensor-parallel-size", "2",
    )  # fmt: skip
    assert "--enable-metrics" not in args


def test_vllm_takes_a_draft_model_in_the_form_that_it_reads() -> None:
    asked = Launch(weights=HUB, served_name="tiny", port=8000, draft=Draft(MountedFolder("/draft"), 4))
    assert VLLM_TUNED.args(asked)[-2:] == (
        "--speculative-config", '{"model": "/draft", "num_speculative_tokens": 4}'
    )  # fmt: skip


def test_sglang_and_tgi_are_told_of_several_gpus() -> None:
    assert SGLANG_TUNED.args(launch(HUB, gpus=4))[-3:-1] == ("--tp-size", "4")
    assert TGI.args(launch(HUB, gpus=4))[-2:] == ("--num-shard", "4")
    assert "--num-shard" not in TGI.args(launch(HUB, "--sharded", "true", gpus=4))


def test_images_are_those_that_can_use_the_accelerator() -> None:
    assert LLAMACPP_TUNED.image("cuda") != LLAMACPP_TUNED.image("") != ""
    assert VLLM_TUNED.image("cuda") == VLLM_TUNED.image("")
    assert "rocm" in VLLM_TUNED.image("rocm")
    assert (GENERIC.image("cuda"), PERSONAPLEX.image("")) == ("", "")
    assert not any(engine.image(backend).endswith(":latest") for engine in TUNED for backend in ("", "cuda", "rocm"))


def test_typed_settings_leave_the_engine_of_other_apis_as_it_is() -> None:
    assert LLAMACPP.settings == ()
    assert LLAMACPP.args(launch(FILE))[0] == "--host"
