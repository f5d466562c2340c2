"""llama.cpp's ``llama-server``: GGUF files, downloaded by the engine itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

from slipway.artifacts import huggingface
from slipway.engines.engine import Launch
from slipway.kube.objects import Object
from slipway.serving.diagnosis import Failure

OWNED = frozenset(
    ("--host", "--port", "--hf-repo", "-hf", "-hfr", "--hf-file", "-hff", "--alias", "-a"),
)
"""The flags that slipway decides, in every spelling."""

HTTP_THREADS = 128
"""llama-server gives each open request a thread and has few by default; with all of them taken ``/health`` waits, and a
busy model looks like a dead one."""


class LlamaCpp:
    """See :class:`slipway.engines.engine.Engine`."""

    name = "llamacpp"
    image = "ghcr.io/ggml-org/llama.cpp:server"
    health_path = "/health"
    cache_path = "/cache"

    def args(self, launch: Launch) -> tuple[str, ...]:
        weights = launch.weights
        place = ("--host", "0.0.0.0", "--port", str(launch.port))  # noqa: S104 - a pod's own address is not known before it runs
        model = ("--hf-repo", weights.repository, "--hf-file", weights.file, "--alias", launch.served_name)
        return (*place, *model, *launch.extra_args)

    def owned_flags(self, args: Sequence[str]) -> tuple[str, ...]:
        spelled = [arg.split("=", 1)[0] for arg in args]
        # llama-server takes an underscore in a long option for a hyphen.
        return tuple(dict.fromkeys(spelling for spelling in spelled if spelling.replace("_", "-") in OWNED))

    def env(self, endpoint: str) -> tuple[Object, ...]:
        own = {"LLAMA_CACHE": f"{self.cache_path}/llama.cpp", "LLAMA_ARG_THREADS_HTTP": str(HTTP_THREADS)}
        variables = ({"name": name, "value": value} for name, value in own.items())
        return (*huggingface.environment(endpoint, self.cache_path), *variables)

    def explain(self, log: str) -> Failure | None:
        text = STAMP.sub("", log)
        for pattern, reason, meaning in SAYINGS:
            found = pattern.search(text)
            if found:
                shown = text[text.rfind("\n", 0, found.start()) + 1 :]
                status = found.groupdict().get("status")
                if status is None:
                    return Failure(reason, meaning, shown, passing=meaning == UNREACHABLE)
                advice = huggingface.explain_status(int(status))
                return Failure(reason, f"{meaning}: {advice}", shown, passing=huggingface.passes(int(status)))
        return None


STAMP = re.compile(r"^\d+\.\d\d\.\d{3}\.\d{3} ", re.MULTILINE)
"""Time since the start, before each line: it would make each start's message another one."""
DOWNLOAD = "DownloadFailed"
UNREACHABLE = "The hub cannot be reached from the pod"
SAYINGS: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern), reason, text)
    for pattern, reason, text in (
        (r"GET failed \((?P<status>\d{3})\)", DOWNLOAD, "The repository cannot be read"),
        (r"failed with status code: (?P<status>\d{3})", DOWNLOAD, "The model file cannot be downloaded"),
        (r"status: (?P<status>[45]\d\d)\b", DOWNLOAD, "The model file cannot be downloaded"),
        (r"Available GGUF files", DOWNLOAD, "The repository has no file of that name; the log lists those that it has"),
        (r"HTTPLIB failed|failed to download model", DOWNLOAD, UNREACHABLE),
        (r"exactly one out metadata, path_model", DOWNLOAD, "The hub gave no model file"),
        (r"No space left on device", DOWNLOAD, "The model is larger than the pod's place for weights"),
        (r"invalid argument", "InvalidArgument", "llama-server does not take an argument of spec.args"),
    )
)
"""Line of the log -> reason and text; a group ``status`` is the hub's HTTP status. First match wins."""
