"""The summary of a benchmark: what genai-bench leaves behind becomes a message that Kubernetes keeps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from slipway.artifacts.documents.benchmark import Run, Summary, details, encode_summary, parse_summary
from slipway.artifacts.documents.report import LONGEST
from slipway.loader.cli import summary as module
from slipway.loader.cli.summary import files, summarized

FINISHED = "D(100,100)_text-to-text_num_concurrency_2_time_12s.json"


def results(**fields: Any) -> dict[str, Any]:
    """A file of results with the fields that the tool writes; ``fields`` are those that a test is about."""
    measured = {
        "scenario": "D(100,100)",
        "num_concurrency": 2,
        "batch_size": 1,
        "iteration_type": "num_concurrency",
        "run_duration": 12.3456,
        "mean_output_throughput_tokens_per_s": 81.23456,
        "mean_input_throughput_tokens_per_s": 80.0,
        "requests_per_second": 0.8123,
        "error_codes_frequency": {},
        "num_completed_requests": 10,
        "stats": {"ttft": {"mean": 0.123456, "p99": 0.4, "min": 0.1}, "tpot": {"mean": None}},
    }
    requests = fields.pop("individual_request_metrics", [{"ttft": 0.1, "error_code": None, "error_message": None}])
    return {"aggregated_metrics": measured | fields, "individual_request_metrics": requests, "_time_unit": "s"}


def leave(folder: Path, name: str, content: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_run_is_reported_with_its_throughput_and_time_to_first_token(tmp_path: Path) -> None:
    leave(tmp_path / "chat", FINISHED, results())
    assert summarized(tmp_path, {}).runs == (
        Run(
            scenario="D(100,100)",
            concurrency=2,
            requests=10,
            failed=0,
            seconds=12.35,
            requests_per_second=0.8123,
            input_tokens_per_second=80.0,
            output_tokens_per_second=81.23,
            first_token_seconds=0.1235,
            first_token_seconds_p99=0.4,
        ),
    )


def test_results_of_earlier_benchmarks_in_the_same_folder_do_not_count(tmp_path: Path) -> None:
    leave(tmp_path / "chat", "old.json", results())
    rewritten = leave(tmp_path / "chat", FINISHED, results())
    earlier_files = files(tmp_path)
    leave(rewritten.parent, rewritten.name, results(num_completed_requests=123))
    leave(tmp_path / "another", "new.json", results(num_completed_requests=4))
    assert summarized(tmp_path, earlier_files).requests == 127


def test_requests_that_failed_are_counted_with_the_first_error(tmp_path: Path) -> None:
    """Of a run in which every request failed the tool leaves a file for debugging, without averages."""
    requests = [{"error_code": 404, "error_message": "no model\n  of that name"}, {"error_code": 500}]
    broken = results(
        error_codes_frequency={"404": 1, "500": 1},
        num_completed_requests=0,
        run_duration=0.0,
        stats={"ttft": {"mean": None, "p99": None}},
        individual_request_metrics=requests,
    )
    leave(tmp_path / "chat", "debug_for_run_D100100_2.json", broken)
    summary = summarized(tmp_path, {})
    assert (summary.requests, summary.failed, summary.error) == (2, 2, "HTTP 404: no model of that name")


def test_embeddings_are_reported_by_the_texts_in_each_request(tmp_path: Path) -> None:
    leave(tmp_path / "chat", "e.json", results(scenario="E(64)", iteration_type="batch_size", batch_size=8))
    assert [(run.scenario, run.concurrency) for run in summarized(tmp_path, {}).runs] == [("E(64)", 8)]


@pytest.mark.parametrize("content", ["", "[]", "{", "null", '{"aggregated_metrics": 1}', "[" * 100_000])
def test_a_file_that_holds_no_results_counts_for_nothing(tmp_path: Path, content: str) -> None:
    leave(tmp_path / "chat", FINISHED, results())
    leave(tmp_path / "chat", "experiment_metadata.json", content)
    assert summarized(tmp_path, {}).requests == 10


def test_a_file_that_is_too_long_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = leave(tmp_path / "chat", FINISHED, results())
    monkeypatch.setattr(module, "FILE_BYTES", path.stat().st_size - 1)
    assert summarized(tmp_path, {}) == Summary()


def test_a_folder_that_is_not_there_has_no_results(tmp_path: Path) -> None:
    assert summarized(tmp_path / "none", {}) == Summary()


def run(concurrency: int) -> Run:
    return Run(
        scenario="N(480,240)/(300,150)",
        concurrency=concurrency,
        requests=300,
        failed=0,
        seconds=123.4,
        requests_per_second=12.34,
        input_tokens_per_second=1234.0,
        output_tokens_per_second=1234.0,
        first_token_seconds=0.1234,
        first_token_seconds_p99=1.234,
    )


def test_a_summary_of_a_sweep_comes_back_as_it_was() -> None:
    sweep = Summary(requests=9000, failed=0, runs=tuple(map(run, range(30))))
    assert parse_summary(encode_summary(sweep).decode()) == sweep


def test_a_summary_counts_the_runs_that_did_not_fit() -> None:
    sweep = Summary(requests=300_000, failed=3, error="x" * 300, runs=tuple(map(run, range(1000))))
    text = encode_summary(sweep)
    summary = parse_summary(text.decode())
    assert len(text) <= LONGEST
    assert summary is not None
    assert summary.runs == sweep.runs[: len(summary.runs)]
    assert len(summary.runs) + summary.omitted == 1000
    assert (summary.requests, summary.failed, summary.error) == (300_000, 3, "x" * 300)


@pytest.mark.parametrize("message", ["", "{", "[]", '{"runs": [["D(1,1)"]]}', '{"requests": -1}', '{"error": 1}'])
def test_a_message_of_anything_else_is_no_summary(message: str) -> None:
    assert parse_summary(message) is None


def test_details_name_each_figure() -> None:
    document = json.loads(details(Summary(requests=300, failed=1, runs=(run(4),), omitted=2)))
    assert (document["requests"], document["failed"], document["omitted"]) == (300, 1, 2)
    assert document["runs"][0]["firstTokenSeconds"] == 0.1234
    assert document["runs"][0]["outputTokensPerSecond"] == 1234.0
    assert document["runs"][0]["concurrency"] == 4


PATIENCE = 120
"""Time limit in seconds for a process to start or end on a busy machine."""


def test_the_sidecar_speaks_when_it_is_stopped(tmp_path: Path) -> None:
    leave(tmp_path / "chat", "old.json", results())
    code = (
        "import sys, pathlib; from slipway.loader import main; from slipway.loader.cli import termination;"
        "termination.TERMINATION_LOG = pathlib.Path(sys.argv[1]); sys.exit(main.main(sys.argv[2:]))"
    )
    message = tmp_path / "termination-log"
    message.touch()
    command = [sys.executable, "-c", code, str(message), "summary", str(tmp_path)]
    with subprocess.Popen(command, env={"PYTHONPATH": os.pathsep.join(sys.path)}) as sidecar:
        deadline = time.monotonic() + PATIENCE
        while not message.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert parse_summary(message.read_text()) is None  # Ready, and nothing yet that could be taken for a result.
        leave(tmp_path / "chat", FINISHED, results(num_completed_requests=7))
        sidecar.send_signal(signal.SIGTERM)
        assert sidecar.wait(PATIENCE) == 0
    summary = parse_summary(message.read_text())
    assert summary is not None
    assert summary.requests == 7
