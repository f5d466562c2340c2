"""Flags that the default images no longer have are left out or replaced, and what is left is what the engine takes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from slipway.engines import ENGINES
from slipway.engines.definition.retired import Retired, is_ours, renewed, shortest
from slipway.engines.definition.retired_flags import SWITCHES
from slipway.engines.programs.llamacpp import LLAMACPP
from slipway.engines.programs.sglang import SGLANG
from slipway.engines.programs.vllm import VLLM

sys.path.insert(0, str(Path(__file__).parents[2] / "standins/packages"))
from vllm.entrypoints.openai import flags

from tests import documents

CATALOGUE = documents.read(Path(__file__).parent / "kubeai_catalogue.yml")
WITH_VLLM = {
    name: model.get("args", [])
    for name, model in CATALOGUE.items()
    if model["engine"] == "VLLM" and "tpu" not in model["resourceProfile"]
}
TAKEN = {spelling for _kind, spellings, _choices in flags.rows() for spelling in spellings}
EXAMPLES = {"values": "1 2", "value": "1", "boolean": "", "nothing": ""}


def vllm(*args: str) -> list[str]:
    return list(renewed(args, VLLM.retired, abbreviated=True).args)


def test_the_whole_catalogue_is_here() -> None:
    assert len(CATALOGUE) == 48


@pytest.mark.parametrize("name", WITH_VLLM)
def test_vllm_takes_every_model_of_the_catalogue(name: str) -> None:
    assert flags.parse(["--model=acme/tiny", *vllm(*WITH_VLLM[name])]).model == "acme/tiny"


@pytest.mark.parametrize("row", VLLM.retired, ids=lambda row: row.flag)
def test_vllm_has_the_successor_and_not_the_flag(row: Retired) -> None:
    for value in row.by_value or (EXAMPLES[row.takes],):
        now = vllm(*([f"{row.flag}={value}"] if row.by_value else [row.flag, *value.split()]))
        assert flags.parse(["--model=acme/tiny", *now]).model == "acme/tiny"
    assert row.flag not in TAKEN or row.flag in {*SWITCHES, "--limit-mm-per-prompt"}


@pytest.mark.parametrize("row", VLLM.retired, ids=lambda row: row.flag)
def test_an_abbreviation_is_no_flag_of_today(row: Retired) -> None:
    if row.flag not in TAKEN:
        short = row.flag[: shortest(row.flag)]
        assert short == row.flag or not [flag for flag in TAKEN if flag.startswith(short)]


@pytest.mark.parametrize(
    ("args", "now"),
    [
        ("--max-model-len=1024 --disable-log-requests", "--max-model-len=1024"),
        ("--disable_log_requests --max-num-seqs 4", "--max-num-seqs 4"),
        ("--disable-log-req --seed 1", "--seed 1"),
        ("--num-scheduler-steps 8 --seed 1", "--seed 1"),
        ("--num-scheduler-steps=8 --seed=1", "--seed=1"),
        ("--num-scheduler-steps", ""),
        ("--swap-space -1 --seed 1", "--seed 1"),
        ("--enable-chunked-prefill=false", "--no-enable-chunked-prefill"),
        ("--enable-chunked-prefill=False", "--no-enable-chunked-prefill"),
        ("--enable-chunked-prefill false --seed 1", "--no-enable-chunked-prefill --seed 1"),
        ("--enable-chunked-prefill=true", "--enable-chunked-prefill"),
        ("--enable-chunked-prefill --seed 1", "--enable-chunked-prefill --seed 1"),
        ("--enable_prefix_caching=true", "--enable-prefix-caching"),
        ("--use-v2-block-manager --seed 1", "--seed 1"),
        ("--multi-step-stream-outputs false --seed 1", "--seed 1"),
        ("--no-calculate-kv-scales", ""),
        ("--task embed", "--runner=pooling --convert=embed"),
        ("--task=generate", "--runner=generate"),
        ("--task=other", "--task=other"),
        ("--cuda-graph-sizes 1 2 4 --seed 1", "--cudagraph-capture-sizes 1 2 4 --seed 1"),
        ("--speculative-model acme/draft --num-speculative-tokens 5", "--spec-model acme/draft --spec-tokens 5"),
        ("--chat-template-text-format openai", "--chat-template-content-format=openai"),
        ("--speculative-model=[ngram] --ngram-prompt-lookup-max 4 --seed 1", "--spec-method=ngram --seed 1"),
        ("--speculative-draft-tensor-parallel-size=1 --seed 1", "--seed 1"),
        ("--eplb-window-size 100 --enable-eplb --no-eplb-log-balancedness", "--enable-eplb"),
        ("--eplb-log-balancedness --no-use-v2-block-manager --seed 1", "--seed 1"),
        ("--num-redundant-experts many", "--num-redundant-experts many"),
        ("--image-input-shape 1,3,336,336 --image-token-id=32000 --seed 1", "--seed 1"),
        ("--override-neuron-config {} --seed 1", "--seed 1"),
        ("--rope-scaling {}", "--rope-scaling {}"),
        ("--disable-log-stats", "--disable-log-stats"),
        ("--chat-template --disable-log-requests", "--chat-template"),
        ("", ""),
    ],
)
def test_vllm(args: str, now: str) -> None:
    assert vllm(*args.split()) == now.split()


@pytest.mark.parametrize(
    ("value", "json"),
    [
        ("outlines", '{"backend": "outlines"}'),
        ("outlines:no-fallback", '{"backend": "outlines"}'),
        ("outlines:disable-any-whitespace", '{"backend": "outlines"}'),
        ("xgrammar:disable-any-whitespace", '{"backend": "xgrammar", "disable_any_whitespace": true}'),
        ("xgrammar:no-fallback,disable-any-whitespace", '{"backend": "xgrammar", "disable_any_whitespace": true}'),
        ("xgrammar:disable-any-whitespace,no-fallback", '{"backend": "xgrammar", "disable_any_whitespace": true}'),
        ("guidance:no-additional-properties", '{"backend": "guidance", "disable_additional_properties": true}'),
    ],
)
def test_a_backend_for_guided_decoding_becomes_json(value: str, json: str) -> None:
    assert vllm(f"--guided-decoding-backend={value}") == [f"--structured-outputs-config={json}"]
    assert vllm("--guided-decoding-backend", value) == [f"--structured-outputs-config={json}"]


def test_redundant_experts_become_json() -> None:
    assert vllm("--num-redundant-experts", "2", "--enable-eplb") == [
        '--eplb-config={"num_redundant_experts": 2}',
        "--enable-eplb",
    ]


def test_limits_of_media_become_json() -> None:
    assert vllm("--limit-mm-per-prompt", "image=4,video=1") == ["--limit-mm-per-prompt", '{"image": 4, "video": 1}']
    for today in ('{"image": 4}', "image", "a=1;b=2"):
        outcome = renewed(("--limit-mm-per-prompt", today), VLLM.retired)
        assert (outcome.args, outcome.changes) == (("--limit-mm-per-prompt", today), {})


@pytest.mark.parametrize(
    ("args", "now"),
    [
        ("-fa", "-fa on"),
        ("--flash-attn --jinja", "--flash-attn on --jinja"),
        ("-fa off --jinja", "-fa off --jinja"),
        ("--draft-max 8 --draft-min 1", "--spec-draft-n-max 8 --spec-draft-n-min 1"),
        ("--slots-endpoint-disable", "--no-slots"),
        ("--no-mmap --mlock -c 4096", "-c 4096"),
        ("--log-format text -c 4096", "-c 4096"),
        ("--ctx-size 4096 --jinja", "--ctx-size 4096 --jinja"),
        ("--draft-p-min 0.5", "--draft-p-min 0.5"),
    ],
)
def test_llamacpp(args: str, now: str) -> None:
    assert list(renewed(args.split(), LLAMACPP.retired).args) == now.split()


@pytest.mark.parametrize(
    ("args", "now"),
    [
        ("--disable-flashinfer --tp 2", "--attention-backend=triton --tp 2"),
        ("--disable-flashinfer-sampling --tp 2", "--sampling-backend=pytorch --tp 2"),
        ("--disable_mla --stream-output", "--incremental-streaming-output"),
        ("--disable-radix-cache --mem-frac 0.8", "--disable-radix-cache --mem-frac 0.8"),
    ],
)
def test_sglang(args: str, now: str) -> None:
    assert list(renewed(args.split(), SGLANG.retired, abbreviated=True).args) == now.split()


@pytest.mark.parametrize("name", [name for name, engine in ENGINES.items() if engine.retired])
def test_no_successor_is_itself_retired(name: str) -> None:
    table = ENGINES[name].retired
    for row in table:
        for value in row.by_value or ("1",):
            words = [row.flag] if row.takes == "nothing" else [row.flag, value] if value else [row.flag]
            once = renewed(words, table).args
            assert renewed(once, table).args == once


def test_changes_name_the_flag_as_it_was_written() -> None:
    outcome = renewed(("--disable_log_requests", "--draft", "8"), (*VLLM.retired, *LLAMACPP.retired))
    assert outcome.changes == {"--disable_log_requests": "left out", "--draft": "replaced by --spec-draft-n-max 8"}


@pytest.mark.parametrize("accelerator", LLAMACPP.images)
def test_an_older_image_of_llamacpp_gets_its_flags(accelerator: str) -> None:
    outcome = LLAMACPP.renewed(("--no-mmap",), author_image="", image=LLAMACPP.images[accelerator])
    assert outcome.args == (("--no-mmap",) if accelerator in ("rocm", "intel") else ())


@pytest.mark.parametrize(
    ("image", "ours"),
    [
        ("vllm/vllm-openai:v0.33.0", True),
        ("registry.example.com:5000/mirror/vllm-openai:v0.33.0", True),
        ("vllm/vllm-openai:v0.33.0@sha256:00", True),
        ("vllm/vllm-openai-rocm:v0.33.0", True),
        ("vllm/vllm-openai:v0.10.2", False),
        ("vllm/vllm-openai:latest", False),
        ("acme/vllm:v0.33.0", False),
        (VLLM.images["tpu"], False),
        ("", False),
    ],
)
def test_an_image_is_ours_by_its_name_and_version(image: str, ours: bool) -> None:
    assert is_ours(image, VLLM.images, VLLM.older_images) is ours
    args = ("--disable-log-requests",)
    assert VLLM.renewed(args, author_image="", image=image).args == (() if ours else args)
    assert VLLM.renewed(args, author_image=image, image=image).args == (args if image or not ours else ())
