"""Settings of individual runtimes in an InferenceService (:mod:`slipway.apis.llmkube.types.service`)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from slipway.apis.llmkube.types.model import INT32
from slipway.kube.objects import Object
from slipway.kube.schemas.core import core
from slipway.kube.schemas.crd import Rule

Int32 = Annotated[int, Meta(extra_json_schema=INT32)]
SecretKey = Annotated[Object, core("SecretKeySelector")]

Share = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[int, Meta(ge=1, extra_json_schema=INT32)]
AttentionBackend = Literal["FLASH_ATTN", "FLASHINFER", "XFORMERS", "flashinfer", "flash_attn", "xformers", "torch_sdpa"]


class RopeScaling(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """RoPE scaling, which extends the context of llama.cpp beyond the length that the model was trained for."""

    type: Literal["linear", "yarn", "longrope"]
    """Scaling method: --rope-scaling."""
    factor: Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?$")] = ""
    """Scaling factor, such as 4 or 2.5: --rope-scale."""
    original_context: Annotated[int, Meta(ge=128, extra_json_schema=INT32)] | None = None
    """Context length that the model was trained for, in tokens: --yarn-orig-ctx."""


UNDRAFTED = ("none", "disabled")
"""Types that disable speculative decoding."""
SpeculationType = Literal[
    "none",
    "disabled",
    "mtp",
    "draft",
    "draft-simple",
    "draft-eagle3",
    "draft-mtp",
    "draft-dflash",
    "draft-dspark",
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
]


class SpeculativeDecoding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Speculative decoding of llama.cpp."""

    type: SpeculationType
    """Type of drafting: --spec-type. mtp means draft-mtp, and draft means draft-simple. none and disabled turn
    speculative decoding off."""
    draft_model_ref: str = ""
    """Name of the draft Model, in the same namespace."""
    draft_model: Annotated[str, Meta(min_length=1, max_length=253)] = ""
    """File with the draft model, which must be one of the served Model's files."""
    n_draft_max: Annotated[int, Meta(ge=1, extra_json_schema=INT32)] | None = None
    """Maximum number of draft tokens: --spec-draft-n-max."""
    p_min: Annotated[float, Meta(ge=0, le=1)] | None = None
    """Minimum token probability to continue drafting: --spec-draft-p-min."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(self.type in ['draft','draft-simple','draft-eagle3','draft-dflash','draft-dspark'])"
            " || ((has(self.draftModelRef) && self.draftModelRef.size() > 0)"
            " || (has(self.draftModel) && self.draftModel.size() > 0))",
            "this type requires draftModelRef (another Model) or draftModel (a file of the served Model).",
        ),
        Rule(
            "(self.type in ['draft','draft-simple','draft-eagle3','draft-dflash','draft-dspark','draft-mtp'])"
            " || ((!has(self.draftModelRef) || self.draftModelRef.size() == 0)"
            " && (!has(self.draftModel) || self.draftModel.size() == 0))",
            "this type takes no draft model. Remove draftModelRef and draftModel.",
        ),
        Rule(
            "!((has(self.draftModelRef) && self.draftModelRef.size() > 0)"
            " && (has(self.draftModel) && self.draftModel.size() > 0))",
            "draftModelRef and draftModel are mutually exclusive.",
        ),
    )

    @property
    def active(self) -> bool:
        return self.type not in UNDRAFTED


class Speculative(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Speculative decoding of vLLM with a draft model."""

    enabled: bool = False
    """Enables speculative decoding."""
    model: str = ""
    """Name of the draft Model, in the same namespace."""
    num_speculative_tokens: Annotated[int, Meta(ge=1, le=16, extra_json_schema=INT32)] = 4
    """Number of draft tokens per step."""


class VllmConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings of vLLM. Each field sets the argument of the same name."""

    tensor_parallel_size: Int32 | None = None
    """Number of GPUs for tensor parallelism. Empty means all GPUs of the pod."""
    max_model_len: Int32 | None = None
    """Maximum number of tokens in prompt and answer together."""
    quantization: Literal["awq", "gptq", "squeezellm", "fp8", "nvfp4", "mxfp4", "compressed-tensors"] | None = None
    """Quantization method. Empty means the method that the weights specify."""
    dtype: Literal["auto", "float16", "bfloat16"] | None = None
    """Data type of weights and activations."""
    kv_cache_dtype: Literal["auto", "fp8_e5m2", "fp8_e4m3"] = "auto"
    """Data type of the KV cache."""
    kv_cache_custom_dtype: str = ""
    """Custom data type of the KV cache, for builds that support it. It takes precedence over kvCacheDtype."""
    enable_prefix_caching: bool = False
    """Reuses the KV cache for prompts with the same beginning."""
    enable_chunked_prefill: bool = False
    """Processes long prompts in chunks, between the steps of other requests."""
    enable_expert_parallel: bool = False
    """Distributes whole experts of a mixture-of-experts model over the GPUs."""
    max_num_batched_tokens: Annotated[int, Meta(ge=512, extra_json_schema=INT32)] | None = None
    """Maximum number of tokens that vLLM processes in one step."""
    attention_backend: AttentionBackend | None = None
    """Implementation of attention. Empty means vLLM's choice."""
    cpu_offload_gb: Annotated[int, Meta(ge=0, extra_json_schema=INT32)] | None = msgspec.field(
        default=None, name="cpuOffloadGB"
    )
    """Amount of weights per GPU, in GiB, that stays in host memory."""
    gpu_memory_utilization: Annotated[float, Meta(ge=0.1, le=0.99)] | None = None
    """Fraction of each GPU's memory that vLLM uses."""
    speculative: Speculative = Speculative()
    """Speculative decoding with a draft model."""
    hf_token_secret_ref: SecretKey | None = None
    """Secret key with a Hugging Face token for gated repositories."""


class TgiConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings of Text Generation Inference. Each field sets the argument of the same name."""

    quantize: Literal["bitsandbytes", "gptq", "awq", "eetq"] | None = None
    """Quantization method."""
    max_input_length: Int32 | None = None
    """Maximum number of tokens in a prompt."""
    max_total_tokens: Int32 | None = None
    """Maximum number of tokens in prompt and answer together."""
    dtype: Literal["float16", "bfloat16"] | None = None
    """Data type of weights and activations."""
    hf_token_secret_ref: SecretKey | None = None
    """Secret key with a Hugging Face token for gated repositories."""


class SglangSpeculative(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Speculative decoding of SGLang. It requires enabled, algorithm and draftModelPath."""

    enabled: bool = False
    """Enables speculative decoding."""
    algorithm: Literal["EAGLE", "EAGLE3", "Medusa"] | None = None
    """Speculative decoding algorithm: --speculative-algorithm."""
    draft_model_path: str = ""
    """Path or repository of the draft model: --speculative-draft-model-path."""
    num_steps: Positive | None = None
    """Number of draft steps: --speculative-num-steps."""
    eagle_top_k: Positive | None = None
    """Number of tokens per draft step: --speculative-eagle-topk."""
    num_draft_tokens: Positive = 4
    """Number of draft tokens: --speculative-num-draft-tokens."""
    accept_threshold_single: Share | None = None
    """Minimum probability to accept a token: --speculative-accept-threshold-single."""
    accept_threshold_acc: Share | None = None
    """Minimum probability to accept further tokens: --speculative-accept-threshold-acc."""

    @property
    def active(self) -> bool:
        return bool(self.enabled and self.algorithm and self.draft_model_path)


class LoraPath(msgspec.Struct, frozen=True, kw_only=True):
    """A LoRA adapter in the engine's container."""

    name: Annotated[str, Meta(min_length=1)]
    """Name of the adapter in requests."""
    path: Annotated[str, Meta(min_length=1)]
    """Directory of the adapter in the engine's container."""


class SglangConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings of SGLang. Unless noted, each field sets the argument of the same name."""

    tensor_parallel_size: Positive | None = None
    """Number of GPUs for tensor parallelism: --tp-size. Empty means the number of the pod's GPUs, divided by
    dataParallelSize."""
    expert_parallel_size: Positive | None = None
    """Number of GPUs for the experts of a mixture-of-experts model: --ep-size."""
    data_parallel_size: Positive | None = None
    """Number of model copies in each pod: --dp-size."""
    context_length: Annotated[int, Meta(ge=128, extra_json_schema=INT32)] | None = None
    """Maximum number of tokens in prompt and answer together. It takes precedence over contextSize."""
    mem_fraction_static: Annotated[float, Meta(ge=0.1, le=0.99)] | None = None
    """Fraction of each GPU's memory for weights and KV cache."""
    chunked_prefill_size: Annotated[int, Meta(ge=512, extra_json_schema=INT32)] | None = None
    """Chunk size in tokens for long prompts."""
    max_running_requests: Positive | None = None
    """Maximum number of concurrent requests. It takes precedence over parallelSlots."""
    quantization: str = ""
    """Quantization method. Empty means the method that the weights specify."""
    kv_cache_dtype: Literal["auto", "fp8_e5m2", "fp8_e4m3"] = "auto"
    """Data type of the KV cache."""
    kv_cache_custom_dtype: str = ""
    """Custom data type of the KV cache, for builds that support it. It takes precedence over kvCacheDtype."""
    attention_backend: Literal["flashinfer", "flash_attn", "torch_native"] | None = None
    """Implementation of attention. flash_attn means fa3 in SGLang. Empty means SGLang's choice."""
    enable_prefix_caching: bool = False
    """Reuses the KV cache for prompts with the same beginning. SGLang always does this."""
    tool_call_parser: Literal["llama3", "qwen3", "qwen25", "hermes", "functionary", "mistral"] | None = None
    """Parser for tool calls. qwen3 means qwen25 in SGLang."""
    reasoning_parser: Literal["qwen3", "deepseek-r1"] | None = None
    """Parser for reasoning content."""
    chat_template: str = ""
    """Chat template that replaces the model's: the name of a built-in template of SGLang, or a path."""
    speculative: SglangSpeculative = SglangSpeculative()
    """Speculative decoding of SGLang. It requires enabled, algorithm and draftModelPath."""
    lora_adapters: tuple[LoraPath, ...] = ()
    """LoRA adapters in the engine's container: --lora-paths."""
    lora_modules: tuple[str, ...] = ()
    """LoRA adapters as <name>=<path> or JSON. If both lists contain the same name, loraAdapters takes precedence."""
    max_lora_rank: Positive | None = None
    """Maximum rank of a LoRA adapter."""
    lora_target_modules: tuple[str, ...] = ()
    """Modules that LoRA adapters may change, such as q_proj."""
    log_level: Literal["debug", "info", "warning", "error"] | None = None
    """Log level of SGLang."""
    trust_remote_code: bool = False
    """Allows SGLang to run code from the model's repository."""
    skip_tokenizer_init: bool = False
    """Starts SGLang without a tokenizer, for requests that contain token IDs."""
    hf_token_secret_ref: SecretKey | None = None
    """Secret key with a Hugging Face token for gated repositories."""


class PersonaPlexConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings of PersonaPlex, which answers speech with speech."""

    quantize_4_bit: bool = False
    """Quantizes the weights to 4 bits at load time, if the image supports it."""
    cpu_offload: bool = False
    """Keeps weights that do not fit into GPU memory in host memory, if the image supports it."""
    hf_token_secret_ref: SecretKey | None = None
    """Secret key with a Hugging Face token for gated repositories."""
