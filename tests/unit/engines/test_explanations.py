"""What a failed download or a rejected argument is reported as."""

from __future__ import annotations

import pytest

from slipway.artifacts.locations.huggingface import HuggingFaceFile
from slipway.artifacts.locations.weights import HubRepository
from slipway.engines.definition.log_patterns import Download
from slipway.engines.programs.llamacpp import LLAMACPP

LISTED = "0.00.01 W file 'x' not found in repository\n0.00.017.178 I Available GGUF files:\n"
TINY = Download(HuggingFaceFile("slipway/tiny", "tinny.gguf"), "http://hub.example:8080")


def listing(*files: str) -> str:
    return LISTED + "".join(f"0.00.017.178 I  - {file}\n" for file in files) + "0.00.02 E srv load_model: failed\n"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (("tiny.gguf", "other.gguf"), "slipway/tiny has no file 'tinny.gguf'. Did you mean tiny.gguf?"),
        (("a.gguf", "b.gguf"), "slipway/tiny has no file 'tinny.gguf'. It has a.gguf, b.gguf."),
        (
            tuple(f"q{number}/a.gguf" for number in range(7)),
            (
                "slipway/tiny has no file 'tinny.gguf'. It has q0/a.gguf, q1/a.gguf, q2/a.gguf, q3/a.gguf, q4/a.gguf"
                " and 2 more."
            ),
        ),
        ((), "slipway/tiny has no file 'tinny.gguf'. Check the name."),
        (("\x07tinny.gguF", "a b.gguf"), "slipway/tiny has no file 'tinny.gguf'. Check the name."),
    ],
)
def test_a_missing_file_is_reported_with_the_nearest_name_and_without_the_log(
    files: tuple[str, ...], message: str
) -> None:
    failure = LLAMACPP.explain(listing(*files), TINY)
    assert failure is not None
    assert (failure.reason, failure.message, failure.log) == ("DownloadFailed", message, "")


def test_a_missing_file_of_an_unknown_source_is_reported_with_the_files() -> None:
    failure = LLAMACPP.explain(listing("a.gguf"))
    assert failure is not None
    assert failure.message == "The repository has no file of that name. It has a.gguf."


@pytest.mark.parametrize(
    ("download", "message"),
    [
        (
            TINY,
            (
                "The repository slipway/tiny cannot be read from hub.example: the hub has no such repository."
                " Check its name in the spec"
            ),
        ),
        (
            Download(HubRepository("Qwen/Qwen3-0.6B-GGUF:Q4")),
            (
                "The repository Qwen/Qwen3-0.6B-GGUF:Q4 cannot be read from huggingface.co: the hub has no such"
                " repository. Check its name in the spec"
            ),
        ),
    ],
)
def test_a_missing_repository_is_reported_with_its_name_and_the_hub(download: Download, message: str) -> None:
    failure = LLAMACPP.explain("E get_repo_commit: error: GET failed (404): no", download)
    assert failure is not None
    assert (failure.message, failure.log) == (message, "")


def test_a_missing_file_is_not_reported_as_a_missing_repository() -> None:
    failure = LLAMACPP.explain("E download: failed with status code: 404\n", TINY)
    assert failure is not None
    assert failure.message == (
        "The model file tinny.gguf cannot be downloaded from hub.example: the hub has no such file."
        " Check its name and that of the repository in the spec"
    )


@pytest.mark.parametrize(
    ("flag", "fix"),
    [
        ("--ctx-sise", "Did you mean --ctx-size?"),
        ("--paralell", "Did you mean --parallel?"),
        ("--zzzz", "Fix or remove it."),
    ],
)
def test_a_rejected_argument_is_named_with_the_nearest_one(flag: str, fix: str) -> None:
    failure = LLAMACPP.explain(f"error: invalid argument: {flag}\n")
    assert failure is not None
    assert (failure.reason, failure.log) == ("InvalidArgument", "")
    assert failure.message == f"llama-server rejected an argument in the spec: '{flag}'. {fix}"
