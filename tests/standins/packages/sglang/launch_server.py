"""SGLang's server, without a model: ``python3 -m sglang.launch_server --model-path=...``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from standin.generation import Generator
from standin.openai import OpenAI
from standin.web import Answer, Handler, Request, as_json, routes, serve
from vllm.entrypoints.openai.api_server import CannotLoad, check_model

from sglang import disaggregation, group

VALUES = """
api-key attention-backend chat-template chunked-prefill-size context-length cuda-graph-max-bs data-parallel-size device
disaggregation-ib-device disaggregation-transfer-backend dist-init-addr download-dir dtype kv-cache-dtype
load-balance-method load-format log-level lora-paths max-loras-per-batch max-prefill-tokens max-running-requests
max-total-tokens mem-fraction-static model-path quantization reasoning-parser revision schedule-conservativeness
schedule-policy served-model-name speculative-algorithm
tensor-parallel-size tokenizer-mode tokenizer-path tool-call-parser tp
"""
SWITCHES = """
disable-cuda-graph disable-radix-cache enable-dp-attention enable-lora enable-metrics enable-mixed-chunk
enable-torch-compile is-embedding log-requests skip-server-warmup skip-tokenizer-init trust-remote-code
"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="launch_server.py")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--model", dest="model_path")
    parser.add_argument("--disaggregation-mode", choices=("null", "prefill", "decode"), default="null")
    parser.add_argument("--disaggregation-bootstrap-port", type=int, default=disaggregation.PORT)
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--node-rank", type=int, default=0)
    for name in VALUES.split():
        parser.add_argument(f"--{name}", default="")
    for name in SWITCHES.split():
        parser.add_argument(f"--{name}", action="store_true")
    return parser.parse_args(arguments)


def application(flags: argparse.Namespace) -> Handler:
    """It answers whatever name is asked for, as SGLang does."""
    name, created, generator = flags.served_model_name or flags.model_path, int(time.time()), Generator()

    def models(_request: Request) -> Answer:
        card = {"id": name, "object": "model", "created": created, "owned_by": "sglang", "root": name}
        return as_json({"object": "list", "data": [card]})

    def metrics(_request: Request) -> Answer:
        labels = f'{{model_name="{name}"}}'
        text = (
            f"sglang:num_running_reqs{labels} {generator.running}\nsglang:num_queue_reqs{labels} {generator.waiting}\n"
        )
        return Answer(text.encode(), kind="text/plain; version=0.0.4")

    table = OpenAI(generator, lambda _model: "base").table()
    generates = ("POST /v1/chat/completions", "POST /v1/completions", "POST /v1/responses")
    table = {route: handler for route, handler in table.items() if (route in generates) != flags.is_embedding}
    if flags.disaggregation_mode == "prefill":
        table |= disaggregation.prefill(generator, flags.host, flags.disaggregation_bootstrap_port)
    if flags.disaggregation_mode == "decode":
        table |= disaggregation.decode(generator)
    table |= {f"GET /{path}": lambda _request: Answer() for path in ("health", "health_generate")}
    table |= {"GET /v1/models": models}
    return routes(table | ({"GET /metrics": metrics} if flags.enable_metrics else {}))


def main(arguments: Sequence[str]) -> None:
    flags = parse(arguments)
    if flags.nnodes > 1 and flags.node_rank > 0:
        group.follow(flags.dist_init_addr, flags.node_rank)
    if flags.nnodes > 1:
        group.lead(flags.dist_init_addr, flags.nnodes - 1)
    try:
        check_model(flags.model_path, flags.load_format)
    except CannotLoad as error:
        sys.exit(str(error))
    time.sleep(float(os.environ.get("STANDIN_LOAD_SECONDS", "0")))
    print("The server is fired up and ready to roll!", flush=True)
    serve(application(flags), flags.host, flags.port, keep_alive=5)


if __name__ == "__main__":
    main(sys.argv[1:])
