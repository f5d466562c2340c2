"""S6, S9, 13 and 25: the tenant has the controller make what it may not make itself, in a namespace that would admit
it."""

from __future__ import annotations

from tests.cluster.cluster import Object, condition
from tests.cluster.ome import llamacpp

from .campaign import Attack
from .proofs import require_rejected
from .scene import Scene
from .second_tenant import GGUF

SERVICE, LLMKUBE_MODEL = "InferenceService.ome.io", "Model.inference.llmkube.dev"
LLMKUBE_SERVICE = "InferenceService.inference.llmkube.dev"
PRIVILEGED = "tenants-privileged"
"""A ClusterServingRuntime of the operator with the host network."""
ONE = {"minReplicas": 1, "maxReplicas": 1}
NOT_A_ROOT = "/ is not in a node directory that the operator allows"


def privileged_runtime(scene: Scene) -> None:
    """The operator makes it. No service gets it unless it names it."""
    formats = [{**GGUF, "autoSelect": False}]
    runner = {"name": "ome-container", **llamacpp()}
    scene.ome.make_runtime(PRIVILEGED, {}, formats, engineConfig={"hostNetwork": True, "runner": runner})


def _require_not_allowed(
    scene: Scene, kind: str, namespace: str, name: str, spec: Object, *words: str, reason: str = "NotAllowed"
) -> None:
    """Nothing runs for such a service: no workload and no autoscaler is created. A Service without a selector tells
    the gateway of the rejection."""
    annotations = spec.pop("annotations", {})
    scene.create(kind, namespace, name, {"spec": spec}, annotations=annotations)
    service = scene.decided(kind, namespace, name, reason)
    require_rejected(service, reason, *words)
    uid = service["metadata"]["uid"]
    for child in ("Deployment", "ScaledObject", "Service"):
        created = [
            one["metadata"]["name"]
            for one in scene.cluster.list(child, namespace)
            if any(owner["uid"] == uid for owner in one["metadata"].get("ownerReferences", []))
            and not (child == "Service" and not one["spec"].get("selector"))
        ]
        assert created == [], f"{child} {created} was created"
    scene.gone(kind, namespace, name)


def have_a_privileged_runtime_run_own_code(scene: Scene, turn: int) -> None:
    model = f"code-{turn}"
    scene.make_base_model(scene.privileged, model, "vendor://mallory", **GGUF)
    spec = {"model": {"name": model, "kind": "BaseModel"}, "runtime": {"name": PRIVILEGED}, "engine": {**ONE}}
    words = (f"The ClusterServingRuntime {PRIVILEGED}", "authors.privilegedModels")
    _require_not_allowed(scene, SERVICE, scene.privileged, f"code-{turn}", spec, *words)
    scene.gone("BaseModel", scene.privileged, model)


def change_the_pod_of_a_privileged_runtime(scene: Scene, turn: int) -> None:
    runner = {"name": "ome-container", "image": "mallory/forged:1"}
    model, runtime = {"name": scene.second.cluster_model}, {"name": PRIVILEGED}
    spec = {"model": model, "runtime": runtime, "engine": {**ONE, "runner": runner}}
    _require_not_allowed(scene, SERVICE, scene.privileged, f"changed-{turn}", spec, "hostNetwork")


def _scaled(scene: Scene, **keda: object) -> Object:
    scaling = {"scaleMetric": "tps", "kedaConfig": {"enableKeda": True, **keda}}
    model, runtime = {"name": scene.second.cluster_model}, {"name": scene.second.runtime}
    return {"model": model, "runtime": runtime, "engine": {"minReplicas": 1, "maxReplicas": 3, **scaling}}


def have_keda_query_a_metadata_service(scene: Scene, turn: int) -> None:
    spec = _scaled(scene, promServerAddress="http://169.254.169.254")
    _require_not_allowed(scene, SERVICE, scene.privileged, f"query-{turn}", spec, "prometheusServers")


def have_keda_query_an_address_in_an_annotation(scene: Scene, turn: int) -> None:
    annotations = {
        "ome.io/autoscalerClass": "keda",
        "autoscaling.keda.sh/prometheus.serverAddress": "http://mallory.test-stores.svc:9000",
    }
    spec = {**_scaled(scene), "annotations": annotations}
    _require_not_allowed(scene, SERVICE, scene.privileged, f"annotated-{turn}", spec, "prometheusServers")


def have_keda_send_credentials_of_the_cluster(scene: Scene, turn: int) -> None:
    reference = {"name": "operators", "kind": "ClusterTriggerAuthentication"}
    spec = _scaled(scene, authenticationRef=reference)
    _require_not_allowed(scene, SERVICE, scene.privileged, f"credentials-{turn}", spec, "triggerAuthentications")


def run_a_runtime_of_the_own_with_the_host_network(scene: Scene, turn: int) -> None:
    name = f"host-{turn}"
    runner = {"name": "ome-container", **llamacpp()}
    formats = [{**GGUF, "autoSelect": False}]
    engine = {"hostNetwork": True, "hostPID": True, "runner": runner}
    runtime = {"spec": {"supportedModelFormats": formats, "engineConfig": engine}}
    scene.create("ServingRuntime", scene.privileged, name, runtime)
    reference = {"name": name, "kind": "ServingRuntime"}
    spec = {"model": {"name": scene.second.cluster_model}, "runtime": reference, "engine": {**ONE}}
    _require_not_allowed(scene, SERVICE, scene.privileged, name, spec, "hostNetwork", "authors.privileged")
    scene.gone("ServingRuntime", scene.privileged, name)


CONTEXTS: dict[str, Object] = {
    "privileged": {"privileged": True},
    "root": {"runAsUser": 0},
    "unconfined": {"seccompProfile": {"type": "Unconfined"}},
    "admin": {"capabilities": {"add": ["SYS_ADMIN"]}},
}


def run_an_engine_as_root_or_without_seccomp(scene: Scene, turn: int) -> None:
    for name, context in CONTEXTS.items():
        spec = {"modelRef": "code", "securityContext": context}
        words = ("authors.privileged",)
        _require_not_allowed(scene, LLMKUBE_SERVICE, scene.privileged, f"{name}-{turn}", spec, *words)


def mount_a_folder_of_the_node_in_an_engine(scene: Scene, turn: int) -> None:
    volume = {"name": "node", "hostPath": {"path": "/"}}
    spec = {
        "modelRef": "code",
        "extraVolumes": [volume],
        "extraVolumeMounts": [{"name": "node", "mountPath": "/node", "readOnly": True}],
    }
    _require_not_allowed(
        scene, LLMKUBE_SERVICE, scene.privileged, f"mounts-{turn}", spec, NOT_A_ROOT, reason="SourceNotAllowed"
    )


def use_another_service_account(scene: Scene, turn: int) -> None:
    """Of the namespace in which the tenant may make no pods."""
    name, source = f"account-{turn}", {"huggingface": "acme/tiny", "file": "tiny.gguf"}
    spec = {"source": source, "serviceAccountName": "powerful"}
    _require_not_allowed(scene, "Model", scene.privileged, name, spec, "authors.serviceAccounts")


def run_an_engine_without_its_confinement(scene: Scene, turn: int) -> None:
    """The most that a Krypton Model may ask for. Its pods never run here: no node has so many processors."""
    name, source = f"confined-{turn}", {"huggingface": "acme/tiny", "file": "tiny.gguf"}
    spec = {"source": source, "resources": {"requests": {"cpu": "900"}}}
    scene.create("Model", scene.privileged, name, {"spec": spec})
    model = scene.decided("Model", scene.privileged, name)
    assert condition(model, "Accepted")["status"] == "True", model["status"]
    pods = scene.cluster.list("Deployment", scene.privileged)
    [pod] = [one["spec"]["template"]["spec"] for one in pods if one["metadata"]["name"] == name]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert not context.get("privileged")
    scene.gone("Model", scene.privileged, name)


ATTACKS: list[Attack[Scene]] = [
    Attack("S6", have_a_privileged_runtime_run_own_code),
    Attack("S6", change_the_pod_of_a_privileged_runtime),
    Attack("S9", have_keda_query_a_metadata_service),
    Attack("S9", have_keda_query_an_address_in_an_annotation),
    Attack("S9", have_keda_send_credentials_of_the_cluster),
    Attack("25", run_a_runtime_of_the_own_with_the_host_network),
    Attack("25", run_an_engine_as_root_or_without_seccomp),
    Attack("25", mount_a_folder_of_the_node_in_an_engine),
    Attack("25", run_an_engine_without_its_confinement),
    Attack("13", use_another_service_account),
]
