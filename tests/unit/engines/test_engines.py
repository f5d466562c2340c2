"""Arguments of engines, forbidden arguments, and the meaning of their last log lines."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from slipway.apis.llmkube.rules.engines import ENGINES as LLMKUBE
from slipway.artifacts.locations.huggingface import HuggingFaceFile
from slipway.artifacts.locations.weights import BucketFolder, HubRepository, MountedFolder, OllamaModel, Weights
from slipway.engines import ENGINES
from slipway.engines.definition.engine import Engine, Launch, Task
from slipway.engines.programs.faster_whisper import FASTER_WHISPER
from slipway.engines.programs.generic import GENERIC
from slipway.engines.programs.infinity import INFINITY
from slipway.engines.programs.llamacpp import LLAMACPP
from slipway.engines.programs.ollama import LAST_WORDS, OLLAMA
from slipway.engines.programs.personaplex import PERSONAPLEX
from slipway.engines.programs.sglang import SGLANG
from slipway.engines.programs.vllm import VLLM

HUB = HubRepository("acme/tiny")


def launch(
    weights: Weights = HUB, *args: str, tasks: tuple[Task, ...] = ("generate",), adapters: bool = False
) -> Launch:
    return Launch(
        weights=weights,
        served_name="tiny",
        port=8000,
        tasks=frozenset(tasks),
        extra_args=args,
        adapters=adapters,
    )


@pytest.mark.parametrize(
    "engine", [engine for engine in ENGINES.values() if engine is not GENERIC], ids=lambda one: one.name
)
def test_an_engine_listens_where_its_service_leads(engine: Engine) -> None:
    """Also on another port than the one where it listens by itself."""
    elsewhere = replace(launch(), port=8123)
    assert "8123" in f"{engine.command} {engine.args(elsewhere)} {engine.env(elsewhere)}"


@pytest.mark.parametrize("engine", [LLAMACPP, LLMKUBE["llamacpp"], LLMKUBE["llamacpp-router"]])
@pytest.mark.parametrize(
    ("args", "threads"),
    [
        ((), "128"),
        (("--parallel", "8"), "136"),
        (("-np", "200", "--verbose"), "328"),
        (("-np", "200", "--parallel", "4"), "132"),
        (("--parallel", "100000"), "128"),
        (("--parallel", "9999"), "384"),
        (("--parallel", "-1"), "128"),
        (("--parallel",), "128"),
        (("--alias", "--parallel", "many"), "128"),
    ],
)
def test_llama_cpp_has_a_thread_for_each_slot_and_some_for_requests_that_wait(
    engine: Engine, args: tuple[str, ...], threads: str
) -> None:
    weights = HuggingFaceFile("acme/tiny", "tiny.gguf")
    assert engine.env(launch(weights, *args))["LLAMA_ARG_THREADS_HTTP"] == threads


def test_slots_of_a_typed_field_have_threads_unless_an_argument_replaces_them() -> None:
    weights, engine = MountedFolder("/models", model="tiny.gguf"), LLMKUBE["llamacpp"]
    typed = replace(launch(weights), settings={"parallel_slots": 64})
    assert engine.env(typed)["LLAMA_ARG_THREADS_HTTP"] == "192"
    assert engine.env(replace(typed, extra_args=("-np", "2")))["LLAMA_ARG_THREADS_HTTP"] == "130"


@pytest.mark.parametrize("engine", ENGINES.values(), ids=lambda one: one.name)
def test_an_engine_whose_requests_can_use_all_threads_is_restarted_after_ten_minutes_without_an_answer(
    engine: Engine,
) -> None:
    liveness = engine.probes_of(launch(MountedFolder("/models", model="tiny.gguf"))).liveness
    assert liveness.path == engine.probes.readiness.path
    assert (liveness.period, liveness.failures) == (30, 20 if engine.name in {"llamacpp", "fasterwhisper"} else 3)


def script(weights: Weights, *tasks: Task) -> str:
    shell, option, text = OLLAMA.probes_of(launch(weights, tasks=tasks)).startup.command
    assert (shell, option) == ("bash", "-c")
    return text


@pytest.mark.parametrize(
    ("weights", "tasks", "commands"),
    [
        (OllamaModel("qwen2:0.5b"), (), "/bin/ollama pull qwen2:0.5b && /bin/ollama cp qwen2:0.5b tiny;"),
        (OllamaModel("r.io/q:1", insecure=True), (), "/bin/ollama pull --insecure r.io/q:1 && /bin/ollama cp r.io/q:1"),
        (OllamaModel("qwen2:0.5b", pull=False), (), "{ /bin/ollama cp qwen2:0.5b tiny; }"),
        (MountedFolder("/model", "qwen:0"), ("generate",), "{ /bin/ollama cp qwen:0 tiny && /bin/ollama run tiny hi;"),
    ],
)  # fmt: skip
def test_ollamas_start_is_one_script(weights: Weights, tasks: tuple[Task, ...], commands: str) -> None:
    assert commands in script(weights, *tasks)


@pytest.mark.parametrize(("status", "words"), [(0, ""), (1, "Error: pull model manifest: file does not exist\n")])
def test_ollamas_start_leaves_its_last_words_where_it_failed(tmp_path: Path, status: int, words: str) -> None:
    program, log = tmp_path / "ollama", tmp_path / "log"
    lines = ("printf '\\033[1G▕█▏ 3%%\\n' >&2", "echo 'Error: pull model manifest: file does not exist' >&2")
    program.write_text("\n".join(("#!/bin/sh", *lines, f"exit {status}", "")))
    program.chmod(0o755)
    text = script(OllamaModel("x")).replace("/bin/ollama", str(program)).replace(LAST_WORDS, str(log))
    assert subprocess.run(["bash", "-c", text], check=False).returncode == status
    assert log.read_bytes().decode("ascii").endswith(words)
    failure = OLLAMA.explain(log.read_text())
    assert (failure.reason if failure else None) == ("DownloadFailed" if status else None)


def test_ollamas_words_are_safe_for_the_shell() -> None:
    assert "'a;reboot'" in script(OllamaModel("a;reboot"))


@pytest.mark.parametrize(
    ("engine", "tasks", "flag"),
    [
        (LLAMACPP, ("embed",), "--embedding"),
        (LLAMACPP, ("rerank",), "--reranking"),
        (SGLANG, ("embed",), "--is-embedding"),
        (SGLANG, ("rerank",), "--is-embedding"),
    ],
)
def test_the_mode_is_a_flag(engine: Engine, tasks: tuple[Task, ...], flag: str) -> None:
    assert flag in engine.args(launch(tasks=tasks))
    assert flag not in engine.args(launch())


def test_vllm_streams_from_buckets_and_takes_adapters_after_the_users_arguments() -> None:
    args = VLLM.args(launch(BucketFolder("s3://b/m"), "--max-lora-rank=64", adapters=True))
    assert args == (
        "--model=s3://b/m", "--served-model-name=tiny", "--load-format=runai_streamer", "--max-lora-rank=64",
        "--enable-lora",
    )  # fmt: skip


def test_sglang_streams_from_buckets() -> None:
    args = SGLANG.args(launch(BucketFolder("s3://b/m")))
    assert args[:3] == ("--model-path=s3://b/m", "--served-model-name=tiny", "--load-format=runai_streamer")
    assert "--load-format=runai_streamer" not in SGLANG.args(launch())


@pytest.mark.parametrize("engine", [VLLM, SGLANG, LLAMACPP, INFINITY])
@pytest.mark.parametrize("args", [("--port=8000",), ("--port", "8000"), ("--host", "0.0.0.0"), ("--x", "--port")])
def test_saying_the_same_again_is_no_fault(engine: Engine, args: tuple[str, ...]) -> None:
    conflicts = set(engine.conflicting_args(launch(HUB, *args)))
    assert conflicts <= {"--port"} - ({"--port"} if args[-1] != "--port" else set())


@pytest.mark.parametrize(
    ("engine", "args", "observed"),
    [
        (VLLM, ("--model", "other/model"), ("--model",)),
        (VLLM, ("--served_model_name=x", "--port=1"), ("--served_model_name", "--port")),
        (VLLM, ("--host=127.0.0.1",), ("--host",)),
        (SGLANG, ("--model-path=x",), ("--model-path",)),
        (LLAMACPP, ("-hf", "x/y"), ("-hf",)),
        (LLAMACPP, ("--hf-file", "x.gguf"), ()),
        (INFINITY, ("--url-prefix=",), ("--url-prefix",)),
        (FASTER_WHISPER, ("--anything",), ()),
    ],
)
def test_settings_that_would_block_requests_are_found(
    engine: Engine, args: tuple[str, ...], observed: tuple[str, ...]
) -> None:
    assert engine.conflicting_args(launch(HUB, *args)) == observed


@pytest.mark.parametrize("engine", [VLLM, SGLANG, LLAMACPP])
def test_weights_of_another_kind_are_an_error(engine: Engine) -> None:
    with pytest.raises(ValueError, match=r"^the Ollama model x (is not|is neither)"):
        engine.args(launch(OllamaModel("x")))


def test_ollama_and_llamacpp_have_to_know_which_of_several_models() -> None:
    with pytest.raises(ValueError, match=r"^the folder /model is not an Ollama model"):
        OLLAMA.probes_of(launch(MountedFolder("/model")))
    with pytest.raises(ValueError, match=r"^the folder /model is not a file"):
        LLAMACPP.args(launch(MountedFolder("/model")))


@pytest.mark.parametrize("engine", [LLAMACPP, LLMKUBE["llamacpp"], PERSONAPLEX])
def test_engines_that_cannot_select_a_revision_reject_other_revisions(engine: Engine) -> None:
    with pytest.raises(ValueError, match=r"the revision (of|in) the repository x/y at v2: "):
        engine.args(launch(HubRepository("x/y", "v2")))


@pytest.mark.parametrize(
    ("engine", "line", "reason"),
    [
        (VLLM, "OSError: You are trying to access a gated repo.", "DownloadFailed"),
        (VLLM, "huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error.", "DownloadFailed"),
        (VLLM, "httpx.HTTPStatusError: 503 Server Error: Service Unavailable", "DownloadFailed"),
        (VLLM, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.", "OutOfGpuMemory"),
        (VLLM, "ValueError: No available memory for the cache blocks.", "OutOfGpuMemory"),
        (VLLM, "api_server.py: error: unrecognized arguments: --bogus", "InvalidArgument"),
        (VLLM, "RuntimeError: Failed to infer device type", "NoGpu"),
        (VLLM, "ValueError: Model architectures ['X'] are not supported for now.", "UnsupportedModel"),
        (VLLM, "FileNotFoundError: [Errno 2] No such file or directory: '/config/x.jinja'", "FileNotFound"),
        (VLLM, "OSError: [Errno 28] No space left on device", "DownloadFailed"),
        (SGLANG, "launch_server.py: error: argument --dtype: invalid choice: 'x'", "InvalidArgument"),
        (INFINITY, "Error: No such option: --bogus", "InvalidArgument"),
        (LLAMACPP, "ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory", "OutOfGpuMemory"),
        (LLAMACPP, "llama_model_load: error loading model: unknown model architecture: 'x'", "UnsupportedModel"),
        (LLAMACPP, "gguf_init_from_file: failed to open GGUF file '/model/x.gguf'", "FileNotFound"),
        (OLLAMA, "Error: pull model manifest: file does not exist", "DownloadFailed"),
        (OLLAMA, 'Error: pull model manifest: Get "https://r/v2/": dial tcp: no such host', "DownloadFailed"),
        (OLLAMA, "Error: http: server gave HTTP response to HTTPS client", "DownloadFailed"),
        (OLLAMA, "Error: model requires more system memory (8.0 GiB) than is available (2.0 GiB)", "OOMKilled"),
        (OLLAMA, 'Error: model "qwen:0.5b" not found', "FileNotFound"),
    ],
)
def test_last_words_have_a_reason(engine: Engine, line: str, reason: str) -> None:
    failure = engine.explain(f"before\n{line}\nafter")
    assert failure is not None
    assert failure.reason == reason
    assert failure.log.startswith(line)


@pytest.mark.parametrize("engine", [VLLM, LLAMACPP, OLLAMA])
def test_a_log_that_says_nothing_known_means_nothing(engine: Engine) -> None:
    assert engine.explain("INFO: Application startup complete.\nGoodbye.") is None


def test_times_and_process_numbers_do_not_make_the_same_failure_another_one() -> None:
    one, two = (
        VLLM.explain(f"(APIServer pid={pid}) ERROR 11-21 09:00:{pid} [core.py:7] ValueError: CUDA out of memory.")
        for pid in (10, 20)
    )
    assert one == two
