# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is said of a machine on which programs are to compute, by a library that stands for CUDA's."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.slipway.inference.plugins.module_utils._cuda import ERRORS, PROGRAM, told
from gpu_machines import cuda_library
from module_run import Result, Run


@pytest.fixture
def asked(tmp_path: Path, run: Run) -> Run:
    """Runs the module with a library of so many GPUs whose cuInit ends with a code."""

    def call(count: int = 1, code: int = 0, **options: object) -> Result:
        library = tmp_path / "libcuda.so.1"
        library.write_bytes(cuda_library(count, code))
        return run("cuda_info", node=True, library=str(library), **options)

    return call


def test_a_machine_whose_gpus_can_compute_says_how_many(asked: Run) -> None:
    result = asked(count=8)

    assert (result["usable"], result["count"], result["cuda_version"]) == (True, 8, "13.0")
    assert (result["code"], result["problem"], result["remedy"]) == (0, "", "")
    assert not result["changed"]


@pytest.mark.parametrize("code", ERRORS)
def test_an_error_is_told_with_its_meaning_and_what_to_do(asked: Run, code: int) -> None:
    result = asked(code=code)
    name, meaning, remedy = ERRORS[code]

    assert not result.failed
    assert (result["usable"], result["call"], result["code"], result["name"]) == (False, "cuInit", code, name)
    assert result["problem"] == f"cuInit failed with {name} ({code}): {meaning}."
    assert result["remedy"] == remedy


def test_an_error_that_is_not_known_is_told_by_its_code(asked: Run) -> None:
    result = asked(code=4711)

    assert (result["code"], result["name"]) == (4711, "")
    assert result["problem"].startswith("cuInit failed with error 4711: ")


def test_cuda_without_gpus_is_not_enough(asked: Run) -> None:
    result = asked(count=0)

    assert (result["usable"], result["code"]) == (False, 0)
    assert result["problem"] == "CUDA starts, and finds no GPU."


def test_a_driver_without_cuda_is_told(run: Run, tmp_path: Path) -> None:
    result = run("cuda_info", node=True, library=str(tmp_path / "libcuda.so.1"))

    assert (result["call"], result["code"]) == ("dlopen", None)
    assert "cannot open shared object file" in result["problem"]
    assert "libcuda1 on Debian" in result["remedy"]


def test_gpus_that_the_caller_hides_from_programs_are_counted(asked: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA itself looks at it, which the stand-in does not."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    shown = PROGRAM.replace("print(", "assert 'CUDA_VISIBLE_DEVICES' not in os.environ; print(")
    monkeypatch.setattr("ansible_collections.slipway.inference.plugins.modules.cuda_info.PROGRAM", shown)

    assert asked()["usable"]


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("import time; time.sleep(600)", "CUDA did not answer within 1 s."),
        ("import os; os.kill(os.getpid(), 11)", "A program that starts CUDA ended with status -11."),
        ("raise RuntimeError('broken')", "A program that starts CUDA ended with status 1. RuntimeError: broken"),
    ],
)
def test_a_library_that_hangs_or_breaks_takes_only_its_own_program_along(
    asked: Run, monkeypatch: pytest.MonkeyPatch, program: str, problem: str
) -> None:
    monkeypatch.setattr("ansible_collections.slipway.inference.plugins.modules.cuda_info.PROGRAM", program)
    result = asked(timeout=1 if "sleep" in program else 60)

    assert not result["usable"]
    assert result["problem"] == problem


def test_an_answer_that_is_none_is_told() -> None:
    assert told(0, "a banner of the library", "", 60)["problem"] == "A program that starts CUDA ended with status 0."
