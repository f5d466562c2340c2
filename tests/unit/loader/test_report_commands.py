"""The commands that end with a report: what Kubernetes keeps of it, and their exit statuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from slipway.apis.llmkube.models import loaders
from slipway.apis.llmkube.models import spec as model_spec
from slipway.artifacts.documents.report import fault, parse_report
from slipway.artifacts.locations.address_policy import AddressPolicy
from slipway.loader import main as module
from slipway.loader.cli import report_commands
from slipway.loader.main import main
from slipway.loader.transport.source import Access
from slipway.serving.contract.settings import Settings, Sources
from slipway.serving.wire import agent
from slipway.serving.wire.proof import SigningKey
from slipway.weights.jobs.loads import arguments_of

from .conftest import WEIGHTS, Service, content, write
from .site import GGUF, OTHER, SHA

LISTEN = ["--listen", "127.0.0.1:0"]


def test_stage_ends_with_a_report_that_kubernetes_keeps(
    hub: Service, root: Path, tmp_path: Path, termination: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    write(root / "acme/tiny", {"model.gguf": GGUF})
    folder = tmp_path / "models" / "0123456789abcdef"
    command = ["stage", "hf://acme/tiny@main", str(folder), "--file", "model.gguf", "--as", "tiny.gguf"]
    assert main([*command, "--sha256", SHA.upper(), "--header", "gguf", *LISTEN]) == 0
    first = parse_report(termination.read_text())
    assert first is not None
    assert (first.file, first.sha256, first.size) == ("tiny.gguf", SHA, len(GGUF))
    assert first.gguf is not None
    termination.write_text("")
    assert main([*command, "--header", "gguf", "--refresh", *LISTEN]) == 0
    assert parse_report(termination.read_text()) == first


def test_a_hash_that_is_another_one_ends_the_job_with_its_word(
    hub: Service, tmp_path: Path, termination: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    command = ["stage", "hf://acme/tiny", str(tmp_path / "m"), "--file", "tiny.gguf", "--sha256", OTHER, *LISTEN]
    assert main(command) == module.NEVER
    assert fault(termination.read_text())[0] == "IntegrityCheckFailed"
    assert content(tmp_path / "m") == {}


def test_inspect_reports_a_file_or_its_absence(tmp_path: Path, termination: Path) -> None:
    write(tmp_path, {"tiny.gguf": GGUF})
    assert main(["inspect", str(tmp_path / "tiny.gguf"), "--header", "gguf", *LISTEN]) == 0
    report = parse_report(termination.read_text())
    assert report is not None
    assert report.gguf is not None
    assert main(["inspect", str(tmp_path / "none.gguf"), *LISTEN]) == module.NEVER
    assert fault(termination.read_text())[0] == "SourceNotFound"


def test_probe_reports_the_size_and_the_etag_of_a_source(
    hub: Service, termination: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    assert main(["probe", "hf://acme/tiny", "--file", "tiny.gguf", *LISTEN]) == 0
    report = parse_report(termination.read_text())
    assert report is not None
    assert report.size == len(WEIGHTS)
    assert report.etag


def test_the_guard_is_asked_for_and_excepted_by_options(hub: Service, tmp_path: Path, termination: Path) -> None:
    command = ["stage", f"{hub.url}/healthz", str(tmp_path / "m"), "--guard", *LISTEN]
    assert main(command) == module.NEVER
    assert fault(termination.read_text())[0] == "SourceNotAllowed"
    main([*command, "--allow-host", "127.0.0.0/8"])
    assert fault(termination.read_text())[0] != "SourceNotAllowed"


@pytest.mark.parametrize(
    "command",
    [
        ["stage", "hf://a/b"],
        ["stage", "hf://a/b", "/x", "--sha256", "abc"],
        ["stage", "hf://a/b", "/x", "--header", "onnx"],
        ["inspect"],
        ["probe"],
    ],
)
def test_commands_that_make_no_sense_are_refused(command: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(command)
    assert caught.value.code == 2


def test_a_pod_whose_weights_are_there_waits_for_no_library() -> None:
    """The clients of hubs and buckets take a second to import, which a restart has no use for."""
    code = "import sys, slipway.loader.main; print(sorted({'requests', 'aiohttp', 'urllib3'} & set(sys.modules)))"
    command, sources = [sys.executable, "-c", code], {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=sources, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


MODELS = {
    "web": {"source": "https://files.example/tiny.gguf", "sha256": OTHER},
    "hub": {"source": "hf://acme/tiny@v1", "files": ["--refresh", "*.gguf"], "mmproj": "mm.gguf"},
    "bucket": {"source": "s3://weights/folder", "format": "safetensors"},
    "store": {
        "source": "s3://weights/folder",
        "format": "safetensors",
        "sourceSecretRef": {"name": "store"},
    },
    "host": {"source": "/mnt/models/tiny.gguf"},
    "claim": {"source": "pvc://weights/tiny.gguf"},
}
SETTINGS = Settings(
    sources=Sources(
        allowed_host_path_roots=("/mnt/models",), allowed_remote_hosts=("*.lan",), blocked_networks=("10.9.0.0/16",)
    )
)


@pytest.mark.parametrize("kind", MODELS)
def test_loaders_understand_the_arguments_that_their_models_give_them(kind: str) -> None:
    metadata = {"name": "tiny", "namespace": "models", "uid": "1"}
    model = model_spec.parse_model({"metadata": metadata, "spec": MODELS[kind]}, SETTINGS)
    loads = [] if kind == "claim" else [loaders.download(model, refresh=fresh) for fresh in (False, True)]
    for job in (*loads, loaders.inspection(model)):
        program, *words = arguments_of(job)
        options = module.arguments(words)
        assert (program, options.command in report_commands.COMMANDS) == ("loader", True)
        if options.command == "stage":
            assert (options.url, str(options.folder)) == (words[1], model.place.path)
            assert (tuple(options.file), options.stored_as) == (model.source.files, model.source.stored_as)
            assert options.sha256 == (model.spec.sha256 or None)
        if options.command in ("stage", "probe"):
            guard = AddressPolicy(("*.lan",), ("10.9.0.0/16",)) if kind in ("web", "store") else None
            assert report_commands.access(options) == Access(guard)


@pytest.mark.parametrize("kind", ["bucket", "store"])
def test_as_the_node_a_bucket_is_read_only_where_the_operator_lets_it(kind: str) -> None:
    metadata = {"name": "tiny", "namespace": "models", "uid": "1"}
    given = msgspec.structs.replace(SETTINGS.sources, node_identity=True)
    settings = msgspec.structs.replace(SETTINGS, sources=given)
    for node, of in ((False, SETTINGS), (True, settings)):
        job = loaders.download(model_spec.parse_model({"metadata": metadata, "spec": MODELS[kind]}, of), refresh=False)
        assert report_commands.access(module.arguments(arguments_of(job)[1:])).node_identity is node


@pytest.mark.parametrize(
    "command", [["load", "hf://a/b", "/models/x"], ["serve", "--directory", "/x", "--engine", "http://e"]]
)
def test_loaders_with_variables_of_a_tenant_are_guarded_except_for_the_operators_hub(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(agent.CONTROLLER_KEY_VARIABLE, SigningKey(bytes(range(32))).public)
    monkeypatch.setenv(agent.POD_UID_VARIABLE, "1")
    sources = Sources(allowed_remote_hosts=("*.lan",), blocked_networks=("10.9.0.0/16",))
    options = sources.options(guarded=True, by_env=True, mirror="http://slipway-hub.slipway-system.svc:8080/x")
    guard = AddressPolicy(("*.lan", "slipway-hub.slipway-system.svc"), ("10.9.0.0/16",), proxies=True)
    assert report_commands.access(module.arguments([*command, *options])) == Access(guard)
    assert report_commands.access(module.arguments(command)) == Access()


def test_a_store_that_a_variable_names_is_not_asked_by_a_load(
    hub: Service, tmp_path: Path, termination: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    command = ["load", "hf://acme/tiny", str(tmp_path / "m"), *LISTEN]
    assert main([*command, "--guard"]) == module.NEVER
    assert "127.0.0.1 is this host: ask the operator to allow it" in termination.read_text()
    assert hub.seen == []
    assert main([*command, "--guard", "--allow-host=127.0.0.1", "--block-network=127.0.0.0/8"]) == module.NEVER
    assert hub.seen == []
    assert main([*command, "--guard", "--allow-host=127.0.0.1"]) == module.DONE
