"""How what the informers see leads back to the resource that it belongs to."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import aiohttp
import msgspec
import pytest

from slipway.apis import APIS
from slipway.apis.krypton.api import KRYPTON
from slipway.apis.krypton.types import KIND
from slipway.apis.kubeai.api import KUBEAI
from slipway.apis.llmkube import MODELS, SERVICES
from slipway.apis.llmkube.models import nodes, usage
from slipway.apis.llmkube.types.model import KIND as MODEL
from slipway.apis.llmkube.types.service import KIND as INFERENCE_SERVICE
from slipway.controller import main
from slipway.controller.inputs.caches import Caches
from slipway.controller.inputs.catalogs import Catalogs
from slipway.controller.loaders.agents import LoaderClients
from slipway.controller.settings import ControllerSettings
from slipway.kube.api.client import Client
from slipway.kube.caches.store import Change
from slipway.kube.metrics import Metrics
from slipway.kube.objects import (
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    MANAGED_BY,
    NETWORK_POLICY,
    NODE,
    PERSISTENT_VOLUME,
    POD,
    SERVICE,
    Key,
    Kind,
    Object,
    controller_owner,
    key,
)
from slipway.kube.runtime.lease import LeaderElector
from slipway.kube.writes.owners import OWNER as OWNER_INDEX
from slipway.kube.writes.owners import OWNER_ELSEWHERE
from slipway.serving.contract.api import USES, Api, Watch
from slipway.serving.contract.settings import Settings
from slipway.serving.contract.watches import by_namespace, enqueue_nothing, owned_by
from slipway.serving.pods.groups import LEADER_WORKER_SET
from slipway.serving.routing.claims import Rules

SETTINGS = Settings(system_namespace="slipway-system")
LLMKUBE = (MODELS, SERVICES)
OWNER = {"apiVersion": KIND.api_version, "kind": KIND.kind, "uid": "1", "controller": True}


def owned(name: str, owner: str, namespace: str = "models", **fields: Any) -> dict[str, Any]:
    references = [{**OWNER, "name": owner}]
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "ownerReferences": references}
    return {"metadata": {**metadata, "creationTimestamp": "2026-11-21T09:00:00Z", "resourceVersion": "1"}, **fields}


def routed(name: str, namespace: str, annotation: str = "{}") -> dict[str, Any]:
    service = owned(name, name, namespace, spec={"ports": [{"name": "http", "port": 8080}]})
    service["metadata"]["labels"] = {"slipway.inference/route": "true"}
    service["metadata"]["annotations"] = {"slipway.inference/route": annotation}
    return service


def cached() -> Caches:
    client: Client = None  # type: ignore[assignment]  # nothing is read from a server here
    return Caches(client, [KRYPTON], SETTINGS)


def test_a_pod_leads_to_its_model_through_its_replica_set_and_deployment() -> None:
    seen = cached()
    seen.store(DEPLOYMENT).put(owned("tiny", "tiny"))
    pod = {
        "metadata": {
            "name": "tiny-abc-x",
            "namespace": "models",
            "labels": {"pod-template-hash": "abc"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "tiny-abc", "uid": "2", "controller": True}
            ],
        }
    }
    assert seen.owner_of_pod(KIND, pod) == [Key("models", "tiny")]


def test_pods_of_a_group_lead_to_what_owns_its_leader_worker_set() -> None:
    api = watching(*owned_by(KIND, LEADER_WORKER_SET, optional="its controller"))
    client: Client = None  # type: ignore[assignment]  # nothing is read from a server here
    seen = Caches(client, [api], SETTINGS)
    seen.store(LEADER_WORKER_SET).put(owned("lws", "tiny"))
    for controller, of_tiny in (("lws", True), ("lws-0", True), ("mine", False)):
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": controller, "uid": "2", "controller": True}
        labelled = {"leaderworkerset.sigs.k8s.io/name": "lws"}
        metadata = {"name": "p", "namespace": "models", "labels": labelled, "ownerReferences": [owner]}
        assert seen.owner_of_pod(KIND, {"metadata": metadata}) == ([Key("models", "tiny")] if of_tiny else [])


def watching(*watches: Watch) -> Api[Any]:
    """Krypton with further watches."""
    return msgspec.structs.replace(KRYPTON, watches=lambda settings: (*KRYPTON.watches(settings), *watches))


def test_a_pod_of_something_else_leads_nowhere() -> None:
    assert cached().owner_of_pod(KIND, {"metadata": {"name": "alone", "namespace": "models"}}) == []


def test_internal_services_contend_for_nothing() -> None:
    seen = cached()
    internal = [routed(name, "a", '{"internal": true}') for name in ("x", "y")]
    for service in internal:
        seen.store(SERVICE).put(service)
    assert seen.contenders(internal) == []
    assert seen.owners_of_contenders(KIND, internal[0]) == []


def test_a_change_of_a_routed_service_concerns_every_model_that_asks_for_its_name() -> None:
    seen = cached()
    for namespace in ("a", "b"):
        seen.store(SERVICE).put(routed("tiny", namespace))
    seen.store(SERVICE).put(routed("other", "c"))
    assert set(seen.owners_of_contenders(KIND, routed("tiny", "a"))) == {Key("a", "tiny"), Key("b", "tiny")}
    assert {rival.key for rival in seen.contenders([routed("tiny", "a")])} == {"a/tiny", "b/tiny"}


def test_a_service_that_was_just_made_is_among_those_that_ask_for_its_name() -> None:
    assert [rival.key for rival in cached().contenders([routed("tiny", "a")])] == ["a/tiny"]


def test_a_service_whose_route_cannot_be_read_asks_for_no_name() -> None:
    assert cached().contenders([routed("tiny", "a", annotation="{")]) == []
    assert cached().contenders([owned("plain", "plain", spec={"ports": [{"port": 1}]})]) == []


def hand_written(name: str, namespace: str, annotation: str, since: str = "2026-11-22T09:00:00Z") -> dict[str, Any]:
    service = routed(name, namespace, annotation)
    del service["metadata"]["ownerReferences"]
    service["metadata"]["creationTimestamp"] = since
    return service


def test_of_all_who_ask_for_a_name_only_the_first_is_read_with_a_model() -> None:
    seen = cached()
    for number in range(200):
        seen.store(SERVICE).put(hand_written(f"s{number}", "crowd", '{"models": ["tiny"]}'))
    seen.store(SERVICE).put(hand_written("first", "z", '{"models": ["tiny"]}', "2026-11-20T09:00:00Z"))
    assert {rival.key for rival in seen.contenders([routed("tiny", "a")])} == {"a/tiny", "z/first"}


def test_a_model_that_may_not_have_a_name_is_not_a_rival_for_it() -> None:
    client: Client = None  # type: ignore[assignment]
    seen = Caches(client, [KRYPTON], SETTINGS, Rules(owners={"tiny": "a"}))
    seen.store(SERVICE).put(hand_written("old", "tenant", '{"models": ["tiny", "a/tiny"]}', "2026-11-20T09:00:00Z"))
    own = routed("tiny", "a")
    assert [rival.key for rival in seen.contenders([own])] == ["a/tiny"]
    assert seen.owners_of_contenders(KIND, seen.store(SERVICE).all()[0]) == []


def test_a_change_that_asks_for_the_same_ids_concerns_no_rival() -> None:
    seen = cached()
    for namespace in ("a", "b"):
        seen.store(SERVICE).put(routed("tiny", namespace))
    before, after = routed("tiny", "a"), routed("tiny", "a", '{"source": "new"}')
    after["metadata"]["resourceVersion"] = "2"
    assert seen.owners_of_change(KIND, Change(before, after)) == []
    renamed = routed("tiny", "a", '{"models": ["other"]}')
    renamed["metadata"]["resourceVersion"] = "3"
    assert set(seen.owners_of_change(KIND, Change(after, renamed))) == {Key("a", "tiny"), Key("b", "tiny")}
    assert set(seen.owners_of_change(KIND, Change(None, before))) == {Key("a", "tiny"), Key("b", "tiny")}


def test_namespaces_that_are_not_served_are_reported_and_block_nothing() -> None:
    client: Client = None  # type: ignore[assignment]
    seen = Caches(client, [KRYPTON], SETTINGS, routed_namespaces="slipway=yes")
    assert seen.namespaces is not None
    assert seen.namespaces in seen.informers
    seen.store(SERVICE).put(hand_written("old", "tenant", '{"models": ["tiny"]}', "2026-11-20T09:00:00Z"))
    own = routed("tiny", "a")
    seen.store(SERVICE).put(own)
    (alone,) = seen.contenders([own])
    assert "routedNamespaces" in alone.why_not("a/tiny")
    for name in ("a", "tenant"):
        seen.namespaces.store.put({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}})
    assert {rival.key: rival.refused for rival in seen.contenders([own])} == {"a/tiny": (), "tenant/old": ()}
    assert seen.owners_in_namespace(KIND, Key("", "tenant")) == [Key("a", "tiny")]


def test_a_hostile_annotation_ends_no_index() -> None:
    seen = cached()
    for number, text in enumerate(('{"x":' + "[" * 8000 + "]" * 8000 + "}", "{" * 250_000, '{"models": 7}')):
        hostile = hand_written(f"bad{number}", "tenant", text)
        seen.informer(SERVICE)._notify(seen.store(SERVICE).put(hostile))
        assert seen.owners_of_contenders(KIND, hostile) == []
    assert [rival.key for rival in seen.contenders([routed("tiny", "a")])] == ["a/tiny"]


def node(name: str, **allocatable: str) -> Object:
    quantities = {resource.replace("__", "/").replace("_", "."): amount for resource, amount in allocatable.items()}
    metadata = {"name": name, "uid": name, "resourceVersion": "1", "labels": {"disk": "fast"}}
    status = {"allocatable": {"cpu": "8", **quantities}, "images": [{"names": ["large"]}]}
    return {"kind": "Node", "metadata": metadata, "spec": {}, "status": status}


def put(seen: Caches, obj: Object) -> list[bool]:
    """Whether the cluster has more or fewer kinds of accelerators since."""
    informer = seen.informer(NODE)
    return [equips(seen, change) for change in informer.store.put(informer._prepare(obj))]


def equips(seen: Caches, change: Change) -> bool:
    """Whether a Model is enqueued."""
    seen.store(MODEL).put({"metadata": {"name": "m", "namespace": "models", "uid": "m"}})
    (watch,) = (one for one in MODELS.watches(SETTINGS) if one.kind == NODE)
    return list(watch.enqueue(change, seen)) == [Key("models", "m")]


def test_only_the_accelerators_of_a_node_are_kept() -> None:
    seen = Caches(None, [MODELS], SETTINGS)  # type: ignore[arg-type]
    assert put(seen, node("a", nvidia_com__gpu="2", amd_com__gpu="0")) == [True]
    assert seen.store(NODE).count(nodes.EXTENDED, "nvidia.com/gpu") == 1
    assert seen.store(NODE).all() == [
        {
            "kind": "Node",
            "metadata": {"name": "a", "uid": "a", "resourceVersion": "1"},
            "extended": ["nvidia.com/gpu"],
        }
    ]


def test_only_the_system_configuration_among_the_controllers_config_maps_is_kept() -> None:
    def config_map(name: str, **data: str) -> Object:
        metadata = {"name": name, "namespace": "system", "uid": name, "resourceVersion": "1", "labels": {"x": "y"}}
        return {"kind": "ConfigMap", "metadata": metadata, "data": data}

    informer = Caches(None, [KUBEAI, MODELS, KRYPTON], SETTINGS).informer(CONFIG_MAP)  # type: ignore[arg-type]
    averages = config_map("kubeai-autoscaler", models="x" * 1_000_000)
    configuration = config_map("slipway-kubeai", **{"system.yaml": "{}", "other": "x" * 1_000_000})
    kept = {"name": "slipway-kubeai", "namespace": "system", "uid": "slipway-kubeai", "resourceVersion": "1"}
    assert informer._prepare(averages) is None
    assert informer._prepare(configuration) == {"kind": "ConfigMap", "metadata": kept, "data": {"system.yaml": "{}"}}


def test_only_the_first_and_the_last_node_with_an_accelerator_are_news() -> None:
    seen = Caches(None, [MODELS], SETTINGS)  # type: ignore[arg-type]
    assert put(seen, node("a", nvidia_com__gpu="2")) == [True]
    assert put(seen, node("b", nvidia_com__gpu="1")) == [False]
    later = node("a", nvidia_com__gpu="0")
    later["metadata"]["resourceVersion"] = "2"
    assert put(seen, later) == [False]
    assert [equips(seen, change) for change in seen.store(NODE).drop(Key("", "b"))] == [True]
    assert seen.store(NODE).count(nodes.EXTENDED, "nvidia.com/gpu") == 0
    assert put(seen, node("c")) == [False]


def used_by(seen: Caches, name: str, namespace: str = "models", maker: tuple[str, str] = ("", ""), **more: str) -> None:
    """Stores a pod with a record of its weights, owned by a workload of this kind and name."""
    kind, workload = maker
    references = [{"apiVersion": "apps/v1", "kind": kind, "name": workload, "uid": "2", "controller": True}]
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "annotations": {USES: "k=d"}} | more
    labels = {"labels": {"pod-template-hash": "abc"}, "ownerReferences": references if kind else []}
    seen.store(POD).put({"metadata": metadata | labels})


def serving(seen: Caches) -> Caches:
    """An InferenceService in each of two namespaces, with its Deployment; a Deployment and a Job of others."""
    owner = {"apiVersion": INFERENCE_SERVICE.api_version, "kind": INFERENCE_SERVICE.kind}
    for namespace in ("models", "others"):
        service = {"metadata": {"name": "chat", "namespace": namespace, "uid": f"s-{namespace}"}}
        seen.store(INFERENCE_SERVICE).put(service)
        deployment = owned("chat", "chat", namespace)
        deployment["metadata"]["ownerReferences"][0] |= owner
        seen.store(DEPLOYMENT).put(deployment)
    seen.store(DEPLOYMENT).put(owned("foreign", "tiny"))
    seen.store(JOB).put(owned("foreign", "tiny"))
    return seen


def readers(seen: Caches) -> list[str]:
    return [pod["metadata"]["name"] for pod in seen.pods_of(INFERENCE_SERVICE, usage.READ, "models/k")]


def test_pods_that_read_weights_are_those_of_the_services_of_the_namespace() -> None:
    seen = serving(Caches(None, LLMKUBE, SETTINGS))  # type: ignore[arg-type]
    for namespace in ("models", "others"):
        used_by(seen, "reads", namespace, ("ReplicaSet", "chat-abc"))
    assert readers(seen) == ["reads"]


def test_a_pod_without_an_owner_or_of_a_foreign_workload_uses_nothing_despite_its_annotation() -> None:
    seen = serving(Caches(None, LLMKUBE, SETTINGS))  # type: ignore[arg-type]
    makers = [("", ""), ("ReplicaSet", "foreign-abc"), ("Job", "foreign"), ("ReplicaSet", "unknown-abc"), ("Job", "x")]
    for number, maker in enumerate(makers):
        used_by(seen, str(number), maker=maker)
    assert readers(seen) == []


def dropped(seen: Caches, kind: Kind, name: str) -> None:
    """An object of the namespace goes, and the handlers of its informer get to know it."""
    for change in seen.store(kind).drop(Key("models", name)):
        for handler in seen.informer(kind)._handlers:
            handler(change)


ENDING = "2026-11-21T09:00:00Z"


def test_a_pod_that_ends_after_its_deployment_still_uses_what_it_reads() -> None:
    seen = serving(Caches(None, LLMKUBE, SETTINGS))  # type: ignore[arg-type]
    used_by(seen, "drains", maker=("ReplicaSet", "chat-abc"))
    used_by(seen, "stranger", maker=("ReplicaSet", "foreign-abc"))
    for name in ("chat", "foreign"):
        dropped(seen, DEPLOYMENT, name)
    for name, maker in (("drains", "chat-abc"), ("stranger", "foreign-abc"), ("late", "chat-abc")):
        used_by(seen, name, maker=("ReplicaSet", maker), deletionTimestamp=ENDING, resourceVersion="2")
    assert readers(seen) == ["drains"]
    dropped(seen, POD, "drains")
    used_by(seen, "drains", maker=("ReplicaSet", "chat-abc"), deletionTimestamp=ENDING)
    assert readers(seen) == []


@pytest.mark.parametrize(
    ("volumes", "expected"),
    [
        ([], []),
        ([{"name": "x", "emptyDir": {}}], []),
        ([{"name": "x", "hostPath": {"path": "/mnt/models/x"}}], ["drains"]),
        ([{"name": "x", "persistentVolumeClaim": {"claimName": "cache"}}], ["drains"]),
    ],
)
def test_a_pod_that_ended_before_the_controller_started_uses_what_it_mounts(
    volumes: list[Object], expected: list[str]
) -> None:
    seen = serving(Caches(None, LLMKUBE, SETTINGS))  # type: ignore[arg-type]
    metadata = {"name": "drains", "namespace": "models", "uid": "u", "annotations": {USES: "k=d"}}
    pod = {"metadata": metadata | {"deletionTimestamp": ENDING}, "spec": {"containers": [], "volumes": volumes}}
    seen.informer(POD)._accept({"apiVersion": "v1", "kind": "Pod", **pod})
    assert readers(seen) == expected


def test_pods_of_a_workload_are_found_after_it_is_gone() -> None:
    """The garbage collector deletes them later, and until then they hold their GPUs."""
    seen = serving(Caches(None, LLMKUBE, SETTINGS))  # type: ignore[arg-type]
    for namespace in ("models", "others"):
        used_by(seen, "stays", namespace, ("ReplicaSet", "gone-abc"))
    used_by(seen, "other", maker=("ReplicaSet", "chat-abc"))
    assert [key(pod) for pod in seen.pods_of_workload(DEPLOYMENT, Key("models", "gone"))] == [Key("models", "stays")]


async def test_the_controller_has_one_informer_a_kind(client: Client, metrics: Metrics) -> None:
    """Except for pods, because the gateways' pods are in a different namespace, and for the deliveries' objects, which
    have a label."""
    settings = ControllerSettings(system_namespace="slipway-system", routed_namespaces="slipway=yes")
    elector, session = LeaderElector(client, "system", "boss", metrics=metrics), cast(aiohttp.ClientSession, None)
    agents, catalogs = LoaderClients(client, session), Catalogs(client, settings.system_namespace)
    manager = main._manager(settings, client, elector, session, agents, catalogs, metrics)
    counted = Counter(informer.kind for informer in manager._informers)
    assert {kind.plural: count for kind, count in counted.items() if count != 1} == {
        "pods": 2,
        "jobs": 2,
        "persistentvolumeclaims": 2,
    }
    assert {api.resource.kind for api in APIS} <= counted.keys()


def prepared(seen: Caches, kind: Kind, obj: Object) -> Object | None:
    return seen.informer(kind)._prepare({"apiVersion": kind.api_version, "kind": kind.kind, **obj})


def test_only_the_devices_in_a_pods_spec_are_kept() -> None:
    engine = {"name": "engine", "image": "x", "resources": {"limits": {"memory": "8Gi", "nvidia.com/gpu": "2"}}}
    plain = {"name": "plain", "image": "x", "resources": {"limits": {"memory": "8Gi"}}}
    pod = owned("tiny-1-2", "tiny")
    pod["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "tiny-1", "uid": "2"}]
    pod["metadata"]["ownerReferences"][0]["controller"] = True
    pod["metadata"]["labels"] = {"pod-template-hash": "1"}
    whole = {"containers": [engine, plain], "resourceClaims": [{"name": "gpu", "resourceClaimName": "x"}]}
    kept = prepared(cached(), POD, {**pod, "spec": whole})
    assert kept is not None
    assert kept["spec"] == {
        "containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}],
        "resourceClaims": [{"name": "gpu"}],
    }
    without = prepared(cached(), POD, {**pod, "spec": {"containers": [plain]}})
    assert without is not None
    assert "spec" not in without


@pytest.mark.parametrize("namespace", ["ome", "chat", "evil"])
def test_only_where_the_operator_writes_an_annotation_names_an_owner_of_another_namespace(namespace: str) -> None:
    client: Client = None  # type: ignore[assignment]
    seen = Caches(client, [*APIS], SETTINGS)
    metadata = owned("load", "tiny", namespace)["metadata"] | {"labels": {MANAGED_BY: "slipway"}, "ownerReferences": []}
    metadata["annotations"] = {OWNER_ELSEWHERE: "ome.io/v1beta1 BaseModel chat/tiny u-1"}
    job = prepared(seen, JOB, {"metadata": metadata, "spec": {}})
    owner = controller_owner(job) if job else None
    expected = ("chat", "tiny", "u-1") if namespace == "ome" else None
    assert (owner and (owner.namespace, owner.name, owner.uid)) == expected
    volume = prepared(seen, PERSISTENT_VOLUME, {"metadata": {**metadata, "namespace": ""}, "spec": {}})
    assert volume is not None
    assert controller_owner(volume) is not None


def test_services_are_kept_whole_where_they_are_children_and_in_part_where_others_route_by_them() -> None:
    seen, child, foreign = cached(), routed("tiny", "a"), routed("theirs", "a")
    child["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "slipway"
    kept, route = prepared(seen, SERVICE, child), prepared(seen, SERVICE, foreign)
    assert kept is not None
    assert kept["spec"] == child["spec"]
    assert route is not None
    assert route["spec"] == {"ports": [{"name": "http"}]}
    assert prepared(seen, SERVICE, owned("plain", "tiny", spec={"ports": []})) is None
    for one in (kept, route):
        seen.store(SERVICE).put(one)
    assert seen.list(SERVICE, OWNER_INDEX, "a/1") == [kept], "who only names an owner is no child"


def test_of_network_policies_children_are_whole_and_others_are_names() -> None:
    seen, ours, theirs = cached(), owned("tiny", "tiny", spec={"x": 1}), owned("deny", "tiny", spec={"x": 1})
    ours["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "slipway"}
    for one in (ours, theirs):
        kept = prepared(seen, NETWORK_POLICY, one)
        assert kept is not None
        seen.store(NETWORK_POLICY).put(kept)
    assert [one.get("spec") for one in seen.list(NETWORK_POLICY, OWNER_INDEX, "models/1")] == [{"x": 1}]
    assert seen.has_foreign_policies("models")
    seen.store(NETWORK_POLICY).drop(Key("models", "deny"))
    assert not seen.has_foreign_policies("models")


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        (
            Watch(kind=NODE, enqueue=enqueue_nothing, trim=nodes.equipment, indexes={"extended": by_namespace}),
            "two indexes",
        ),
        (
            Watch(kind=NODE, enqueue=enqueue_nothing, trim=nodes.equipment, namespace="one"),
            "in one namespace and in others",
        ),
        (Watch(kind=CONFIG_MAP, enqueue=enqueue_nothing, namespace=""), "a namespace without a name"),
    ],
)
def test_apis_that_want_different_things_of_one_kind_are_distinguished_at_the_start(
    other: Watch, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        Caches(None, [MODELS, watching(other)], SETTINGS)  # type: ignore[arg-type]


def test_a_kind_that_apis_trim_differently_keeps_every_part_that_any_of_them_keeps() -> None:
    def placed(node: Object) -> Object:
        return {"kind": "Node", "metadata": {"name": node["metadata"]["name"], "labels": node["metadata"]["labels"]}}

    places = watching(Watch(kind=NODE, enqueue=enqueue_nothing, trim=placed))
    seen = Caches(None, [MODELS, places], SETTINGS)  # type: ignore[arg-type]
    metadata = {"name": "a", "uid": "1", "resourceVersion": "7", "labels": {"zone": "x"}, "annotations": {"large": "y"}}
    node = {"metadata": metadata, "status": {"allocatable": {"nvidia.com/gpu": "8"}, "images": ["large"]}}
    kept = {"name": "a", "uid": "1", "resourceVersion": "7", "labels": {"zone": "x"}}
    assert prepared(seen, NODE, node) == {"kind": "Node", "metadata": kept, "extended": ["nvidia.com/gpu"]}


def test_an_unwatched_kind_is_not_an_empty_list() -> None:
    with pytest.raises(LookupError, match="nodes of v1 are not watched"):
        cached().list(NODE)
