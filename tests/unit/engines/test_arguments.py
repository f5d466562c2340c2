"""Flags merged into users' command lines."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from slipway.engines.arguments import merged, with_flags
from slipway.engines.recognition import recognise
from tests.unit.apis.ome.cases import rows

SCRIPT = "python3 -m sglang.launch_server \\\n--host=0.0.0.0 \\\n  --port=8080"


@pytest.mark.parametrize(
    ("args", "flags", "expected"),
    [
        (["--tp=4", "--port=1"], ["--tp=8"], ["--tp=8", "--port=1"]),
        (["--tp", "4", "--port", "1"], ["--tp", "8"], ["--tp", "8", "--port", "1"]),
        (["--tp_size", "4"], ["--tp-size=8"], ["--tp-size=8"]),
        (["serve", "/model", "--a"], ["--b", "1", "2"], ["serve", "/model", "--a", "--b", "1", "2"]),
        (["--names", "a", "b", "--port", "1"], ["--names", "c"], ["--names", "c", "--port", "1"]),
        (["--seed", "-1", "--a"], ["--seed", "2"], ["--seed", "2", "--a"]),
        (["--a"], ["--a"], ["--a"]),
        (["--a", "1"], [], ["--a", "1"]),
        ([], ["--a", "1"], ["--a", "1"]),
        ([SCRIPT], [], [SCRIPT]),
        (
            [SCRIPT],
            ["--port", "9000", "--debug"],
            ["python3 -m sglang.launch_server \\\n--host=0.0.0.0 \\\n--port 9000 \\\n--debug"],
        ),
    ],
)
def test_a_flag_is_set_in_its_place_or_comes_behind(args: list[str], flags: list[str], expected: list[str]) -> None:
    assert merged(args, flags) == expected


@pytest.mark.parametrize(
    "row", [*rows("TestMergeArgs"), *rows("TestMergeArgsListFormat")], ids=lambda row: str(row["name"])
)
def test_arguments_are_merged_as_in_the_originals_tables(row: dict[str, Any]) -> None:
    assert merged(row["containerArgs"], row["overrideArgs"]) == row["expected"]


@pytest.mark.parametrize(
    "row",
    [row for row in rows("TestOverrideKeyValueInSlice") if row["expectedFound"]],
    ids=lambda row: str(row["name"]),
)
def test_values_are_replaced_as_in_the_originals_tables(row: dict[str, Any]) -> None:
    """What the original does not find it leaves alone; here such a flag comes behind, as the tables above say."""
    spelled = f"{row['key']}={row['value']}"
    flags = [spelled] if any("=" in arg for arg in row["args"]) else spelled.split("=")
    assert merged(row["args"], flags) == row["expectedArgs"]


def test_a_flag_is_set_where_it_is_in_the_command_or_the_arguments() -> None:
    container = {"command": ["vllm", "serve", "--served-model-name", "a"], "args": ["--port", "1"]}
    assert with_flags(container, ["--served-model-name", "a", "b", "--port", "2", "--c"]) == {
        "command": ["vllm", "serve", "--served-model-name", "a", "b"],
        "args": ["--port", "2", "--c"],
    }


def test_new_flags_go_behind_a_command_that_has_them_all() -> None:
    container = {"name": "engine", "command": ["vllm", "serve", "/m", "--port", "1"]}
    assert with_flags(container, ["--lora"]) == {**container, "args": ["--lora"]}


@pytest.mark.parametrize("script", [SCRIPT, "exec vllm serve /m --port 1 \\\n", "A=1 && vllm serve /m --port 1"])
def test_a_script_gets_its_flags_where_they_count(script: str) -> None:
    changed = with_flags({"command": ["sh", "-c", script]}, ["--names", "it's", "b"])
    assert changed is not None
    assert recognise(changed).args[-3:] == ("--names", "it's", "b")


def test_a_script_stays_one_that_the_shell_takes() -> None:
    changed = with_flags({"command": ["sh", "-c"], "args": ["printf '%s,' a \\\n --port 1"]}, ["--names", "it's b"])
    assert changed is not None
    ran = subprocess.run(["sh", "-c", changed["args"][0]], capture_output=True, check=True, text=True)
    assert ran.stdout == "a,--port,1,--names,it's b,"


@pytest.mark.parametrize("script", ["vllm serve /m | tee log", "vllm serve /m && echo ok", "vllm serve /m # all of it"])
def test_a_script_that_goes_on_is_left_alone(script: str) -> None:
    assert with_flags({"command": ["sh", "-c", script]}, ["--lora"]) is None
