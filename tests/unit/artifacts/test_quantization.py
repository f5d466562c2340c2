"""How many parameters quantized tensors hold: by their types, and exactly by their names and shapes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from slipway.artifacts.facts.config import completed, facts_of
from slipway.artifacts.quantization.counts import ParameterCount, by_names
from slipway.artifacts.quantization.methods import scheme_of
from slipway.artifacts.quantization.name_patterns import matches_any, wildcards
from tests.tables import each, seeds

MODEL: dict[str, Any] = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
B = 1_000_000_000
REST = {"BF16": B}
"""What is not quantized beside seven billion weights that are."""


def compressed(format_: str, *groups: tuple[int, str] | tuple[int, str, str]) -> dict[str, Any]:
    """Of compressed-tensors: bits, type and perhaps a format of each group."""
    config_groups = {
        f"group_{place}": {
            "targets": ["Linear"],
            "weights": {"num_bits": group[0], "type": group[1]},
            "format": group[2] if len(group) > 2 else None,
        }
        for place, group in enumerate(groups)
    }
    return {"quant_method": "compressed-tensors", "format": format_, "config_groups": config_groups}


BY_TYPES: list[tuple[dict[str, Any], dict[str, int], bool]] = [
    (compressed("int-quantized", (8, "int")), {"I8": 7 * B}, True),
    (compressed("int-quantized", (4, "int")), {"I8": 7 * B}, True),
    (compressed("float-quantized", (8, "float")), {"F8_E4M3": 7 * B}, True),
    (compressed("naive-quantized", (8, "float")), {"F8_E4M3": 7 * B}, True),
    (compressed("pack-quantized", (4, "int")), {"I32": 875_000_000}, False),
    (compressed("pack-quantized", (8, "int")), {"I32": 1_750_000_000}, False),
    (compressed("nvfp4-pack-quantized", (4, "float")), {"U8": 3_500_000_000, "F8_E4M3": 437_500_000}, True),
    (compressed("mxfp4-pack-quantized", (4, "float")), {"U8": 3_500_000_000 + 218_750_000}, True),
    (compressed("marlin-24", (4, "int")), {"I32": 437_500_000}, False),
    (
        compressed("mixed-precision", (4, "int", "pack-quantized"), (8, "int", "int-quantized")),
        {"I32": 500_000_000, "I8": 3 * B},
        False,
    ),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, {"U8": 3_500_000_000, "F8_E4M3": 437_500_000}, True),
    ({"quant_method": "modelopt_fp4"}, {"U8": 3_500_000_000, "F8_E4M3": 437_500_000}, True),
    ({"quant_method": "modelopt", "quant_algo": "FP8"}, {"F8_E4M3": 7 * B}, True),
    ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, {"F8_E4M3": 7 * B, "U8": 218_750_000}, True),
    ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}, {"U8": 3_500_000_000}, True),
    (
        {
            "quant_method": "modelopt",
            "quant_algo": "MIXED_PRECISION",
            "quantized_layers": {"a": {"quant_algo": "NVFP4"}, "b": {"quant_algo": "FP8"}},
        },
        {"U8": 3 * B, "F8_E4M3": B + 375_000_000},
        False,
    ),
    ({"quant_method": "mxfp4"}, {"U8": 3_500_000_000 + 218_750_000}, False),
    ({"quant_method": "fp8"}, {"F8_E4M3": 7 * B}, True),
    ({"quant_method": "fbgemm_fp8"}, {"F8_E4M3": 7 * B}, True),
    ({"quant_method": "mxfp8"}, {"F8_E4M3": 7 * B, "U8": 218_750_000}, True),
    ({"quant_method": "awq", "bits": 4}, {"I32": 875_000_000}, False),
    ({"quant_method": "awq", "w_bit": 4}, {"I32": 875_000_000}, False),
    ({"quant_method": "gptq", "bits": 2}, {"I32": 437_500_000}, False),
    ({"quant_method": "gptq", "bits": 3}, {"I32": 656_250_000}, False),
    ({"quant_method": "gptq", "bits": 8}, {"I32": 1_750_000_000}, False),
    ({"quant_method": "gptq", "bits": "4"}, {"I32": 875_000_000}, False),
    ({"quant_method": "auto-round", "bits": 4}, {"I32": 875_000_000}, False),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, {"U8": 3_500_000_000}, False),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, {"I8": 7 * B}, False),
    ({"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 2}}}, {"U8": 1_750_000_000}, False),
    ({"quant_method": "quanto", "weights": "int4"}, {"U8": 3_500_000_000}, False),
    ({"quant_method": "quanto", "weights": "int8"}, {"I8": 7 * B}, False),
    ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}}, {"U8": 3_500_000_000}, False),
    ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "int4"}}}, {"I32": 875_000_000}, False),
    (
        {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}},
        {"F8_E4M3": 7 * B},
        False,
    ),
    ({"quant_method": "torchao", "quant_type": "int8_weight_only"}, {"I8": 7 * B}, True),
    (
        {"quant_method": "aqlm", "in_group_size": 8, "out_group_size": 1, "num_codebooks": 1},
        {"I16": 875_000_000},
        False,
    ),
    ({"quant_method": "bitnet"}, {"U8": 1_750_000_000}, True),
    ({"quant_method": "eetq"}, {"I8": 7 * B}, True),
    ({"quant_method": "exl2", "bits": 3.5}, {"I32": 765_625_000}, False),
]


@each(BY_TYPES)
def test_the_method_its_format_and_its_bits_say_what_a_number_holds(
    quantization: dict[str, Any], tensors: dict[str, int], exact: bool
) -> None:
    for place in ({"quantization_config": quantization}, {"text_config": {"quantization_config": quantization}}):
        result = facts_of(MODEL | place, tensors=tensors | REST)
        assert (result.parameter_size, result.exact) == ("8B", exact)


@each(
    [
        {"quant_method": "quip"},
        {"quant_method": "gptq"},
        {"quant_method": "a method of tomorrow", "bits": 4},
        {"quant_method": 7},
        compressed("a format of tomorrow", (4, "int")),
        compressed("sparse-24-bitmask", (8, "int")),
    ]
)
def test_undeclared_values_are_estimated(quantization: dict[str, Any]) -> None:
    dimensions = {"hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 32000}
    result = facts_of(MODEL | dimensions | {"quantization_config": quantization}, tensors={"I32": 900_000_000, **REST})
    assert (result.parameter_size, result.exact) == ("6.74B", False)


@pytest.mark.parametrize("place", [{}, {"text_config": {"model_type": "llama"}}], ids=["alone", "multi-modal"])
def test_experts_of_four_bits_lie_in_bytes_beside_weights_of_eight(place: dict[str, Any]) -> None:
    """As in DeepSeek V4."""
    config = MODEL | place | {"quantization_config": {"quant_method": "fp8", "scale_fmt": "ue8m0"}}
    tensors = {"F8_E4M3": B, "I8": 3 * B, "F8_E8M0": 96_000_000, **REST}
    part = {"text_config": {"expert_dtype": "fp4"}}
    for experts in ({"expert_dtype": "fp4"}, {"expert_dtype": "mxfp4"}, part, {"expert_dtype": None} | part):
        result = facts_of(config | experts, tensors=tensors)
        assert (result.parameter_size, result.exact) == ("8B", True)
    for other in ({}, {"expert_dtype": "nvfp4"}):
        assert not facts_of(config | other, tensors=tensors).exact


def test_other_weights_than_experts_of_four_bits_are_not_counted_twice() -> None:
    quantization = {"quant_method": "fp8"}
    config = MODEL | {"expert_dtype": "fp4", "quantization_config": quantization}
    weights: Tensors = {
        "model.layers.0.mlp.experts.0.down_proj.weight": ("I8", (OUT, IN // 2)),
        "model.layers.0.mlp.experts.1.down_proj.weight": ("F8_E4M3", (OUT, IN)),
        "model.layers.0.self_attn.k_proj.weight": ("F8_E4M3", (OUT, IN)),
    }
    result = facts_of(config, tensors={"I8": 1}, shapes=weights | PLAIN)
    assert (result.parameters, result.exact) == (3 * OUT * IN + 64_064, True)
    for module in ("self_attn.q_proj", "mlp.shared_experts.up_proj"):
        odd: Tensors = {f"model.layers.0.{module}.weight": ("I8", (OUT, IN))}
        assert not facts_of(config, tensors={"I8": 1}, shapes=weights | odd | PLAIN).exact


@each([("U8", 16, True), ("I8", 7_000_000, True), ("I8", 8_000_000, False)])
def test_a_few_numbers_of_an_unknown_kind_leave_it_exact(type_: str, numbers: int, exact: bool) -> None:
    config = MODEL | {"quantization_config": {"quant_method": "fp8"}}
    assert facts_of(config, tensors={"F8_E4M3": 7 * B, type_: numbers}).exact is exact
    shapes: Tensors = {"model.a.weight": ("F8_E4M3", (7, B)), "model.b.position_ids": (type_, (numbers,))}
    assert facts_of(config, tensors={type_: 1}, shapes=shapes).exact is exact


def test_numbers_of_a_quantized_type_without_a_quantization_are_not_exact() -> None:
    assert not facts_of(MODEL, tensors={"I32": 900_000_000, **REST}).exact
    assert facts_of(MODEL, tensors={"I64": 512, "I32": 512, **REST}).exact


Tensors = dict[str, tuple[str, Sequence[int]]]
OUT, IN = 256, 512
LAYER = "model.layers.0.mlp.down_proj"
PLAIN: Tensors = {"model.embed_tokens.weight": ("BF16", (1000, 64)), "model.norm.scale": ("BF16", (64,))}
BY_NAMES: list[tuple[dict[str, Any], Tensors]] = [
    (
        {"quant_method": "gptq", "bits": 4, "group_size": 128},
        {
            "qweight": ("I32", (64, 256)),
            "qzeros": ("I32", (4, 32)),
            "scales": ("F16", (4, 256)),
            "g_idx": ("I32", (512,)),
        },
    ),
    (
        {"quant_method": "gptq", "bits": 4, "dynamic": {r"+:.*\.0\..*(up|down)_proj.*": {"bits": 8}, "-:lm_head": {}}},
        {"qweight": ("I32", (128, 256)), "qzeros": ("I32", (4, 64)), "scales": ("F16", (4, 256))},
    ),
    (
        {"quant_method": "awq", "bits": 4},
        {"qweight": ("I32", (512, 32)), "qzeros": ("I32", (4, 32)), "scales": ("F16", (4, 256))},
    ),
    (
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        {
            "weight": ("U8", (65536, 1)),
            "weight.absmax": ("U8", (2048,)),
            "weight.nested_absmax": ("F32", (8,)),
            "weight.nested_quant_map": ("F32", (256,)),
            "weight.quant_map": ("F32", (16,)),
            "weight.quant_state.bitsandbytes__nf4": ("U8", (82,)),
        },
    ),
    (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_storage": "bfloat16"},
        {"weight": ("BF16", (32768, 1)), "weight.absmax": ("F32", (2048,)), "weight.quant_map": ("F32", (16,))},
    ),
    (
        {"quant_method": "bitsandbytes", "load_in_8bit": True},
        {"weight": ("I8", (256, 512)), "SCB": ("F32", (256,)), "weight_format": ("U8", ())},
    ),
    (
        compressed("pack-quantized", (4, "int")),
        {
            "weight_packed": ("I32", (256, 64)),
            "weight_scale": ("BF16", (256, 4)),
            "weight_zero_point": ("I32", (32, 4)),
            "weight_shape": ("I64", (2,)),
            "weight_g_idx": ("I32", (512,)),
        },
    ),
    (
        {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "config_groups": {
                "a": {"targets": [r"re:.*\.down_proj$"], "weights": {"num_bits": 8, "type": "int"}},
                "b": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int"}},
            },
        },
        {"weight_packed": ("I32", (256, 128)), "weight_scale": ("BF16", (256, 1)), "weight_shape": ("I64", (2,))},
    ),
    (compressed("int-quantized", (8, "int")), {"weight": ("I8", (256, 512)), "weight_scale": ("F32", (256, 1))}),
    (
        compressed("nvfp4-pack-quantized", (4, "float")),
        {
            "weight_packed": ("U8", (256, 256)),
            "weight_scale": ("F8_E4M3", (256, 32)),
            "weight_global_scale": ("F32", (1,)),
            "input_global_scale": ("F32", (1,)),
        },
    ),
    (
        {"quant_method": "modelopt", "quant_algo": "NVFP4"},
        {
            "weight": ("U8", (256, 256)),
            "weight_scale": ("F8_E4M3", (256, 32)),
            "weight_scale_2": ("F32", ()),
            "input_scale": ("F32", ()),
            "k_scale": ("F32", ()),
        },
    ),
    (
        {
            "quant_method": "modelopt",
            "quant_algo": "MIXED_PRECISION",
            "quantized_layers": {LAYER: {"quant_algo": "NVFP4"}, "other": {"quant_algo": "W8A8_SQ"}},
        },
        {"weight": ("U8", (256, 256)), "weight_scale": ("F8_E4M3", (256, 32)), "pre_quant_scale": ("BF16", (512,))},
    ),
    ({"quant_method": "fp8"}, {"weight": ("F8_E4M3", (256, 512)), "weight_scale_inv": ("F32", (2, 4))}),
    ({"quant_method": "mxfp4"}, {"_blocks": ("U8", (8, 32, 16, 16)), "_scales": ("U8", (8, 32, 16))}),
    (
        {"quant_method": "hqq", "quant_config": {"mlp.down_proj": {"weight_quant_params": {"nbits": 4}}}},
        {"W_q": ("U8", (128, 512)), "scale": ("F16", (1024, 1)), "zero": ("F16", (1024, 1)), "nbits": ("I32", ())},
    ),
    (
        {"quant_method": "quanto", "weights": "int8"},
        {"weight._data": ("I8", (256, 512)), "weight._scale": ("F16", (256, 1))},
    ),
    (
        {"quant_method": "aqlm", "in_group_size": 8, "out_group_size": 1, "num_codebooks": 2},
        {"codes": ("I8", (256, 64, 2)), "codebooks": ("F16", (2, 256, 1, 8)), "scales": ("F16", (256, 1, 1, 1))},
    ),
    (
        {"quant_method": "exl2", "bits": 4.65},
        {
            "q_weight": ("I32", (77, 256)),
            "q_scale": ("I32", (16, 32)),
            "q_scale_max": ("F16", (16,)),
            "q_groups": ("I16", (32,)),
            "q_invperm": ("I32", (512,)),
        },
    ),
    ({"quant_method": "exl3"}, {"trellis": ("I16", (32, 16, 48)), "suh": ("F16", (512,)), "svh": ("F16", (256,))}),
    (
        {"group_size": 64, "bits": 4, "mode": "affine"},
        {"weight": ("U32", (256, 64)), "scales": ("BF16", (256, 8)), "biases": ("BF16", (256, 8))},
    ),
    (
        {"group_size": 64, "bits": 4, LAYER: {"group_size": 64, "bits": 6}},
        {"weight": ("U32", (256, 96)), "scales": ("BF16", (256, 8)), "biases": ("BF16", (256, 8))},
    ),
    (
        {
            "quant_method": "quark",
            "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}},
            "layer_quant_config": {"*down_proj": {"weight": [{"dtype": "fp4"}]}},
        },
        {"weight": ("U8", (256, 256)), "weight_scale": ("U8", (256, 16))},
    ),
]


@each(BY_NAMES)
def test_scales_zero_points_and_tables_are_no_parameters(quantization: dict[str, Any], tensors: Tensors) -> None:
    shapes = {f"{LAYER}{'' if leaf.startswith('_') else '.'}{leaf}": shape for leaf, shape in tensors.items()}
    result = facts_of(MODEL | {"quantization_config": quantization}, tensors={"U8": 1}, shapes=shapes | PLAIN)
    assert (result.parameters, result.exact) == (OUT * IN + 64_064, True)


def test_groups_that_cannot_be_distinguished_are_not_exact() -> None:
    both = compressed("pack-quantized", (4, "int"), (8, "int"))
    tensors: Tensors = {f"{LAYER}.weight_packed": ("I32", (256, 64)), f"{LAYER}.weight_scale": ("BF16", (256, 1))}
    assert not counted(both, tensors).exact
    odd = {"quant_method": "gptq", "bits": 4, "dynamic": {r"+:(a+)+$": {"bits": 8}}}
    assert not counted(odd, {f"{LAYER}.qweight": ("I32", (64, 256))}).exact


def counted(quantization: dict[str, Any], tensors: Tensors) -> ParameterCount:
    scheme = scheme_of({"quantization_config": quantization})
    assert scheme is not None
    return by_names(scheme, tensors)


@pytest.mark.parametrize(
    ("name", "content", "tensors"),
    [
        (
            "hf_quant_config.json",
            {"quantization": {"quant_algo": "NVFP4"}},
            {"U8": 3_500_000_000, "F8_E4M3": 437_500_000},
        ),
        ("quantize_config.json", {"bits": 4, "group_size": 128, "desc_act": False}, {"I32": 875_000_000}),
        ("quant_config.json", {"w_bit": 4, "q_group_size": 128, "zero_point": True}, {"I32": 875_000_000}),
    ],
)
def test_a_quantization_may_stand_in_a_file_of_its_own(
    name: str, content: dict[str, Any], tensors: dict[str, int]
) -> None:
    assert facts_of(completed(MODEL, {name: content}), tensors=tensors | REST).parameter_size == "8B"
    own = MODEL | {"quantization_config": {"quant_method": "fp8"}}
    assert completed(own, {name: content}) == own


@each(
    [
        (r".*\.down_proj$", "a.0.down_proj", True),
        (r".*\.down_proj$", "a.0.down_proj.x", False),
        (r"model\.layers\.\d+\.mlp", "model.layers.12.mlp.down_proj", True),
        (r"^model.layers.[0-9]+.(?:q|k)_proj", "model.layers.3.k_proj", True),
        (r"model\.layers\.(1|2)\.mlp", "model.layers.3.mlp", False),
    ]
)
def test_simple_expressions_become_wildcards(expression: str, name: str, fit: bool) -> None:
    patterns = wildcards(expression)
    assert patterns is not None
    assert matches_any(name, patterns) is fit


@each(["(a+)+$", "a{1000000}", "(?=x)y", "[^a]*", "(a|b)*", "a**", "x" * 1000, "(a|b)" * 20, "\\", "["])
def test_other_expressions_are_not_understood(expression: str) -> None:
    assert wildcards(expression) is None


ODD = (None, True, -1, 0, 4, 8, 1 << 70, 1e308, "", "int4", "x" * 1000, [], [None, "re:(a+)+$"], {}, {"a": None})
METHODS = ("gptq", "awq", "bitsandbytes", "mxfp4", "modelopt", "compressed-tensors", "quark", "hqq", "quanto", "aqlm")
FIELDS = (
    *("bits", "format", "quant_algo", "config_groups", "dynamic", "extra_config", "quantized_layers", "group_size"),
    *("global_quant_config", "layer_quant_config", "quant_config", "weights", "quant_type", "in_group_size"),
)


@each(seeds(300))
def test_an_odd_configuration_yields_a_bounded_count(seed: int) -> None:
    generator = random.Random(seed)
    odd = {field: generator.choice([*ODD, {"a": generator.choice(ODD)}]) for field in FIELDS}
    quantization = odd | {"quant_method": generator.choice(METHODS)}
    tensors: Tensors = {
        "model.a.weight": ("U8", (16, 16)),
        "model.a.scales": ("F16", (16,)),
        "model.a.q_weight": ("I32", ()),
    }
    result = counted(quantization, tensors)
    assert 0 <= result.parameters <= 16 * 16 * 64 * 16


def test_a_count_stays_within_what_a_report_can_hold() -> None:
    huge = {f"{LAYER}.qweight": ("I32", (1 << 31, 1 << 31))}
    assert counted({"quant_method": "gptq", "bits": 2}, huge) == ParameterCount((1 << 63) - 1, exact=False)
