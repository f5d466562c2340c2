"""The operator's loader settings reach every API's loaders that contact a source, and no other container."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.apis.kubeai import KUBEAI
from slipway.apis.llmkube import MODELS, SERVICES
from slipway.kube.objects import CONFIG_MAP, Object
from slipway.serving.contract.api import Api, Reference, World
from slipway.serving.contract.settings import Loader, Settings
from tests import worlds

PROXY = {"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}
BUNDLE = {"name": "REQUESTS_CA_BUNDLE", "value": "/etc/slipway/ca/ca.crt"}
SETTINGS = Settings(
    system_namespace="system", loader=Loader(env={PROXY["name"]: PROXY["value"]}, ca_config_map="authorities")
)
CONFIG = {"data": {"system.yaml": "cacheProfiles: {shared: {sharedFilesystem: {storageClassName: nfs}}}"}}
SPEC = {"url": "hf://acme/tiny", "engine": "VLLM", "features": [], "resourceProfile": "cpu:1"}
ADAPTED = {"adapters": [{"name": "a", "url": "hf://acme/a"}]}
MODEL = {"kind": "Model", "spec": {"source": "https://models.example/tiny.gguf"}}


def world(api: Api[Any], spec: Object, settings: Settings, *others: Object) -> World:
    metadata = {"namespace": "models", "generation": 1, "creationTimestamp": "2026-11-21T09:00:00Z"}
    named = [one | {"metadata": metadata | {"name": "tiny", "uid": "m"}} for one in others]
    resource = {"metadata": metadata | {"name": "chat", "uid": "c"}, "spec": spec}
    config = {Reference(CONFIG_MAP, "system", "slipway-kubeai"): CONFIG} if api is KUBEAI else {}
    listers = worlds.known_world(api, settings, config, others=[resource, *named])
    return World(resource=resource, children={}, pods=[], routed=[], settings=settings, now=2e9, listers=listers)


def pods(api: Api[Any], spec: Object, settings: Settings, *others: Object) -> list[Object]:
    plan = worlds.plan(api, world(api, spec, settings, *others))
    return [child["spec"]["template"]["spec"] for child in plan.children if "template" in child.get("spec", {})]


CASES = {
    "KubeAI's Job": (KUBEAI, SPEC | {"cacheProfile": "shared"}, ()),
    "KubeAI's beside an engine": (KUBEAI, SPEC | ADAPTED, ()),
    "LLMKube's Job": (MODELS, {"source": "https://models.example/tiny.gguf", "format": "gguf"}, ()),
    "LLMKube's before an engine": (
        SERVICES,
        {"modelRef": "tiny", "modelCache": {"persistence": "Ephemeral"}},
        (MODEL | {"status": {"phase": "Ready", "observedGeneration": 1}},),
    ),
}


def loaders(spec: Object) -> list[Object]:
    containers = [*spec.get("initContainers", ()), *spec["containers"]]
    return [one for one in containers if one.get("args", [""])[0] == "loader"]


@pytest.mark.parametrize("case", CASES)
def test_a_loader_has_the_operators_proxy_and_certificate_authorities(case: str) -> None:
    api, spec, others = CASES[case]
    (pod,) = pods(api, spec, SETTINGS, *others)
    (loader,) = loaders(pod)
    assert PROXY in loader["env"]
    assert BUNDLE in loader["env"]
    mount = {"name": "certificate-authorities", "mountPath": "/etc/slipway/ca", "readOnly": True}
    assert mount in loader["volumeMounts"]
    (volume,) = (one for one in pod["volumes"] if one["name"] == "certificate-authorities")
    assert (volume["configMap"]["name"], volume["configMap"]["optional"]) == ("authorities", True)
    engines = [one for one in pod["containers"] if one is not loader]
    assert not [one for one in engines for variable in one["env"] if variable in (PROXY, BUNDLE)]


@pytest.mark.parametrize("case", CASES)
def test_without_such_settings_a_loader_has_nothing_of_it(case: str) -> None:
    api, spec, others = CASES[case]
    (pod,) = pods(api, spec, msgspec.structs.replace(SETTINGS, loader=Loader()), *others)
    assert "certificate-authorities" not in str(pod)


def test_a_models_own_variable_goes_before_the_operators() -> None:
    (pod,) = pods(KUBEAI, SPEC | {"cacheProfile": "shared", "env": {"HTTPS_PROXY": "http://mine"}}, SETTINGS)
    (loader,) = loaders(pod)
    assert [one["value"] for one in loader["env"] if one["name"] == "HTTPS_PROXY"] == ["http://mine"]
