"""The arguments of genai-bench, and secrets that it must not print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slipway.serving.containers import genai_bench
from slipway.serving.containers.genai_bench import Benchmark, arguments, command, fault, request_params


def benchmark(**fields: Any) -> Benchmark:
    usual = {
        "backend": "openai",
        "url": "http://chat.models.svc",
        "model": "chat",
        "task": "text-to-text",
        "tokenizer": "acme/tiny",
        "minutes": 15,
        "requests": 300,
    }
    return Benchmark(**{**usual, **fields})


def test_the_arguments_of_a_small_benchmark() -> None:
    assert arguments(benchmark()) == (
        "benchmark", "--api-backend", "openai", "--api-base", "http://chat.models.svc", "--api-model-name", "chat",
        "--task", "text-to-text", "--max-time-per-run", "15", "--max-requests-per-run", "300",
        "--api-key", "sample-key", "--model-tokenizer", "acme/tiny",
    )  # fmt: skip


def test_the_arguments_of_a_large_benchmark() -> None:
    large = benchmark(
        scenarios=("D(100,100)", "N(480,240)/(300,150)"),
        concurrency=(1, 16),
        folder="monday",
        params={"temperature": "0.7", "stop": "###"},
        dataset="acme/questions",
        server={"engine": "vLLM", "gpu-count": "8"},
        output=("--upload-results", "--storage-bucket", "results"),
    )
    assert arguments(large)[len(arguments(benchmark())) :] == (
        "--traffic-scenario", "D(100,100)", "--traffic-scenario", "N(480,240)/(300,150)",
        "--num-concurrency", "1", "--num-concurrency", "16",
        "--additional-request-params", '{"stop": "###", "temperature": 0.7}',
        "--dataset-path", "acme/questions", "--experiment-folder-name", "monday",
        "--server-engine", "vLLM", "--server-gpu-count", "8", "--upload-results", "--storage-bucket", "results",
    )  # fmt: skip


def test_image_inputs_are_named_as_in_the_tool() -> None:
    words = arguments(benchmark(task="image-to-text", dataset="acme/pictures"))
    assert words[words.index("--task") + 1] == "image-text-to-text"


def test_an_api_of_another_kind_gets_no_key_that_it_would_not_take() -> None:
    assert "--api-key" not in arguments(benchmark(backend="cohere"))


@pytest.mark.parametrize(
    ("task", "scenario"),
    [
        ("text-to-text", "N(480,240)/(300,150)"),
        ("text-to-text", "U(50,100)/(200,250)"),
        ("text-to-text", "U(50,100)"),
        ("text-to-text", "D(100,1000)"),
        ("text-to-embeddings", "E(64)"),
        ("image-to-text", "I(512,512)"),
        ("image-to-text", "I(2048,2048,2)"),
    ],
)
def test_scenarios_that_the_tool_knows(task: str, scenario: str) -> None:
    assert not fault(benchmark(task=task, scenarios=(scenario,), dataset="acme/data"))


@pytest.mark.parametrize(
    ("task", "scenario"),
    [
        ("text-to-text", "E(64)"),
        ("text-to-text", "D(100)"),
        ("text-to-text", "D(100,100) "),
        ("text-to-text", "D(٣,٣)"),
        ("text-to-text", "--help"),
        ("text-to-text", ""),
        ("text-to-embeddings", "E(64,128)"),
        ("image-to-text", "D(100,100)"),
    ],
)
def test_scenarios_that_it_does_not_know_are_named(task: str, scenario: str) -> None:
    assert repr(scenario) in fault(benchmark(task=task, scenarios=(scenario,), dataset="acme/data"))


def test_a_benchmark_without_its_required_dataset_is_refused() -> None:
    assert "needs a dataset" in fault(benchmark(scenarios=("dataset",)))
    assert "needs a dataset" in fault(benchmark(task="image-to-text"))
    assert not fault(benchmark(scenarios=("dataset",), dataset="acme/questions"))


@pytest.mark.parametrize(("task", "backend"), [("image-to-embeddings", "openai"), ("image-to-text", "cohere")])
def test_a_task_that_an_api_has_not_is_refused(task: str, backend: str) -> None:
    assert backend in fault(benchmark(task=task, backend=backend, dataset="acme/pictures"))


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"temperature": "0.5", "n": "2", "ignore_eos": "true"}, {"temperature": 0.5, "n": 2, "ignore_eos": True}),
        ({"ignore_eos": "false"}, {}),
        ({"stop": "###", "user": '{"a": 1}'}, {"stop": "###", "user": '{"a": 1}'}),
        ({"seed": "9" * 5000, "depth": "[" * 100_000}, {"seed": "9" * 5000, "depth": "[" * 100_000}),
        ({"top_p": "NaN", "min_p": "Infinity", "x": "1e999"}, {"top_p": "NaN", "min_p": "Infinity", "x": "1e999"}),
    ],
)
def test_further_fields_of_requests_have_their_types(given: dict[str, str], sent: dict[str, object]) -> None:
    assert request_params(given) == sent


def test_the_tool_is_run_as_it_is_where_there_are_no_secrets() -> None:
    assert command([]) == ("genai-bench",)


TOOL = """
import json, logging, os, pathlib, sys
def main():
    key = os.environ["MODEL_API_KEY"]
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level="INFO")
    logging.info(f"model_api_key: {key}")
    logging.info("%s: %s", "token", os.environ["TOKEN"])
    pathlib.Path(sys.argv[-1]).write_text(json.dumps({"cmd": f"--model-api-key {key}", "args": sys.argv}))
    return 7
"""
"""A stand-in that tells its options as the tool does."""


def test_the_tools_output_and_files_contain_no_secrets(tmp_path: Path) -> None:
    secret = 'sk-"quoted"\\ü-1'
    (tmp_path / "tool.py").write_text(TOOL)
    described = tmp_path / "tool-1.dist-info"
    described.mkdir()
    (described / "entry_points.txt").write_text("[console_scripts]\ngenai-bench = tool:main\n")
    _python, *words = command(["TOKEN"])
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "MODEL_API_KEY": secret, "TOKEN": "hf_abc", "PYTHONUTF8": "1"}
    run = [sys.executable, *words, "benchmark", str(tmp_path / "metadata.json")]
    done = subprocess.run(run, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 7, done.stderr
    assert done.stdout == "model_api_key: ***\ntoken: ***\n"
    assert json.loads((tmp_path / "metadata.json").read_text()) == {
        "cmd": "--model-api-key ***",
        "args": ["genai-bench", "benchmark", str(tmp_path / "metadata.json")],
    }


def test_its_image_is_the_one_that_closed_networks_build() -> None:
    stated = (Path(__file__).parents[3] / "images/versions.env").read_text()
    assert f"\nGENAI_BENCH_IMAGE={genai_bench.IMAGE}\n" in stated


def test_every_variable_by_which_the_tool_takes_a_secret_is_hidden() -> None:
    assert set(genai_bench.CREDENTIAL_VARIABLES) <= set(command(["HF_TOKEN"])[-1].split(","))
