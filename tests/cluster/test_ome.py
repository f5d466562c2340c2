"""OME on a cluster: models come onto nodes, services get the runtime that fits and answer under one name."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from .cluster import PATIENCE, SYSTEM, Object, condition, holds, unique, wait
from .kubeai import ask, chat
from .load import Load
from .ome import (
    BASE,
    BENCHMARK,
    ELIGIBLE,
    ENGINES,
    JOBS,
    MODEL,
    OME,
    PLAIN,
    ROOT,
    RUNTIME,
    SERVICE,
    SMALL,
    TINY,
    files,
    folder,
    llamacpp,
    on_node,
    router,
    sglang,
)

pytestmark = pytest.mark.xdist_group("ome")  # the runtimes of all tests are offered to every service

GGUF: Object = {"modelFormat": {"name": "gguf"}, "modelFramework": {"name": "ggml"}}
SAFETENSORS: Object = {
    "modelFormat": {"name": "safetensors", "version": "1.0.0"},
    "modelFramework": {"name": "transformers"},
    "modelArchitecture": "OPTForCausalLM",
}
PREFIX = "slipway.ome."
"""Of claims and volumes of models."""
IMAGES: Object = {"modelFormat": {"name": "diffusers"}, "modelFramework": {"name": "diffusers"}}


@pytest.fixture(scope="module")
def runtimes(ome: OME) -> Iterator[dict[str, str]]:
    """Format -> the runtime for it: the real llama.cpp, and SGLang's stand-in with the real router."""
    names = {"gguf": unique("llamacpp"), "safetensors": unique("sglang")}
    ome.make_runtime(names["gguf"], llamacpp(), [GGUF])
    ome.make_runtime(names["safetensors"], sglang(), [SAFETENSORS], routerConfig={"runner": router()})
    yield names
    for name in names.values():
        ome.delete(RUNTIME, "", name)


@pytest.fixture(scope="module")
def models(ome: OME) -> Iterator[dict[str, str]]:
    """Format -> a model of it on every node."""
    names = {"gguf": unique("tiny"), "safetensors": unique("base")}
    ome.make_model(names["gguf"])
    ome.make_model(names["safetensors"], BASE)
    for name in names.values():
        ome.wait_model(name)
    yield names
    for name in names.values():
        ome.delete(MODEL, "", name)


def test_a_model_comes_onto_the_nodes_that_it_is_for_and_leaves_them_again(ome: OME) -> None:
    name, node = unique("moves"), ome.nodes()[0]
    ome.make_model(name, storage={"nodeSelector": {ELIGIBLE: name}})
    nowhere = ome.wait_model(name, "In_Transit")
    assert condition(nowhere, "Available")["reason"] == "NoNode"
    ome.patch("Node", "", node, {"metadata": {"labels": {ELIGIBLE: name}}})
    try:
        started = time.monotonic()
        model = ome.wait_model(name)
        print(f"onto a node after {time.monotonic() - started:.1f} s")
        assert model["status"]["nodesReady"] == [node]
        assert ome.labels_of_nodes(name) == {node: "Ready"}
        assert files(node, folder(name)) == ["tiny.gguf"]
        expected = {"modelType": "llama", "maxTokens": 4096, "modelCapabilities": ["TEXT_TO_TEXT"]}
        spec = model["spec"]
        assert expected.items() <= spec.items()
        assert (spec["modelFormat"]["name"], spec["modelFramework"]["name"]) == ("gguf", "ggml")
        assert spec["modelParameterSize"].endswith(("K", "M"))
        # A node that it is not for any more loses the files, and another one would get them.
        ome.patch("Node", "", node, {"metadata": {"labels": {ELIGIBLE: None}}})
        wait("the node has no files", PATIENCE, lambda: files(node, folder(name)), lambda seen: not seen)
        wait("it has no label", PATIENCE, lambda: ome.labels_of_nodes(name), lambda seen: not seen)
        ome.patch("Node", "", node, {"metadata": {"labels": {ELIGIBLE: name}}})
        ome.wait_model(name)
    finally:
        ome.delete(MODEL, "", name)
        ome.wait_gone(MODEL, "", name)
        ome.patch("Node", "", node, {"metadata": {"labels": {ELIGIBLE: None}}})
    assert files(node, folder(name)) == []
    assert ome.labels_of_nodes(name) == {}


def test_a_path_outside_the_operators_folders_is_refused(ome: OME) -> None:
    name = unique("outside")
    ome.make_model(name, storage={"path": "/etc/kubernetes"})
    model = ome.wait_model(name, "Failed")
    assert condition(model, "Accepted")["reason"] == "PathNotAllowed"
    ome.delete(MODEL, "", name)
    ome.wait_gone(MODEL, "", name)


def test_a_service_without_a_runtime_gets_the_one_that_fits_and_answers(
    ome: OME, ome_namespace: str, models: dict[str, str], runtimes: dict[str, str], gateway_url: str
) -> None:
    name = unique("selected")
    ome.make_service(ome_namespace, name, models["gguf"])
    status = ome.wait_serving(ome_namespace, name)["status"]
    runtime = status["runtime"]
    assert (runtime["name"], runtime["kind"], runtime["chosen"]) == (runtimes["gguf"], RUNTIME, "Selection")
    assert status["modelStatus"]["transitionStatus"] == "UpToDate"
    ome.wait_routed(ome_namespace, name)
    answer = chat(gateway_url, name)
    assert (answer.status, answer.json["model"]) == (200, name)
    assert ask(f"{gateway_url}/v1/models/{name}").json["owned_by"] == "ome"
    [pod] = ome.pods(ome_namespace, name)
    [server] = pod["spec"]["containers"]
    [mount] = [one for one in server["volumeMounts"] if one["mountPath"] == folder(models["gguf"])]
    assert mount["readOnly"] is True
    assert pod["spec"]["nodeSelector"] == {f"models.ome.io/clusterbasemodel.{models['gguf']}": "Ready"}
    assert [volume for volume in pod["spec"]["volumes"] if "hostPath" in volume] == []
    ome.delete(SERVICE, ome_namespace, name)
    ome.wait_gone(SERVICE, ome_namespace, name)
    wait("its pods go", PATIENCE, lambda: ome.pods(ome_namespace, name), lambda pods: not pods)
    assert volumes_of(ome, ome_namespace), "the next service of the namespace reads the model by the same volume"


def volumes_of(ome: OME, namespace: str) -> list[str]:
    """The volumes by which pods of a namespace read models."""
    volumes = ome.list("PersistentVolume")
    mine = (one for one in volumes if one["spec"].get("claimRef", {}).get("namespace") == namespace)
    return [one["metadata"]["name"] for one in mine if one["metadata"]["name"].startswith(PREFIX)]


def test_a_model_of_a_restricted_namespace_is_loaded_served_and_removed_with_the_namespace(
    ome: OME, runtimes: dict[str, str], gateway_url: str
) -> None:
    """Its load runs in the operator's namespace, and goes on when its own one ends."""
    namespace, name, [node] = ome.namespace(), unique("own"), ome.nodes()
    place = f"{ROOT}/{namespace}/{name}"
    storage = {"storageUri": TINY, "path": place}
    ome.create({"kind": "BaseModel", "metadata": {"name": name, "namespace": namespace}, "spec": {"storage": storage}})
    ome.make_service(namespace, name, name)
    status = ome.wait_serving(namespace, name)["status"]
    assert status["runtime"]["name"] == runtimes["gguf"]
    ome.wait_routed(namespace, name)
    assert chat(gateway_url, name).status == 200
    assert files(node, place) == ["tiny.gguf"]
    assert on_node(node, f"stat --format=%u {place}/.slipway-owner && cat {place}/.slipway-owner") == f"0\n{namespace}"
    assert len(volumes_of(ome, namespace)) == 1
    ome.delete("Namespace", "", namespace)
    wait("the files go", PATIENCE, lambda: files(node, place), lambda there: not there)
    wait("the namespace goes", PATIENCE, lambda: ome.get("Namespace", "", namespace), lambda one: one is None)
    assert volumes_of(ome, namespace) == []
    assert [job for job in ome.list("Job", JOBS) if job["metadata"]["name"].startswith(name)] == []


@pytest.mark.usefixtures("runtimes")
def test_a_tenant_can_neither_write_to_a_model_nor_change_its_claim(
    ome: OME, ome_namespace: str, models: dict[str, str]
) -> None:
    name, account = unique("tenant"), f"--as=system:serviceaccount:{ome_namespace}:default"
    ome.make_service(ome_namespace, name, models["gguf"])
    ome.wait_serving(ome_namespace, name)
    claims = ome.list("PersistentVolumeClaim", ome_namespace)
    claim = next(one["metadata"]["name"] for one in claims if one["metadata"]["name"].startswith(PREFIX))
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": ome_namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    ome.create(
        {
            "kind": "RoleBinding",
            "metadata": {"name": "tenant", "namespace": ome_namespace},
            "roleRef": role,
            "subjects": [subject],
        }
    )

    def refused(*arguments: str, stdin: str = "") -> str:
        with pytest.raises(AssertionError) as caught:
            ome.kubectl(*arguments, "--namespace", ome_namespace, account, stdin=stdin)
        return str(caught.value)

    mounted = {"name": "m", "mountPath": "/m"}
    container = {"name": "c", "image": ENGINES, "securityContext": PLAIN, "volumeMounts": [mounted]}
    volume = {"name": "m", "persistentVolumeClaim": {"claimName": claim}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "writer"},
        "spec": {"containers": [container], "volumes": [volume]},
    }
    assert "Set readOnly: true" in refused("create", "--filename=-", stdin=json.dumps(pod))
    other = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"{PREFIX}mine"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    assert "are for claims of Slipway" in refused("create", "--filename=-", stdin=json.dumps(other))
    for change in ({"finalizers": None}, {"annotations": {"volume.kubernetes.io/selected-node": "other"}}):
        body = json.dumps({"metadata": change})
        message = refused("patch", "persistentvolumeclaims", claim, "--type=merge", f"--patch={body}")
        assert "Only Slipway may change" in message
    assert "Only Slipway may delete" in refused("delete", "persistentvolumeclaims", claim)
    volume["persistentVolumeClaim"] = {"claimName": claim, "readOnly": True}
    container["command"] = ["sh", "-c", "test -f /m/tiny.gguf && ! touch /m/mine && ! rm -f /m/tiny.gguf"]
    pod["spec"]["restartPolicy"] = "Never"
    ome.kubectl("create", "--filename=-", "--namespace", ome_namespace, account, stdin=json.dumps(pod))
    phase = wait("the pod ends", PATIENCE, lambda: phase_of(ome, ome_namespace, "writer"), ENDED.__contains__)
    log = ome.logs(ome_namespace, "writer")
    assert (phase, log.count("Read-only file system")) == ("Succeeded", 2), log
    [node] = ome.nodes()
    assert files(node, folder(models["gguf"])) == ["tiny.gguf"]


ENDED = ("Succeeded", "Failed")


def phase_of(ome: OME, namespace: str, name: str) -> str:
    pod = ome.get("Pod", namespace, name)
    return pod["status"]["phase"] if pod else ""


@pytest.mark.usefixtures("runtimes")
def test_a_service_that_no_runtime_fits_says_what_keeps_each_from_it(
    ome: OME, ome_namespace: str, runtimes: dict[str, str]
) -> None:
    model, name = unique("pictures"), unique("unfit")
    # A vendor's model: nothing is fetched, and the spec says all that is known.
    ome.make_model(model, "vendor://acme", storage={"path": None}, **IMAGES)
    ome.make_service(ome_namespace, name, model)
    service = ome.wait_for_condition(ome_namespace, name, "Accepted", "False", "NoRuntime")
    message, excluded = condition(service, "Accepted")["message"], service["status"]["excluded"]
    assert {one["name"]: one["reason"] for one in excluded}.keys() >= set(runtimes.values())
    assert all(one["kind"] == RUNTIME and "format" in one["reason"] for one in excluded)
    assert service["status"]["excludedCount"] == len(excluded)
    assert "diffusers" in message
    assert ome.list("Deployment", ome_namespace) == []

    # A new runtime changes the selection.
    runtime = unique("pictures")
    ome.make_runtime(runtime, {"image": ENGINES, "command": ["sleep", "60"]}, [IMAGES])
    try:
        service = ome.wait_for_condition(ome_namespace, name, "Accepted", "True", "Valid")
        assert service["status"]["runtime"]["name"] == runtime
    finally:
        ome.delete(RUNTIME, "", runtime)
        ome.delete(MODEL, "", model)


def test_a_service_without_replicas_is_woken_by_a_request(
    ome: OME, ome_namespace: str, models: dict[str, str], runtimes: dict[str, str], gateway_url: str
) -> None:
    name = unique("asleep")
    ome.make_service(ome_namespace, name, models["gguf"], engine={"minReplicas": 0, "maxReplicas": 1})
    asleep = ome.wait_for_condition(ome_namespace, name, "Available", "False", "ScaledToZero")
    assert asleep["status"]["runtime"]["name"] == runtimes["gguf"]
    assert ome.pods(ome_namespace, name) == []
    ome.wait_routed(ome_namespace, name)
    started = time.monotonic()
    answer = chat(gateway_url, name)
    print(f"from zero: answered after {time.monotonic() - started:.1f} s")
    assert (answer.status, answer.json["model"]) == (200, name)
    ome.wait_serving(ome_namespace, name)


@pytest.mark.usefixtures("runtimes")
def test_a_newer_spec_gets_its_share_of_the_requests_and_then_all_of_them(
    ome: OME, ome_namespace: str, models: dict[str, str], gateway_url: str
) -> None:
    name = unique("canary")
    ome.make_service(ome_namespace, name, models["safetensors"])
    ome.wait_serving(ome_namespace, name)
    ome.wait_routed(ome_namespace, name)
    newer = {"runner": {"env": [{"name": "EDITION", "value": "2"}]}}

    def shares(count: int = 60) -> Counter[str]:
        """Whether the canary answered."""
        pods = [chat(gateway_url, name).words[0] for _request in range(count)]
        return Counter("canary" if f"{name}-engine-canary-" in pod else "stable" for pod in pods)

    with Load(gateway_url, name) as load:
        ome.change_service(ome_namespace, name, engine={**newer, "canaryTrafficPercent": 0})
        wait("the canary runs", PATIENCE, lambda: canaries(ome, ome_namespace, name))
        load.more(20)
        assert shares(20) == {"stable": 20}
        ome.change_service(ome_namespace, name, engine={"canaryTrafficPercent": 50})
        wait("the canary answers", PATIENCE, lambda: shares(4)["canary"])
        assert 15 <= shares()["canary"] <= 45
        status = ome.service(ome_namespace, name)["status"]["components"]["engine"]
        assert [one["percent"] for one in status["traffic"]] == [50, 50]
        ome.change_service(ome_namespace, name, engine={"canaryTrafficPercent": 100})
        ome.wait_serving(ome_namespace, name)
        wait(
            "the canary is gone", PATIENCE, lambda: canaries(ome, ome_namespace, name), lambda remaining: not remaining
        )
        load.more(20)
    assert load.failures == []
    [pod] = ome.pods(ome_namespace, name)
    assert {"name": "EDITION", "value": "2"} in pod["spec"]["containers"][0]["env"]
    status = ome.service(ome_namespace, name)["status"]["components"]["engine"]
    assert [one["percent"] for one in status["traffic"]] == [100]


def canaries(ome: OME, namespace: str, name: str) -> list[str]:
    """Pods of a newer spec that is tried, those that are ready."""
    pods = [pod for pod in ome.pods(namespace, name) if f"{name}-engine-canary-" in pod["metadata"]["name"]]
    return [pod["metadata"]["name"] for pod in pods if ready(pod)]


def ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def test_a_router_spreads_requests_over_the_engines(
    ome: OME, ome_namespace: str, models: dict[str, str], runtimes: dict[str, str], gateway_url: str
) -> None:
    name = unique("routed")
    two = {"minReplicas": 2, "maxReplicas": 2}
    ome.make_service(
        ome_namespace, name, models["safetensors"], engine=two, router={"minReplicas": 1, "maxReplicas": 1}
    )
    status = ome.wait_serving(ome_namespace, name)["status"]
    assert status["runtime"]["name"] == runtimes["safetensors"]
    assert set(status["components"]) == {"engine", "router"}
    ome.wait_routed(ome_namespace, name)
    engines = {pod["metadata"]["name"] for pod in ome.pods(ome_namespace, f"{name},component=engine")}
    assert len(engines) == 2

    def answered() -> set[str]:
        return {chat(gateway_url, name, content=f"question {number}").words[0] for number in range(8)}

    wait("both engines answer", PATIENCE, answered, lambda seen: seen == engines)
    served = ome.get("Service", ome_namespace, name)
    assert served
    assert served["spec"]["selector"] == {"app": f"{name}-router"}


def test_a_group_of_nodes_answers_by_its_leader_and_is_restarted_as_a_whole(
    ome: OME, ome_namespace: str, models: dict[str, str], gateway_url: str
) -> None:
    """The leader waits for its worker before it answers, and the worker ends where its leader does."""
    name = unique("group")
    place = ("--dist-init-addr", "$(LWS_LEADER_ADDRESS):5000", "--nnodes", "$(LWS_GROUP_SIZE)")
    rank = ("--node-rank", "$(LWS_WORKER_INDEX)")
    runner = {"name": "ome-container", "resources": SMALL}
    engine = {
        "minReplicas": 1,
        "maxReplicas": 1,
        "leader": {"runner": {**runner, **sglang(*place, *rank)}},
        "worker": {"size": 1, "runner": {**runner, **sglang(*place, *rank, probed=False)}},
    }
    ome.make_service(ome_namespace, name, models["safetensors"], engine=engine)
    ome.wait_serving(ome_namespace, name)
    ome.wait_routed(ome_namespace, name)
    first = ome.pods(ome_namespace, name)
    leader, worker = sorted(pod["metadata"]["name"] for pod in first)
    assert worker == f"{leader}-1"
    assert {chat(gateway_url, name).words[0] for _request in range(4)} == {leader}

    ome.delete("Pod", ome_namespace, worker)
    before = {pod["metadata"]["uid"] for pod in first}
    wait(
        "the whole group is new and ready",
        PATIENCE,
        lambda: [pod for pod in ome.pods(ome_namespace, name) if pod["metadata"]["uid"] not in before and ready(pod)],
        lambda pods: len(pods) == 2,
    )
    assert chat(gateway_url, name).words[0] == leader


@pytest.mark.usefixtures("runtimes")
def test_a_benchmark_measures_a_service(ome: OME, ome_namespace: str, models: dict[str, str]) -> None:
    name = unique("measured")
    # Where all tokens come at once genai-bench finds their pace impossible.
    pace = [{"name": f"STANDIN_{what}_SECONDS", "value": "0.02"} for what in ("PREFILL", "DECODE")]
    engine = {"minReplicas": 1, "maxReplicas": 1, "runner": {"env": pace}}
    ome.make_service(ome_namespace, name, models["safetensors"], engine=engine)
    volume = ome.writable_claim(ome_namespace, "results")
    spec = {
        "endpoint": {"inferenceService": {"name": name, "namespace": ome_namespace}},
        "task": "text-to-text",
        "trafficScenarios": ["D(20,8)"],
        "numConcurrency": [1],
        "maxTimePerIteration": 1,
        "maxRequestsPerIteration": 4,
        "outputLocation": {"storageUri": "pvc://results/first"},
        # On a full node a pod that asks for much is preempted by those with a priority, and LLMKube's have one.
        "podOverride": {"resources": {"requests": {"cpu": "100m"}}},
    }
    ome.create({"kind": BENCHMARK, "metadata": {"name": name, "namespace": ome_namespace}, "spec": spec})

    def look() -> Object:
        benchmark = ome.get(BENCHMARK, ome_namespace, name)
        assert benchmark
        return benchmark.get("status", {})

    status = wait("it has ended", 2 * PATIENCE, look, lambda seen: seen.get("state") in ("Completed", "Failed"))
    assert status["state"] == "Completed", status
    assert "D(20,8)" in status["details"]
    ome.delete("PersistentVolume", "", volume)


@pytest.mark.usefixtures("runtimes")
def test_a_controller_that_is_killed_leaves_nothing_half_done(
    ome: OME, ome_namespace: str, models: dict[str, str], gateway_url: str
) -> None:
    name, model = unique("killed"), unique("killed")
    [controller, *_] = ome.list("Pod", SYSTEM, "app.kubernetes.io/name=slipway-controller")
    ome.make_model(model)
    ome.make_service(ome_namespace, name, model)
    ome.kill(SYSTEM, controller["metadata"]["name"], "controller")
    ome.wait_model(model)
    ome.wait_serving(ome_namespace, name)
    ome.wait_routed(ome_namespace, name)
    assert chat(gateway_url, name).status == 200

    # Files stay while pods read them, and go with the last one.
    ome.delete(MODEL, "", model)
    [node] = ome.nodes()
    holds("the files stay", 3, lambda: files(node, folder(model)), bool)
    ome.delete(SERVICE, ome_namespace, name)
    ome.wait_gone(MODEL, "", model)
    assert files(node, folder(model)) == []
