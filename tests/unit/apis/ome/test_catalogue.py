"""Models of OME's catalogue and their quantized forms: what their files say leads to the runtime that is for them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.apis.ome.runtimes.candidates import candidate
from slipway.apis.ome.runtimes.selection import facts, select
from slipway.apis.ome.types.model import BaseModelSpec
from slipway.artifacts.facts.config import facts_of
from tests.tables import each

from .cluster import Cluster

M = 1_000_000
Runtime = tuple[str, str, str, str, str, str]
RUNTIMES: tuple[Runtime, ...] = (
    # name, architecture, transformers, quantization, least, most
    ("gpt-oss-20b", "GptOssForCausalLM", "4.55.0", "", "10B", "15B"),
    ("gpt-oss-120b", "GptOssForCausalLM", "4.55.0", "", "115B", "125B"),
    ("deepseek-v3", "DeepseekV3ForCausalLM", "4.33.1", "fp8", "600B", "700B"),
    ("deepseek-v3-bf16", "DeepseekV3ForCausalLM", "4.33.1", "", "600B", "700B"),
    ("kimi-k2", "DeepseekV3ForCausalLM", "4.48.3", "fp8", "1T", "1.5T"),
    ("llama-8b", "LlamaForCausalLM", "4.43.0", "", "7B", "9B"),
    ("llama-70b", "LlamaForCausalLM", "4.43.0", "", "60B", "75B"),
    ("llama-405b-fp8", "LlamaForCausalLM", "4.43.0", "fp8", "400B", "410B"),
    ("qwen3-8b", "Qwen3ForCausalLM", "4.51.0", "", "7B", "9B"),
    ("qwen3-8b-fp8", "Qwen3ForCausalLM", "4.51.0", "fp8", "7B", "9B"),
    ("nano-30b", "NemotronHForCausalLM", "4.53.2", "", "28B", "32B"),
    ("baichuan-7b", "BaichuanForCausalLM", "4.29.2", "", "6B", "8B"),
)
W8A8 = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "int"}}},
}
W4A16 = W8A8 | {"format": "pack-quantized", "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}}}
BNB4 = {"quant_method": "bitsandbytes", "load_in_4bit": True}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
Model = tuple[str, str, dict[str, Any] | None, dict[str, int], str]
MODELS: tuple[Model, ...] = (
    # architecture, transformers, quantization, numbers in millions by their type, runtime
    ("GptOssForCausalLM", "4.55.0", {"quant_method": "mxfp4"}, {"BF16": 1804, "U8": 10155}, "gpt-oss-20b"),
    ("GptOssForCausalLM", "4.55.0", {"quant_method": "mxfp4"}, {"BF16": 2167, "U8": 60916}, "gpt-oss-120b"),
    ("DeepseekV3ForCausalLM", "4.33.1", {"quant_method": "fp8"}, {"BF16": 3919, "F8_E4M3": 680571}, "deepseek-v3"),
    ("DeepseekV3ForCausalLM", "4.33.1", None, {"BF16": 684490}, "deepseek-v3-bf16"),
    ("DeepseekV3ForCausalLM", "4.48.3", {"quant_method": "fp8"}, {"BF16": 4000, "F8_E4M3": 1022000}, "kimi-k2"),
    ("LlamaForCausalLM", "4.43.0", None, {"BF16": 8030}, "llama-8b"),
    ("LlamaForCausalLM", "4.43.0", {"quant_method": "awq", "bits": 4}, {"I32": 880, "F16": 1105}, "llama-8b"),
    ("LlamaForCausalLM", "4.43.0", {"quant_method": "gptq", "bits": 4}, {"I32": 880, "F16": 1105}, "llama-8b"),
    ("LlamaForCausalLM", "4.43.0", BNB4, {"U8": 3520, "BF16": 1051}, "llama-8b"),
    ("LlamaForCausalLM", "4.43.0", W8A8, {"I8": 6980, "BF16": 1053}, "llama-8b"),
    ("LlamaForCausalLM", "4.43.0", W4A16, {"I32": 872, "BF16": 1105}, "llama-8b"),
    ("LlamaForCausalLM", "4.43.0", NVFP4, {"U8": 3490, "F8_E4M3": 436, "BF16": 1050}, "llama-8b"),
    ("LlamaForCausalLM", "4.43.0", W8A8, {"I8": 68000, "BF16": 2100}, "llama-70b"),
    ("LlamaForCausalLM", "4.43.0", {"quant_method": "fbgemm_fp8"}, {"F8_E4M3": 400000, "BF16": 6000}, "llama-405b-fp8"),
    ("Qwen3ForCausalLM", "4.51.0", {"quant_method": "fp8"}, {"F8_E4M3": 6946, "BF16": 1245}, "qwen3-8b-fp8"),
    ("Qwen3ForCausalLM", "4.51.0", {"quant_method": "awq", "bits": 4}, {"I32": 872, "F16": 1300}, "qwen3-8b"),
    ("NemotronHForCausalLM", "4.53.2", NVFP4 | {"quant_algo": "FP8"}, {"F8_E4M3": 30000, "BF16": 1600}, "nano-30b"),
)  # fmt: skip


def runtime(row: Runtime) -> Any:
    name, architecture, version, quantization, least, most = row
    entry = {
        "modelFormat": {"name": "safetensors", "version": "1.0.0"},
        "modelFramework": {"name": "transformers", "version": version},
        "modelArchitecture": architecture,
        "autoSelect": True,
    } | ({"quantization": quantization} if quantization else {})
    spec = {"supportedModelFormats": [entry], "modelSizeRange": {"min": least, "max": most}}
    return candidate({"metadata": {"name": name}, "spec": spec})


def filled(cluster: Cluster) -> dict[str, Any]:
    """A model's spec once its files are there."""
    cluster.create("model", "hf://acme/model")
    cluster.settle()
    spec: dict[str, Any] = cluster.models["model"]["spec"]
    return spec


def chosen(spec: dict[str, Any]) -> str:
    selection = select(facts(msgspec.convert(spec, BaseModelSpec)), [runtime(row) for row in RUNTIMES])
    return selection.chosen.reference.name if selection.chosen else ""


@each(MODELS)
def test_a_model_finds_the_runtime_that_is_written_for_it(
    architecture: str, version: str, quantization: dict[str, Any] | None, millions: dict[str, int], expected: str
) -> None:
    configuration = {"architectures": [architecture], "transformers_version": version, "model_type": "any"}
    cluster = Cluster("a")
    cluster.facts = facts_of(
        configuration | ({"quantization_config": quantization} if quantization else {}),
        files=("config.json", "model.safetensors"),
        tensors={type_: count * M for type_, count in millions.items()},
    )
    assert chosen(filled(cluster)) == expected


def test_only_what_ome_has_a_word_for_is_filled_in_and_its_size_counts_stored_numbers() -> None:
    cluster = Cluster("a")
    configuration = {"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}}
    cluster.facts = facts_of(configuration, tensors={"BF16": 1804 * M, "U8": 10155 * M})
    spec = filled(cluster)
    assert "quantization" not in spec
    assert spec["modelParameterSize"] == "11.96B"
    assert spec["additionalMetadata"] == {"parameterSize": "20.92B"}


@pytest.mark.parametrize("size", ["many", "-1", "1e9"])
def test_a_size_that_is_none_does_no_harm(size: str) -> None:
    spec = {"storage": {"storageUri": "hf://a/b"}, "additionalMetadata": {"parameterSize": size}}
    assert facts(msgspec.convert(spec, BaseModelSpec)).parameters == 0


def test_weights_of_pytorch_find_the_runtime_that_the_original_gives_them() -> None:
    cluster = Cluster("a")
    configuration = {
        "architectures": ["BaichuanForCausalLM"],
        "transformers_version": "4.29.2",
        "model_type": "baichuan",
    }
    cluster.facts = facts_of(configuration, files=("config.json", "pytorch_model.bin"))
    assert chosen(filled(cluster)) == "baichuan-7b"
