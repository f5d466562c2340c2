"""genai-bench: builds the tool's command line, and hides secrets in its output. Pure.

For version 0.0.5: https://github.com/sgl-project/genai-bench
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
"""Task name in the APIs -> the tool's name for it."""
OF_OPENAI = frozenset({"text-to-text", "image-to-text", "text-to-embeddings"})
"""Tasks that the tool supports with OpenAI's API format. With Cohere's, it does not support image-to-text."""
DATASET = "dataset"
"""The scenario that sends the texts of a dataset unchanged."""
TEXT = re.compile(r"N\(\d+,\d+\)/\(\d+,\d+\)|U\(\d+,\d+\)(/\(\d+,\d+\))?|D\(\d+,\d+\)", re.ASCII)
IMAGES = re.compile(r"I\(\d+,\d+(,\d+)?\)", re.ASCII)
SCENARIOS = {
    "text-to-text": (TEXT, "N(480,240)/(300,150), U(50,100)/(200,250) or D(100,1000)"),
    "image-to-text": (IMAGES, "I(512,512) or I(512,512,2)"),
    "text-to-embeddings": (re.compile(r"E\(\d+\)", re.ASCII), "E(64)"),
    "image-to-embeddings": (IMAGES, "I(512,512) or I(512,512,2)"),
}
"""Task -> pattern and examples of the scenarios that the tool supports for it."""
PLACEHOLDER = "sample-key"
"""The tool requires a key even if the API does not. A key in MODEL_API_KEY takes precedence."""
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
"""Variables with secrets that the tool reads, logs and writes next to its results."""
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
"""A Python program that runs the tool and hides secrets in its logs and in the files next to its results. Its first
argument lists the variables whose values are hidden."""


class Benchmark(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a measurement."""

    backend: str
    """Protocol of the API, such as ``openai``."""
    url: str
    """Root URL of the API, without ``/v1``."""
    model: str
    task: str
    """One of TASKS."""
    tokenizer: str
    """Directory, or repository on the hub."""
    minutes: int
    requests: int
    """Maximum requests per run."""
    scenarios: Sequence[str] = ()
    concurrency: Sequence[int] = ()
    folder: str = ""
    """Name of the results' directory; empty: chosen by the tool."""
    params: Mapping[str, str] = {}
    """Further fields of each request."""
    dataset: str = ""
    """File, or dataset on the hub."""
    server: Mapping[str, str] = {}
    """Description of the server for readers of the results: ``engine``, ``gpu-type``, ``version`` and ``gpu-count``."""
    output: tuple[str, ...] = ()
    """Further arguments, which set the destination of the results."""


def fault(benchmark: Benchmark) -> str:
    """Returns a message about a combination that the tool would reject, with the fix; empty if there is none."""
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
    """Returns the arguments of ``genai-bench``. An option comes before those that depend on it."""
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
    """Converts numbers and booleans. Omits ``ignore_eos: false``, an API's default that would make the tool prompt the
    user."""
    typed = {name: _typed(value) for name, value in params.items()}
    return {name: value for name, value in typed.items() if (name, value) != ("ignore_eos", False)}


def command(variables: Collection[str]) -> tuple[str, ...]:
    """Returns the command that runs the tool. ``variables``: the container's variables with secrets."""
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
