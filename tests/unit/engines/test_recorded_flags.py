"""vLLM's own parser accepts every flag that Slipway sets, as recorded in flags.txt of its stand-in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from slipway.apis.llmkube.rules.engines import VLLM_FLAGS
from slipway.apis.llmkube.types.runtime import VllmConfig
from slipway.artifacts.locations.weights import BucketFolder, HubRepository
from slipway.engines.definition.engine import Launch
from slipway.engines.definition.flags import FlagSpec
from slipway.engines.programs.vllm import VLLM

sys.path.insert(0, str(Path(__file__).parents[2] / "standins/packages"))
from vllm.entrypoints.openai import flags

from tests import documents

ROOT = Path(__file__).parents[3]
TAKEN = {spelling: choices for _kind, spellings, choices in flags.rows() for spelling in spellings}
SWITCHES = {spellings[0] for kind, spellings, _choices in flags.rows() if kind == "switch"}
CATALOGUE = documents.read(ROOT / "roles/models/files/catalogue.yml")["models"]
CURRENT = {
    name: spec.get("args", [])
    for name, spec in CATALOGUE.items()
    if spec["engine"] == "VLLM" and "image" not in spec and "tpu" not in spec["resourceProfile"]
}
"""Models of the catalogue that run with the vLLM of our defaults -> their arguments."""


@pytest.mark.parametrize("row", VLLM_FLAGS, ids=lambda row: row.name)
def test_a_typed_setting_is_a_flag_that_it_takes(row: FlagSpec) -> None:
    spellings = TAKEN.keys() | {flag.replace("--", "--no-", 1) for flag in SWITCHES}
    assert {row.flag, *row.short, *row.unless} <= spellings


@pytest.mark.parametrize(("field", "flag"), [("dtype", "--dtype"), ("kv_cache_dtype", "--kv-cache-dtype")])
def test_the_values_of_a_setting_are_some_that_it_takes(field: str, flag: str) -> None:
    hint = get_type_hints(VllmConfig)[field]
    named = {value for part in (hint, *get_args(hint)) for value in get_args(part) if isinstance(value, str)}
    assert named
    assert named <= set(TAKEN[flag])


@pytest.mark.parametrize("weights", [HubRepository("acme/tiny"), BucketFolder("s3://bucket/model")])
def test_it_takes_the_command_line_of_a_model(weights: HubRepository | BucketFolder) -> None:
    launch = Launch(weights=weights, served_name="tiny", port=8123, adapters=True)
    options = flags.parse(VLLM.args(launch))
    assert (options.port, options.served_model_name, options.enable_lora) == (8123, ["tiny"], True)
    assert VLLM.owned(launch).keys() <= TAKEN.keys()
    assert VLLM.program is not None
    assert VLLM.program.adapters is not None
    assert flags.parse(VLLM.program.adapters({"a": "/a", "b": "/b"})).lora_modules == ["a=/a", "b=/b"]


@pytest.mark.parametrize("name", CURRENT)
def test_it_takes_what_the_catalogue_says(name: str) -> None:
    assert flags.parse(["--model=acme/tiny", *CURRENT[name]]).model == "acme/tiny"


@pytest.mark.parametrize("flag", ["--disable-log-requests", "--swap-space=8", "--enable-chunked-prefill=false"])
def test_it_refuses_what_earlier_versions_took(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        flags.parse([flag])
    failure = VLLM.explain(capsys.readouterr().err)
    assert failure is not None
    assert failure.reason == "InvalidArgument"
