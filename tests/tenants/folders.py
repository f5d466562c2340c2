"""S1: a BaseModel names the folder of another model, to replace, remove, read or occupy its files."""

from __future__ import annotations

from tests.cluster.cluster import PATIENCE, Object, wait
from tests.cluster.llmkube import Shelf
from tests.cluster.ome import BASE, JOBS, ROOT, TINY, on_node

from .campaign import Attack
from .proofs import require_rejected
from .scene import STORES, Scene, owner_of
from .second_tenant import digest_of_tiny, digests_of

BUCKET = "http://mallory.test-stores.svc:9000"
"""An S3 server of the hostile tenant, where the operator allows all of `*.test-stores.svc`."""


def _require_refused(scene: Scene, name: str, source: str, reason: str, *words: str, path: str | None = None) -> None:
    """Nothing is loaded for such a model, and no node is labelled with it."""
    scene.make_base_model(scene.folders, name, source, **({"path": path} if path else {}))
    model = scene.decided("BaseModel", scene.folders, name)
    require_rejected(model, reason, *words)
    assert model["status"].get("state") == "Failed", model["status"]
    jobs = [
        job["metadata"]["name"]
        for job in scene.cluster.list("Job", JOBS)
        if owner_of(job).uid == model["metadata"]["uid"]
    ]
    assert jobs == [], f"a Job was created for {name}"
    assert not [one for one in scene.records(scene.folders) if one.endswith(f".{name}")], "the node has a record"
    scene.gone("BaseModel", scene.folders, name)


NO_PATH = "is not in a node directory that the operator allows"


def name_the_folder_of_another_model(scene: Scene, turn: int) -> None:
    _require_refused(scene, f"same-{turn}", TINY, "PathNotAllowed", NO_PATH, path=scene.second.folder)


def name_the_parent_of_another_models_folder(scene: Scene, turn: int) -> None:
    """The source would then contain the other model's folder, with its marker."""
    path = f"{ROOT}/{scene.second.namespace}"
    _require_refused(scene, f"parent-{turn}", TINY, "PathNotAllowed", NO_PATH, path=path)


def name_a_folder_inside_another_models(scene: Scene, turn: int) -> None:
    """When this model is deleted, the folder is removed."""
    path = f"{scene.second.folder}/inside"
    _require_refused(scene, f"inside-{turn}", TINY, "PathNotAllowed", NO_PATH, path=path)


def name_the_folder_of_a_model_of_the_cluster(scene: Scene, turn: int) -> None:
    path = f"{ROOT}/{scene.second.cluster_model}"
    _require_refused(scene, f"cluster-{turn}", TINY, "PathNotAllowed", NO_PATH, path=path)


def leave_the_own_folder_by_dots(scene: Scene, turn: int) -> None:
    path = f"{ROOT}/{scene.folders}/../{scene.second.namespace}/{scene.second.name}"
    _require_refused(scene, f"dots-{turn}", TINY, "PathNotAllowed", NO_PATH, path=path)


def read_other_models_as_local_files(scene: Scene, turn: int) -> None:
    sources = [ROOT, f"{ROOT}/{scene.second.namespace}", scene.second.folder, "/etc/kubernetes", "/"]
    for number, path in enumerate(sources):
        words = [NO_PATH] if path != "/" else []
        _require_refused(scene, f"local-{turn}-{number}", f"local://{path}", "PathNotAllowed", *words)


def occupy_the_folder_of_a_later_model_of_the_cluster(scene: Scene, turn: int) -> None:
    """The operator's model gets the folder and only its own files, although others are there already."""
    name, path = f"squat-{turn}", f"{ROOT}/{scene.folders}/squat-{turn}"
    scene.make_base_model(scene.folders, name, BASE, path=path)
    scene.decided("BaseModel", scene.folders, name, "OnNodes", "Available")
    assert "config.json" in digests_of(scene.node, path), "the attack has no files there"
    scene.ome.make_model(name, TINY, storage={"path": path})
    try:
        scene.ome.wait_model(name)
        model = scene.decided("BaseModel", scene.folders, name, "PathTaken")
        require_rejected(model, "PathTaken", f"The ClusterBaseModel {name} already uses the directory")
        assert digests_of(scene.node, path) == {"tiny.gguf": digest_of_tiny()}
    finally:
        scene.ome.delete("ClusterBaseModel", "", name)
    scene.gone("BaseModel", scene.folders, name)
    scene.ome.wait_gone("ClusterBaseModel", "", name)


def bring_the_marker_of_another_model(scene: Scene, turn: int) -> None:
    """The bucket has a folder with a marker, as another model's folder has one."""
    name, path = f"marker-{turn}", f"{ROOT}/{scene.folders}/marker-{turn}"
    scene.make_base_model(scene.folders, name, "s3://planted/", path=path, key="bucket")
    model = wait(
        "the load failed",
        PATIENCE,
        lambda: scene.tenant.get("BaseModel", scene.folders, name) or {},
        lambda seen: seen.get("status", {}).get("state") == "Failed",
    )
    message = " ".join(one["message"] for one in model["status"]["conditions"])
    assert "names that begin with .slipway are reserved for the loader" in message, message
    planted = on_node(scene.node, f"find {path} -path '*/victim/*' 2>/dev/null || true")
    assert planted == "", f"files of the bucket are on the node: {planted}"
    scene.gone("BaseModel", scene.folders, name)


def have_files_without_a_digest_reused(scene: Scene, turn: int) -> None:
    """The web server gave the hostile tenant other bytes than it gives the second one."""
    shelf, name = Shelf(scene.cluster, f"mallory/{turn}"), f"reuse-{turn}"
    shelf.change(edition=turn + 2)
    scene.make_base_model(scene.folders, name, shelf.url, path=f"{ROOT}/{scene.folders}/{name}")
    scene.decided("BaseModel", scene.folders, name, "OnNodes", "Available")
    foreign = set(digests_of(scene.node, f"{ROOT}/{scene.folders}/{name}").values())
    assert foreign == {shelf.look()["sha256"]}, "the attack has no other bytes"
    assert foreign != {digest_of_tiny()}
    shelf.change(edition=1)
    scene.second.load_a_model(shelf.url, expected=shelf.look()["sha256"], downloadPolicy="ReuseIfExists")
    scene.gone("BaseModel", scene.folders, name)


ATTACKS: list[Attack[Scene]] = [
    Attack("S1", name_the_folder_of_another_model),
    Attack("S1", name_the_parent_of_another_models_folder),
    Attack("S1", name_a_folder_inside_another_models),
    Attack("S1", name_the_folder_of_a_model_of_the_cluster),
    Attack("S1", leave_the_own_folder_by_dots),
    Attack("S1", read_other_models_as_local_files),
    Attack("S1", occupy_the_folder_of_a_later_model_of_the_cluster),
    Attack("S1", bring_the_marker_of_another_model),
    Attack("S1", have_files_without_a_digest_reused),
]


def bucket() -> list[Object]:
    """The hostile tenant's S3 server, among those that play the internet: a ConfigMap, a Deployment and a Service."""
    place = {"name": "mallory", "namespace": STORES}
    marker = '{"url": "hf://acme/tiny", "revision": "1", "files": {"tiny.gguf": 1}}'
    items = [
        {"key": "config", "path": "planted/config.json"},
        {"key": "marker", "path": "planted/victim/.slipway-complete"},
        {"key": "config", "path": "planted/victim/config.json"},
    ]
    container = {
        "name": "s3",
        "image": "slipway/test-engines:1",
        "command": ["python3", "-m", "standin.s3", "/objects"],
        "env": [
            {"name": "AWS_ACCESS_KEY_ID", "value": "mallory"},
            {"name": "AWS_SECRET_ACCESS_KEY", "value": "mallory"},
        ],
        "volumeMounts": [{"name": "objects", "mountPath": "/objects"}],
    }
    volume = {"name": "objects", "configMap": {"name": "mallory", "items": items}}
    pod = {"terminationGracePeriodSeconds": 1, "containers": [container], "volumes": [volume]}
    template = {"metadata": {"labels": {"app": "mallory"}}, "spec": pod}
    return [
        {"kind": "ConfigMap", "metadata": place, "data": {"config": '{"model_type": "opt"}', "marker": marker}},
        {
            "kind": "Deployment",
            "metadata": place,
            "spec": {"selector": {"matchLabels": {"app": "mallory"}}, "template": template},
        },
        {"kind": "Service", "metadata": place, "spec": {"selector": {"app": "mallory"}, "ports": [{"port": 9000}]}},
    ]
