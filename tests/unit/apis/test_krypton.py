"""What a Krypton Model becomes, beyond the golden examples: its edges."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.apis.krypton import KRYPTON
from slipway.kube.objects import DEPLOYMENT
from slipway.serving.contract.api import InvalidSpecError, Rejection, World
from slipway.serving.contract.settings import Settings
from tests import worlds
from tests.worlds import at


def world(name: str = "tiny", settings: Settings | None = None, **spec: Any) -> World:
    metadata = {"name": name, "namespace": "models", "generation": 1, "creationTimestamp": "2026-11-21T09:00:00Z"}
    source = {"huggingface": "acme/tiny", "file": "tiny.gguf"}
    resource = {"metadata": metadata, "spec": {"source": source} | spec}
    given, listers = settings or Settings(), worlds.known_world(KRYPTON, settings)
    return World(resource=resource, children={}, pods=[], routed=[], settings=given, now=0, listers=listers)


def container(planned: World) -> dict[str, Any]:
    deployment = next(child for child in worlds.plan(KRYPTON, planned).children if child["kind"] == "Deployment")
    engine_container: dict[str, Any] = deployment["spec"]["template"]["spec"]["containers"][0]
    return engine_container


def environment(planned: World) -> dict[str, Any]:
    return {variable["name"]: variable for variable in container(planned)["env"]}


def test_own_flags_come_before_the_users() -> None:
    args = container(world(args=["--ctx-size", "512"]))["args"]
    assert args == [
        "--host", "0.0.0.0", "--port", "8080", "--hf-repo", "acme/tiny", "--hf-file", "tiny.gguf", "--alias", "tiny",
        "--ctx-size", "512",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"args": ["-hf", "other/repo"]}, "-hf"),
        ({"args": ["--ctx-size", "1", "--host=127.0.0.1", "-a", "x"]}, "--host, -a"),
        ({"args": ["--hf_repo", "x/y"]}, "--hf_repo"),
        ({"startupTimeout": "soon"}, "startupTimeout"),
        ({"startupTimeout": "-5s"}, "startupTimeout"),
        ({"source": {"huggingface": "no-slash", "file": "x.gguf"}}, "repository ID"),
        ({"source": {"huggingface": "a/b", "file": "../x.gguf"}}, "path inside the repository"),
        ({"imagePullSecrets": "registry"}, "imagePullSecrets"),
    ],
)
def test_a_spec_that_cannot_be_served_is_refused_by_name(spec: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidSpecError, match=complaint) as refused:
        worlds.plan(KRYPTON, world(**spec))
    assert refused.value.reason == "InvalidSpec"


@pytest.mark.parametrize("name", ["a.b", "1st", "x" * 64, "x-"])
def test_a_name_that_cannot_be_a_services_is_refused(name: str) -> None:
    with pytest.raises(InvalidSpecError, match="is not a valid Service name"):
        worlds.plan(KRYPTON, world(name))


def test_the_zero_duration_of_typed_clients_means_the_default() -> None:
    assert container(world(startupTimeout="0s"))["startupProbe"]["failureThreshold"] == 600


def test_the_start_is_bounded_by_startup_timeout() -> None:
    probe = container(world(startupTimeout="2m"))["startupProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] == 120


@pytest.mark.parametrize(
    "given", [{"value": "secret"}, {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}}]
)
def test_a_token_by_env_reaches_the_engine_under_the_name_that_it_reads(given: dict[str, Any]) -> None:
    variables = environment(world(env=[{"name": "HUGGINGFACE_HUB_TOKEN", **given}]))
    assert variables["HF_TOKEN"] == {"name": "HF_TOKEN", **given}


def test_a_token_by_env_from_reaches_the_engine_from_the_only_secret() -> None:
    sources = [{"prefix": "HUGGINGFACE_", "secretRef": {"name": "hf"}}, {"configMapRef": {"name": "c"}}]
    key = environment(world(envFrom=sources))["HF_TOKEN"]["valueFrom"]["secretKeyRef"]
    assert key == {"name": "hf", "key": "HUB_TOKEN", "optional": True}


def test_no_secret_is_guessed_among_several() -> None:
    assert "HF_TOKEN" not in environment(world(envFrom=[{"secretRef": {"name": name}} for name in ("hf", "other")]))


def test_a_token_under_its_new_name_is_left_alone() -> None:
    given = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "t"}}}
    assert environment(world(env=[given], envFrom=[{"secretRef": {"name": "other"}}]))["HF_TOKEN"] == given


def test_the_users_variables_win_over_our_own() -> None:
    assert environment(world(env=[{"name": "HF_HOME", "value": "/models"}]))["HF_HOME"]["value"] == "/models"


def test_the_operators_mirror_image_and_user_reach_the_pod() -> None:
    settings = Settings(hugging_face_endpoint="http://hub", images={"llamacpp": "mirror/llama:1"}, run_as_user=1000)
    planned = world(settings=settings)
    assert environment(planned)["HF_ENDPOINT"]["value"] == "http://hub"
    assert container(planned)["image"] == "mirror/llama:1"
    assert container(world(settings=settings, image="own:2"))["image"] == "own:2"


def test_the_weights_lie_on_the_volume_that_llama_cpp_downloads_to() -> None:
    engine_container = container(world())
    assert environment(world())["HF_HOME"]["value"].startswith(engine_container["volumeMounts"][0]["mountPath"] + "/")


def test_objects_that_the_server_does_not_take_yet_are_no_failure() -> None:
    status = worlds.status(KRYPTON, world(), Rejection("Retrying", "429", retryable=True)).status
    conditions = {condition["type"]: (condition["status"], condition["reason"]) for condition in status["conditions"]}
    assert status["phase"] == "Pending"
    assert conditions["Accepted"] == ("Unknown", "Retrying")
    assert conditions["Available"] == ("False", "WaitingForPods")


def test_a_refused_spec_keeps_a_ready_model_ready() -> None:
    observed = {"spec": {"replicas": 1}, "metadata": {"generation": 1}, "status": {"replicas": 1, "readyReplicas": 1}}
    served = world()
    served.children[at(DEPLOYMENT, "tiny")] = observed  # type: ignore[index]
    status = worlds.status(KRYPTON, served, Rejection("InvalidSpec", "no")).status
    conditions = {condition["type"]: (condition["status"], condition["reason"]) for condition in status["conditions"]}
    assert status["phase"] == "Ready"
    assert conditions["Accepted"] == ("False", "InvalidSpec")
    assert conditions["Available"] == ("True", "Ready")


def test_flags_that_the_default_image_no_longer_has_are_replaced_and_named() -> None:
    planned = world(args=["--draft-max", "8", "--slots-endpoint-disable"])
    assert container(planned)["args"][-3:] == ["--spec-draft-n-max", "8", "--no-slots"]
    fields_ignored = {one["type"]: one for one in worlds.status(KRYPTON, planned).status["conditions"]}["FieldsIgnored"]
    assert fields_ignored["reason"] == "RetiredFlags"
    assert "--draft-max (replaced by --spec-draft-n-max 8)" in fields_ignored["message"]
    theirs = world(args=["--draft-max", "8"], image="ghcr.io/ggml-org/llama.cpp:server-v0.5.0")
    assert container(theirs)["args"][-2:] == ["--draft-max", "8"]
