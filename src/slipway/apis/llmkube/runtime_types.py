"""Settings of single runtimes inside an InferenceService (:mod:`slipway.apis.llmkube.service_types`)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from slipway.apis.llmkube.model_types import INT32
from slipway.kube.core import core
from slipway.kube.objects import Object

Int32 = Annotated[int, Meta(extra_json_schema=INT32)]
SecretKey = Annotated[Object, core("SecretKeySelector")]

AttentionBackend = Literal["FLASH_ATTN", "FLASHINFER", "XFORMERS", "flashinfer", "flash_attn", "xformers", "torch_sdpa"]


class RopeScaling(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Stretches the positions of a model beyond the context that it was trained for, with llamacpp."""

    type: Literal["linear", "yarn", "longrope"]
    """Method: --rope-scaling."""
    factor: Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?$")] = ""
    """How many times longer, such as 4 or 2.5: --rope-scale."""
    original_context: Annotated[int, Meta(ge=128, extra_json_schema=INT32)] | None = None
    """Tokens of context that the model was trained for: --yarn-orig-ctx."""


class Speculative(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Speculative decoding: a small model proposes tokens, the model checks them."""

    enabled: bool = False
    """Whether it is done."""
    model: str = ""
    """Name of the small model's Model, in the same namespace."""
    num_speculative_tokens: Annotated[int, Meta(ge=1, le=16, extra_json_schema=INT32)] = 4
    """Tokens that are proposed at a time."""


class VllmConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings of vLLM. Each is the argument of the same name."""

    tensor_parallel_size: Int32 | None = None
    """GPUs that each layer is spread over. Absent: all of the pod."""
    max_model_len: Int32 | None = None
    """Most tokens of a prompt and its answer."""
    quantization: Literal["awq", "gptq", "squeezellm", "fp8", "nvfp4", "mxfp4", "compressed-tensors"] | None = None
    """How the weights are quantized. Absent: as they say."""
    dtype: Literal["auto", "float16", "bfloat16"] | None = None
    """Type of the numbers that it computes with."""
    kv_cache_dtype: Literal["auto", "fp8_e5m2", "fp8_e4m3"] = "auto"
    """Type of the numbers in the KV cache."""
    kv_cache_custom_dtype: str = ""
    """Another type, which a build of your own knows. Goes before kvCacheDtype."""
    enable_prefix_caching: bool = False
    """Whether prompts that begin alike share that part of the KV cache."""
    enable_chunked_prefill: bool = False
    """Whether long prompts are computed in parts, between the steps of others."""
    enable_expert_parallel: bool = False
    """Whether the experts of a mixture are spread over the GPUs whole."""
    max_num_batched_tokens: Annotated[int, Meta(ge=512, extra_json_schema=INT32)] | None = None
    """Most tokens of one step."""
    attention_backend: AttentionBackend | None = None
    """Implementation of attention."""
    cpu_offload_gb: Annotated[int, Meta(ge=0, extra_json_schema=INT32)] | None = msgspec.field(
        default=None, name="cpuOffloadGB"
    )
    """GiB of weights for each GPU that are kept in the host's memory."""
    gpu_memory_utilization: Annotated[float, Meta(ge=0.1, le=0.99)] | None = None
    """Part of each GPU's memory that it takes."""
    speculative: Speculative = Speculative()
    """Speculative decoding."""
    hf_token_secret_ref: SecretKey | None = None
    """Key of a Secret with a token for gated repositories of the hub."""


class TgiConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings of Text Generation Inference. Each is the argument of the same name."""

    quantize: Literal["bitsandbytes", "gptq", "awq", "eetq"] | None = None
    """How the weights are quantized."""
    max_input_length: Int32 | None = None
    """Most tokens of a prompt."""
    max_total_tokens: Int32 | None = None
    """Most tokens of a prompt and its answer."""
    dtype: Literal["float16", "bfloat16"] | None = None
    """Type of the numbers that it computes with."""
    hf_token_secret_ref: SecretKey | None = None
    """Key of a Secret with a token for gated repositories of the hub."""


class PersonaPlexConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings of PersonaPlex, which answers speech with speech."""

    quantize_4_bit: bool = False
    """Whether the weights are quantized to 4 bits as they are loaded, which the image has to be able to do."""
    cpu_offload: bool = False
    """Whether weights that do not fit the GPU are kept in the host's memory, which the image has to be able to do."""
    hf_token_secret_ref: SecretKey | None = None
    """Key of a Secret with a token for gated repositories of the hub."""
