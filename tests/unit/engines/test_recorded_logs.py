"""What engines were recorded to say when they did not start, and what it means.

Of each log the last 2048 bytes, which is what Kubernetes keeps.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from slipway.engines.programs.infinity import INFINITY
from slipway.engines.programs.llamacpp import LLAMACPP
from slipway.engines.programs.vllm import VLLM

LOGS = Path(__file__).parents[2] / "engines/recorded/logs"
VLLM_0_32 = {
    "attention": "InvalidArgument",  # --attention-backend XFORMERS
    "awq": "InvalidArgument",  # --quantization awq, of weights that are not
    "dtype": "InvalidArgument",  # --dtype float12
    "flag": "InvalidArgument",  # --bogus
    "folder": "FileNotFound",  # a folder that is not there
    "noarch": "UnsupportedModel",  # an unknown architecture
    "noconfig": "FileNotFound",  # a folder without config.json
    "notype": "UnsupportedModel",  # an unknown type of model
    "offline": "DownloadFailed",  # a repository that is not in the cache, with HF_HUB_OFFLINE
    "quant": "InvalidArgument",  # --quantization squeezellm
    "sleep": "InvalidArgument",  # --enable-sleep-mode on a CPU
    "template": "FileNotFound",  # --chat-template /no/such.jinja
    "toolong": "InvalidArgument",  # --max-model-len beyond what the model has
    "value": "InvalidArgument",  # --block-size abc
}


INFINITY_0_0_77 = {
    "dtype": "InvalidArgument",  # --dtype float12
    "empty": "DownloadFailed",  # a repository without config.json
    "flag": "InvalidArgument",  # --bogus
    "folder": "FileNotFound",  # a folder that is not there
    "gated": "DownloadFailed",  # a gated repository, without a token
    "missing": "DownloadFailed",  # a repository that is not there
    "notype": "UnsupportedModel",  # an unknown type of model
    "noweights": "DownloadFailed",  # a repository without weights
    "offline": "DownloadFailed",  # a hub that does not answer
    "value": "InvalidArgument",  # --batch-size abc
}
LLAMACPP_0_7 = {
    "cut": "UnsupportedModel",  # the first megabyte of a file
    "device": "NoGpu",  # --device CUDA0 on a CPU
    "flag": "InvalidArgument",  # --bogus
    "gated": "DownloadFailed",  # a gated repository, without a token
    "half": "UnsupportedModel",  # the first half of a file
    "keytype": "UnsupportedModel",  # a key of a type that this version does not know
    "lora": "FileNotFound",  # --lora with a file that is not there
    "missing": "DownloadFailed",  # a repository that is not there
    "nofile": "DownloadFailed",  # a file that the repository lacks
    "norepofile": "DownloadFailed",  # a repository without a GGUF file
    "notgguf": "UnsupportedModel",  # a file of another format
    "offline": "DownloadFailed",  # a hub that does not answer
    "path": "FileNotFound",  # a file that is not there
    "template": "InvalidArgument",  # --chat-template-file with a file that is not there
    "type": "UnsupportedModel",  # a tensor of a type that this version does not know
    "value": "InvalidArgument",  # --ctx-size abc
    "variable": "InvalidArgument",  # LLAMA_ARG_CTX_SIZE=abc
}
LLAMACPP_MESSAGES = {
    "cut": "The model file is incomplete or damaged: copy or download it again",
    "half": "The model file is incomplete or damaged: copy or download it again",
    "keytype": "This version of llama.cpp cannot read the model file",
    "notgguf": "This version of llama.cpp cannot read the model file",
    "template": "llama-server rejected the value of an argument",
    "type": "This version of llama.cpp cannot read the model file",
    "value": "llama-server rejected the value of an argument",
    "variable": "llama-server rejected the value of an argument",
}
RECORDED = {
    "vllm-0.32.0": (VLLM, VLLM_0_32),
    "infinity-0.0.77": (INFINITY, INFINITY_0_0_77),
    "llamacpp-0.7.0": (LLAMACPP, LLAMACPP_0_7),
}


@pytest.mark.parametrize(
    ("folder", "name"), [(folder, name) for folder, (_engine, reasons) in RECORDED.items() for name in reasons]
)
def test_a_recorded_failure_has_its_reason(folder: str, name: str) -> None:
    engine, reasons = RECORDED[folder]
    log = (LOGS / f"{folder}/{name}.log").read_bytes()
    assert len(log) <= 2048
    failure = engine.explain(log.decode())
    assert failure is not None
    assert (failure.reason, failure.passing) == (reasons[name], name == "offline")


@pytest.mark.parametrize("name", LLAMACPP_MESSAGES)
def test_the_message_distinguishes_a_damaged_file_from_an_unsupported_one(name: str) -> None:
    failure = LLAMACPP.explain((LOGS / f"llamacpp-0.7.0/{name}.log").read_text())
    assert failure is not None
    print(failure.message)
    assert failure.message.startswith(LLAMACPP_MESSAGES[name])


@pytest.mark.parametrize(("name", "gated"), [("missing", False), ("gated", True)])
def test_only_a_gated_repository_is_called_gated(name: str, gated: bool) -> None:
    failure = INFINITY.explain((LOGS / f"infinity-0.0.77/{name}.log").read_text())
    assert failure is not None
    assert ("is gated" in failure.message) == gated


def test_every_recorded_failure_is_tried() -> None:
    names = {path.name: {log.stem for log in path.iterdir()} for path in LOGS.iterdir()}
    assert names == {folder: reasons.keys() for folder, (_engine, reasons) in RECORDED.items()}
