"""The API server takes and refuses Models and InferenceServices of inference.llmkube.dev/v1alpha1 as LLMKube's
documents say. No controller makes anything of these: their Models lie where none is allowed, or are missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from ..cluster.cluster import Cluster, Object
from .cases import is_part, judged, laid_over
from .llmkube import CASES, LEAST, MANIFESTS, UNKNOWN

GROUP = "inference.llmkube.dev"
MODELS, SERVICES = f"models.{GROUP}", f"inferenceservices.{GROUP}"
DEFAULTS: dict[str, Object] = {
    "Model": {"refreshPolicy": "IfNotPresent", "format": "gguf"},
    "InferenceService": {"runtime": "llamacpp", "replicas": 1, "priority": "normal"},
}
BLOCKS: list[tuple[str, Object, Object]] = [
    ("Model", {"hardware": {}}, {"hardware": {"accelerator": "cpu"}}),
    ("Model", {"hardware": {"gpu": {}}}, {"hardware": {"accelerator": "cpu", "gpu": {"vendor": "nvidia"}}}),
    (
        "Model",
        {"hardware": {"gpu": {"sharding": {}}}},
        {"hardware": {"accelerator": "cpu", "gpu": {"vendor": "nvidia", "sharding": {"strategy": "layer"}}}},
    ),
    (
        "InferenceService",
        {"endpoint": {}},
        {"endpoint": {"port": 8080, "path": "/v1/chat/completions", "type": "ClusterIP"}},
    ),
    ("InferenceService", {"autoscaling": {"maxReplicas": 3}}, {"autoscaling": {"maxReplicas": 3, "minReplicas": 1}}),
    ("InferenceService", {"vllmConfig": {}}, {"vllmConfig": {"kvCacheDtype": "auto"}}),
    (
        "InferenceService",
        {"vllmConfig": {"speculative": {}}},
        {"vllmConfig": {"kvCacheDtype": "auto", "speculative": {"numSpeculativeTokens": 4}}},
    ),
]
CONDITION: Object = {
    "type": "Available",
    "status": "False",
    "reason": "ModelNotReady",
    "message": "two\nlines",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
    "observedGeneration": 1,
}
TIME = "2026-01-02T03:04:05Z"
STATUS: dict[str, Object] = {
    "Model": {
        "phase": "Downloading",
        "size": "3.2 GiB",
        "doneBytes": 2**40,
        "totalBytes": 2**41,
        "path": "/models/0123456789abcdef/tiny.gguf",
        "cacheKey": "0123456789abcdef",
        "sha256": "a" * 64,
        "sourceETag": '"1"',
        "sourceContentLength": 2**41,
        "lastRevalidated": TIME,
        "acceleratorReady": True,
        "gguf": {
            "architecture": "llama",
            "modelName": "Tiny",
            "quantization": "Q4_K_M",
            "contextLength": 4096,
            "embeddingSize": 64,
            "layerCount": 2,
            "headCount": 2,
            "tensorCount": 21,
            "fileVersion": 3,
            "license": "apache-2.0",
        },
        "lastUpdated": TIME,
        "observedGeneration": 1,
        "conditions": [CONDITION],
    },
    "InferenceService": {
        "phase": "WaitingForGPU",
        "mode": "chat",
        "modelReady": True,
        "replicas": 2,
        "desiredReplicas": 2,
        "readyReplicas": 0,
        "selector": "app=every",
        "endpoint": "http://every.models.svc.cluster.local:8080/v1/chat/completions",
        "effectivePriority": 10000,
        "schedulingStatus": "InsufficientGPU",
        "schedulingMessage": "0/3 nodes are available",
        "waitingFor": "nvidia.com/gpu: 2",
        "queuePosition": 1,
        "lastUpdated": TIME,
        "observedGeneration": 1,
        "conditions": [CONDITION],
    },
}


@pytest.fixture(scope="module")
def cluster(kubeconfig: str) -> Cluster:
    return Cluster(kubeconfig)


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    name = cluster.namespace("llmkube")
    yield name
    cluster.delete("Namespace", "", name)


def resource(kind: str, namespace: str, name: str, spec: Object) -> Object:
    return {"kind": f"{kind}.{GROUP}", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def strictly(cluster: Cluster, body: Object) -> Object:
    """The object that ``kubectl create`` would make, which refuses fields that it does not know."""
    command = ("create", "--dry-run=server", "--validate=strict", "--output=yaml", "--filename=-")
    instance: Object = yaml.safe_load(cluster.kubectl(*command, stdin=yaml.safe_dump(body)))
    return instance


@pytest.mark.parametrize(("kind", "case"), CASES, ids=[f"{kind}-{case['case']}" for kind, case in CASES])
def test_an_object_is_taken_or_refused_with_the_reason(
    cluster: Cluster, namespace: str, kind: str, case: Object
) -> None:
    body = resource(kind, namespace, f"case-{CASES.index((kind, case))}", laid_over(LEAST[kind], case.get("spec", {})))
    message = judged(cluster, body, case.get("update"))
    assert case["says"] in message if "says" in case else not message


@pytest.mark.parametrize(("kind", "spec", "place"), UNKNOWN, ids=[place for kind, spec, place in UNKNOWN])
def test_a_misspelt_field_is_refused(cluster: Cluster, namespace: str, kind: str, spec: Object, place: str) -> None:
    body = resource(kind, namespace, "misspelt", LEAST[kind] | spec)
    body |= {"apiVersion": f"{GROUP}/v1alpha1", "kind": kind}
    with pytest.raises(AssertionError) as refusal:
        strictly(cluster, body)
    assert f'unknown field "{place}"' in str(refusal.value)


@pytest.mark.parametrize("kind", LEAST)
def test_omitted_fields_get_the_documented_defaults(cluster: Cluster, namespace: str, kind: str) -> None:
    instance = cluster.create(resource(kind, namespace, "defaults", LEAST[kind]), rehearsed=True)
    assert instance["spec"] == LEAST[kind] | DEFAULTS[kind]


@pytest.mark.parametrize(("kind", "spec", "filled"), BLOCKS, ids=[str(spec) for kind, spec, filled in BLOCKS])
def test_a_block_that_is_there_gets_its_own_defaults(
    cluster: Cluster, namespace: str, kind: str, spec: Object, filled: Object
) -> None:
    instance = cluster.create(resource(kind, namespace, "defaults", LEAST[kind] | spec), rehearsed=True)
    assert instance["spec"] == LEAST[kind] | DEFAULTS[kind] | filled


@pytest.mark.parametrize(("kind", "plural"), [("Model", MODELS), ("InferenceService", SERVICES)])
def test_every_field_of_the_status_survives_the_api_server(
    cluster: Cluster, namespace: str, kind: str, plural: str
) -> None:
    cluster.create(resource(kind, namespace, "every", LEAST[kind]))
    options = ("--namespace", namespace, "--subresource=status", "--type=merge", "--dry-run=server", "--output=yaml")
    answer = cluster.kubectl("patch", plural, "every", *options, "--patch", yaml.safe_dump({"status": STATUS[kind]}))
    assert yaml.safe_load(answer)["status"].items() >= STATUS[kind].items()


def test_kubectl_scale_sets_the_replicas(cluster: Cluster, namespace: str) -> None:
    cluster.create(resource("InferenceService", namespace, "scaled", LEAST["InferenceService"]))
    cluster.kubectl("scale", f"{SERVICES}/scaled", "--namespace", namespace, "--replicas=3")
    service = cluster.get(f"InferenceService.{GROUP}", namespace, "scaled")
    assert service
    assert service["spec"]["replicas"] == 3


@pytest.mark.parametrize(
    ("kind", "plural", "plain", "wide"),
    [
        (
            "Model",
            MODELS,
            "NAME PHASE SIZE ACCELERATOR REASON AGE STATE",
            "NAME PHASE SIZE ACCELERATOR ARCH SOURCE REASON AGE STATE",
        ),
        (
            "InferenceService",
            SERVICES,
            "NAME PHASE MODEL REPLICAS REASON ENDPOINT AGE STATE MODEL ID",
            "NAME PHASE MODEL REPLICAS DESIRED REASON QUEUE PRIORITY ENDPOINT AGE STATE MODEL ID CHANGE",
        ),
    ],
)
def test_kubectl_shows_what_a_person_looks_for(
    cluster: Cluster, namespace: str, kind: str, plural: str, plain: str, wide: str
) -> None:
    cluster.create(resource(kind, namespace, "shown", LEAST[kind]))
    table = cluster.kubectl("get", plural, "shown", "--namespace", namespace)
    assert table.splitlines()[0].split() == plain.split()
    table = cluster.kubectl("get", plural, "shown", "--namespace", namespace, "--output=wide")
    assert table.splitlines()[0].split() == wide.split()


@pytest.mark.parametrize(("short", "plural"), [("mdl", MODELS), ("isvc", SERVICES)])
def test_the_short_name_is_there_with_the_group(cluster: Cluster, namespace: str, short: str, plural: str) -> None:
    """Another group may have the same one, and kubectl takes the first: with the group there is no doubt."""
    long = cluster.kubectl("get", plural, "--namespace", namespace, "--output=name")
    assert cluster.kubectl("get", f"{short}.{GROUP}", "--namespace", namespace, "--output=name") == long


@pytest.mark.parametrize("observed", MANIFESTS)
def test_a_manifest_of_the_original_is_taken_as_it_is(cluster: Cluster, observed: Object) -> None:
    instance = strictly(cluster, observed)
    assert is_part(observed["spec"], instance["spec"])
    assert instance["spec"].keys() >= DEFAULTS[observed["kind"]].keys()
