"""How what the informers see leads back to the resource that it belongs to."""

from __future__ import annotations

from typing import Any

from slipway.apis.krypton.api import Krypton
from slipway.apis.krypton.types import KIND
from slipway.apis.llmkube.model import Models
from slipway.apis.llmkube.service import Services
from slipway.apis.llmkube.service_types import KIND as INFERENCE_SERVICE
from slipway.controller.observed import Observed, route_names
from slipway.kube.client import Client
from slipway.kube.objects import DEPLOYMENT, JOB, NODE, Key, Object
from slipway.kube.store import Change
from slipway.serving.claims import Rules
from slipway.serving.plan import USES

LLMKUBE = (Models(), Services())
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


def observed() -> Observed:
    client: Client = None  # type: ignore[assignment]  # nothing is read from a server here
    return Observed(client, [Krypton()], "slipway-system")


def test_a_pod_leads_to_its_model_through_its_replica_set_and_deployment() -> None:
    seen = observed()
    seen.children[DEPLOYMENT].store.put(owned("tiny", "tiny"))
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


def test_a_pod_of_something_else_leads_nowhere() -> None:
    assert observed().owner_of_pod(KIND, {"metadata": {"name": "alone", "namespace": "models"}}) == []


def test_a_change_of_a_routed_service_concerns_every_model_that_asks_for_its_name() -> None:
    seen = observed()
    for namespace in ("a", "b"):
        seen.routes.store.put(routed("tiny", namespace))
    seen.routes.store.put(routed("other", "c"))
    assert set(seen.owners_of_rivals(KIND, routed("tiny", "a"))) == {Key("a", "tiny"), Key("b", "tiny")}
    assert {rival.key for rival in seen.rivals([routed("tiny", "a")])} == {"a/tiny", "b/tiny"}


def test_a_service_that_was_just_made_is_among_those_that_ask_for_its_name() -> None:
    assert [rival.key for rival in observed().rivals([routed("tiny", "a")])] == ["a/tiny"]


def test_a_service_whose_route_cannot_be_read_asks_for_no_name() -> None:
    assert route_names(routed("tiny", "a", annotation="{")) == []
    assert route_names(owned("plain", "plain", spec={"ports": [{"port": 1}]})) == []


def hand_written(name: str, namespace: str, annotation: str, since: str = "2026-11-22T09:00:00Z") -> dict[str, Any]:
    service = routed(name, namespace, annotation)
    del service["metadata"]["ownerReferences"]
    service["metadata"]["creationTimestamp"] = since
    return service


def test_of_all_who_ask_for_a_name_only_the_first_is_read_with_a_model() -> None:
    seen = observed()
    for number in range(200):
        seen.routes.store.put(hand_written(f"s{number}", "crowd", '{"models": ["tiny"]}'))
    seen.routes.store.put(hand_written("first", "z", '{"models": ["tiny"]}', "2026-11-20T09:00:00Z"))
    assert {rival.key for rival in seen.rivals([routed("tiny", "a")])} == {"a/tiny", "z/first"}


def test_who_may_not_have_a_name_is_no_rival_for_it() -> None:
    client: Client = None  # type: ignore[assignment]
    seen = Observed(client, [Krypton()], "slipway-system", Rules(owners={"tiny": "a"}))
    seen.routes.store.put(hand_written("old", "tenant", '{"models": ["tiny", "a/tiny"]}', "2026-11-20T09:00:00Z"))
    own = routed("tiny", "a")
    assert [rival.key for rival in seen.rivals([own])] == ["a/tiny"]
    assert seen.owners_of_rivals(KIND, seen.routes.store.all()[0]) == []


def test_a_change_that_asks_for_the_same_ids_concerns_no_rival() -> None:
    seen = observed()
    for namespace in ("a", "b"):
        seen.routes.store.put(routed("tiny", namespace))
    before, after = routed("tiny", "a"), routed("tiny", "a", '{"source": "new"}')
    after["metadata"]["resourceVersion"] = "2"
    assert seen.owners_of_change(KIND, Change(before, after)) == [Key("a", "tiny")]
    renamed = routed("tiny", "a", '{"models": ["other"]}')
    renamed["metadata"]["resourceVersion"] = "3"
    assert set(seen.owners_of_change(KIND, Change(after, renamed))) == {Key("a", "tiny"), Key("b", "tiny")}
    assert set(seen.owners_of_change(KIND, Change(None, before))) == {Key("a", "tiny"), Key("b", "tiny")}


def test_namespaces_that_are_not_served_are_told_and_stand_in_nobodys_way() -> None:
    client: Client = None  # type: ignore[assignment]
    seen = Observed(client, [Krypton()], "slipway-system", routed_namespaces="slipway=yes")
    assert seen.namespaces is not None
    assert seen.namespaces in seen.informers
    seen.routes.store.put(hand_written("old", "tenant", '{"models": ["tiny"]}', "2026-11-20T09:00:00Z"))
    own = routed("tiny", "a")
    seen.routes.store.put(own)
    (alone,) = seen.rivals([own])
    assert "routedNamespaces" in alone.why_not("a/tiny")
    for name in ("a", "tenant"):
        seen.namespaces.store.put({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}})
    assert {rival.key: rival.refused for rival in seen.rivals([own])} == {"a/tiny": (), "tenant/old": ()}
    assert seen.owners_in_namespace(KIND, Key("", "tenant")) == [Key("a", "tiny")]


def test_a_hostile_annotation_ends_no_index() -> None:
    seen = observed()
    for number, text in enumerate(('{"x":' + "[" * 8000 + "]" * 8000 + "}", "{" * 250_000, '{"models": 7}')):
        hostile = hand_written(f"bad{number}", "tenant", text)
        seen.routes._tell(seen.routes.store.put(hostile))
        assert seen.owners_of_rivals(KIND, hostile) == []
    assert [rival.key for rival in seen.rivals([routed("tiny", "a")])] == ["a/tiny"]


def node(name: str, **allocatable: str) -> Object:
    found = {resource.replace("__", "/").replace("_", "."): amount for resource, amount in allocatable.items()}
    metadata = {"name": name, "uid": name, "resourceVersion": "1", "labels": {"disk": "fast"}}
    status = {"allocatable": {"cpu": "8", **found}, "images": [{"names": ["large"]}]}
    return {"kind": "Node", "metadata": metadata, "spec": {}, "status": status}


def put(seen: Observed, obj: Object) -> list[bool]:
    """Whether the cluster has more or fewer kinds of accelerators since."""
    nodes = seen.shared[NODE]
    return [seen.equips(change) for change in nodes.store.put(nodes._prepare(obj))]


def test_of_a_node_nothing_is_kept_but_the_accelerators_that_it_has() -> None:
    seen = Observed(None, [Models()], "slipway-system")  # type: ignore[arg-type]
    assert put(seen, node("a", nvidia_com__gpu="2", amd_com__gpu="0")) == [True]
    assert seen.extended_resources() == {"nvidia.com/gpu"}
    assert seen.shared[NODE].store.all() == [
        {
            "kind": "Node",
            "metadata": {"name": "a", "uid": "a", "resourceVersion": "1"},
            "extended": ["nvidia.com/gpu"],
        }
    ]


def test_only_the_first_and_the_last_node_with_an_accelerator_are_news() -> None:
    seen = Observed(None, [Models()], "slipway-system")  # type: ignore[arg-type]
    assert put(seen, node("a", nvidia_com__gpu="2")) == [True]
    assert put(seen, node("b", nvidia_com__gpu="1")) == [False]
    later = node("a", nvidia_com__gpu="0")
    later["metadata"]["resourceVersion"] = "2"
    assert put(seen, later) == [False]
    nodes = seen.shared[NODE].store
    assert [seen.equips(change) for change in nodes.drop(Key("", "b"))] == [True]
    assert seen.extended_resources() == frozenset()
    assert put(seen, node("c")) == [False]


def used_by(
    seen: Observed, name: str, namespace: str = "models", maker: tuple[str, str] = ("", ""), **more: str
) -> None:
    """A pod that says that it uses weights, made by a workload of this kind and name."""
    kind, workload = maker
    references = [{"apiVersion": "apps/v1", "kind": kind, "name": workload, "uid": "2", "controller": True}]
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "annotations": {USES: "k=d"}} | more
    labels = {"labels": {"pod-template-hash": "abc"}, "ownerReferences": references if kind else []}
    seen.pods.store.put({"metadata": metadata | labels})


def serving(seen: Observed) -> Observed:
    """An InferenceService in each of two namespaces, with its Deployment; a Deployment and a Job of others."""
    owner = {"apiVersion": INFERENCE_SERVICE.api_version, "kind": INFERENCE_SERVICE.kind}
    for namespace in ("models", "others"):
        service = {"metadata": {"name": "chat", "namespace": namespace, "uid": f"s-{namespace}"}}
        seen.shared[INFERENCE_SERVICE].store.put(service)
        deployment = owned("chat", "chat", namespace)
        deployment["metadata"]["ownerReferences"][0] |= owner
        seen.children[DEPLOYMENT].store.put(deployment)
    seen.children[DEPLOYMENT].store.put(owned("foreign", "tiny"))
    seen.children[JOB].store.put(owned("foreign", "tiny"))
    return seen


def test_users_are_the_services_of_the_namespace_and_their_pods_that_say_what_they_use() -> None:
    seen = serving(Observed(None, LLMKUBE, "slipway-system"))  # type: ignore[arg-type]
    for namespace in ("models", "others"):
        used_by(seen, "reads", namespace, ("ReplicaSet", "chat-abc"))
    found = seen.users([INFERENCE_SERVICE], "models")
    assert [obj["metadata"]["uid"] for obj in found] == ["s-models", "models-reads"]
    assert seen.users([], "models") == []


def test_a_pod_of_nobody_or_of_anothers_workload_uses_nothing_whatever_its_annotation_says() -> None:
    seen = serving(Observed(None, LLMKUBE, "slipway-system"))  # type: ignore[arg-type]
    makers = [("", ""), ("ReplicaSet", "foreign-abc"), ("Job", "foreign"), ("ReplicaSet", "unknown-abc"), ("Job", "x")]
    for number, maker in enumerate(makers):
        used_by(seen, str(number), maker=maker)
    assert [obj["metadata"]["uid"] for obj in seen.users([INFERENCE_SERVICE], "models")] == ["s-models"]


def test_a_pod_that_ends_after_its_deployment_still_uses_what_it_reads() -> None:
    seen = serving(Observed(None, LLMKUBE, "slipway-system"))  # type: ignore[arg-type]
    used_by(seen, "drains", maker=("ReplicaSet", "gone-abc"), deletionTimestamp="2026-11-21T09:00:00Z")
    assert [pod["metadata"]["name"] for pod in seen.users([INFERENCE_SERVICE], "models")] == ["chat", "drains"]
