"""Recognizes the engine, the model names and the port in a user's container."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from slipway.engines import recognition
from slipway.engines.recognition import Recognised, recognise, replaced_words
from slipway.kube.objects import Object
from tests import documents
from tests.tables import each, seeds

RUNTIMES = sorted((Path(__file__).parents[4] / "shared/reference/samples/ome/runtimes").glob("*.yaml"))
VLLM_MODULE = ["python3", "-m", "vllm.entrypoints.openai.api_server"]


def recognise_container(command: list[str] | None = None, args: list[str] | None = None, **fields: Any) -> Recognised:
    line = {field: words for field, words in (("command", command), ("args", args)) if words is not None}
    return recognise({"name": "engine", **line, **fields})


def name(seen: Recognised) -> str:
    return seen.engine.name if seen.engine else "router" if seen.router else ""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (VLLM_MODULE, "vllm"),
        (["vllm", "serve", "/model"], "vllm"),
        (["/opt/venv/bin/vllm", "serve"], "vllm"),
        (["python3", "-m", "sglang.launch_server"], "sglang"),
        (["python3", "-m", "sglang_router.launch_router"], "router"),
        (["text-generation-launcher"], "tgi"),
        (["/app/llama-server", "-m", "/models/a.gguf"], "llamacpp"),
        (["/bin/ollama", "serve"], "ollama"),
        (["sh", "-c", "cd /srv && exec vllm serve /model"], "vllm"),
        (["/bin/bash", "-lc", "export A=1\npython3 -m sglang.launch_server \\\n  --port 8080"], "sglang"),
        (["numactl", "--cpunodebind=0", "vllm", "serve"], "vllm"),
        (["python3", "serve.py", "--backend", "vllm"], ""),
        (["sh", "-c", "echo 'vllm serve'"], ""),
        (["sh", "-c", "# vllm serve\nsglang serve --url http://a#b"], "sglang"),
        (["sh", "-c", "vllm serve 'a quote that does not end"], "vllm"),
        (["sh", "-c"], ""),
        (["python3", "-m"], ""),
        ([], ""),
    ],
)
def test_an_engine_is_recognised_by_its_command(command: list[str], expected: str) -> None:
    assert name(recognise_container(command)) == expected


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("docker.io/vllm/vllm-openai:v0.9.0.1", "vllm"),
        ("registry:5000/lmsysorg/sglang:v0.5.5-cu129", "sglang"),
        ("lmsysorg/sglang-router", "router"),
        ("ghcr.io/huggingface/text-generation-inference:3.3.7", "tgi"),
        ("ghcr.io/ggml-org/llama.cpp:server-v0.5.0", "llamacpp"),
        ("ollama/ollama@sha256:0123", "ollama"),
        ("acme/sglangfork:1", ""),
        ("", ""),
    ],
)
def test_without_a_command_the_image_says_what_it_runs(image: str, expected: str) -> None:
    assert name(recognise_container(image=image)) == expected
    assert name(recognise_container(["/entrypoint.sh"], image=image)) == ""


@pytest.mark.parametrize(
    ("command", "args", "names"),
    [
        (VLLM_MODULE, ["--served-model-name", "a", "b/c", "--port", "1"], ("a", "b/c")),
        (VLLM_MODULE, ["--served_model_name=a", "b"], ("a",)),
        (VLLM_MODULE, ["--served-model-name", "a", "--served-model-name", "b"], ("b",)),
        (["python3", "-m", "sglang.launch_server", "--served-model-name", "Qwen/Qwen3-8B"], None, ("Qwen/Qwen3-8B",)),
        (["llama-server", "-a", "tiny, small"], None, ("tiny", "small")),
        (["sh", "-c", 'vllm serve "$MODEL_PATH" --served-model-name "$NAME"'], None, ("tiny",)),
        (["vllm", "serve", "/m", "--served-model-name", "$(NAME)"], None, ("tiny",)),
        (["sh", "-c", "vllm serve /m --served-model-name a; sleep 1 --served-model-name b"], None, ("a",)),
        (VLLM_MODULE, [], ()),
        (["tini", "acme", "--served-model-name", "a"], None, ()),
    ],
)
def test_the_names_in_its_arguments(command: list[str], args: list[str] | None, names: tuple[str, ...]) -> None:
    assert recognise_container(command, args, env=[{"name": "NAME", "value": "tiny"}]).served_names == names


def test_names_are_public_that_say_what_is_served() -> None:
    """Each vLLM runtime of the original's has ``vllm-model``; a path is no name either."""
    names = ["vllm-model", "meta-llama/Llama-3.2-1B", "/raid/models/a", "./a", "$X/a", "a/"]
    assert recognise_container(VLLM_MODULE, ["--served-model-name", *names]).public_names == (
        "meta-llama/Llama-3.2-1B",
    )


@pytest.mark.parametrize(
    ("container", "port", "expected"),
    [
        ({"command": [*VLLM_MODULE, "--port", "9000"]}, 9000, 9000),
        ({"command": [*VLLM_MODULE, "--port=9000"], "ports": [{"containerPort": 8080}]}, 9000, 9000),
        ({"command": [*VLLM_MODULE, "--port", "$(P)"], "env": [{"name": "P", "value": "81"}]}, 81, 81),
        ({"command": [*VLLM_MODULE, "--port", "$(P)"], "env": [{"name": "P", "valueFrom": {}}]}, 8000, 0),
        ({"command": VLLM_MODULE, "ports": [{"containerPort": 8080}]}, 8080, 0),
        ({"command": VLLM_MODULE}, 8000, 0),
        ({"command": ["llama-server", "-p", "1"]}, 8080, 0),
        ({"command": ["text-generation-launcher", "-p", "1"]}, 1, 1),
        ({"command": ["llama-server"], "env": [{"name": "LLAMA_ARG_PORT", "value": "82"}]}, 82, 0),
        ({"image": "ollama/ollama", "env": [{"name": "OLLAMA_HOST", "value": "0.0.0.0:83"}]}, 83, 0),
        ({"image": "ollama/ollama"}, 11434, 0),
        ({"command": ["smg"]}, 30000, 0),
        ({"command": ["acme", "--port", "84"]}, 8080, 0),
        ({"command": [*VLLM_MODULE, "--port", "99999"]}, 8000, 0),
    ],
)
def test_the_port_on_which_it_listens(container: Object, port: int, expected: int) -> None:
    seen = recognise(container)
    assert (seen.port, seen.argument_port) == (port, expected)


def test_shell_text_after_a_command_is_not_part_of_its_arguments() -> None:
    assert not recognise_container(["sh", "-c", "vllm serve /m --port 1 | tee log"]).last
    assert recognise_container(["sh", "-c", "cd /srv && vllm serve /m --port 1"]).last
    assert recognise_container(["sh", "-c", "vllm serve /m --port 1 | tee log"]).args == ("serve", "/m", "--port", "1")


def test_adapters_are_given_as_each_engine_takes_them() -> None:
    adapters = {"a": "/adapters/a", "b": "/adapters/b"}
    assert {
        engine.name: program.adapters(adapters) for program, engine in recognition.ENGINE_OF.items() if program.adapters
    } == {
        "vllm": ("--enable-lora", "--lora-modules", "a=/adapters/a", "b=/adapters/b"),
        "sglang": ("--lora-paths", "a=/adapters/a", "b=/adapters/b"),
        "tgi": ("--lora-adapters", "a=/adapters/a,b=/adapters/b"),
        "llamacpp": ("--lora", "/adapters/a", "--lora", "/adapters/b"),
    }


WORDS: list[Any] = ["sh", "-c", "bash", "vllm", "serve", "-m", "'", '"', "\\", "$(", "${", "$(A)", "--port", ""]
WORDS += ["--served-model-name", "a=b", ";", "&&", "llama-server", "-p", "--", "-", 7, None, {}, "é\x00"]


@each(seeds(60))
def test_nothing_in_a_container_is_an_error(seed: int) -> None:
    dice = Random(seed)

    def some() -> Any:
        words = [dice.choice(WORDS) for _word in range(dice.randint(0, 6))]
        return dice.choice([words, [" ".join(map(str, words))], ["sh", "-c", " ".join(map(str, words))], None, 7])

    env = dice.choice([None, 7, [{"name": "A", "value": dice.choice(WORDS)}], [{}], [None]])
    ports = dice.choice([None, 7, [{}], [{"containerPort": "x"}], [None], [{"containerPort": 0}]])
    seen = recognise({"command": some(), "args": some(), "env": env, "ports": ports, "image": dice.choice(WORDS)})
    assert 0 < seen.port < 65536


def test_a_script_is_read_up_to_a_limit() -> None:
    assert recognise_container(["sh", "-c", f"{' ' * recognition.LONGEST_SCRIPT}vllm serve"]).engine is None


@pytest.mark.timeout(60)
@pytest.mark.parametrize("command", [["sh", "-c", "vllm serve " + "$A " * 3000], ["vllm", "serve", *["$(A)"] * 3000]])
def test_values_that_are_repeated_too_often_are_not_read(command: list[str]) -> None:
    container = {"command": command, "env": [{"name": "A", "value": "x" * 1000}]}
    assert recognise(container).args == ()
    assert replaced_words(container) == []
    few = {**container, "env": [{"name": "A", "value": "x" * 500}]}
    assert len(recognise(few).args) == len(replaced_words(few)) - 1 == 3001


def test_a_command_line_of_a_megabyte_is_read_at_once() -> None:
    assert recognise_container(["vllm", "serve", *["--served-model-name", "a"] * 40_000]).served_names == ("a",)


@pytest.mark.skipif(not RUNTIMES, reason="the original's runtimes are not here")
@pytest.mark.parametrize("path", RUNTIMES, ids=lambda path: path.stem)
def test_every_runtime_of_the_originals_is_recognised(path: Path) -> None:
    spec = documents.read(path)["spec"]
    expected = path.name.split("__", maxsplit=1)[0].replace("srt", "sglang")
    for part in ("engineConfig", "decoderConfig"):
        config = spec.get(part) or {}
        for pod in (config, config.get("leader") or {}, config.get("worker") or {}):
            if "runner" in pod:
                assert name(recognise(pod["runner"])) == expected
    router = recognise(spec["routerConfig"]["runner"]) if "routerConfig" in spec else None
    assert router is None or (router.router, router.port) == (True, 8080)
