"""What a spec may not have without the operator, in every API, and what of the operator's own is never refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from slipway.apis import APIS, deckhouse, ome
from slipway.apis.krypton import KRYPTON
from slipway.apis.kubeai import KUBEAI
from slipway.apis.labels import RESERVED
from slipway.apis.llmkube import ADAPTERS, MODELS, POOLS, QUOTAS, ROUTERS, SERVICES
from slipway.kube.objects import DEPLOYMENT, Object
from slipway.serving.containers.freedoms import APPARMOR
from slipway.serving.contract.api import Api, InvalidSpecError, Plan, Rejection, World
from slipway.serving.contract.authors import NOT_ALLOWED, build_allowed_plan
from slipway.serving.contract.settings import Authors, Settings, Sources
from tests import worlds
from tests.worlds import UPSTREAM, at

from . import test_krypton as krypton
from .kubeai import test_kubeai as kubeai
from .llmkube import services as llmkube


def allowed(authors: Authors, **settings: Any) -> Settings:
    return Settings(system_namespace="system", authors=authors, **settings)


def service(settings: Settings | None = None, **spec: Any) -> World:
    """An InferenceService of LLMKube."""
    return msgspec.structs.replace(llmkube.world(**spec), settings=settings or allowed(Authors()))


def a_model(resource: Object) -> World:
    """A Model of LLMKube."""
    return msgspec.structs.replace(
        llmkube.world(), resource=resource, listers=worlds.known_world(MODELS, others=[resource])
    )


def plan(api: Api[Any], world: World) -> Plan:
    return build_allowed_plan(api, world, api.resolve(world), RESERVED)


def refusal(api: Api, world: World) -> str:
    with pytest.raises(InvalidSpecError) as refused:
        plan(api, world)
    assert refused.value.reason == NOT_ALLOWED
    return refused.value.message


def pod(created: Plan) -> Object:
    template: Object = next(one for one in (*created.children, *created.pending) if one["kind"] == "Deployment")[
        "spec"
    ]["template"]
    return template


def mounted(kind: str, source: Object) -> dict[str, Any]:
    return {"extraVolumes": [{"name": "x", kind: source}], "extraVolumeMounts": [{"name": "x", "mountPath": "/x"}]}


TOKEN = {"sources": [{"configMap": {"name": "c"}}, {"serviceAccountToken": {"path": "token"}}]}
ELSEWHERE = {"httpGet": {"host": "10.0.0.1", "port": 80}}
FREEDOMS = [
    ({"securityContext": {"privileged": True}}, "[llama-server].securityContext.privileged (true)", "privileged"),
    ({"securityContext": {"runAsUser": 0}}, "containers[llama-server].securityContext.runAsUser (0)", "privileged"),
    ({"podSecurityContext": {"runAsUser": 0}}, "spec.securityContext.runAsUser (0)", "privileged"),
    ({"securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}}, 'add (["SYS_PTRACE"])', "privileged"),
    ({"securityContext": {"allowPrivilegeEscalation": True}}, "allowPrivilegeEscalation (true)", "privileged"),
    ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, "seccompProfile.type (Unconfined)", "privileged"),
    ({"podSecurityContext": {"seccompProfile": {"type": "Unconfined"}}}, "spec.securityContext.seccomp", "privileged"),
    ({"podSecurityContext": {"appArmorProfile": {"type": "Unconfined"}}}, "appArmorProfile.type", "privileged"),
    ({"podSecurityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}, "sysctls", "privileged"),
    ({"podSecurityContext": {"seLinuxOptions": {"type": "spc_t"}}}, "seLinuxOptions", "privileged"),
    ({"securityContext": {"procMount": "Unmasked"}}, "procMount (Unmasked)", "privileged"),
    ({"podAnnotations": {f"{APPARMOR}llama-server": "unconfined"}}, "apparmor", "privileged"),
    ({"probeOverrides": {"startup": ELSEWHERE}}, "startupProbe.httpGet.host (10.0.0.1)", "privileged"),
    (mounted("nfs", {"server": "nas", "path": "/"}), "volumes[x].nfs", "anyVolume"),
    (mounted("csi", {"driver": "secrets.example"}), "volumes[x].csi", "anyVolume"),
    (mounted("projected", TOKEN), "volumes[x].projected.serviceAccountToken", "anyVolume"),
    ({"endpoint": {"type": "NodePort", "nodePort": 30443}}, "Service chat", "nodePorts"),
    ({"endpoint": {"type": "LoadBalancer"}}, "spec.type (LoadBalancer)", "nodePorts"),
    ({"priorityClassName": "system-node-critical"}, "priorityClassName (system-node-critical)", "priorityClasses"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "field", "setting"), FREEDOMS, ids=[f"{one[2]}-{one[1]}" for one in FREEDOMS])
def test_fields_that_need_the_operators_trust_are_rejected_with_the_setting(
    spec: dict[str, Any], field: str, setting: str
) -> None:
    message = refusal(SERVICES, service(**spec))
    assert field in message
    assert f"authors.{setting}" in message
    assert pod(plan(SERVICES, service(allowed(UPSTREAM), **spec)))


def test_a_refusal_names_everything_at_once_and_is_the_resources_condition() -> None:
    world = service(securityContext={"privileged": True}, endpoint={"type": "NodePort"}, priorityClassName="system-x")
    message = refusal(SERVICES, world)
    assert all(name in message for name in ("authors.privileged", "authors.nodePorts", "authors.priorityClasses"))
    status = worlds.status(SERVICES, world, Rejection(NOT_ALLOWED, message)).status
    assert (status["phase"], status["conditions"][0]["reason"]) == ("Failed", NOT_ALLOWED)
    assert status["conditions"][0]["message"] == message


def test_errors_are_reported_before_the_weights_are_complete() -> None:
    loading = llmkube.model("tiny", llmkube.GGUF, {"phase": "Downloading", "observedGeneration": 1})
    world = msgspec.structs.replace(
        llmkube.world(loading, securityContext={"privileged": True}), settings=allowed(Authors())
    )
    assert not [child for child in worlds.plan(SERVICES, world).children if child["kind"] == "Deployment"]
    assert "authors.privileged" in refusal(SERVICES, world)
    assert "authors.priorityClasses" in refusal(
        KUBEAI, kubeai.world(cacheProfile="shared", priorityClassName="system-node-critical")
    )


def test_pods_of_before_stay_while_a_new_spec_waits() -> None:
    """Settings that became stricter stop nothing that runs, nor the loading of what is to replace it."""
    loose = service(allowed(UPSTREAM), securityContext={"privileged": True})
    old = next(child for child in worlds.plan(SERVICES, loose).children if child["kind"] == "Deployment")
    loading = llmkube.model("tiny", llmkube.GGUF, {"phase": "Downloading", "observedGeneration": 1})
    world = msgspec.structs.replace(llmkube.world(loading), settings=allowed(Authors()))
    world = msgspec.structs.replace(world, children={at(DEPLOYMENT, "chat"): old})
    assert pod(plan(SERVICES, world))["spec"]["containers"][0]["securityContext"] == {"privileged": True}


@pytest.mark.parametrize(
    ("api", "world"),
    [
        (KRYPTON, krypton.world(serviceAccountName="controller")),
        (KUBEAI, kubeai.world(priorityClassName="system-cluster-critical")),
    ],
    ids=["krypton", "kubeai"],
)
def test_other_apis_are_held_to_the_same_rules(api: Api, world: World) -> None:
    message = refusal(api, world)
    assert "controller" in message or "system-cluster-critical" in message
    plan(api, msgspec.structs.replace(world, settings=allowed(UPSTREAM)))


def test_accounts_are_named_one_by_one_and_the_default_one_and_our_own_are_free() -> None:
    assert pod(plan(KRYPTON, krypton.world()))["spec"]["serviceAccountName"] == "tiny"
    assert plan(KRYPTON, krypton.world(serviceAccountName="default"))
    only = allowed(Authors(service_accounts=("mine",)))
    assert plan(KRYPTON, krypton.world(settings=only, serviceAccountName="mine"))
    assert "serviceAccountName (other)" in refusal(KRYPTON, krypton.world(settings=only, serviceAccountName="other"))
    # No account is made for a Model that names one, be it by the name that its own would have.
    assert "serviceAccountName (tiny)" in refusal(KRYPTON, krypton.world(serviceAccountName="tiny"))


@pytest.mark.parametrize(
    ("image", "free"),
    [
        ("ghcr.io/acme/vllm:1", True),
        ("ghcr.io/acme:1", True),
        ("ghcr.io/acme@sha256:ab", True),
        ("registry.lan/x", True),
        ("ghcr.io/acme-corp/vllm:1", False),
        ("ghcr.io/other/vllm:1", False),
        ("registry.lan.evil.example/x", False),
        ("docker.io/ghcr.io/acme/x", False),
    ],
)
def test_images_are_of_the_registries_that_are_named(image: str, free: bool) -> None:
    settings = allowed(Authors(image_prefixes=("ghcr.io/acme", "registry.lan/")))
    for api, world in (
        (KRYPTON, krypton.world(settings=settings, image=image)),
        (KUBEAI, kubeai.world(settings=settings, image=image)),
        (KUBEAI, kubeai.world(settings=settings, url=f"oci://{image}")),
        (SERVICES, service(settings, image=image)),
        (SERVICES, service(settings, extraVolumes=[{"name": "x", "image": {"reference": image}}])),
    ):
        if free:
            assert plan(api, world)
        else:
            assert "authors.imagePrefixes" in refusal(api, world)


def test_the_operators_own_images_need_no_prefix() -> None:
    settings = allowed(Authors(image_prefixes=("registry.lan/",)))
    assert plan(KRYPTON, krypton.world(settings=settings))
    assert plan(KUBEAI, kubeai.world(settings=settings))
    adapters = [{"name": "a", "url": "hf://acme/a"}]
    assert plan(KUBEAI, kubeai.world(settings=settings, cacheProfile="shared", adapters=adapters))
    assert plan(SERVICES, service(settings, modelCache={"persistence": "Ephemeral"}))
    assert "loader" in {one["name"] for one in pod(plan(KUBEAI, kubeai.world(adapters=adapters)))["spec"]["containers"]}


def test_classes_of_the_system_are_allowed_by_their_names_only() -> None:
    def build_world(authors: Authors, name: str) -> World:
        return kubeai.world(settings=allowed(authors), priorityClassName=name)

    assert plan(KUBEAI, build_world(Authors(), "mine"))
    one = Authors(priority_classes=("*", "system-cluster-critical"))
    assert plan(KUBEAI, build_world(one, "system-cluster-critical"))
    refusal(KUBEAI, build_world(one, "system-node-critical"))
    none = Authors(priority_classes=())
    refusal(KUBEAI, build_world(none, "mine"))
    # Authors do not name the controller's own classes.
    assert plan(SERVICES, service(allowed(none), priority="high"))


def test_folders_of_nodes_are_those_that_are_allowed_and_read_only() -> None:
    def build_world(path: str, *, read_only: bool, authors: Authors = UPSTREAM) -> World:
        settings = allowed(authors, sources=Sources(allowed_host_path_roots=("/srv/models",)))
        mount = {"name": "x", "mountPath": "/x", "readOnly": read_only}
        return service(settings, extraVolumes=[{"name": "x", "hostPath": {"path": path}}], extraVolumeMounts=[mount])

    assert plan(SERVICES, build_world("/srv/models/a", read_only=True, authors=Authors()))
    for path, read_only in (("/srv/models/a", False), ("/srv", True), ("/srv/models/../../etc", True)):
        with pytest.raises(InvalidSpecError) as refused:
            plan(SERVICES, build_world(path, read_only=read_only))
        assert refused.value.reason == "SourceNotAllowed"


@pytest.mark.parametrize(
    "label",
    ["app.kubernetes.io/name", "app.kubernetes.io/instance", "model", "krypton.ai/model", "slipway.inference/route"],
)
@pytest.mark.parametrize("authors", [Authors(), UPSTREAM], ids=["safe", "upstream"])
def test_labels_that_services_select_by_are_refused_on_pods_with_every_setting(label: str, authors: Authors) -> None:
    message = refusal(SERVICES, service(allowed(authors), podLabels={label: "victim", "team": "search"}))
    assert f"metadata.labels[{label}] (victim)" in message
    assert "no setting allows it" in message
    assert "search" not in message


def test_labels_that_are_overwritten_anyway_and_all_others_are_free() -> None:
    labels = pod(plan(SERVICES, service(podLabels={"app": "mine", "team": "search"})))["metadata"]["labels"]
    assert (labels["app"], labels["team"]) == ("chat", "search")


def labelled(**labels: str) -> World:
    world = kubeai.world()
    return msgspec.structs.replace(
        world, resource={**world.resource, "metadata": {**world.resource["metadata"], "labels": labels}}
    )


def test_labels_of_a_kubeai_model_by_which_services_select_stay_off_its_pods_and_that_is_reported() -> None:
    taken = {"krypton.ai/model": "victim", "inference.llmkube.dev/service": "victim", "control-plane": "manager"}
    world = labelled(**taken, **{"team": "search", "app.kubernetes.io/name": "helm", "model": "victim"})
    labels = pod(plan(KUBEAI, world))["metadata"]["labels"]
    assert not taken.keys() & labels.keys()
    assert (labels["team"], labels["app.kubernetes.io/name"], labels["model"]) == ("search", "vllm", "tiny")
    condition = next(
        one for one in worlds.status(KUBEAI, world, None).status["conditions"] if one["type"] == "FieldsIgnored"
    )
    assert (condition["status"], condition["reason"]) == ("True", "ReservedLabels")
    assert all(f"metadata.labels[{name}]" in condition["message"] for name in taken)
    assert "team" not in condition["message"]
    assert "app.kubernetes.io/name" not in condition["message"]


@pytest.mark.parametrize("config", ["", "modelServerPods: {jsonPatches: [{op: add, path: /spec/hostname, value: x}]}"])
def test_patches_of_a_kubeai_model_are_its_authors_and_not_the_operators(config: str) -> None:
    privileged = {"op": "add", "path": "/spec/containers/0/securityContext", "value": {"privileged": True}}
    message = refusal(KUBEAI, kubeai.world(config=config, jsonPatches=[privileged]))
    assert "authors.privileged" in message
    label = {"op": "add", "path": "/metadata/labels/krypton.ai~1model", "value": "victim"}
    message = refusal(KUBEAI, kubeai.world(config=config, jsonPatches=[label]))
    assert "metadata.labels[krypton.ai/model] (victim)" in message


def test_patches_of_the_operator_may_need_what_those_of_a_kubeai_model_make() -> None:
    config = "modelServerPods: {jsonPatches: [{op: replace, path: /spec/hostname, value: theirs}]}"
    own = {"op": "add", "path": "/spec/hostname", "value": "mine"}
    assert pod(plan(KUBEAI, kubeai.world(config=config, jsonPatches=[own])))["spec"]["hostname"] == "theirs"


def test_a_label_that_pods_got_earlier_goes_with_the_next_plan() -> None:
    world = labelled(team="search")
    deployment = next(one for one in plan(KUBEAI, world).children if one["kind"] == "Deployment")
    template = deployment["spec"]["template"]
    stolen = {**template["metadata"], "labels": {**template["metadata"]["labels"], "krypton.ai/model": "victim"}}
    there = {**deployment, "spec": {**deployment["spec"], "template": {**template, "metadata": stolen}}}
    again = plan(KUBEAI, msgspec.structs.replace(world, children={at(DEPLOYMENT, "model-tiny"): there}))
    assert "krypton.ai/model" not in pod(again)["metadata"]["labels"]


@pytest.mark.parametrize("name", ["krypton", "kubeai", "Model", "InferenceService"])
def test_nothing_is_served_in_the_system_namespace(name: str) -> None:
    served: dict[str, tuple[Api, World]] = {
        "krypton": (KRYPTON, krypton.world()),
        "kubeai": (KUBEAI, kubeai.world()),
        "Model": (MODELS, a_model(llmkube.tiny(llmkube.HUB))),
        "InferenceService": (SERVICES, llmkube.world()),
    }
    api, world = served[name]
    strict = msgspec.structs.replace(world, settings=Settings(system_namespace="models"))
    message = refusal(api, strict)
    assert "authors.systemNamespace" in message
    status = worlds.status(api, strict, Rejection(NOT_ALLOWED, message)).status
    assert {"reason": NOT_ALLOWED, "status": "False"}.items() <= status["conditions"][0].items()
    assert status.get("phase", "Failed") == "Failed"
    loose = Settings(system_namespace="models", authors=Authors(system_namespace=True))
    assert plan(api, msgspec.structs.replace(world, settings=loose))
    assert plan(api, msgspec.structs.replace(world, settings=Settings(system_namespace="elsewhere")))


def test_every_api_is_asked() -> None:
    """OME's runtimes and services are in ``ome/test_service_plan.py``, its benchmarks in ``ome/test_benchmarks.py``;
    Deckhouse's models in ``deckhouse/test_models.py``. LLMKube's routers, adapters, quotas and pools make no pods."""
    elsewhere = (*ome.APIS, *deckhouse.APIS)
    assert [api.resource.kind for api in APIS if api not in elsewhere] == [
        api.resource.kind for api in (KRYPTON, KUBEAI, MODELS, SERVICES, ROUTERS, ADAPTERS, QUOTAS, POOLS)
    ]


ROOT_CONFIG = {
    "cacheProfiles": {"shared": {"sharedFilesystem": {"storageClassName": "nfs"}}},
    "modelServerPods": {
        "serviceAccountName": "models",
        "podSecurityContext": {"runAsUser": 0, "seccompProfile": {"type": "Unconfined"}},
        "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}},
        "jsonPatches": [
            {"op": "add", "path": "/spec/hostNetwork", "value": True},
            {"op": "add", "path": "/spec/priorityClassName", "value": "system-node-critical"},
            {"op": "add", "path": "/metadata/labels/control-plane", "value": "models"},
            {"op": "add", "path": "/spec/volumes/-", "value": {"name": "dev", "hostPath": {"path": "/dev"}}},
        ],
    },
}


def test_the_operators_system_configuration_is_never_rejected() -> None:
    config = yaml.safe_dump(ROOT_CONFIG)
    pod_spec = pod(plan(KUBEAI, kubeai.world(config=config)))["spec"]
    assert (pod_spec["hostNetwork"], pod_spec["priorityClassName"]) == (True, "system-node-critical")
    jobs = plan(KUBEAI, kubeai.world(config=config, cacheProfile="shared")).children
    assert [one["spec"]["template"]["spec"]["serviceAccountName"] for one in jobs if one["kind"] == "Job"] == ["models"]
    message = refusal(
        KUBEAI, kubeai.world(settings=allowed(Authors(image_prefixes=("a/",))), config=config, image="b/c")
    )
    assert "authors.imagePrefixes" in message
    assert "authors.privileged" not in message


def test_a_model_gets_no_class_of_the_system_because_the_operator_gives_another_one_to_all() -> None:
    patches = [{"op": "add", "path": "/metadata/annotations/x", "value": "y"}]
    config = yaml.safe_dump({"modelServerPods": {"jsonPatches": patches}})
    refusal(KUBEAI, kubeai.world(config=config, priorityClassName="system-node-critical"))


def test_loaders_run_as_root_and_read_folders_of_the_node_if_the_operator_allows_it() -> None:
    sources, root = Sources(allowed_host_path_roots=("/srv",)), {"llmkube": {"modelCache": {"runAsUser": 0}}}
    settings = allowed(Authors(), sources=sources, apis=root)
    resource = llmkube.model("tiny", {"source": "/srv/tiny.gguf"})
    world = msgspec.structs.replace(a_model(resource), settings=settings)
    (job,) = plan(MODELS, world).children
    assert job["spec"]["template"]["spec"]["securityContext"]["runAsUser"] == 0
    each = service(settings, model={"source": "/srv/tiny.gguf"}, modelCache={"persistence": "Ephemeral"})
    assert "hostPath" in str(pod(plan(SERVICES, each))["spec"]["volumes"])


@pytest.mark.parametrize(("preemption", "policy"), [(False, "Never"), (True, "PreemptLowerPriority")])
def test_our_priority_classes_preempt_only_if_the_operator_allows_it(preemption: bool, policy: str) -> None:
    for priority in ("critical", "high", "normal", "low"):
        (shared,) = plan(SERVICES, service(allowed(Authors(preemption=preemption)), priority=priority)).shared
        assert shared["preemptionPolicy"] == policy


def test_a_security_context_of_the_authors_own_gains_no_privileges_by_what_it_leaves_out() -> None:
    given = {"runAsUser": 1000}
    container = pod(plan(SERVICES, service(securityContext=given)))["spec"]["containers"][0]
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "runAsUser": 1000}
    free = pod(plan(SERVICES, service(allowed(UPSTREAM), securityContext=given)))["spec"]["containers"][0]
    assert free["securityContext"] == given
