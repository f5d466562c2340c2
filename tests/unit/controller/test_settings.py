"""The controller's settings file is read strictly: what it does not know is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipway.apis import APIS
from slipway.apis.llmkube.settings import LLMKubeSettings, llmkube
from slipway.controller.main import main
from slipway.controller.settings import read_settings
from slipway.engines import ENGINES


def written(folder: Path, text: str) -> Path:
    path = folder / "controller.yaml"
    path.write_text(text)
    return path


def test_an_empty_file_means_every_default(tmp_path: Path) -> None:
    settings = read_settings(written(tmp_path, ""))
    assert settings.chosen() == APIS
    assert settings.system_namespace == settings.leader_election.namespace
    assert settings.run_as_user == 65532


def test_the_roles_files_are_read(tmp_path: Path) -> None:
    lines = (
        "apis: [krypton]",
        "huggingFaceEndpoint: http://hub",
        "images: {llamacpp: x, llamacpp-cuda: y}",
        "leaderElection: {namespace: n}",
    )
    text = "\n".join(lines)
    settings = read_settings(written(tmp_path, text))
    assert settings.hugging_face_endpoint == "http://hub"
    assert settings.leader_election.namespace == "n"


def test_the_settings_may_name_an_image_for_genai_bench(tmp_path: Path) -> None:
    assert read_settings(written(tmp_path, "images: {genai-bench: x}")).images == {"genai-bench": "x"}


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_may_have_an_image(engine: str, tmp_path: Path) -> None:
    assert read_settings(written(tmp_path, f"images: {{{engine}: x, {engine}-rocm: y}}")).images[engine] == "x"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("huggingfaceEndpoint: x", "huggingfaceEndpoint"),
        ("apis: [kryptn]", "unknown API kryptn. Use krypton, kubeai, llmkube"),
        ("apis: {kryptn: {}}", "unknown API kryptn. Use krypton, kubeai, llmkube"),
        ("apis: {krypton: {modelCache: {}}}", "apis.krypton: Object contains unknown field `modelCache`"),
        (
            "apis: {llmkube: {modelCache: {size: 1}}}",
            "apis.llmkube: Expected `str`, got `int` - at `$.modelCache.size`",
        ),
        ("runAsUser: root", "runAsUser"),
        ("idOwners: {advisor: The Bank}", "idOwners: 'The Bank' is not a namespace"),
        ("routedNamespaces: a in b", "routedNamespaces: 'a in b' is not a label selector"),
        ("sources: {allowedRemoteHosts: [store.lan, 'http://store.lan']}", "'http://store.lan' is not a host"),
        ("sources: {blockedNetworks: [10.0.0.0/8, store.lan]}", "'store.lan' is neither a network such as 10.1.0.0/16"),
        ("sources: {nodeIdentity: perhaps}", "nodeIdentity"),
        ("apis: {ome: {modelRoots: [models]}}", "apis.ome: Expected `str` matching regex"),
        ("apis: {ome: {modelRoots: [/mnt/../etc]}}", "apis.ome: Expected `str` matching regex"),
        ("apis: {ome: {modelRoots: [/..]}}", "apis.ome: Expected `str` matching regex"),
        ("apis: {ome: {modelRoots: [/]}}", "apis.ome: Expected `str` matching regex"),
        ("apis: {ome: {loadsAtOnce: 0}}", "apis.ome: Expected `int` >= 1"),
        ("sources: {allowedHostPathRoots: [models]}", "'models' is not the absolute path"),
        ("sources: {allowedHostPathRoots: [/mnt/../etc]}", "'/mnt/../etc' is not the absolute path"),
        ("authors: {imagePrefixes: [ghcr.io/acme, '']}", "imagePrefixes: '' is not a registry"),
        ("authors: {imagePrefixes: ['*']}", "'*' is not a registry or repository. Leave the list empty to allow all"),
        ("authors: {priviledged: true}", "priviledged"),
        ("images: {llamacpp-cuda: x, llamacpp-gpu: y}", "'llamacpp-gpu' is not an engine. Use llamacpp, vllm,"),
        ("namespaces: [team-a, 'Team B']", "'Team B' is not a namespace name"),
        ("namespaces: ['']", "'' is not a namespace name"),
        ("networkPolicies: {clients: [{}]}", "networkPolicies.clients: {} is not a peer"),
        ("networkPolicies: {clients: [{namespace: x}]}", "Use ipBlock, namespaceSelector, podSelector"),
        ("adapters: {size: much}", "adapters.size: 'much' is not a quantity"),
        ("[", "controller.yaml"),
    ],
)
def test_a_wrong_file_is_refused_by_file_and_key(
    tmp_path: Path, text: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config", str(written(tmp_path, text))]) == 2
    assert complaint in capsys.readouterr().err


def test_settings_of_one_api_stand_under_its_name(tmp_path: Path) -> None:
    text = "apis: {kubeai: {}, llmkube: {modelCache: {size: 1Gi}}}"
    settings = read_settings(written(tmp_path, text))
    assert [api.name for api in settings.chosen()] == ["kubeai", *["llmkube"] * 6]
    assert llmkube(settings).model_cache.size == "1Gi"
    assert llmkube(read_settings(written(tmp_path, "apis: [llmkube]"))) == LLMKubeSettings()


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "managers"), [("", ("kubeai",)), ("apis: [krypton, llmkube]", ()), ("apis: {kubeai: {}}", ("kubeai",))]
)
def test_pods_of_the_apis_that_run_are_looked_for_by_their_managers(
    tmp_path: Path, text: str, managers: tuple[str, ...]
) -> None:
    assert read_settings(written(tmp_path, text)).pod_managers() == managers
