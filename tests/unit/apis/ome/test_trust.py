"""Whose models a ClusterServingRuntime serves with rights that authors do not have."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.apis.ome.services.table import SERVICES
from slipway.kube.objects import Object
from slipway.serving.containers.freedoms import APPARMOR, CLUSTER_CREDENTIALS, NO_LABELS
from slipway.serving.contract.api import InvalidSpecError, Plan, World
from slipway.serving.contract.authors import NOT_ALLOWED, build_allowed_plan
from slipway.serving.contract.settings import PROMETHEUS_SERVER, Authors, Settings

from . import services as bench

CLUSTER, AUTHORS = bench.model(), bench.model(namespace="models", storage={"storageUri": "hf://mallory/tiny"})
STRICT = Settings(system_namespace="slipway-system")
ONE = {"minReplicas": 1, "maxReplicas": 1}


def of(runtime: Object, model: Object = CLUSTER, settings: Settings = STRICT, /, **spec: Any) -> World:
    return bench.world(bench.service(**spec), model, runtime, settings=settings)


def plan(case: World) -> Plan:
    return build_allowed_plan(SERVICES, case, SERVICES.resolve(case), NO_LABELS)


def refusal(case: World) -> str:
    with pytest.raises(InvalidSpecError) as refused:
        plan(case)
    assert refused.value.reason == NOT_ALLOWED
    return refused.value.message


def trusting(*models: str) -> Settings:
    return Settings(system_namespace="slipway-system", authors=Authors(privileged_models=models))


def container(**fields: Any) -> Object:
    return {"securityContext": fields}


def volume(**source: Any) -> Object:
    return {"volumes": [{"name": "x", **source}]}


TOKEN = {"sources": [{"serviceAccountToken": {"path": "token"}}]}
OF_PODS: list[Object] = [
    {"hostNetwork": True},
    {"hostPID": True},
    {"hostIPC": True},
    {"serviceAccountName": "powerful"},
    {"securityContext": {"runAsUser": 0}},
    {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
    {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}},
    {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}},
    {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
    volume(hostPath={"path": "/dev/infiniband"}),
    volume(nfs={"server": "nas", "path": "/"}),
    volume(csi={"driver": "secrets.example"}),
    volume(projected=TOKEN),
]
OF_CONTAINERS: list[Object] = [
    container(privileged=True),
    container(runAsUser=0),
    container(allowPrivilegeEscalation=True),
    container(procMount="Unmasked"),
    container(capabilities={"add": ["IPC_LOCK"]}),
    container(seccompProfile={"type": "Unconfined"}),
    container(windowsOptions={"hostProcess": True}),
    {"ports": [{"containerPort": 8080, "hostPort": 80}]},
    {"livenessProbe": {"httpGet": {"host": "10.0.0.1", "port": 80}}},
    {"lifecycle": {"postStart": {"tcpSocket": {"host": "10.0.0.1", "port": 80}}}},
]
RUNNER = bench.runner()
TOOL = {"name": "tool", "image": "tool:1"}
GROUP = {"leader": {"runner": RUNNER}, "worker": {"size": 1, "runner": RUNNER}}


def everywhere(pod: Object, main: Object) -> dict[str, Object]:
    """Runtimes that have it in one part each."""
    plain, one = {"runner": RUNNER}, {**pod, "runner": {**RUNNER, **main}}
    router = {**pod, "runner": {**bench.ROUTER["runner"], **main}}
    next_to = {**pod, **plain, "containers": [{**TOOL, **main}]}
    first = {**pod, **plain, "initContainers": [{**TOOL, **main}]}
    sidecar = {**pod, **plain, "initContainers": [{**TOOL, **main, "restartPolicy": "Always"}]}
    return {
        "engine": bench.runtime(engineConfig=one),
        "next to the engine": bench.runtime(engineConfig=next_to),
        "before the engine": bench.runtime(engineConfig=first),
        "sidecar of the engine": bench.runtime(engineConfig=sidecar),
        "decoder": bench.runtime(decoderConfig=one),
        "router": bench.runtime(routerConfig=router),
        "leader": bench.runtime(engineConfig={**GROUP, "leader": one}),
        "worker": bench.runtime(engineConfig={**GROUP, "worker": {"size": 1, **one}}),
        "decoding worker": bench.runtime(decoderConfig={**GROUP, "worker": {"size": 1, **one}}),
        "whole pod of earlier versions": {
            **bench.runtime(),
            "spec": {**{k: v for k, v in bench.runtime()["spec"].items() if k != "engineConfig"}}
            | {**pod, "containers": [{**RUNNER, **main}]},
        },
    }


FREEDOMS = [(pod, {}) for pod in OF_PODS] + [({}, main) for main in OF_CONTAINERS]


@pytest.mark.parametrize(("pod", "main"), FREEDOMS, ids=[str(pod or main)[:70] for pod, main in FREEDOMS])
def test_a_runtime_that_is_privileged_in_any_way_serves_models_of_the_cluster_alone(pod: Object, main: Object) -> None:
    for part, runtime in everywhere(pod, main).items():
        parts = {"decoder": ONE, "router": ONE}
        assert plan(of(runtime, **parts)).children, part
        message = refusal(of(runtime, AUTHORS, **parts))
        assert "ClusterServingRuntime rt" in message, part
        assert "BaseModel models/tiny" in message, part
        assert "authors.privilegedModels" in message, part
        assert plan(of(runtime, AUTHORS, trusting("models/tiny"), **parts)), part


def test_a_runtime_without_privileges_serves_the_models_of_all_authors() -> None:
    parts = {"decoder": ONE, "router": ONE}
    assert plan(of(bench.runtime(), AUTHORS, **parts)).children
    folder = bench.runtime(engineConfig={"runner": RUNNER, **volume(emptyDir={"medium": "Memory"})})
    assert plan(of(folder, AUTHORS, **parts)).children


PRIVILEGED = bench.runtime(engineConfig={"hostNetwork": True, "runner": RUNNER})


@pytest.mark.parametrize(
    ("named", "free"),
    [
        ("models/tiny", True),
        ("models/*", True),
        ("*", True),
        ("models/other", False),
        ("other/*", False),
        ("tiny", False),
    ],
)
def test_the_operator_names_models_one_by_one_by_namespace_or_all(named: str, free: bool) -> None:
    case = of(PRIVILEGED, AUTHORS, trusting(named))
    assert plan(case).children if free else refusal(case)


def test_a_model_that_takes_the_name_of_one_of_the_cluster_is_its_authors() -> None:
    case = bench.world(bench.service(), CLUSTER, AUTHORS, PRIVILEGED, settings=STRICT)
    assert "BaseModel models/tiny" in refusal(case)


def test_adapters_of_the_cluster_make_an_authors_model_no_better() -> None:
    chosen = {"name": "tiny", "fineTunedWeights": ["sql"]}
    for model, free in ((CLUSTER, True), (AUTHORS, False)):
        case = bench.world(bench.service(model=chosen), model, bench.weight("sql"), PRIVILEGED, settings=STRICT)
        assert plan(case).children if free else refusal(case)
    named = {"name": "sql", "kind": "FineTunedWeight"}
    refusal(bench.world(bench.service(model=named), AUTHORS, bench.weight("sql"), PRIVILEGED, settings=STRICT))


def test_a_service_as_earlier_versions_wrote_it_is_held_to_the_same() -> None:
    resource = bench.service()
    predictor = {"model": {"baseModel": "tiny", "runtime": "rt"}, "minReplicas": 1, "maxReplicas": 1}
    resource = {**resource, "spec": {"predictor": predictor}}
    assert plan(bench.world(resource, CLUSTER, PRIVILEGED, settings=STRICT)).children
    assert "BaseModel models/tiny" in refusal(bench.world(resource, AUTHORS, PRIVILEGED, settings=STRICT))


def without(part: str, config: Object | None = None) -> Object:
    """A runtime that is privileged, and has nothing, or this, to say of a part."""
    spec = {**bench.runtime()["spec"], "engineConfig": {"hostNetwork": True, "runner": RUNNER}}
    del spec[f"{part}Config"]
    return {**bench.runtime(), "spec": spec | ({f"{part}Config": config} if config else {})}


@pytest.mark.parametrize("config", [None, {"minReplicas": 1, "nodeSelector": {"a": "b"}}, {"worker": {"size": 1}}])
@pytest.mark.parametrize("part", ["decoder", "router"])
def test_a_service_may_have_a_part_that_its_runtime_lacks(part: str, config: Object | None) -> None:
    own = {part: {**ONE, "serviceAccountName": "default", "runner": {**RUNNER, "name": "own"}}}
    if config and "worker" in config:
        own[part]["leader"] = own[part]["worker"] = {"runner": own[part].pop("runner")}
    case = of(without(part, config), **own)
    assert {"chat-engine", f"chat-{part}"} <= {one["metadata"]["name"] for one in plan(case).children}
    assert "BaseModel models/tiny" in refusal(of(without(part, config), AUTHORS, **own))


def test_errors_of_an_engine_that_its_runtime_lacks_are_reported() -> None:
    """Nothing of the runtime stands by itself then, so that nothing is the operator's."""
    own = {**ONE, "hostNetwork": True, "runner": RUNNER}
    case = of(bench.runtime(engineConfig={"minReplicas": 1}), engine=own, runtime={"name": "rt"})
    assert "hostNetwork" in refusal(case)


OF_THE_NAMESPACE: list[Object] = [
    volume(persistentVolumeClaim={"claimName": "weights"}),
    volume(configMap={"name": "code"}),
    volume(secret={"secretName": "code"}),
    volume(projected={"sources": [{"configMap": {"name": "code"}}]}),
    {"runner": {**RUNNER, "envFrom": [{"secretRef": {"name": "code"}}]}},
    {"initContainers": [{**TOOL, "envFrom": [{"configMapRef": {"name": "code"}}]}]},
]


@pytest.mark.parametrize("part", OF_THE_NAMESPACE, ids=[str(one)[:60] for one in OF_THE_NAMESPACE])
def test_a_privileged_pod_uses_namespaced_objects_only_if_the_operator_trusts_the_whole_namespace(part: Object) -> None:
    engine = {"hostNetwork": True, "runner": RUNNER, **part}
    for spec in ({}, {"model": None, "runtime": {"name": "rt"}}):
        runtime = bench.runtime(engineConfig=engine)
        assert "no ConfigMap, Secret or claim" in refusal(of(runtime, **spec))
        assert "no ConfigMap, Secret or claim" in refusal(of(runtime, CLUSTER, trusting("models/tiny"), **spec))
        assert plan(of(runtime, CLUSTER, trusting("models/*"), **spec)).children
        assert plan(of(bench.runtime(engineConfig={**engine, "hostNetwork": False}), **spec)).children


def test_a_token_of_the_hub_from_a_secret_takes_nothing_away() -> None:
    token = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    assert plan(of(bench.runtime(engineConfig={"hostNetwork": True, "runner": {**RUNNER, "env": [token]}}))).children


def test_an_unconfined_profile_by_annotation_is_the_authors_own() -> None:
    annotations = {f"{APPARMOR}ome-container": "unconfined"}
    assert "apparmor" in refusal(of(bench.runtime(), engine={**ONE, "annotations": annotations}))


def test_pods_of_before_an_upgrade_stay_as_they_are() -> None:
    """Rights that became narrower stop nothing that runs."""
    loose = of(PRIVILEGED, AUTHORS, trusting("*"))
    there = bench.observed(bench.find_child(loose, "Deployment", "chat-engine"))
    case = bench.world(bench.service(), AUTHORS, PRIVILEGED, settings=STRICT, children=(there,))
    assert plan(case).children
    changed = bench.service(engine={**ONE, "runner": {"name": "ome-container", "args": ["--x"]}})
    refusal(msgspec.structs.replace(case, resource=changed))


def test_a_canary_of_an_authors_model_is_refused() -> None:
    there = bench.observed(bench.find_child(of(PRIVILEGED), "Deployment", "chat-engine"))
    tried = bench.service(engine={**ONE, "canaryTrafficPercent": 10})
    case = bench.world(tried, AUTHORS, PRIVILEGED, settings=STRICT, children=(there,))
    assert bench.find_child(case, "Deployment", "chat-engine-canary")
    refusal(case)


USUAL, THEIRS, MINE = (PROMETHEUS_SERVER, "https://prometheus.operator.example", "http://169.254.169.254")
BY_KEDA = {"enableKeda": True}
OF_CLUSTER = {"authenticationRef": {"name": "operator", "kind": CLUSTER_CREDENTIALS}, "authModes": "bearer"}
OF_NAMESPACE = {"authenticationRef": {"name": "mine"}, "authModes": "bearer"}
SERVER = "autoscaling.keda.sh/prometheus.serverAddress"


def allowing(**authors: tuple[str, ...]) -> Settings:
    return Settings(system_namespace="slipway-system", authors=Authors(**authors))


def queried(case: World) -> list[Object]:
    return [one["spec"]["triggers"][0] for one in plan(case).children if one["kind"] == "ScaledObject"]


def places(config: Object) -> dict[str, Object]:
    """A service that says it in one place each."""
    case, group = {**BY_KEDA, **config}, {**GROUP, "maxReplicas": 3}
    return {
        "service": {"kedaConfig": case},
        "engine": {"engine": {"maxReplicas": 3, "kedaConfig": case}},
        "decoder": {"decoder": {"maxReplicas": 3, "kedaConfig": case}},
        "router": {"router": {"maxReplicas": 3, "kedaConfig": case}},
        "group": {"engine": {**group, "kedaConfig": case}},
    }


@pytest.mark.parametrize(
    "server",
    [
        MINE,
        "http://prometheus-operated.monitoring.svc.cluster.local:9090@mallory.example",
        "http://mallory.example/?http://prometheus-operated.monitoring.svc.cluster.local:9090",
        f"{USUAL}/../admin",
        f"{USUAL}.mallory.example",
        "http://PROMETHEUS-operated.monitoring.svc.cluster.local:9090/api",
    ],
)
def test_keda_queries_no_server_that_an_author_chose(server: str) -> None:
    for place, spec in places({"promServerAddress": server}).items():
        message = refusal(of(bench.runtime(), **spec))
        assert "serverAddress" in message, place
        assert "authors.prometheusServers" in message, place
        assert queried(of(bench.runtime(), CLUSTER, allowing(prometheus_servers=(server,)), **spec)), place
        assert queried(of(bench.runtime(), CLUSTER, allowing(prometheus_servers=("*",)), **spec)), place
        refusal(of(bench.runtime(), CLUSTER, allowing(prometheus_servers=(THEIRS,)), **spec))


def test_a_password_in_an_address_is_not_in_the_message() -> None:
    message = refusal(
        of(bench.runtime(), kedaConfig={**BY_KEDA, "promServerAddress": "https://me:hunter2@prometheus.example"})
    )
    assert "https://***@prometheus.example" in message
    assert "hunter2" not in message


def test_an_annotation_chooses_no_server_either() -> None:
    for of_service, of_engine in (({SERVER: MINE}, {}), ({}, {SERVER: MINE})):
        engine = {"maxReplicas": 3, "annotations": of_engine}
        resource = bench.service(annotations=of_service, engine=engine, kedaConfig=BY_KEDA)
        assert MINE in refusal(bench.world(resource, CLUSTER, bench.runtime(), settings=STRICT))


def test_keda_uses_credentials_of_the_cluster_for_no_author() -> None:
    for place, spec in places(OF_CLUSTER).items():
        message = refusal(of(bench.runtime(), **spec))
        assert "authenticationRef (operator)" in message, place
        assert "authors.triggerAuthentications" in message, place
        assert queried(of(bench.runtime(), CLUSTER, allowing(trigger_authentications=("operator",)), **spec)), place
        refusal(of(bench.runtime(), CLUSTER, allowing(trigger_authentications=("other",)), **spec))


def test_the_usual_server_and_credentials_of_the_namespace_are_free() -> None:
    for config in ({}, OF_NAMESPACE, {"promServerAddress": USUAL}, {"promServerAddress": f"{USUAL}/"}):
        for spec in places({"customPromQuery": "up", **config}).values():
            assert queried(of(bench.runtime(), **spec))


OPERATORS = bench.runtime(engineConfig={"runner": RUNNER, "kedaConfig": {"promServerAddress": THEIRS, **OF_CLUSTER}})


def test_server_and_credentials_of_a_runtime_of_the_cluster_are_the_operators_together() -> None:
    engine = {"maxReplicas": 3}
    case = of(OPERATORS, engine=engine, kedaConfig={**BY_KEDA, "customPromQuery": "up", "scalingThreshold": "3"})
    (trigger,) = queried(case)
    assert (trigger["metadata"]["serverAddress"], trigger["metadata"]["query"]) == (THEIRS, "up")
    assert trigger["authenticationRef"] == OF_CLUSTER["authenticationRef"]
    assert queried(of(OPERATORS, AUTHORS, engine=engine, kedaConfig=BY_KEDA)), "an author's model sees neither of them"
    others, credentials = allowing(prometheus_servers=(MINE,)), {"name": "other", "kind": CLUSTER_CREDENTIALS}
    for config in ({"promServerAddress": MINE}, {"authenticationRef": credentials}):
        refusal(of(OPERATORS, CLUSTER, others, engine={**engine, "kedaConfig": {**BY_KEDA, **config}}))


def test_a_runtime_of_the_namespace_gives_neither() -> None:
    spec = OPERATORS["spec"]
    own = bench.runtime(namespace="models", **{name: spec[name] for name in ("engineConfig",)})
    message = refusal(of(own, engine={"maxReplicas": 3}, kedaConfig=BY_KEDA))
    assert "authors.prometheusServers" in message
    assert "authors.triggerAuthentications" in message


ROUTED = {"router": ONE}
MAIN = bench.ROUTER["runner"]
OWN_ROUTERS: list[Object] = [
    {"runner": {"name": "router", "image": "mine:1"}},
    {"runner": {"name": "router", "command": ["sh", "-c", "cat /var/run/secrets/kubernetes.io/serviceaccount/token"]}},
    {"runner": {"name": "router", "args": ["--x"]}},
    {"runner": {"name": "router", "env": [{"name": "PYTHONWARNINGS", "value": "x"}]}},
    {"runner": {"name": "router", "lifecycle": {"postStart": {"exec": {"command": ["sh"]}}}}},
    {"config": {"PYTHONWARNINGS": "x"}},
    {"containers": [TOOL]},
    {"initContainers": [TOOL]},
    {"initContainers": [{**TOOL, "restartPolicy": "Always"}]},
    {"volumes": [{"name": "x", "configMap": {"name": "code"}}]},
]


@pytest.mark.parametrize("part", OWN_ROUTERS, ids=[str(one)[:70] for one in OWN_ROUTERS])
def test_an_authors_container_in_a_router_does_not_get_the_routers_account(part: Object) -> None:
    spec = {"router": {**ONE, **part}}
    message = refusal(of(bench.runtime(), **spec))
    assert "serviceAccountName (chat-router) of the Deployment chat-router: setting authors.serviceAccounts" in message
    assert "all pods of the namespace" in message
    for accounts in (("chat-router",), ("*",)):
        assert plan(of(bench.runtime(), CLUSTER, allowing(service_accounts=accounts), **spec)).children
    without = {"router": {**spec["router"], "serviceAccountName": "default"}}
    assert plan(of(bench.runtime(), **without)).children


def test_a_router_of_the_operator_has_its_account_for_the_models_of_all_authors() -> None:
    for model in (CLUSTER, AUTHORS):
        assert plan(of(bench.runtime(), model, **ROUTED)).children
        assert plan(
            of(bench.runtime(), model, router={"minReplicas": 2, "maxReplicas": 3, "labels": {"a": "b"}})
        ).children


def test_a_router_that_reads_an_authors_files_has_no_account() -> None:
    reading = {**MAIN, "args": ["--tokenizer-path", "$(MODEL_PATH)"]}
    runtime = bench.runtime(routerConfig={"runner": reading})
    assert plan(of(runtime, **ROUTED)).children
    assert "all pods of the namespace" in refusal(of(runtime, AUTHORS, **ROUTED))
    assert plan(of(runtime, AUTHORS, trusting("models/tiny"), **ROUTED)).children
    for source in ({"configMap": {"name": "x"}}, {"persistentVolumeClaim": {"claimName": "x"}}):
        refusal(of(bench.runtime(routerConfig={"runner": MAIN, **volume(**source)}), **ROUTED))


def test_a_router_of_the_authors_own_runtime_has_no_account() -> None:
    refusal(of(bench.runtime(namespace="models"), **ROUTED))
    all_own = {"engine": {**ONE, "runner": RUNNER}, "router": {**ONE, "runner": MAIN}}
    refusal(bench.world(bench.service(model=None, **all_own), CLUSTER, settings=STRICT))


@pytest.mark.parametrize("part", ["engine", "decoder"])
def test_no_other_pod_names_the_account_of_the_router(part: str) -> None:
    for name in ("serviceAccountName", "serviceAccount"):
        message = refusal(of(bench.runtime(), **ROUTED, **{part: {**ONE, name: "chat-router"}}))
        assert f"serviceAccountName (chat-router) of the Deployment chat-{part}" in message
    token = volume(projected=TOKEN)
    refusal(of(bench.runtime(), **ROUTED, engine={**ONE, "serviceAccountName": "chat-router", **token}))


def test_a_router_of_before_an_upgrade_stays_as_it_is() -> None:
    spec = {"router": {**ONE, **OWN_ROUTERS[0]}}
    there = bench.observed(bench.find_child(of(bench.runtime(), **spec), "Deployment", "chat-router"))
    case = bench.world(bench.service(**spec), CLUSTER, bench.runtime(), settings=STRICT, children=(there,))
    assert plan(case).children
