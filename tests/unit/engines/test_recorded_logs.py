"""What engines were recorded to say when they did not start, and what it means.

Of each log the last 2048 bytes, which is what Kubernetes keeps.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from slipway.engines.programs.vllm import VLLM

LOGS = Path(__file__).parents[2] / "engines/recorded/logs"
VLLM_0_32 = {
    "attention": "InvalidArgument",  # --attention-backend XFORMERS
    "awq": "InvalidArgument",  # --quantization awq, of weights that are not
    "dtype": "InvalidArgument",  # --dtype float12
    "flag": "InvalidArgument",  # --bogus
    "folder": "FileNotFound",  # a folder that is not there
    "noarch": "UnsupportedModel",  # an architecture that nobody knows
    "noconfig": "FileNotFound",  # a folder without config.json
    "notype": "UnsupportedModel",  # a type of model that nobody knows
    "offline": "DownloadFailed",  # a repository that is not in the cache, with HF_HUB_OFFLINE
    "quant": "InvalidArgument",  # --quantization squeezellm
    "sleep": "InvalidArgument",  # --enable-sleep-mode on a CPU
    "template": "FileNotFound",  # --chat-template /no/such.jinja
    "toolong": "InvalidArgument",  # --max-model-len beyond what the model has
    "value": "InvalidArgument",  # --block-size abc
}


@pytest.mark.parametrize("name", VLLM_0_32)
def test_a_recorded_failure_of_vllm_has_its_reason(name: str) -> None:
    log = (LOGS / f"vllm-0.32.0/{name}.log").read_bytes()
    assert len(log) <= 2048
    failure = VLLM.explain(log.decode())
    assert failure is not None
    assert (failure.reason, failure.passing) == (VLLM_0_32[name], name == "offline")


def test_every_recorded_failure_is_tried() -> None:
    assert {path.stem for path in (LOGS / "vllm-0.32.0").iterdir()} == VLLM_0_32.keys()
