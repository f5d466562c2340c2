"""Which files of a source make up a model."""

from __future__ import annotations

import pytest

from slipway.artifacts.files import copies
from slipway.artifacts.files.file_rules import SMALL, UnsupportedError, choose
from tests.tables import each

SAFETENSORS = ("config.json", "model.safetensors")
DIFFUSERS = ("model_index.json", "unet/diffusion_pytorch_model.safetensors", "unet/config.json")

KEPT = [
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "preprocessor_config.json",
    "processor_config.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "chat_template.jinja",
    "modules.json",
    "dtypes.json",
    "params.json",
    "model.safetensors.index.json",
    "1_Pooling/config.json",
    "settings.yaml",
    "openvino.xml",
    "qwen.tiktoken",
    "tokenizer.model.v3",
    "tokenizer.model.v11m",
    "tekken.json",
    "tokenizer.v7",
    "sentencepiece.spm",
    "bpe.codes",
    "dict",
    "1_Dense/pytorch_model.unknown",
]
DROPPED = [
    *(".gitattributes", ".cache/x.json", "__MACOSX/config.json", "assets/a.json", "benchmarks/b.json", "docs/x.txt"),
    *("encoding/x.json", "evaluation/x.json", "examples/x.json", "figures/f.json", "images/i.json", "notebooks/n.json"),
    *("onnx/model.onnx", "onnx/config.json", "openvino/o.xml", "coreml/c.json", "tflite/t.txt", "original/params.json"),
    *("original/consolidated.safetensors", "metal/m.json", "scripts/s.txt", "tests/t.json", "a/docs/x.txt"),
    *("model.pt", "model.pth", "tf_model.h5", "model.onnx", "flax_model.msgpack", "rust_model.ot", "pytorch_model.bin"),
    *("README.md", "LICENSE", "LICENSE.txt", "NOTICE", "NOTICE.txt", "cover.png", "paper.pdf", "table.csv", "run.py"),
    *("convert.sh", "training_args.bin", "requirements.txt", "docs/archive.zip", "scripts/tool.exe"),
    *("pytorch_model.bin.index.json", "tf_model.h5.index.json", "model.npz", "demo.mp4", "Makefile", "server.pem"),
]
REJECTED = [".so", ".dll", ".dylib", ".exe", ".jar", ".class", ".wasm", ".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz"]


@pytest.mark.parametrize("path", KEPT)
def test_files_that_engines_read_are_kept(path: str) -> None:
    assert path in choose([*SAFETENSORS, path]).companions


@each(DROPPED)
def test_files_that_no_program_reads_are_omitted(path: str) -> None:
    assert choose([*SAFETENSORS, path]).files == set(SAFETENSORS)


def test_a_large_file_of_which_nothing_is_known_stays_behind() -> None:
    sizes = {"tokenizer.json": SMALL + 1, "unknown": SMALL + 1, "small": SMALL}
    assert choose([*SAFETENSORS, *sizes], sizes=sizes).companions == {"config.json", "tokenizer.json", "small"}


INDEX = "model.safetensors.index.json"
PARTS = tuple(f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3))
PIPELINE = ("model_index.json", "unet/config.json")
UNET = "unet/diffusion_pytorch_model"
COPIES: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    # the model, and what stays behind
    (("config.json", INDEX, *PARTS), ("consolidated.safetensors",)),
    (("config.json", INDEX, *PARTS), ("consolidated.safetensors", "consolidated.safetensors.index.json")),
    (("config.json", INDEX, *PARTS), ("consolidated-00001-of-00002.safetensors",)),
    (("config.json", "model.safetensors"), ("consolidated.00.safetensors",)),
    (("config.json", INDEX, *PARTS), ("model.safetensors",)),
    (("config.json", "model.safetensors"), PARTS),
    (("config.json", "model.safetensors"), ("model.fp16.safetensors", "model.bf16.safetensors")),
    (("config.json", INDEX, *PARTS), ("model.fp16-00001-of-00002.safetensors", "model.fp16.safetensors.index.json")),
    (("config.json", "model.safetensors"), ("fp16/model.safetensors", "4bit/model.safetensors")),
    (("config.json", "model.safetensors"), ("original/model.safetensors", "pytorch_model.bin", "model.onnx")),
    (("config.json", "model.safetensors"), ("model_fp16.safetensors", "model-bf16.safetensors")),
    (("config.json", "model.safetensors"), ("model-fp16-00001-of-00002.safetensors",)),
    (("config.json", "model.safetensors"), ("checkpoint-500/model.safetensors", "checkpoint-500/config.json")),
    (("config.json", "model.safetensors"), ("global_step1000/model.safetensors",)),
    (("model.gguf",), ("model-00001-of-00002.gguf", "model-00002-of-00002.gguf")),
    ((*PIPELINE, f"{UNET}.safetensors"), (f"{UNET}.fp16.safetensors", f"{UNET}.bin", f"{UNET}.non_ema.safetensors")),
    ((*PIPELINE, f"{UNET}.safetensors"), ("sd_xl_base_1.0.safetensors", "flux1-dev.safetensors")),
    ((*PIPELINE, f"{UNET}.safetensors", "vae/model.bin"), ("vae.safetensors",)),
    # what is no copy
    (("config.json", "consolidated.safetensors"), ()),
    (("config.json", "model.fp16.safetensors"), ()),
    (("config.json", "model_fp16.safetensors"), ()),
    (("config.json", "model.safetensors", "model-half-life.safetensors", "checkpoint/model.safetensors"), ()),
    (("model.gguf", "model-bf16.gguf"), ()),
    (("config.json", "model.safetensors", "2_Dense/model.safetensors", "mtp.safetensors"), ()),
    ((*PIPELINE, f"{UNET}.fp16.safetensors"), ()),
    (("model-Q4.gguf", "model-Q8.gguf", "mmproj-f16.gguf"), ()),
    (("config.json", "params.json", *PARTS), ()),
    (("config.json", "model-1-of-61.safetensors", "model-61-of-61.safetensors"), ("consolidated.safetensors",)),
    (("config.json", INDEX, "model-00001-of-000163.safetensors"), ("model.safetensors",)),
    (("mmproj-F16.gguf", "BF16/X-BF16-00001-of-00002.gguf", "BF16/X-BF16-00002-of-00002.gguf"), ()),
    (("X.imatrix.gguf", "8bit/X.gguf"), ()),
    (("config.json", "adapter_model.safetensors", "bf16/model.safetensors"), ()),
    (("mmproj-F16.gguf", "X-Q8_0.gguf"), ("BF16/X-BF16.gguf",)),
]


@each(COPIES)
def test_only_one_copy_of_the_same_weights_is_selected(model: tuple[str, ...], copies: tuple[str, ...]) -> None:
    assert choose([*model, *copies]).files == set(model)


def test_the_copy_that_an_index_names_is_the_model() -> None:
    choice = choose(["config.json", "model.safetensors", *PARTS, INDEX], indexed={"model.safetensors"})
    assert choice.weights == {"model.safetensors"}
    laid = choose([*SAFETENSORS, "consolidated.safetensors"], indexed={"consolidated.safetensors"})
    assert "consolidated.safetensors" in laid.weights


def test_the_set_of_parts_in_the_index_is_the_model() -> None:
    older = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    choice = choose(["config.json", *PARTS, *older, INDEX], indexed=PARTS)
    assert choice.weights == {*PARTS}
    assert choose(["config.json", *PARTS, *older, INDEX], indexed=older).weights == {*older}


@each(
    [
        (["model.safetensors", "model_fp16.safetensors"], set()),
        (["model.safetensors", "model_ema.safetensors", "model.fp16.safetensors"], set()),
        (["model-fp16-00001-of-00001.safetensors", "model.safetensors"], set()),
        (["model.fp16-00001-of-00001.safetensors", "model.safetensors"], {"model.fp16.safetensors.index.json"}),
    ]
)
def test_a_precision_that_the_index_names_is_a_part_of_the_model(names: list[str], own: set[str]) -> None:
    choice = choose(["config.json", INDEX, *names, *own], indexed=names)
    assert choice.weights == ({"model.safetensors"} if own else {*names})


def test_the_work_grows_with_the_number_of_files_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    stem = copies.stem

    def counted(path: str) -> str:
        calls.append(path)
        return stem(path)

    monkeypatch.setattr(copies, "stem", counted)
    parts = [f"model-{number:05}-of-{total:05}.safetensors" for total in (100, 200) for number in range(total)]
    folders = [f"{number}/model.safetensors" for number in range(100)]
    copies.without([*parts, *folders], [*parts, *folders], indexed=parts)
    assert len(calls) <= 4 * len([*parts, *folders])


@pytest.mark.parametrize("ending", REJECTED)
@pytest.mark.parametrize("folder", ["", "sub/"])
def test_programs_and_archives_are_refused_by_name(ending: str, folder: str) -> None:
    with pytest.raises(UnsupportedError, match=f"{folder}Evil"):
        choose([*SAFETENSORS, f"{folder}Evil{ending.upper()}"])


@pytest.mark.parametrize(
    ("paths", "format_", "weights"),
    [
        (SAFETENSORS, "Safetensors", {"model.safetensors"}),
        (("q4.gguf", "q8.gguf", "config.json"), "GGUF", {"q4.gguf", "q8.gguf"}),
        (("Model.GGUF",), "GGUF", {"Model.GGUF"}),
        (DIFFUSERS, "Diffusers", {"unet/diffusion_pytorch_model.safetensors"}),
        (("model_index.json", "vae/diffusion_pytorch_model.bin"), "Diffusers", {"vae/diffusion_pytorch_model.bin"}),
        (("model_index.json", "text_encoder/pytorch_model.bin"), "Diffusers", {"text_encoder/pytorch_model.bin"}),
        (("model_index.json", "a/model.bin"), "Diffusers", {"a/model.bin"}),
        ((*DIFFUSERS, "pytorch_model.bin"), "Diffusers", {"unet/diffusion_pytorch_model.safetensors"}),
        ((*DIFFUSERS, "unet/evil.bin"), "Diffusers", {"unet/diffusion_pytorch_model.safetensors"}),
    ],
)
def test_the_format_shows_in_the_names(paths: tuple[str, ...], format_: str, weights: set[str]) -> None:
    choice = choose(paths)

    assert choice.format == format_
    assert choice.weights == weights


@pytest.mark.parametrize(
    ("paths", "why"),
    [
        ((), "no weights"),
        (("config.json",), "no weights"),
        (("README.md", "a.png"), "no weights"),
        (("config.json", "pytorch_model.bin"), "pickle"),
        (("model.pt",), "pickle"),
        (("data.pkl",), "pickle"),
        (("model.safetensors",), "no config.json"),
        (("sub/config.json", "sub/model.safetensors"), "no config.json"),
        (("model_index.json",), "no weights"),
        (("model_index.json", "pytorch_model.bin"), "no weights"),
        ((*SAFETENSORS, "model.gguf"), "two formats"),
        (("onnx/model.safetensors", "config.json"), "no weights"),
    ],
)
def test_files_that_are_not_a_model_are_rejected_with_the_reason(paths: tuple[str, ...], why: str) -> None:
    with pytest.raises(UnsupportedError, match=why):
        choose(paths)
