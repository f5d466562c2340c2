"""Which files of a source make up a model."""

from __future__ import annotations

import pytest

from slipway.artifacts.file_rules import UnsupportedError, choose
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
]
DROPPED = [
    *(".gitattributes", ".cache/x.json", "__MACOSX/config.json", "assets/a.json", "benchmarks/b.json", "docs/x.txt"),
    *("encoding/x.json", "evaluation/x.json", "examples/x.json", "figures/f.json", "images/i.json", "notebooks/n.json"),
    *("onnx/model.onnx", "onnx/config.json", "openvino/o.xml", "coreml/c.json", "tflite/t.txt", "original/params.json"),
    *("original/consolidated.safetensors", "metal/m.json", "scripts/s.txt", "tests/t.json", "a/docs/x.txt"),
    *("model.pt", "model.pth", "tf_model.h5", "model.onnx", "flax_model.msgpack", "rust_model.ot", "pytorch_model.bin"),
    *("README.md", "LICENSE", "LICENSE.txt", "NOTICE", "NOTICE.txt", "cover.png", "paper.pdf", "table.csv", "run.py"),
    *("convert.sh", "training_args.bin", "requirements.txt", "docs/archive.zip", "scripts/tool.exe"),
]
REJECTED = [".so", ".dll", ".dylib", ".exe", ".jar", ".class", ".wasm", ".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz"]


@pytest.mark.parametrize("path", KEPT)
def test_what_engines_read_is_kept(path: str) -> None:
    assert path in choose([*SAFETENSORS, path]).companions


@each(DROPPED)
def test_what_nobody_reads_stays_behind_without_a_word(path: str) -> None:
    assert choose([*SAFETENSORS, path]).files == set(SAFETENSORS)


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
    found = choose(paths)

    assert found.format == format_
    assert found.weights == weights


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
def test_what_is_no_model_is_refused_with_the_reason(paths: tuple[str, ...], why: str) -> None:
    with pytest.raises(UnsupportedError, match=why):
        choose(paths)
