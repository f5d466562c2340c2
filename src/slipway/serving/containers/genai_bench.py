"""The command line of genai-bench, and a wrapper that hides secrets in its output. Pure.

This module is for version 0.0.5: https://github.com/sgl-project/genai-bench
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

IMAGE = "ghcr.io/moirai-internal/genai-bench:0.0.5"
COMMAND = "genai-bench"
OPENAI = "openai"
TASKS = {
    "text-to-text": "text-to-text",
    "image-to-text": "image-text-to-text",
    "text-to-embeddings": "text-to-embeddings",
    "image-to-embeddings": "image-to-embeddings",
}
"""Map of a task name in our APIs to the name that genai-bench uses."""
OF_OPENAI = frozenset({"text-to-text", "image-to-text", "text-to-embeddings"})
"""Tasks that genai-bench supports with the OpenAI API format. With Cohere's format, it does not support
image-to-text."""
DATASET = "dataset"
"""Traffic scenario that sends the texts of a dataset unchanged."""
TEXT = re.compile(r"N\(\d+,\d+\)/\(\d+,\d+\)|U\(\d+,\d+\)(/\(\d+,\d+\))?|D\(\d+,\d+\)", re.ASCII)
IMAGES = re.compile(r"I\(\d+,\d+(,\d+)?\)", re.ASCII)
SCENARIOS = {
    "text-to-text": (TEXT, "N(480,240)/(300,150), U(50,100)/(200,250) or D(100,1000)"),
    "image-to-text": (IMAGES, "I(512,512) or I(512,512,2)"),
    "text-to-embeddings": (re.compile(r"E\(\d+\)", re.ASCII), "E(64)"),
    "image-to-embeddings": (IMAGES, "I(512,512) or I(512,512,2)"),
}
"""Map of a task to the pattern of its valid traffic scenarios, and examples for messages."""
PLACEHOLDER = "sample-key"
"""API key for the command line: genai-bench requires one even if the API does not. A key in MODEL_API_KEY takes
precedence."""
CREDENTIAL_VARIABLES = (
    "MODEL_API_KEY",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_AD_TOKEN",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_CONNECTION_STRING",
    "AZURE_STORAGE_SAS_TOKEN",
    "GITHUB_TOKEN",
)
"""Environment variables with secrets that genai-bench reads, logs and writes to files next to its results."""
HIDING = """
import json, logging, os, pathlib, sys
from importlib.metadata import entry_points
values = [os.environ[name] for name in sys.argv.pop(1).split(",") if os.environ.get(name)]
hidden = sorted({*values, *(json.dumps(value)[1:-1] for value in values)}, key=len, reverse=True)
def hide(text):
    for value in hidden:
        text = text.replace(value, "***")
    return text
message, write_text = logging.LogRecord.getMessage, pathlib.Path.write_text
logging.LogRecord.getMessage = lambda record: hide(message(record))
pathlib.Path.write_text = lambda path, text, *rest, **more: write_text(path, hide(text), *rest, **more)
(tool,) = entry_points(group="console_scripts", name="genai-bench")
sys.argv[0] = "genai-bench"
sys.exit(tool.load()())
"""
"""A Python program that runs genai-bench and hides secrets in its logs and in the files next to its results. Its first
argument is the comma-separated list of environment variables whose values are hidden."""


class Benchmark(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a genai-bench run."""

    backend: str
    """Protocol of the measured API, such as ``openai``."""
    url: str
    """Root URL of the measured API, without ``/v1``."""
    model: str
    task: str
    """A key of ``TASKS``."""
    tokenizer: str
    """Directory of the tokenizer, or its repository on the Hugging Face Hub."""
    minutes: int
    """Maximum duration of a run in minutes."""
    requests: int
    """Maximum number of requests per run."""
    scenarios: Sequence[str] = ()
    concurrency: Sequence[int] = ()
    """Numbers of concurrent requests, each of which is measured in a separate run."""
    folder: str = ""
    """Name of the directory for the results. Empty means that genai-bench chooses a name."""
    params: Mapping[str, str] = {}
    """Additional fields of each request."""
    dataset: str = ""
    """File of the dataset, or its name on the Hugging Face Hub. The value is empty if no scenario needs a dataset."""
    server: Mapping[str, str] = {}
    """Description of the server for readers of the results: ``engine``, ``gpu-type``, ``version`` and ``gpu-count``."""
    output: tuple[str, ...] = ()
    """Additional arguments, which set the destination of the results."""


def fault(benchmark: Benchmark) -> str:
    """Return a message, with the fix, about parameters that genai-bench would reject. The result is empty if the
    parameters are valid."""
    if (benchmark.task in OF_OPENAI) != (benchmark.backend == OPENAI) and "image" in benchmark.task:
        return f"genai-bench cannot measure {benchmark.task} with the API format {benchmark.backend}"
    pattern, example = SCENARIOS[benchmark.task]
    unknown = [one for one in benchmark.scenarios if not (pattern.fullmatch(one) or one == DATASET)]
    if unknown:
        return f"the traffic scenario {unknown[0][:60]!r} is not valid for {benchmark.task}: write {example}"
    if DATASET in benchmark.scenarios and not benchmark.dataset:
        return "the traffic scenario 'dataset' needs a dataset"
    if "image" in benchmark.task and not benchmark.dataset:
        return f"{benchmark.task} needs a dataset with images"
    return ""


def arguments(benchmark: Benchmark) -> tuple[str, ...]:
    """Return the arguments of ``genai-bench``. Each option precedes the options that depend on it."""
    params = request_params(benchmark.params)
    return (
        *("benchmark", "--api-backend", benchmark.backend, "--api-base", benchmark.url),
        *("--api-model-name", benchmark.model, "--task", TASKS[benchmark.task]),
        *("--max-time-per-run", str(benchmark.minutes), "--max-requests-per-run", str(benchmark.requests)),
        *(("--api-key", PLACEHOLDER) if benchmark.backend == OPENAI else ()),
        *("--model-tokenizer", benchmark.tokenizer),
        *_each("--traffic-scenario", benchmark.scenarios),
        *_each("--num-concurrency", map(str, benchmark.concurrency)),
        *_each("--additional-request-params", [json.dumps(params, sort_keys=True)] if params else []),
        *_each("--dataset-path", [benchmark.dataset] if benchmark.dataset else []),
        *_each("--experiment-folder-name", [benchmark.folder] if benchmark.folder else []),
        *(word for name, value in benchmark.server.items() for word in (f"--server-{name}", value)),
        *benchmark.output,
    )


def request_params(params: Mapping[str, str]) -> dict[str, object]:
    """Return request parameters with numbers and booleans converted from text. ``ignore_eos: false`` is omitted: it is
    an API default that would make genai-bench prompt the user."""
    typed = {name: _typed(value) for name, value in params.items()}
    return {name: value for name, value in typed.items() if (name, value) != ("ignore_eos", False)}


def command(variables: Collection[str]) -> tuple[str, ...]:
    """Return the command that runs genai-bench. ``variables`` are the names of the container's environment variables
    with secrets. The values of these and of :data:`CREDENTIAL_VARIABLES` are hidden. If ``variables`` is empty, the
    command hides nothing."""
    return ("python3", "-c", HIDING, ",".join(sorted({*variables, *CREDENTIAL_VARIABLES}))) if variables else (COMMAND,)


def _each(option: str, values: Collection[str] | map[str]) -> tuple[str, ...]:
    return tuple(word for value in values for word in (option, value))


def _typed(text: str) -> object:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    finite = not isinstance(value, float) or abs(value) < float("inf")
    return value if isinstance(value, bool | int | float) and finite else text
