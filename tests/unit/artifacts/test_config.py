"""What config.json, model_index.json and the headers of GGUF files say of a model."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from slipway.artifacts.facts.config import (
    MOST_BYTES,
    ModelFacts,
    VersionedName,
    described_by,
    facts_of,
    facts_of_gguf,
    parse_config,
)
from slipway.artifacts.facts.parameters import format_size
from slipway.artifacts.headers.gguf import Gguf
from slipway.decoding import DecodingError
from tests.tables import each, seeds

SAMPLES = Path(__file__).parents[4] / "shared/reference/samples/ome/hf-configs"
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.43.0",
}
COUNT = 8_030_261_248
"""What the headers of Llama 3.1 8B add up to."""


def facts(**fields: Any) -> ModelFacts:
    config = LLAMA | fields
    return facts_of({name: value for name, value in config.items() if value is not None})


def test_a_config_and_headers_say_what_a_model_is() -> None:
    assert facts_of(LLAMA, files=("config.json", "model.safetensors"), tensors={"BF16": COUNT}) == ModelFacts(
        model_type="llama",
        architecture="LlamaForCausalLM",
        format=VersionedName("safetensors", "1.0.0"),
        framework=VersionedName("transformers", "4.43.0"),
        parameter_size="8.03B",
        parameters=COUNT,
        exact=True,
        stored_size="8.03B",
        max_tokens=131072,
        capabilities=("TEXT_TO_TEXT",),
    )


# --- parameters


def test_without_headers_parameters_are_estimated() -> None:
    estimate = facts()
    assert not estimate.exact
    assert estimate.parameter_size == "8.03B"
    assert abs(estimate.parameters / COUNT - 1) < 0.001


DIMENSIONS: dict[str, tuple[dict[str, Any], float]] = {
    "tied": ({"tie_word_embeddings": True}, 7.505),
    "tied by type": ({"model_type": "gemma", "tie_word_embeddings": None}, 7.505),
    "every head has keys": ({"num_key_value_heads": None}, 8.835),
    "wide heads": ({"head_dim": 256}, 9.372),
    "two matrices": ({"model_type": "phi"}, 6.151),
    "names of GPT-2": (
        {
            "model_type": "gpt2",
            "hidden_size": None,
            "num_hidden_layers": None,
            "intermediate_size": None,
            "num_key_value_heads": None,
            "n_embd": 1600,
            "n_layer": 48,
            "n_head": 25,
            "vocab_size": 50257,
            "tie_word_embeddings": True,
        },
        1.555,
    ),
    "experts": ({"model_type": "mixtral", "num_local_experts": 8, "vocab_size": 32000}, 46.702),
    "nested, as DBRX": (
        {
            "model_type": "dbrx",
            "hidden_size": None,
            "num_hidden_layers": None,
            "d_model": 6144,
            "n_layers": 40,
            "n_heads": 48,
            "num_attention_heads": None,
            "num_key_value_heads": None,
            "vocab_size": 100352,
            "attn_config": {"kv_n_heads": 8},
            "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16},
            "intermediate_size": None,
        },
        131.59,
    ),
    "latent attention, as DeepSeek-V3": (
        {
            "model_type": "deepseek_v3",
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "moe_intermediate_size": 2048,
            "num_hidden_layers": 61,
            "num_attention_heads": 128,
            "first_k_dense_replace": 3,
            "n_routed_experts": 256,
            "n_shared_experts": 1,
            "kv_lora_rank": 512,
            "q_lora_rank": 1536,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "vocab_size": 129280,
        },
        671.0,
    ),
    "nothing of its shape": ({"hidden_size": None, "model_type": "new"}, 0),
}


@pytest.mark.parametrize("case", DIMENSIONS)
def test_an_estimate_follows_the_dimensions(case: str) -> None:
    fields, billions = DIMENSIONS[case]
    assert facts(**fields).parameters / 1e9 == pytest.approx(billions, rel=0.002)


def test_a_llama_config_gets_the_default_values_of_llama() -> None:
    config = {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}}
    assert facts_of(config).parameter_size == "6.74B"


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, ""),
        (999, "999"),
        (1000, "1K"),
        (10_500, "10.5K"),
        (151_500_000, "151.5M"),
        (8_030_261_248, "8.03B"),
        (685_000_000_000, "685B"),
        (1_512_300_000_000, "1.51T"),
    ],
)
def test_a_number_of_parameters_has_two_decimals_at_most(count: int, words: str) -> None:
    assert format_size(count) == words


PACKED: list[tuple[dict[str, Any], dict[str, int], int]] = [
    ({"quant_method": "awq", "bits": 4}, {"I32": 1000, "F16": 50}, 8050),
    ({"quant_method": "gptq", "bits": 8}, {"I32": 1000, "F16": 50}, 4050),
    ({"quant_method": "mxfp4"}, {"U8": 1700, "BF16": 50}, 3250),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, {"U8": 1000}, 2000),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, {"I8": 1000}, 1000),
]


@pytest.mark.parametrize(("quantization", "tensors", "count"), PACKED)
def test_weights_that_share_a_number_are_counted_but_not_exactly(
    quantization: dict[str, Any], tensors: dict[str, int], count: int
) -> None:
    result = facts_of(LLAMA | {"quantization_config": quantization}, tensors=tensors)
    assert (result.parameters, result.exact) == (count, False)


def test_fp8_keeps_one_weight_in_a_number() -> None:
    result = facts_of(LLAMA | {"quantization_config": {"quant_method": "fp8"}}, tensors={"F8_E4M3": 1000, "F32": 8})
    assert (result.parameters, result.exact) == (1008, True)


# --- the rest of it


@pytest.mark.parametrize(
    ("method", "quantization"),
    [
        ("fp8", "fp8"),
        ("fbgemm_fp8", "fp8"),
        ("auto-int4", "int4"),
        ("AWQ", "awq"),
        ("gptq", "gptq"),
        ("mxfp4", "mxfp4"),
        ("compressed-tensors", "compressed-tensors"),
        ("bitsandbytes", "bitsandbytes"),
        (None, ""),
        (7, ""),
    ],
)
def test_every_method_of_quantization_is_reported(method: Any, quantization: str) -> None:
    assert facts(quantization_config={"quant_method": method}).quantization == quantization
    assert facts(text_config={**LLAMA, "quantization_config": {"quant_method": method}}).quantization == quantization


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ((), VersionedName("safetensors", "1.0.0")),
        (("model-00001-of-00002.safetensors",), VersionedName("safetensors", "1.0.0")),
        (("model.safetensors", "pytorch_model.bin"), VersionedName("safetensors", "1.0.0")),
        (("pytorch_model.bin",), VersionedName("pytorch")),
        (("consolidated.00.pth",), VersionedName("pytorch")),
        (("onnx/model.onnx",), VersionedName("onnx")),
    ],
)
def test_the_format_is_that_of_the_files(files: tuple[str, ...], expected: VersionedName) -> None:
    assert facts_of(LLAMA, files=files).format == expected


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({}, 131072),
        ({"seq_length": 8192}, 8192),
        ({"max_position_embeddings": None, "model_max_length": 4096}, 4096),
        ({"max_position_embeddings": None, "n_positions": 1024}, 1024),
        ({"text_config": {"max_position_embeddings": 4096}}, 4096),
        ({"text_config": {"hidden_size": 64}}, 131072),
        ({"thinker_config": {"text_config": {"max_position_embeddings": 32768}}}, 32768),
        (
            {
                "max_position_embeddings": 32768,
                "rope_parameters": {
                    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                    "full_attention": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 32768},
                },
            },
            131072,
        ),
        (
            {
                "max_position_embeddings": 32768,
                "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
            },
            131072,
        ),
        (
            {
                "max_position_embeddings": 32768,
                "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
            },
            131072,
        ),
        (
            {
                "max_position_embeddings": 32768,
                "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
            },
            32768,
        ),
        ({"max_position_embeddings": "many"}, 0),
        ({"max_position_embeddings": True}, 0),
        ({"max_position_embeddings": 1 << 60}, 0),
    ],
)
def test_tokens_are_those_of_the_part_for_text(fields: dict[str, Any], tokens: int) -> None:
    assert facts(**fields).max_tokens == tokens


@pytest.mark.parametrize(
    ("type_", "architecture", "fields", "capabilities"),
    [
        ("llama", "LlamaForCausalLM", {}, "TEXT_TO_TEXT"),
        ("llama4", "Llama4ForConditionalGeneration", {"vision_config": {"depth": 1}}, "IMAGE_TEXT_TO_TEXT"),
        ("phi3_v", "Phi3VForCausalLM", {"img_processor": {"name": "clip"}}, "IMAGE_TEXT_TO_TEXT"),
        ("phi3_v", "Phi3VForCausalLM", {"embd_layer": {"embedding_cls": "image"}}, "IMAGE_TEXT_TO_TEXT"),
        ("llava", "LlavaLlamaForCausalLM", {"mm_vision_tower": "openai/clip"}, "IMAGE_TEXT_TO_TEXT"),
        ("bert", "BertModel", {}, "EMBEDDING"),
        ("xlm-roberta", "XLMRobertaModel", {}, "EMBEDDING"),
        ("mistral", "MistralModel", {}, "EMBEDDING"),
        ("mistral", "MistralForCausalLM", {}, "TEXT_TO_TEXT"),
        ("qwen2", "Qwen2ForCausalLM", {"is_causal": False}, "EMBEDDING"),
        ("new", "NewSentenceEmbedder", {}, "EMBEDDING"),
        ("whisper", "WhisperForConditionalGeneration", {}, "AUDIO_TO_TEXT"),
        ("wav2vec2", "Wav2Vec2ForCTC", {}, "AUDIO_TO_TEXT"),
        (
            "qwen2_5_omni",
            "Qwen2_5OmniModel",
            {},
            "TEXT_TO_AUDIO IMAGE_TEXT_TO_AUDIO VIDEO_TEXT_TO_AUDIO AUDIO_TO_TEXT AUDIO_TO_AUDIO",
        ),
        (
            "NemotronH_Nano_VL_V2",
            "NemotronH_Nano_VL_V2",
            {"vision_config": {"depth": 1}},
            "IMAGE_TEXT_TO_TEXT TEXT_TO_TEXT AUDIO_TO_TEXT",
        ),
    ],
)
def test_a_config_shows_what_a_model_can_do(
    type_: str, architecture: str, fields: dict[str, Any], capabilities: str
) -> None:
    result = facts(model_type=type_, architectures=[architecture], **fields)
    assert " ".join(result.capabilities) == capabilities


def test_files_of_sentence_transformers_show_that_a_model_embeds() -> None:
    assert facts_of(LLAMA, files=("config.json", "modules.json")).capabilities == ("EMBEDDING",)


def test_a_type_whose_repositories_name_no_architecture_has_one() -> None:
    assert facts(model_type="deepseek_vl_v2", architectures=None).architecture == "DeepseekVLV2ForCausalLM"


@pytest.mark.parametrize(
    ("class_name", "capability"),
    [
        ("QwenImagePipeline", "TEXT_TO_IMAGE"),
        ("QwenImageEditPipeline", "IMAGE_TEXT_TO_IMAGE"),
        ("StableDiffusionXLInpaintPipeline", "IMAGE_TEXT_TO_IMAGE"),
        ("FluxPipeline", "TEXT_TO_IMAGE"),
        ("TextToVideoSDPipeline", "TEXT_TO_VIDEO"),
        ("HunyuanVideoPipeline", "IMAGE_TEXT_TO_VIDEO"),
        ("ShapEPipeline", ""),
    ],
)
def test_the_class_of_a_pipeline_says_what_it_makes(class_name: str, capability: str) -> None:
    assert " ".join(facts_of({"_class_name": class_name}).capabilities) == capability


def test_a_pipeline_is_reported_with_its_parts() -> None:
    index = {
        "_class_name": "QwenImagePipeline",
        "_diffusers_version": "0.34.0",
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "Qwen2_5_VLForConditionalGeneration"],
        "vae": ["diffusers", "AutoencoderKLQwenImage"],
        "image_encoder": ["transformers", "CLIPVisionModel"],
        "safety_checker": [None, None],
        "force_zeros": True,
    }
    result = facts_of(index, tensors={"BF16": 20_000_000_000})
    assert result == ModelFacts(
        architecture="QwenImagePipeline",
        format=VersionedName("diffusers", "0.34.0"),
        framework=VersionedName("diffusers", "0.34.0"),
        parameter_size="20B",
        parameters=20_000_000_000,
        exact=True,
        stored_size="20B",
        capabilities=("TEXT_TO_IMAGE",),
        diffusion_pipeline={
            "className": "QwenImagePipeline",
            "scheduler": {"library": "diffusers", "type": "FlowMatchEulerDiscreteScheduler"},
            "textEncoder": {"library": "transformers", "type": "Qwen2_5_VLForConditionalGeneration"},
            "vae": {"library": "diffusers", "type": "AutoencoderKLQwenImage"},
            "additionalComponents": {"image_encoder": {"library": "transformers", "type": "CLIPVisionModel"}},
        },
    )


def test_a_gguf_file_says_all_but_its_quantization() -> None:
    header = Gguf(
        file_version=3,
        tensor_count=2,
        architecture="llama",
        quantization="Q4_K_M",
        context_length=4096,
        parameters=1_100_000_000,
    )
    assert facts_of_gguf([header]) == ModelFacts(
        model_type="llama",
        format=VersionedName("gguf"),
        framework=VersionedName("ggml"),
        parameter_size="1.1B",
        parameters=1_100_000_000,
        exact=True,
        max_tokens=4096,
        capabilities=("TEXT_TO_TEXT",),
    )


def test_parts_of_a_gguf_file_are_counted_together_or_not_at_all() -> None:
    part = Gguf(file_version=3, tensor_count=2, architecture="llama", parameters=600_000_000)
    unread = Gguf(file_version=3, tensor_count=2)
    assert facts_of_gguf([part, part]).parameter_size == "1.2B"
    assert facts_of_gguf([part, unread]).parameter_size == ""


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (("config.json", "model.safetensors"), "config.json"),
        (("vae/config.json", "unet/config.json", "model_index.json"), "model_index.json"),
        (("pipeline/model_index.json", "config.json"), "pipeline/model_index.json"),
        (("deep/down/config.json", "model/config.json", "safetensors/config.json"), "safetensors/config.json"),
        (("z/config.json", "a/b/config.json"), "z/config.json"),
        (("mmproj-f16.gguf", "model-00002-of-00002.gguf", "model-00001-of-00002.gguf"), "model-00001-of-00002.gguf"),
        (("config.json", "model.Q4_K_M.gguf"), "model.Q4_K_M.gguf"),
        (("config.json", "model.safetensors", "model.Q4_K_M.gguf"), "config.json"),
        (("weights.bin", "my_config.json"), ""),
        ((), ""),
    ],
)
def test_a_fixed_order_selects_the_file_that_describes_a_model(files: tuple[str, ...], expected: str) -> None:
    assert described_by(files) == expected


# --- what strangers write


def test_numbers_that_json_does_not_have_are_taken_as_the_original_takes_them() -> None:
    assert parse_config(b'{"a": Infinity, "b": -Infinity, "c": NaN, "d": "NaN \\" Infinity", "e": [1, NaN]}') == {
        "a": 1e308,
        "b": -1e308,
        "c": None,
        "d": 'NaN " Infinity',
        "e": [1, None],
    }


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b'{"a": NaN', b"\xff", b"[" * 100_000, b" " * (2 * MOST_BYTES + 1)])
def test_an_invalid_configuration_is_rejected(text: bytes) -> None:
    with pytest.raises(DecodingError):
        parse_config(text)


def test_a_long_text_without_an_end_is_refused() -> None:
    """It takes moments. A search that restarted at each quotation mark would not end."""
    with pytest.raises(DecodingError):
        parse_config(b'{"a": NaN, "' + b'\\"' * 1_000_000)


ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    1 << 70,
    1e308,
    "x" * 1000,
    [],
    ["x"],
    {},
    {"a": {}},
    [[1]],
    "\x1b[2J",
    {"factor": []},
]


@each(seeds(60))
def test_an_odd_configuration_yields_bounded_facts(seed: int) -> None:
    dice = random.Random(seed)
    fields = [
        *LLAMA,
        "text_config",
        "vision_config",
        "quantization_config",
        "rope_scaling",
        "ffn_config",
        "attn_config",
    ]
    fields += [
        "num_experts",
        "moe_layer_freq",
        "first_k_dense_replace",
        "kv_lora_rank",
        "qk_nope_head_dim",
        "mlp_ratio",
    ]
    inside = {name: dice.choice(ODD) for name in dice.sample(fields, k=5)}
    config = LLAMA | {name: dice.choice([*ODD, inside]) for name in dice.sample(fields, k=6)}
    if seed % 5 == 0:
        config["_class_name"] = dice.choice(ODD)
    result = facts_of(config)
    texts = (result.model_type, result.architecture, result.quantization, result.parameter_size)
    assert all(len(text) <= 128 and text.isprintable() for text in texts)
    assert 0 <= result.max_tokens < 1 << 31


# --- files of real models

EXPECTED = {
    "baichuan2_7b": "BaichuanForCausalLM 7.51B 4096 TEXT_TO_TEXT",
    "command_r_35b": "CohereForCausalLM 34.98B 131072 TEXT_TO_TEXT",
    "config_sentence_transformers": "- - 0 -",
    "deepseek_vl2_tiny": "DeepseekVLV2ForCausalLM 3.35B 4096 IMAGE_TEXT_TO_TEXT",
    "exaone_7.8b": "ExaoneForCausalLM 7.82B 32768 TEXT_TO_TEXT",
    "gemma3_text": "Gemma3ForCausalLM 999.75M 32768 TEXT_TO_TEXT",
    "gemma_2_2b": "Gemma2ForCausalLM 2.61B 8192 TEXT_TO_TEXT",
    "gemma_2_2b_it": "Gemma2ForCausalLM 2.61B 8192 TEXT_TO_TEXT",
    "gte_qwen2_7b": "Qwen2ForCausalLM 7.61B 131072 EMBEDDING",
    "internlm2_7b": "InternLM2ForCausalLM 7.74B 32768 TEXT_TO_TEXT",
    "internlm2_reward": "InternLM2ForRewardModel 7.74B 32768 TEXT_TO_TEXT",
    "kimi_k2_instruct": "DeepseekV3ForCausalLM 1.03T 131072 TEXT_TO_TEXT fp8",
    "llama4_scout_17b_16e": "Llama4ForConditionalGeneration 108.58B 10485760 IMAGE_TEXT_TO_TEXT",
    "llava_1.5_7b_hf": "LlavaForConditionalGeneration 7.04B 4096 IMAGE_TEXT_TO_TEXT",
    "llava_v1.5_7b": "LlavaLlamaForCausalLM 6.74B 4096 IMAGE_TEXT_TO_TEXT",
    "minicpm3_4b": "MiniCPM3ForCausalLM 4.07B 32768 TEXT_TO_TEXT",
    "mistral": "MistralForCausalLM 7.24B 32768 TEXT_TO_TEXT",
    "phi3": "Phi3ForCausalLM 3.82B 131072 TEXT_TO_TEXT",
    "phi3_v": "Phi3VForCausalLM 3.82B 131072 IMAGE_TEXT_TO_TEXT",
    "phi3small": "Phi3SmallForCausalLM 7.39B 8192 TEXT_TO_TEXT",
    "phimoe": "PhiMoEForCausalLM 41.87B 131072 TEXT_TO_TEXT",
    "qwen2.5_0.5b": "Qwen2ForCausalLM 493.96M 32768 TEXT_TO_TEXT",
    "qwen2.5_14b": "Qwen2ForCausalLM 14.77B 131072 TEXT_TO_TEXT",
    "qwen2.5_3b": "Qwen2ForCausalLM 3.09B 32768 TEXT_TO_TEXT",
    "qwen2.5_72b": "Qwen2ForCausalLM 72.7B 131072 TEXT_TO_TEXT",
    "qwen2_7b": "Qwen2ForCausalLM 7.62B 131072 TEXT_TO_TEXT",
    "qwen2_vl_2b": "Qwen2VLForConditionalGeneration 2.17B 32768 IMAGE_TEXT_TO_TEXT",
    "qwen3_4b": "Qwen3ForCausalLM 4.02B 40960 TEXT_TO_TEXT",
    "qwen3_8b_fp8": "Qwen3ForCausalLM 8.19B 40960 TEXT_TO_TEXT fp8",
    "qwen3_vl_235b": "Qwen3VLMoeForConditionalGeneration 235.5B 262144 IMAGE_TEXT_TO_TEXT",
    "qwen3_vl_2b_instruct": "Qwen3VLForConditionalGeneration 2.02B 262144 IMAGE_TEXT_TO_TEXT",
    "smollm_1.7b": "LlamaForCausalLM 1.71B 2048 TEXT_TO_TEXT",
    "xverse_7b": "XverseForCausalLM 7.3B 8192 TEXT_TO_TEXT",
}
"""Where the original has fixed numbers for sizes that it knows, the dimensions give what the models really have."""


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_a_real_config_is_read(path: Path) -> None:
    config = json.loads(path.read_text())
    result = facts_of(parse_config(path.read_bytes()))
    fields = (result.architecture, result.parameter_size, str(result.max_tokens), *(result.capabilities or ("",)))
    assert " ".join((*(text or "-" for text in fields), *filter(None, [result.quantization]))) == EXPECTED[path.stem]
    assert result.model_type == config.get("model_type", "")
    assert not result.framework or result.framework.version == config.get("transformers_version", "")
