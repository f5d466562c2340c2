"""The flags that vLLM's OpenAI server knows. argparse refuses others as vLLM does, and takes the same abbreviations."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

VALUES = """
allowed-headers allowed-local-media-path allowed-methods allowed-origins api-key api-server-count attention-backend
block-size
chat-template-content-format code-revision collect-detailed-traces compilation-config config config-format convert
cpu-offload-gb cuda-graph-sizes data-parallel-address data-parallel-backend data-parallel-rank
data-parallel-rpc-port data-parallel-size data-parallel-size-local data-parallel-start-rank
decode-context-parallel-size default-mm-loras distributed-executor-backend download-dir dtype eplb-config
generation-config gpu-memory-utilization guided-decoding-backend hf-config-path hf-overrides hf-token ignore-patterns
io-processor-plugin kv-cache-dtype kv-cache-memory-bytes kv-events-config kv-transfer-config limit-mm-per-prompt
load-format log-config-file logits-processor-pattern logits-processors logprobs-mode long-prefill-token-threshold
lora-dtype lora-extra-vocab-size mamba-cache-dtype mamba-ssm-cache-dtype max-cpu-loras max-log-len
max-logprobs max-long-partial-prefills max-lora-rank max-loras max-model-len max-num-batched-tokens
max-num-partial-prefills max-num-seqs max-parallel-loading-workers max-seq-len-to-capture media-io-kwargs middleware
mm-encoder-tp-mode mm-processor-cache-gb mm-processor-kwargs model model-impl model-loader-extra-config
num-gpu-blocks-override num-lookahead-slots otlp-traces-endpoint override-attention-dtype override-generation-config
override-pooler-config pipeline-parallel-size prefix-caching-hash-algo pt-load-map-location quantization
reasoning-parser response-role revision root-path rope-scaling rope-theta runner scheduler-cls
scheduler-delay-factor scheduling-policy seed show-hidden-metrics-for-version speculative-config ssl-ca-certs
ssl-cert-reqs ssl-certfile ssl-keyfile swap-space task tensor-parallel-size tokenizer tokenizer-mode
tokenizer-revision tool-call-parser tool-parser-plugin tool-server uds uvicorn-log-level worker-cls
worker-extension-cls
"""
SWITCHES = """
allow-credentials async-scheduling calculate-kv-scales disable-async-output-proc disable-cascade-attn
disable-chunked-mm-input disable-custom-all-reduce disable-fastapi-docs disable-frontend-multiprocessing
disable-hybrid-kv-cache-manager disable-log-requests disable-log-stats disable-mm-preprocessor-cache
disable-sliding-window disable-uvicorn-access-log enable-auto-tool-choice enable-chunked-prefill enable-eplb
enable-expert-parallel enable-force-include-usage enable-log-requests enable-lora enable-lora-bias
enable-prefix-caching enable-prompt-embeds enable-prompt-tokens-details enable-request-id-headers
enable-server-load-tracking enable-sleep-mode enable-ssl-refresh enable-tokenizer-info-endpoint enforce-eager
exclude-tools-when-tool-choice-none fully-sharded-loras headless interleave-mm-strings kv-sharing-fast-prefill
multi-step-stream-outputs ray-workers-use-nsight return-tokens-as-token-ids skip-mm-profiling skip-tokenizer-init
trust-remote-code trust-request-chat-template use-tqdm-on-load
"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Flags with dashes or underscores, after ``serve MODEL`` where it is asked as ``vllm`` is; ends the process with
    status 2 and argparse's words for one that is unknown."""
    serve = arguments[:1] == ["serve"]
    parser = argparse.ArgumentParser(prog="vllm serve" if serve else "api_server.py")
    if serve:
        parser.add_argument("model_tag", nargs="?")
        arguments = arguments[1:]
    parser.add_argument("--host", default="")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--served-model-name", nargs="+", default=[])
    parser.add_argument("--lora-modules", nargs="+", default=[])
    parser.add_argument("--chat-template", default="")
    for short, name in (("tp", "tensor-parallel-size"), ("pp", "pipeline-parallel-size"), ("dp", "data-parallel-size")):
        parser.add_argument(f"-{short}", dest=name.replace("-", "_"))
    for name in VALUES.split():
        parser.add_argument(f"--{name}", default="")
    for name in SWITCHES.split():
        parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction, default=False)
    dashed = []
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        dashed.append((flag.replace("_", "-") if flag.startswith("--") else flag) + equals + value)
    flags = parser.parse_args(dashed)
    if serve:
        flags.model = flags.model_tag or flags.model
    return flags
