"""What an operator says of proxies and certificate authorities reaches the containers, and no password an output."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from .cluster_api import ClusterApi
from .rendering import Rendered
from .role_run import run_role

PROXY = {"HTTPS_PROXY": "http://proxy.example.com:3128"}
SECRET = {"HTTPS_PROXY": {"secretKeyRef": {"name": "proxy", "key": "url"}}}
CONTAINERS = {"component_init_containers": [{"name": "init"}], "component_containers": [{"name": "main"}]}


def rendered(**given: Any) -> Rendered:
    return Rendered("component", component_name="slipway-echo", __component_version="0.5.0", **CONTAINERS, **given)


def pod(**given: Any) -> dict[str, Any]:
    manifests = yaml.safe_load_all(rendered(**given).text("component.yml.j2"))
    [deployment] = [one for one in manifests if one and one["kind"] == "Deployment"]
    spec: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def test_every_container_gets_the_variables_and_the_authorities() -> None:
    spec = pod(component_env=PROXY, component_ca_config_map="company")

    for container in [*spec["initContainers"], *spec["containers"]]:
        values = {one["name"]: one["value"] for one in container["env"]}
        assert values["HTTPS_PROXY"] == PROXY["HTTPS_PROXY"]
        assert values["NO_PROXY"].startswith("$(KUBERNETES_SERVICE_HOST),")
        assert {"name": "authorities", "mountPath": "/etc/slipway-authorities", "readOnly": True} in container[
            "volumeMounts"
        ]
    [volume] = [one for one in spec["volumes"] if one["name"] == "authorities"]
    assert volume["configMap"]["name"] == "company"


def test_without_them_nothing_of_a_pod_is_other_than_before() -> None:
    spec = pod()
    assert [container.keys() & {"env", "volumeMounts"} for container in spec["containers"]] == [set()]
    assert [volume["name"] for volume in spec["volumes"]] == ["config", "token"]

    hashed = json.dumps([{}, *CONTAINERS.values(), [], ""], sort_keys=True)
    assert rendered()["__component_revision"] == sha256(hashed.encode()).hexdigest()[:16]


@pytest.mark.parametrize("given", [{"component_env": PROXY}, {"component_ca_config_map": "company"}])
def test_a_change_of_them_replaces_the_pods(given: dict[str, Any]) -> None:
    assert rendered(**given)["__component_revision"] != rendered()["__component_revision"]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("http://user:secret@proxy:3128", ["HTTPS_PROXY"]),
        ("http://:secret@proxy", ["HTTPS_PROXY"]),
        ("user:secret@proxy:3128", ["HTTPS_PROXY"]),
        ("//user:secret@proxy:3128", ["HTTPS_PROXY"]),
        ("http://user@proxy:3128", []),
        ("proxy:3128", []),
        ("acme:1.0@sha256:0123", []),
        ("http://proxy:3128/a:b@c", []),
        (SECRET["HTTPS_PROXY"], []),
    ],
)
def test_a_password_in_plain_text_is_found(value: Any, told: list[str]) -> None:
    env = {"HTTPS_PROXY": value, "LEVEL": 3}
    assert rendered(component_env=env)["__component_told_passwords"] == told
    assert Rendered("controller", controller_loader_env=env)["__controller_told_passwords"] == told


@pytest.mark.parametrize("role", ["controller", "gateway", "hub"])
def test_one_variable_each_sets_all_parts(role: str) -> None:
    told = Rendered(role, slipway_env=PROXY, slipway_ca_config_map="company")
    assert (told[f"{role}_env"], told[f"{role}_ca_config_map"]) == (PROXY, "company")

    alone = Rendered(role)
    assert (alone[f"{role}_env"], alone[f"{role}_ca_config_map"]) == ({}, "")


def test_loaders_get_them_too_but_nothing_out_of_secrets_that_they_have_not() -> None:
    told = Rendered("controller", slipway_env={"NO_PROXY": ".svc", **SECRET}, slipway_ca_config_map="company")

    assert told["__controller_settings"]["loader"] == {"env": {"NO_PROXY": ".svc"}, "caConfigMap": "company"}


@pytest.mark.plays
def test_a_password_is_refused_before_anything_changes_and_never_shown(tmp_path: Path, api: ClusterApi) -> None:
    env = {"HTTPS_PROXY": "http://user:of-the-proxy@proxy:3128"}
    said = run_role(
        tmp_path, api, "hub", "main", "--diff", "-vvv", failing=True, hub_volume={"emptyDir": {}}, hub_env=env
    )

    assert "Variables of slipway-hub: HTTPS_PROXY has a password in plain text" in said
    assert "of-the-proxy" not in said
    assert api.writes == []


@pytest.mark.plays
@pytest.mark.parametrize("variable", ["controller_loader_env", "slipway_env"])
def test_loaders_get_no_password_either(tmp_path: Path, api: ClusterApi, variable: str) -> None:
    env = {"HTTPS_PROXY": "http://user:of-the-proxy@proxy:3128"}
    said = run_role(
        tmp_path, api, "controller", "check", "--diff", "-vvv", failing=True, controller_env={}, **{variable: env}
    )

    assert "controller_loader_env: HTTPS_PROXY has a password in plain text" in said
    assert "of-the-proxy" not in said
    assert api.objects == {}
