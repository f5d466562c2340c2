"""The summary of a benchmark, read from the files that genai-bench writes.

The command runs in a sidecar. It lists the files of earlier benchmarks and waits for a stop signal, which Kubernetes
sends when the benchmark has ended for any reason. Then it reads the new files. The benchmark starts only when the
sidecar is ready, because the sidecar would miss an earlier signal and never report the results.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from slipway.artifacts.documents.benchmark import ERROR_CHARACTERS, SCENARIO_CHARACTERS, Run, Summary
from slipway.decoding import DecodingError, decode_json

MOST_FILES = 10_000
FILE_BYTES = 256 << 20
"""Maximum size of a result file in bytes. A file with 100,000 requests has about 50 MiB."""
DIGITS = 4
FileStamps = Mapping[Path, tuple[int, int]]
"""File -> its modification time in nanoseconds, and its size in bytes."""


class Figures(msgspec.Struct, frozen=True):
    """Mean and 99th percentile of one quantity over the requests of a run; None: no request has a value."""

    mean: float | None = None
    p99: float | None = None


class Stats(msgspec.Struct, frozen=True):
    ttft: Figures = Figures()


class Aggregated(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of a run, as genai-bench writes them. A missing field gets its default."""

    scenario: str | None = None
    num_concurrency: int = 1
    batch_size: int = 1
    iteration_type: str = "num_concurrency"
    run_duration: float = 0.0
    requests_per_second: float = 0.0
    mean_input_throughput_tokens_per_s: float = 0.0
    mean_output_throughput_tokens_per_s: float = 0.0
    num_completed_requests: int = 0
    error_codes_frequency: dict[str, int] = {}
    stats: Stats = Stats()


class Request(msgspec.Struct, frozen=True):
    error_code: int | None = None
    error_message: str | None = None


class RunFile(msgspec.Struct, frozen=True):
    """The parts of a result file that the summary needs: the totals of a run, and its requests."""

    aggregated_metrics: Aggregated
    individual_request_metrics: tuple[Request, ...] = ()


def summarize_on_stop(folder: Path, ready: Callable[[], None]) -> Summary:
    """Wait for SIGTERM or SIGINT, and then return a summary of the files in ``folder`` that have appeared or changed
    since the call. Call ``ready`` once the benchmark may start."""
    stops = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    baseline = files(folder)
    ready()
    signal.sigwait(stops)
    return summarized(folder, baseline)


def files(folder: Path) -> FileStamps:
    """Return the JSON files in ``folder`` and in the directories directly below it, at most ``MOST_FILES``. Files that
    cannot be examined are left out."""
    return dict(_stat_files(folder))


def summarized(folder: Path, baseline: FileStamps) -> Summary:
    """Return a summary of the files in ``folder`` that are new or have changed since ``baseline``, oldest first. Ignore
    files that are unreadable, invalid or larger than ``FILE_BYTES``."""
    fresh = sorted((stamp, path) for path, stamp in files(folder).items() if baseline.get(path) != stamp)
    read = [one for _stamp, path in fresh if (one := _read_run(path)) is not None]
    runs = tuple(_run(one.aggregated_metrics) for one in read)
    return Summary(
        requests=sum(run.requests for run in runs),
        failed=sum(run.failed for run in runs),
        error=next(filter(None, map(_first_error, read)), ""),
        runs=runs,
    )


def _stat_files(folder: Path) -> Iterator[tuple[Path, tuple[int, int]]]:
    paths = (path for pattern in ("*.json", "*/*.json") for path in folder.glob(pattern))
    for _count, path in zip(range(MOST_FILES), paths, strict=False):
        try:
            status = path.stat()
        except OSError:
            continue
        yield path, (status.st_mtime_ns, status.st_size)


def _read_run(path: Path) -> RunFile | None:
    try:
        if path.stat().st_size > FILE_BYTES:
            return None
        return decode_json(path.read_bytes(), RunFile, most=FILE_BYTES)
    except (OSError, DecodingError):
        return None


def _run(metrics: Aggregated) -> Run:
    failed = sum(map(_count, metrics.error_codes_frequency.values()))
    batches = metrics.iteration_type == "batch_size"
    return Run(
        scenario=(metrics.scenario or "")[:SCENARIO_CHARACTERS],
        concurrency=_count(metrics.batch_size if batches else metrics.num_concurrency),
        requests=_count(metrics.num_completed_requests) + failed,
        failed=failed,
        seconds=_figure(metrics.run_duration),
        requests_per_second=_figure(metrics.requests_per_second),
        input_tokens_per_second=_figure(metrics.mean_input_throughput_tokens_per_s),
        output_tokens_per_second=_figure(metrics.mean_output_throughput_tokens_per_s),
        first_token_seconds=_figure(metrics.stats.ttft.mean),
        first_token_seconds_p99=_figure(metrics.stats.ttft.p99),
    )


def _first_error(run: RunFile) -> str:
    for request in run.individual_request_metrics:
        if request.error_code:
            text = " ".join((request.error_message or "no reason given").split())
            return f"HTTP {request.error_code}: {text}"[:ERROR_CHARACTERS]
    return ""


def _count(number: int) -> int:
    return max(0, number)


def _figure(number: float | None) -> float:
    """Round a number to ``DIGITS`` significant digits, because a single run is not more precise. None and negative
    numbers become 0."""
    return float(f"{max(0.0, number or 0.0):.{DIGITS}g}")
