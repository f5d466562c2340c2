"""Parameters: estimates a model's number of parameters from the dimensions in its config.json. Pure.

An estimate adds up the matrices of a transformer with these dimensions. It omits biases and norms, which have less than
one percent of the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

MOST = 1 << 24
"""Maximum value of a dimension. No model comes close."""
UNITS = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K"))

HIDDEN = ("hidden_size", "d_model", "n_embd", "dim")
VISION_HIDDEN = ("embed_dim", "hidden_size", "width")
LAYERS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer", "layers", "depth")
HEADS = ("num_attention_heads", "n_heads", "n_head", "num_heads")
KEY_HEADS = ("num_key_value_heads", "multi_query_group_num", "kv_n_heads", "num_kv_heads")
HEAD = ("head_dim", "kv_channels")
INNER = ("intermediate_size", "ffn_hidden_size", "ff_intermediate_size", "n_inner", "d_ff", "ffn_dim")
VOCABULARY = ("vocab_size", "padded_vocab_size", "n_vocab")
EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
NESTED = ("attn_config", "ffn_config")
"""Objects in which some configurations nest dimensions."""
TIED = (
    "gemma",
    "gemma2",
    "gemma3",
    "gemma3_text",
    "cohere",
    "cohere2",
    "command-r",
    "minicpm",
    "minicpm3",
    "phi3small",
    "bert",
)
"""Model types that use one embedding for both input and output by default."""
PLAIN = ("bert", "roberta", "gpt2", "gpt_neox", "gptj", "gpt_bigcode", "opt", "bloom", "falcon", "mpt", "phi", "clip")
"""Model types whose feed-forward layers have two matrices; others have three."""
LLAMA: Mapping[str, int] = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
}
"""Default dimensions, which configurations of Llama may omit."""


def format_size(count: int) -> str:
    """Format a number of parameters with up to two decimals: ``8.03B`` or ``350M``. Empty for 0."""
    for unit, letter in UNITS:
        if count >= unit:
            return f"{count / unit:.2f}".rstrip("0").rstrip(".") + letter
    return str(count) if count else ""


def estimated(config: Mapping[str, Any], text: Mapping[str, Any]) -> int:
    """Estimate the number of parameters from a config.json and its text component, which may be the whole config.json.
    Return 0 if the hidden size or the number of layers is missing."""
    shape = _shape(text)
    if shape is None:
        return 0
    tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings", shape.type in TIED))
    embeddings = shape.vocabulary * shape.hidden * (1 if tied else 2)
    vision = config.get("vision_config")
    eyes = _vision(vision) if isinstance(vision, Mapping) else 0
    return embeddings + shape.layers * _attention(shape, text) + _feed_forward(shape, text) + eyes


def number(config: Mapping[str, Any], *names: str) -> int:
    """Return the value of the first field in ``names`` that is an integer from 1 to ``MOST``; 0 if none is."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST:
            return value
    return 0


class _Shape(msgspec.Struct, frozen=True):
    type: str
    hidden: int
    layers: int
    heads: int
    inner: int
    vocabulary: int


def _shape(text: Mapping[str, Any]) -> _Shape | None:
    type_ = text.get("model_type")
    flat = {**text}
    for name in NESTED:
        inside = text.get(name)
        flat |= inside if isinstance(inside, Mapping) else {}
    if type_ == "llama":
        flat = {**LLAMA, **flat}
    hidden, layers = number(flat, *HIDDEN), number(flat, *LAYERS)
    if not hidden or not layers:
        return None
    return _Shape(
        type=type_ if isinstance(type_, str) else "",
        hidden=hidden,
        layers=layers,
        heads=number(flat, *HEADS) or max(1, hidden // 128),
        inner=number(flat, *INNER) or 4 * hidden,
        vocabulary=number(flat, *VOCABULARY),
    )


def _attention(shape: _Shape, text: Mapping[str, Any]) -> int:
    """Return the number of parameters in one attention layer."""
    hidden, heads = shape.hidden, shape.heads
    latent, plain, rotary = (number(text, name) for name in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"))
    if latent and plain:
        query, value = number(text, "q_lora_rank"), number(text, "v_head_dim") or plain
        width = heads * (plain + rotary)
        queries = query * (hidden + width) if query else hidden * width
        return queries + hidden * (latent + rotary) + latent * heads * (plain + value) + heads * value * hidden
    head = number(text, *HEAD) or max(1, hidden // heads)
    inside = text.get("attn_config")
    shared = number(text, *KEY_HEADS) or number(inside if isinstance(inside, Mapping) else {}, *KEY_HEADS) or heads
    return 2 * hidden * head * (heads + shared)


def _feed_forward(shape: _Shape, text: Mapping[str, Any]) -> int:
    """Return the number of parameters in all feed-forward layers, including those with experts."""
    hidden, inside = shape.hidden, text.get("ffn_config")
    matrices = 2 if shape.type in PLAIN else 3
    experts = number(text, *EXPERTS) or number(inside if isinstance(inside, Mapping) else {}, *EXPERTS)
    if not experts:
        return shape.layers * matrices * hidden * shape.inner
    width = number(text, "moe_intermediate_size") or shape.inner
    shared = number(text, "shared_expert_intermediate_size") or width * number(text, "n_shared_experts")
    every = number(text, "interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq") or 1
    if shape.type == "llama4_text":
        shared = width
    sparse = (shape.layers - min(shape.layers, number(text, "first_k_dense_replace"))) // every
    dense = number(text, "intermediate_size_mlp") or shape.inner
    one = hidden * (3 * (experts * width + shared) + experts)
    return sparse * one + (shape.layers - sparse) * matrices * hidden * dense


def _vision(config: Mapping[str, Any]) -> int:
    hidden, layers = number(config, *VISION_HIDDEN), number(config, *LAYERS)
    ratio = config.get("mlp_ratio")
    inner = number(config, *INNER) or int(hidden * (ratio if isinstance(ratio, int | float) and 0 < ratio < 64 else 4))
    return layers * (4 * hidden * hidden + 2 * hidden * inner)
