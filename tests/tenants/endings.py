"""24: the tenant keeps files of others, by pods that seem to read them and never end."""

from __future__ import annotations

import hashlib

from tests.cluster.cluster import PATIENCE, Object, wait
from tests.cluster.ome import files, folder

from .campaign import Attack
from .scene import Scene, wait_running

IGNORE = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ignores', flush=True); time.sleep(9e4)"
)
DECADES = 1_000_000_000
"""Seconds."""


def keep_a_deleted_model_of_the_cluster(scene: Scene, turn: int) -> None:
    """The pod names the model's folder as the controller's own pods do, is being deleted, and does not end."""
    name = f"kept-{turn}"
    scene.ome.make_model(name)
    scene.ome.wait_model(name)
    _end_never(scene, name, folder(name))
    scene.ome.delete("ClusterBaseModel", "", name)
    scene.ome.wait_gone("ClusterBaseModel", "", name)
    assert files(scene.node, folder(name)) == []
    assert scene.tenant.get("Pod", scene.home, name), "the pod of the attack ended before the model"
    scene.tenant.delete("Pod", scene.home, name, grace=0)


def keep_a_deleted_model_of_another_tenant(scene: Scene, turn: int) -> None:
    name, path = f"stays-{turn}", f"{scene.second.folder}-kept-{turn}"
    model = f"kept-{turn}"
    scene.second.make_base_model(model, path=path)
    scene.second.wait_loaded(model, path)
    _end_never(scene, name, path)
    scene.cluster.delete("BaseModel", scene.second.namespace, model)
    scene.cluster.wait_gone("BaseModel", scene.second.namespace, model)
    assert files(scene.node, path) == []
    assert scene.tenant.get("Pod", scene.home, name), "the pod of the attack ended before the model"
    scene.tenant.delete("Pod", scene.home, name, grace=0)


def _end_never(scene: Scene, name: str, path: str) -> None:
    """A pod that is being deleted and does not end."""
    use = f"node:{hashlib.sha256(path.encode()).hexdigest()[:16]}"
    annotations = {"slipway.inference/uses": use}
    labels = {"app.kubernetes.io/managed-by": "slipway", "ome.io/inferenceservice": "kept", "component": "engine"}
    scene.create("Pod", scene.home, name, {"spec": _stubborn()}, annotations=annotations, labels=labels)
    wait_running(scene.tenant, scene.home, name)
    wait("it ignores signals", PATIENCE, lambda: "ignores" in scene.tenant.logs(scene.home, name))
    scene.tenant.delete("Pod", scene.home, name, grace=DECADES)
    pod = scene.tenant.get("Pod", scene.home, name)
    assert pod
    assert pod["metadata"]["deletionTimestamp"] > "2050", "the pod does not end in decades"


def _stubborn() -> Object:
    container: Object = {
        "name": "stays",
        "image": "slipway/slipway:0.4.0",
        "command": ["python", "-c", IGNORE],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {
        "containers": [container],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
    }


ATTACKS: list[Attack[Scene]] = [
    Attack("24", keep_a_deleted_model_of_the_cluster),
    Attack("24", keep_a_deleted_model_of_another_tenant),
]
