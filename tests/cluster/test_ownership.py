"""What is ours and what is not: names that others have, fields that others edit, models of one name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openai
import pytest

from .cluster import PATIENCE, Cluster, Object, condition, container, holds, our_writes, owners, unique, wait

FOREIGN: dict[str, Object] = {
    "Deployment": {
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "foreign"}},
            "template": {
                "metadata": {"labels": {"app": "foreign"}},
                "spec": {"containers": [{"name": "main", "image": "foreign"}]},
            },
        }
    },
    "Service": {"spec": {"ports": [{"port": 1234}]}},
    "ServiceAccount": {},
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_an_object_of_another_owner_is_never_adopted(cluster: Cluster, namespace: str, kind: str) -> None:
    name = unique("taken")
    foreign = cluster.create({"kind": kind, "metadata": {"name": name, "namespace": namespace}, **FOREIGN[kind]})
    cluster.make_model(namespace, name)
    refusal = cluster.wait_condition(namespace, name, "Accepted", "False", "NameTaken")
    assert kind in refusal["message"]

    def untouched(seen: Object | None) -> bool:
        return seen is not None and not owners(seen) and identify(seen) == identify(foreign)

    holds("it stays unchanged", 2, lambda: cluster.get(kind, namespace, name), untouched)
    cluster.delete(kind, namespace, name)
    cluster.wait_ready(namespace, name)


def identify(child: Object) -> tuple[str, Object, Object]:
    """What its owner wrote, and which object it is."""
    return child["metadata"]["uid"], child["metadata"].get("labels", {}), child.get("spec", {})


def test_an_edit_of_our_fields_is_put_back_once(cluster: Cluster, namespace: str) -> None:
    name = unique("edited")
    cluster.make_model(namespace, name)
    cluster.wait_ready(namespace, name)
    before = cluster.children(namespace, name)["Deployment"]
    labels = {"metadata": {"labels": {"team": "blue"}, "annotations": {"note": "by hand"}}}
    cluster.patch("Deployment", namespace, name, labels | {"spec": {"replicas": 3}})

    def deployment() -> Object:
        return cluster.children(namespace, name)["Deployment"]

    restored = wait("the replicas are put back", PATIENCE, deployment, lambda seen: seen["spec"]["replicas"] == 1)
    assert restored["metadata"]["labels"]["team"] == "blue"
    assert restored["metadata"]["annotations"]["note"] == "by hand"
    # One generation for the edit, one for the repair, and none after it.
    expected = before["metadata"]["generation"] + 2
    holds("there are no further writes", 4, deployment, lambda seen: seen["metadata"]["generation"] == expected)


def test_a_child_that_is_deleted_by_hand_comes_back(cluster: Cluster, namespace: str) -> None:
    name = unique("removed")
    cluster.make_model(namespace, name)
    cluster.wait_ready(namespace, name)
    for kind, child in cluster.children(namespace, name).items():
        uid = child["metadata"]["uid"]
        cluster.delete(kind, namespace, name)
        wait(
            f"a new {kind}",
            PATIENCE,
            lambda kind=kind: cluster.get(kind, namespace, name),
            lambda seen, uid=uid: bool(seen) and seen["metadata"]["uid"] != uid,
        )
    cluster.wait_ready(namespace, name)


def test_a_controller_without_changes_writes_nothing(cluster: Cluster, namespace: str) -> None:
    name = unique("quiet")
    cluster.make_model(namespace, name)
    cluster.wait_ready(namespace, name)

    def writes() -> dict[str, Any]:
        objects: dict[str, Any] = {"Model": cluster.model(namespace, name), **cluster.children(namespace, name)}
        return {kind: our_writes(instance) for kind, instance in objects.items()}

    settled = writes()
    holds("Slipway writes nothing", 8, writes, lambda seen: seen == settled)


def test_the_older_of_two_models_has_their_name(
    cluster: Cluster, new_namespace: Callable[[], str], gateway_url: str
) -> None:
    name, older, younger = unique("rival"), new_namespace(), new_namespace()
    cluster.make_model(older, name)
    cluster.wait_ready(older, name)
    # Their answers tell the two engines apart: only the younger one has embeddings.
    cluster.make_model(younger, name, args=["--embedding", "--pooling", "mean"])
    conflict = cluster.wait_condition(younger, name, "Routed", "False", "NameConflict")
    assert f"{older}/{name}" in conflict["message"]
    cluster.wait_ready(younger, name)
    assert condition(cluster.model(older, name), "Routed")["status"] == "True"
    wait(
        "an Event",
        PATIENCE,
        lambda: [event["reason"] for event in cluster.events(younger, name)],
        lambda seen: "NameConflict" in seen,
    )

    cluster.wait_routed(older, name)
    cluster.wait_routed(younger, f"{younger}/{name}")
    assert embedded(gateway_url, name) == 404
    assert embedded(gateway_url, f"{older}/{name}") == 404
    assert embedded(gateway_url, f"{younger}/{name}") == 200

    cluster.delete("Model", older, name)
    cluster.wait_condition(younger, name, "Routed", "True", "Routed")
    wait("the younger one has the name", PATIENCE, lambda: embedded(gateway_url, name), lambda status: status == 200)


def request_chat(url: str, model: str) -> int:
    """The status that a chat with this model ends with."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    try:
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": "hi"}], max_tokens=1)
    except openai.APIStatusError as error:
        return error.status_code
    return 200


def embedded(url: str, model: str) -> int:
    """The status that a request for embeddings ends with."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    try:
        client.embeddings.create(model=model, input="hi", encoding_format="float")
    except openai.APIStatusError as error:
        return error.status_code
    return 200


def test_a_service_made_by_hand_is_routed_too(cluster: Cluster, namespace: str, gateway_url: str) -> None:
    name = unique("byhand")
    cluster.make_model(namespace, name)
    cluster.wait_ready(namespace, name)
    other = f"{name}-too"
    cluster.create(
        {
            "kind": "Service",
            "metadata": {"name": other, "namespace": namespace, "labels": {"slipway.inference/route": "true"}},
            "spec": {"selector": {"krypton.ai/model": name}, "ports": [{"port": 80, "targetPort": 8080}]},
        }
    )
    cluster.wait_routed(namespace, other)
    wait("it answers", PATIENCE, lambda: request_chat(gateway_url, other), lambda status: status == 200)
    assert container(cluster.children(namespace, name)["Deployment"])["name"] == "llama-server"
