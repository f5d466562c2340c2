"""The retired flags of each engine, according to the argument parser of its default version."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import permutations

from slipway.engines.definition.retired import VALUE, Retired

PAIRS = re.compile(r"([a-z_]{1,40})=([0-9]{1,6})")
OFF, ON = "false", "true"
SWITCHES = (
    "--enable-chunked-prefill",
    "--enable-prefix-caching",
    "--enable-expert-parallel",
    "--enable-auto-tool-choice",
    "--enable-sleep-mode",
    "--enable-lora",
    "--enforce-eager",
    "--trust-remote-code",
    "--disable-sliding-window",
    "--disable-custom-all-reduce",
)
"""Flags of vLLM that no longer take a value."""


GUIDED_OPTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "no-fallback": ("", ()),
    "disable-any-whitespace": ("disable_any_whitespace", ("guidance", "xgrammar")),
    "no-additional-properties": ("disable_additional_properties", ("guidance",)),
}
"""Option after the name of a guided decoding backend -> the current setting, and the backends that support it."""
GUIDED_BACKENDS = ("guidance", "lm-format-enforcer", "outlines", "xgrammar")


def _limits(value: str) -> tuple[str, ...] | None:
    """Convert limits such as ``image=4,video=1`` to the current format, which is JSON. Return None for any other
    value."""
    pairs = PAIRS.findall(value)
    if not re.fullmatch(rf"{PAIRS.pattern}(?:,{PAIRS.pattern})*", value):
        return None
    return ("--limit-mm-per-prompt", json.dumps({kind: int(number) for kind, number in pairs}))


def _draft(value: str) -> tuple[str, ...]:
    """Convert the value of ``--speculative-model``: a draft model, or ``[ngram]``, which proposes earlier text."""
    return ("--spec-method=ngram",) if value == "[ngram]" else ("--spec-model", value)


def _redundant_experts(value: str) -> tuple[str, ...] | None:
    number = value.isascii() and value.isdigit() and len(value) <= 6
    return (f'--eplb-config={{"num_redundant_experts": {int(value)}}}',) if number else None


def _guided() -> Mapping[str, tuple[str, ...]]:
    """Map each value of ``--guided-decoding-backend``, a backend with its options in any order, to the arguments for
    the current setting, which is JSON."""
    orders = [order for number in range(len(GUIDED_OPTIONS) + 1) for order in permutations(GUIDED_OPTIONS, number)]
    return {
        f"{backend}{':' if order else ''}{','.join(order)}": (_structured(backend, order),)
        for backend in GUIDED_BACKENDS
        for order in orders
    }


def _structured(backend: str, options: Iterable[str]) -> str:
    fields = [field for field, backends in map(GUIDED_OPTIONS.__getitem__, options) if backend in backends]
    return f"--structured-outputs-config={json.dumps({'backend': backend} | dict.fromkeys(sorted(fields), True))}"


def _is_switch(flag: str) -> Retired:
    off = flag.replace("--", "--no-", 1)
    return Retired(flag, "boolean", by_value={OFF: (off,), ON: (flag,)})


def _removed_flags(takes: str, flags: str) -> Iterable[Retired]:
    return (Retired(flag, "value" if takes == "value" else "nothing") for flag in flags.split())


VLLM = (
    Retired("--disable-log-requests"),
    *(_is_switch(flag) for flag in SWITCHES),
    *_removed_flags(
        "nothing",
        "--calculate-kv-scales --disable-async-output-proc --disable-frontend-multiprocessing --enable-lora-bias"
        " --enable-prompt-adapter --enable-reasoning --engine-use-ray --expand-tools-even-if-tool-choice-none"
        " --guided-decoding-disable-additional-properties --guided-decoding-disable-any-whitespace"
        " --guided-decoding-disable-fallback --speculative-disable-mqa-scorer",
    ),
    *_removed_flags(
        "value",
        "--device --eplb-step-interval --eplb-window-size --image-feature-size --image-input-shape"
        " --image-input-type --image-token-id --logits-processor-pattern --long-lora-scaling-factors"
        " --lora-extra-vocab-size --max-context-len-to-capture --max-long-partial-prefills --max-num-partial-prefills"
        " --max-prompt-adapter-token --max-prompt-adapters --max-seq-len-to-capture --ngram-prompt-lookup-max"
        " --ngram-prompt-lookup-min --num-lookahead-slots --num-scheduler-steps --override-neuron-config"
        " --preemption-mode --quantization-param-path --scheduler-delay-factor"
        " --spec-decoding-acceptance-method --speculative-disable-by-batch-size"
        " --speculative-draft-tensor-parallel-size --speculative-max-model-len --swap-space"
        " --tokenizer-pool-extra-config --tokenizer-pool-size --tokenizer-pool-type"
        " --typical-acceptance-sampler-posterior-alpha --typical-acceptance-sampler-posterior-threshold",
    ),
    *(
        Retired(flag, "boolean")
        for flag in (
            "--disable-logprobs-during-spec-decoding",
            "--eplb-log-balancedness",
            "--multi-step-stream-outputs",
            "--use-v2-block-manager",
        )
    ),
    Retired(
        "--chat-template-text-format",
        "value",
        by_value={name: (f"--chat-template-content-format={name}",) for name in ("openai", "string")},
    ),
    Retired("--cuda-graph-sizes", "values", lambda text: ("--cudagraph-capture-sizes", *text.split())),
    Retired("--disable-mm-preprocessor-cache", successor=("--mm-processor-cache-gb=0",)),
    Retired("--enable-multimodal-encoder-data-parallel", successor=("--mm-encoder-tp-mode=data",)),
    Retired("--limit-mm-per-prompt", "value", _limits),
    Retired("--num-redundant-experts", "value", _redundant_experts),
    Retired("--num-speculative-tokens", "value", ("--spec-tokens", VALUE)),
    Retired("--override-pooler-config", "value", ("--pooler-config", VALUE)),
    Retired("--speculative-model", "value", _draft),
    Retired("--worker-use-ray", successor=("--distributed-executor-backend=ray",)),
    Retired(
        "--guided-decoding-backend",
        "value",
        by_value={
            "auto": (),
            "auto:no-fallback": (),
            **_guided(),
        },
    ),
    Retired(
        "--task",
        "value",
        by_value={
            "auto": (),
            "generate": ("--runner=generate",),
            "transcription": ("--runner=generate",),
            "embed": ("--runner=pooling", "--convert=embed"),
            "embedding": ("--runner=pooling", "--convert=embed"),
            "classify": ("--runner=pooling", "--convert=classify"),
            "score": ("--runner=pooling", "--convert=classify"),
            "reward": ("--runner=pooling",),
        },
    ),
)
"""Retired flags of vLLM, according to the parser of 0.32.0. ``--rope-scaling`` and ``--rope-theta`` are omitted: they
change the output, and their replacement needs values of the model that are not in a manifest."""

LLAMACPP = (
    *_removed_flags(
        "nothing",
        "--dump-kv-cache -dkvc --log-enable --low-vram --memory-f32 --mlock --mmap --no-mul-mat-q -nommq --penalize-nl",
    ),
    *_removed_flags(
        "value",
        "--ctx-size-draft -cd --grp-attn-n -gan --grp-attn-w -gaw --log-format --lora-base --system-prompt"
        " --system-prompt-file -spf",
    ),
    *(Retired(flag, "value", ("--spec-draft-n-max", VALUE)) for flag in ("--draft-max", "--draft", "--draft-n")),
    *(Retired(flag, "value", ("--spec-draft-n-min", VALUE)) for flag in ("--draft-min", "--draft-n-min")),
    Retired("--samplers-seq", "value", ("--sampling-seq", VALUE)),
    Retired("--slots-endpoint-disable", successor=("--no-slots",)),
    *(Retired(flag, "value", by_value={"": (flag, "on")}) for flag in ("--flash-attn", "-fa")),
)
"""Retired flags of llama.cpp, according to the parser of the build that the tests run."""

SGLANG = (
    *_removed_flags(
        "nothing",
        "--disable-disk-cache --disable-jump-forward --disable-mla --disable-nan-detection --disable-penalizer"
        " --disable-regex-jump-forward --efficient-weight-load --enable-ep-moe --enable-mla --enable-overlap-schedule"
        " --prefill-round-robin-balance",
    ),
    Retired("--disable-flashinfer", successor=("--attention-backend=triton",)),
    Retired("--disable-flashinfer-sampling", successor=("--sampling-backend=pytorch",)),
    Retired("--enable-deepep-moe", successor=("--moe-a2a-backend=deepep",)),
    Retired("--enable-flashinfer-cutlass-moe", successor=("--moe-runner-backend=flashinfer_cutlass",)),
    Retired("--enable-flashinfer-mla", successor=("--attention-backend=flashinfer",)),
    Retired("--enable-flashinfer-moe", successor=("--moe-runner-backend=flashinfer_cutlass",)),
    Retired("--enable-flashinfer-trtllm-moe", successor=("--moe-runner-backend=flashinfer_trtllm",)),
    Retired("--enable-flashmla", successor=("--attention-backend=flashmla",)),
    Retired("--max-micro-batch-size", "value", ("--pp-max-micro-batch-size", VALUE)),
    Retired("--return-hidden-states", successor=("--enable-return-hidden-states",)),
    Retired("--schedule-heuristic", "value", ("--schedule-policy", VALUE)),
    Retired("--stream-output", successor=("--incremental-streaming-output",)),
)
"""Retired flags of SGLang, according to the source code of 0.5.23."""
