"""S2, S3, S8 and 14: the tenant keeps the controller, the nodes and the registry from others, by loads that never end
and by many resources."""

from __future__ import annotations

from collections.abc import Callable

from kubernetes.dynamic.exceptions import ConflictError

from tests.cluster.cluster import PATIENCE, Object, condition, wait
from tests.cluster.llmkube import Shelf
from tests.cluster.ome import PLAIN, ROOT

from .campaign import Attack
from .scene import Scene
from .second_tenant import DECKHOUSE

ENDLESS = 6
"""Models of one namespace whose source sends 100 bytes a second."""
LOADS_OF_ONE, PUBLICATIONS_OF_ONE = 2, 3
"""Turns that one namespace gets on a node (of 3) and in the registry (of 4)."""
AT_ONCE = 30
"""Resources that a turn of an attack creates."""
MOST_WAVES = 10
"""After which a flood changes what it has: the API server of the test cluster has little memory."""
RECORDS = 90
"""Models without files: a node records about 60 of a namespace with a short name."""
SHARE_OF_A_NODE = 48 << 10
"""Bytes: the share of a namespace in a node's annotations is 32 KiB, and a record may be the last one within it."""


def load_without_end(scene: Scene, turn: int) -> None:
    """Two of the loads run, the others wait, and a load of the second tenant comes and goes on the same node."""
    if turn == 0:
        for number in range(ENDLESS):
            shelf = Shelf(scene.cluster, f"endless/{number}")
            shelf.change(bytesPerSecond=100)
            path = f"{ROOT}/{scene.slow}/endless-{number}"
            scene.make_base_model(scene.slow, f"endless-{number}", shelf.url, path=path)
    wait("the endless loads run", PATIENCE, lambda: _reasons(scene).count("Loading") == LOADS_OF_ONE)
    before = {job["metadata"]["uid"] for job in scene.loads(scene.slow)}
    assert len(before) == LOADS_OF_ONE, f"{len(before)} loads of one namespace run"
    scene.second.load_a_model()
    after = {job["metadata"]["uid"] for job in scene.loads(scene.slow)}
    assert after == before, "the loads of the attack did not run all the time"
    assert sorted(_reasons(scene)) == ["Loading"] * LOADS_OF_ONE + ["WaitingForTurn"] * (ENDLESS - LOADS_OF_ONE)


def _reasons(scene: Scene) -> list[str]:
    return [condition(model, "Available").get("reason", "") for model in scene.tenant.list("BaseModel", scene.slow)]


def forge_jobs_that_load(scene: Scene, turn: int) -> None:
    """They look like the controller's for a model of the second tenant, on its node, and their pods wait forever. Only
    Jobs of the operator's namespace are loads."""
    model = scene.cluster.get("BaseModel", scene.second.namespace, scene.second.name)
    assert model
    place = f"{scene.second.namespace}/{scene.second.name}"
    owner = f"ome.io/v1beta1 BaseModel {place} {model['metadata']['uid']}"
    names = [f"forged-load-{turn}-{number}" for number in range(LOADS_OF_ONE * 3)]
    for name in names:
        spec = {"template": {"spec": _loader(scene.node, scene.second.folder)}}
        labels, annotations = {"app.kubernetes.io/managed-by": "slipway"}, {"slipway.inference/owner": owner}
        scene.create("Job", scene.home, name, {"spec": spec}, labels=labels, annotations=annotations)
    scene.second.load_a_model()
    for name in names:
        live = scene.tenant.get("Job", scene.home, name)
        assert live, f"the Job {name} of the attack was deleted"
        assert not live["status"].get("succeeded"), "the attack's load ended"
        scene.tenant.delete("Job", scene.home, name)


def _loader(node: str, path: str) -> Object:
    """A pod that loads files onto a node, by its words, and is never scheduled."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    container = {
        "name": "loader",
        "image": "slipway/slipway:0.4.0",
        "args": ["loader", "stage", "hf://acme/tiny", path],
        "securityContext": PLAIN,
    }
    return {
        "containers": [container],
        "restartPolicy": "Never",
        "nodeSelector": {"slipway.test/none": "none"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
    }


def publish_without_end(scene: Scene, turn: int) -> None:
    """Ollama's library does not answer here: the publications never end. A model of the second tenant is published."""
    if turn == 0:
        for number in range(ENDLESS):
            spec = {"source": {"url": f"https://ollama.com/library/mallory:{number}"}}
            scene.create(DECKHOUSE, scene.home, f"endless-{number}", {"spec": spec})

    def phases() -> list[str]:
        models = [scene.tenant.get(DECKHOUSE, scene.home, f"endless-{number}") for number in range(ENDLESS)]
        return [(model or {}).get("status", {}).get("phase", "") for model in models]

    wait("a publication of the attack has begun", PATIENCE, lambda: {"Publishing", "Failed"} & set(phases()))
    assert phases().count("Publishing") <= PUBLICATIONS_OF_ONE, phases()
    scene.second.publish_a_model()
    assert phases().count("Publishing") <= PUBLICATIONS_OF_ONE, phases()


def forge_jobs_that_publish(scene: Scene, turn: int) -> None:
    """They look like the controller's, and belong to a Model that waits. Turns follow from the status alone."""
    name = f"forged-{turn}"
    source = {"catalog": {"name": "none"}}
    model = scene.create(DECKHOUSE, scene.home, name, {"spec": {"source": source}})
    for number in range(PUBLICATIONS_OF_ONE * 3):
        _make_job(scene, f"{name}-publish-{number}", model)
    scene.second.publish_a_model()
    live = scene.tenant.get(DECKHOUSE, scene.home, name)
    assert live
    assert live["status"].get("phase") != "Publishing", live["status"]
    for number in range(PUBLICATIONS_OF_ONE * 3):
        scene.tenant.delete("Job", scene.home, f"{name}-publish-{number}")
    scene.gone(DECKHOUSE, scene.home, name)


def _make_job(scene: Scene, name: str, owner: Object) -> None:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    container = {
        "name": "load",
        "image": "slipway/slipway:0.4.0",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        "containers": [container],
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    labels = {"app.kubernetes.io/managed-by": "slipway"}
    spec = {"suspend": True, "template": {"spec": pod}}
    scene.create("Job", scene.home, name, {"spec": spec}, labels=labels, ownerReferences=[reference])


def flood_with_models_on_claims(scene: Scene, turn: int) -> None:
    """They wait for claims that do not exist, and cost their author nothing."""
    _flood(scene, "BaseModel", "claims", turn, lambda at: {"storage": {"storageUri": f"pvc://none-{at}/x"}})
    scene.second.has_a_turn("ome")


def flood_with_models_that_wait_for_a_catalog(scene: Scene, turn: int) -> None:
    _flood(scene, DECKHOUSE, "catalog", turn, lambda at: {"source": {"catalog": {"name": f"none-{at}"}}})
    scene.second.has_a_turn("deckhouse")


def flood_with_models(scene: Scene, turn: int) -> None:
    """Each change brings all of them into the work queue again."""
    spec = {"url": "hf://mallory/none", "engine": "VLLM", "features": ["TextGeneration"], "minReplicas": 0}
    _flood(scene, "Model.kubeai.org", "many", turn, lambda at: {**spec, "resourceProfile": f"none-{at}:1"})
    scene.second.has_a_turn("kubeai")


def _flood(scene: Scene, kind: str, prefix: str, turn: int, spec: Callable[[int], Object]) -> None:
    for number in range(AT_ONCE):
        name = f"{prefix}-{turn % MOST_WAVES}-{number}"
        try:
            scene.create(kind, scene.home, name, {"spec": spec(turn)})
        except ConflictError:
            scene.tenant.patch(kind, scene.home, name, {"metadata": {"annotations": {"turn": str(turn)}}})


def fill_the_annotations_of_nodes(scene: Scene, turn: int) -> None:
    """Models without files are recorded on each node until the namespace has its share."""
    if turn == 0:
        for number in range(RECORDS):
            scene.make_base_model(scene.home, f"record-{number}", "vendor://mallory")

    def without_room() -> list[str]:
        models = [scene.tenant.get("BaseModel", scene.home, f"record-{number}") or {} for number in range(RECORDS)]
        verdicts = [condition(model, "Available") for model in models]
        return [one["message"] for one in verdicts if one.get("reason") == "NodeFull"]

    messages = wait("the node has no room for more", PATIENCE, without_room, lambda full: len(full) >= RECORDS // 6)
    assert all(f"cannot record more models of the namespace {scene.home}" in one for one in messages), messages
    records = scene.records(scene.home)
    size = sum(len(name) + len(text) for name, text in records.items())
    assert 0 < len(records) < RECORDS, f"{len(records)} records"
    assert size <= SHARE_OF_A_NODE, f"{size} bytes"
    scene.second.has_a_turn("ome")
    scene.second.load_a_model()


ATTACKS: list[Attack[Scene]] = [
    Attack("S2", load_without_end),
    Attack("S2", forge_jobs_that_load),
    Attack("S2", publish_without_end),
    Attack("S2", forge_jobs_that_publish),
    Attack("S3", flood_with_models_on_claims),
    Attack("S3", flood_with_models_that_wait_for_a_catalog),
    Attack("S8", fill_the_annotations_of_nodes),
    Attack("14", flood_with_models),
]
