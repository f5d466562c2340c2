"""Settings of single runtimes inside an InferenceService (:mod:`slipway.apis.llmkube.service_types`)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from slipway.apis.llmkube.model_types import INT32
from slipway.kube.core import core
from slipway.kube.crd import Rule
from slipway.kube.objects import Object

Int32 = Annotated[int, Meta(extra_json_schema=INT32)]
SecretKey = Annotated[Object, core("SecretKeySelector")]

Share = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[int, Meta(ge=1, extra_json_schema=INT32)]
AttentionBackend = Literal["FLASH_ATTN", "FLASHINFER", "XFORMERS", "flashinfer", "flash_attn", "xformers", "torch_sdpa"]


class RopeScaling(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Stretches the positions of a model beyond the context that it was trained for, with llamacpp."""

    type: Literal["linear", "yarn", "longrope"]
    """Method: --rope-scaling."""
    factor: Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?$")] = ""
    """How many times longer, such as 4 or 2.5: --rope-scale."""
    original_context: Annotated[int, Meta(ge=128, extra_json_schema=INT32)] | None = None
    """Tokens of context that the model was trained for: --yarn-orig-ctx."""


UNDRAFTED = ("none", "disabled")
"""Types of speculation that are none."""
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
    """How tokens are proposed: --spec-type. mtp is draft-mtp, draft is draft-simple; none and disabled: not at all."""
    draft_model_ref: str = ""
    """Name of the Model that proposes them, in the same namespace."""
    draft_model: Annotated[str, Meta(min_length=1, max_length=253)] = ""
    """The same where its weights are one of the files of the Model that is served."""
    n_draft_max: Annotated[int, Meta(ge=1, extra_json_schema=INT32)] | None = None
    """Most tokens that are proposed at a time: --spec-draft-n-max."""
    p_min: Annotated[float, Meta(ge=0, le=1)] | None = None
    """Least probability of a token with which more are proposed: --spec-draft-p-min."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!(self.type in ['draft','draft-simple','draft-eagle3','draft-dflash','draft-dspark'])"
            " || ((has(self.draftModelRef) && self.draftModelRef.size() > 0)"
            " || (has(self.draftModel) && self.draftModel.size() > 0))",
            "This type needs draftModelRef, a Model, or draftModel, a file of the Model that is served.",
        ),
        Rule(
            "(self.type in ['draft','draft-simple','draft-eagle3','draft-dflash','draft-dspark','draft-mtp'])"
            " || ((!has(self.draftModelRef) || self.draftModelRef.size() == 0)"
            " && (!has(self.draftModel) || self.draftModel.size() == 0))",
            "This type takes no draft model: remove draftModelRef and draftModel.",
        ),
        Rule(
            "!((has(self.draftModelRef) && self.draftModelRef.size() > 0)"
            " && (has(self.draftModel) && self.draftModel.size() > 0))",
            "Only one of draftModelRef and draftModel can be.",
        ),
    )

    @property
    def active(self) -> bool:
        return self.type not in UNDRAFTED


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


class SglangSpeculative(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Speculative decoding of SGLang: done where it is enabled, and algorithm and draftModelPath are there."""

    enabled: bool = False
    """Whether it is done."""
    algorithm: Literal["EAGLE", "EAGLE3", "Medusa"] | None = None
    """How tokens are proposed: --speculative-algorithm."""
    draft_model_path: str = ""
    """Path or repository of the model that proposes them: --speculative-draft-model-path."""
    num_steps: Positive | None = None
    """Steps that it proposes for at a time: --speculative-num-steps."""
    eagle_top_k: Positive | None = None
    """Tokens that it proposes in each step: --speculative-eagle-topk."""
    num_draft_tokens: Positive = 4
    """Tokens that are proposed at a time: --speculative-num-draft-tokens."""
    accept_threshold_single: Share | None = None
    """Probability from which on a token is taken: --speculative-accept-threshold-single."""
    accept_threshold_acc: Share | None = None
    """The same for a token after those: --speculative-accept-threshold-acc."""

    @property
    def active(self) -> bool:
        return bool(self.enabled and self.algorithm and self.draft_model_path)


class LoraPath(msgspec.Struct, frozen=True, kw_only=True):
    """A LoRA adapter in the container."""

    name: Annotated[str, Meta(min_length=1)]
    """Name by which requests ask for it."""
    path: Annotated[str, Meta(min_length=1)]
    """Its folder."""


class SglangConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Settings of SGLang. Each is the argument of the same name, where nothing else is said."""

    tensor_parallel_size: Positive | None = None
    """GPUs that each layer is spread over: --tp-size. Absent: all of the pod."""
    expert_parallel_size: Positive | None = None
    """GPUs that the experts of a mixture are spread over: --ep-size."""
    data_parallel_size: Positive | None = None
    """Copies of the model inside of each pod: --dp-size."""
    context_length: Annotated[int, Meta(ge=128, extra_json_schema=INT32)] | None = None
    """Most tokens of a prompt and its answer. Goes before contextSize."""
    mem_fraction_static: Annotated[float, Meta(ge=0.1, le=0.99)] | None = None
    """Part of each GPU's memory for weights and KV cache."""
    chunked_prefill_size: Annotated[int, Meta(ge=512, extra_json_schema=INT32)] | None = None
    """Tokens of a long prompt that are computed at a time."""
    max_running_requests: Positive | None = None
    """Requests at a time. Goes before parallelSlots."""
    quantization: str = ""
    """How the weights are quantized. Absent: as they say."""
    kv_cache_dtype: Literal["auto", "fp8_e5m2", "fp8_e4m3"] = "auto"
    """Type of the numbers in the KV cache."""
    kv_cache_custom_dtype: str = ""
    """Another type, which a build of your own knows. Goes before kvCacheDtype."""
    attention_backend: Literal["flashinfer", "flash_attn", "torch_native"] | None = None
    """Implementation of attention. flash_attn is what SGLang calls fa3."""
    enable_prefix_caching: bool = False
    """Whether prompts that begin alike share that part of the KV cache, as they do in SGLang in any case."""
    tool_call_parser: Literal["llama3", "qwen3", "qwen25", "hermes", "functionary", "mistral"] | None = None
    """How the model writes that it calls a tool. qwen3 is what SGLang calls qwen25."""
    reasoning_parser: Literal["qwen3", "deepseek-r1"] | None = None
    """How the model writes what it thinks."""
    chat_template: str = ""
    """Chat template in place of the model's: a name that SGLang knows, or a path."""
    speculative: SglangSpeculative = SglangSpeculative()
    """Speculative decoding."""
    lora_adapters: tuple[LoraPath, ...] = ()
    """LoRA adapters in the container: --lora-paths."""
    lora_modules: tuple[str, ...] = ()
    """The same, each <name>=<path> or JSON. Of one name those of loraAdapters count."""
    max_lora_rank: Positive | None = None
    """Highest rank of an adapter."""
    lora_target_modules: tuple[str, ...] = ()
    """Modules that adapters may change, such as q_proj."""
    log_level: Literal["debug", "info", "warning", "error"] | None = None
    """How much it writes to its log."""
    trust_remote_code: bool = False
    """Whether code of the model's repository is run."""
    skip_tokenizer_init: bool = False
    """Whether it does without a tokenizer, as requests bring tokens."""
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
