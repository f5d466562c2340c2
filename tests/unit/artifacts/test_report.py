"""Reports: what is written is read again, whatever a file says of itself fits, and faults have their word."""

from __future__ import annotations

import msgspec
import pytest

from slipway.artifacts.documents.report import LONGEST, Report, encode_report, fault, parse_report
from slipway.artifacts.facts.config import ModelFacts
from slipway.artifacts.headers.gguf import LONGEST_TEXT, Gguf
from slipway.artifacts.headers.safetensors import Safetensors

HEADER = Gguf(file_version=3, tensor_count=201, architecture="llama", name="Tiny", quantization="Q4_K_M")
FULL = Report(file="a.gguf", files=3, size=5, sha256="ab" * 32, etag='"v1"', revision="main", gguf=HEADER)


@pytest.mark.parametrize(
    "report", [FULL, Report(), Report(safetensors=Safetensors(tensor_count=1, parameters={"BF16": 4}, size=9))]
)
def test_an_encoded_report_can_be_read_back(report: Report) -> None:
    assert parse_report(encode_report(report).decode()) == report


def test_the_longest_texts_of_a_header_fit_into_a_message() -> None:
    long = "\N{GRINNING FACE}" * LONGEST_TEXT
    header = Gguf(file_version=3, tensor_count=1, architecture=long, name=long, license=long)
    report = Report(file="x" * 512, size=1 << 62, sha256="ab" * 32, etag="e" * 200, revision="r" * 250, gguf=header)
    assert parse_report(encode_report(report).decode()) == report


def test_a_report_that_is_too_long_leaves_the_header_out() -> None:
    kinds = {f"{number:015}": 1 for number in range(300)}
    report = Report(file="a", safetensors=Safetensors(tensor_count=1, parameters=kinds, size=9))
    short = encode_report(report)
    assert len(short) <= LONGEST
    assert parse_report(short.decode()) == Report(file="a", header_fault="too long")


def test_a_report_keeps_the_facts_of_a_model_if_its_headers_are_too_long() -> None:
    kinds = {f"{number:015}": 1 for number in range(300)}
    model = ModelFacts(model_type="llama", parameters=7)
    report = Report(safetensors=Safetensors(tensor_count=1, parameters=kinds, size=9), model=model)
    assert parse_report(encode_report(report).decode()) == Report(model=model, header_fault="too long")
    endless = ModelFacts(diffusion_pipeline={f"{number:015}": {"library": "x"} for number in range(300)})
    assert parse_report(encode_report(msgspec.structs.replace(report, model=endless)).decode()) == Report(
        header_fault="too long"
    )


FORGED = [
    '{"file": "../../etc/passwd"}',
    '{"file": "/etc/passwd"}',
    '{"file": "a/../../b"}',
    '{"file": "a//b"}',
    '{"file": "a/"}',
    '{"file": ".."}',
    '{"file": ".slipway-complete"}',
    '{"file": "a\\u0000b"}',
    '{"sha256": "aaaa"}',
    f'{{"sha256": "{"AB" * 32}"}}',
    f'{{"sha256": "{"ab" * 32}\\n"}}',
    '{"size": -1}',
    '{"files": -1}',
]


@pytest.mark.parametrize("message", FORGED)
def test_a_report_that_leads_out_of_its_folder_or_has_no_hash_for_one_is_none(message: str) -> None:
    assert parse_report(message) is None


@pytest.mark.parametrize("file", ["a.gguf", "a/b c/..d", ".hidden", "...", "a/.slipway", "ünï"])
def test_names_that_files_have_are_read(file: str) -> None:
    assert parse_report(encode_report(Report(file=file)).decode()) == Report(file=file)


@pytest.mark.parametrize("message", ["", "no JSON", "[]", "5", '{"size": "x"}', '{"gguf": {}}'])
def test_an_invalid_report_is_ignored(message: str) -> None:
    assert parse_report(message) is None


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("IntegrityCheckFailed: it has another hash", ("IntegrityCheckFailed", "it has another hash")),
        ("SourceNotFound: a: b", ("SourceNotFound", "a: b")),
        ("Whatever: it is", (None, "Whatever: it is")),
        ("files.example: no answer", (None, "files.example: no answer")),
        ("", (None, "")),
    ],
)
def test_a_fault_has_a_word_if_it_is_a_known_one(message: str, expected: tuple[str | None, str]) -> None:
    assert fault(message) == expected
