"""Tensor names: detects the tensors of a quantized model that are scales, zero points, indexes or lookup tables.
Pure."""

from __future__ import annotations

import re

_SCALES = re.compile(r"(?:\w*_)?(?:scales?|scaling_factor|amax|absmax)(?:_inv|_2|_max)?")
_LEARNED = re.compile(r"(?:logit|layer|residual|router|per_expert|per_layer\w*|embed\w*|attn|ffn|norm|head)_scales?")
"""Names of model parameters that look like names of scales."""
_OTHERS = re.compile(
    r"(?:\w*_)?(?:qzeros|zeros?|zero_points?|g_idx)|weight_shape|weight_format|(?:nested_)?quant_map|SCB"
    r"|bitsandbytes__\w+|codebooks?|codebook_id|lut|lookup_table|tables2?|\w*centroids|SU|SV|suh?|svh?|_shift"
    r"|q_(?:groups|perm|invperm|group_map)|bitmask|row_offsets|biases|mcg|mul1"
    r"|nbits|group_size|axis|packing|shape|meta|stores_quant_config|unpack_view_dtype|view_as_float|offload_meta"
)
"""Names of the tensors beside packed weights in the same module. ``biases`` is MLX's name; the bias of a layer is
``bias``."""
_PACKED = re.compile(r"(\w+)_(?:blocks|packed|scales)")


def is_auxiliary(name: str) -> bool:
    """Whether a tensor of a quantized model contains no weights, but values needed to decode them."""
    module, _dot, leaf = name.rpartition(".")
    if _OTHERS.fullmatch(leaf):
        return True
    if _LEARNED.fullmatch(leaf) or (leaf == "scale" and "norm" in module.rpartition(".")[2].lower()):
        return False
    return bool(_SCALES.fullmatch(leaf))


def module_of(name: str) -> str:
    """Return the module of a tensor, named as in configurations: ``model.layers.0.mlp.experts.down_proj``."""
    module, _dot, leaf = name.rpartition(".")
    if leaf in ("_data", "qdata") and module.endswith(".weight"):
        return module.removesuffix(".weight")
    packed = _PACKED.fullmatch(leaf)
    if packed and packed[1] not in ("weight", "qweight"):
        return f"{module}.{packed[1]}"
    return module
