"""S7: files of nodes and models of others, by the tenant's pods, claims and volumes, and by Secrets of the operator.

All namespaces of the tenant are restricted, and models are loaded, served and mounted there.
"""

from __future__ import annotations

import json
from typing import Any

from tests.cluster.cluster import PATIENCE, TOKEN, Object, condition, wait
from tests.cluster.ome import ENGINES, JOBS, PLAIN, ROOT, folder

from .campaign import Attack
from .proofs import require_level, require_no_right, require_policy
from .scene import PREFIX, Scene, owner_of
from .second_tenant import digest_of_tiny, digests_of

OPERATORS, HUB = "operators", "hub"
"""Secrets of the operator in the namespace of the loads: for models of the cluster, and with the second tenant's
namespace before its name, for that one's models."""
GATED = "hf://acme/gated"
REFUSED = "does not let this account read acme/gated"
CLAIMS, MOUNTS = "slipway-controller-volumes-claims", "slipway-controller-volumes-mounts"
"""Admission policies."""
HOST_PATH = {"name": "node", "hostPath": {"path": ROOT}}
ROOT_USER = {**PLAIN, "runAsNonRoot": False, "runAsUser": 0}
LEVELS: list[tuple[str, Object, Object]] = [
    ("hostPath", {"volumes": [HOST_PATH]}, {"volumeMounts": [{"name": "node", "mountPath": "/node"}]}),
    ("hostNetwork=true", {"hostNetwork": True}, {}),
    ("hostPID=true", {"hostPID": True}, {}),
    ("runAsUser=0", {}, {"securityContext": ROOT_USER}),
    (
        "securityContext.privileged=true",
        {},
        {"securityContext": {**PLAIN, "allowPrivilegeEscalation": True, "privileged": True}},
    ),
]
"""What the restricted level says of a pod, and the fields of its spec and of its container."""
CHANGES: list[Object] = [
    {"finalizers": None},
    {"annotations": {"volume.kubernetes.io/selected-node": "other"}},
    {"labels": {"app.kubernetes.io/managed-by": None}},
]
WRITE = """
cat /model/tiny.gguf > /dev/null && echo it reads the model
touch /model/mine
rm -f /model/tiny.gguf
echo done
"""
READ_ONLY = "Read-only file system"


def _pod(name: str, container: Object, **spec: Any) -> Object:
    """One that the restricted level admits, unless the fields say otherwise."""
    plain = {"name": "c", "image": ENGINES, "command": ["sleep", "86400"], "securityContext": PLAIN}
    full = {"containers": [{**plain, **container}], "terminationGracePeriodSeconds": 0, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": full}


def _claim(name: str, **spec: Any) -> Object:
    full = {
        "accessModes": ["ReadOnlyMany"],
        "resources": {"requests": {"storage": "1Mi"}},
        "storageClassName": "",
        **spec,
    }
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": full}


def _mounting(name: str, claim: str, container: Object, **source: object) -> Object:
    volume = {"name": "model", "persistentVolumeClaim": {"claimName": claim, **source}}
    mount = {"name": "model", "mountPath": "/model"}
    return _pod(name, {"volumeMounts": [mount], **container}, volumes=[volume])


def _claims_of(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"


# Pods with more than the level of the namespace


def run_a_pod_with_files_or_rights_of_the_node(scene: Scene, turn: int) -> None:
    """Also where BaseModels are loaded onto nodes."""
    for namespace in (scene.home, scene.folders, scene.slow):
        for word, spec, container in LEVELS:
            answer = scene.tenant.send(
                "POST", f"/api/v1/namespaces/{namespace}/pods", _pod(f"node-{turn}", container, **spec)
            )
            require_level(answer, "restricted", word)


def change_the_level_of_a_namespace(scene: Scene, _turn: int) -> None:
    change = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
    for namespace in (scene.home, scene.folders, scene.slow, JOBS):
        answer = scene.tenant.send("PATCH", f"/api/v1/namespaces/{namespace}", change, "application/merge-patch+json")
        require_no_right(answer, "patch", "namespaces")


def run_in_the_operators_namespace(scene: Scene, turn: int) -> None:
    """There, pods have files of the node, and Jobs count as loads of models."""
    pod = _pod(f"loader-{turn}", {})
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"loader-{turn}"},
        "spec": {"template": {"spec": {**pod["spec"], "restartPolicy": "Never"}}},
    }
    require_no_right(scene.tenant.send("POST", f"/api/v1/namespaces/{JOBS}/pods", pod), "create", "pods")
    require_no_right(scene.tenant.send("POST", f"/apis/batch/v1/namespaces/{JOBS}/jobs", job), "create", "jobs")
    path = f"/api/v1/namespaces/{JOBS}/secrets"
    require_no_right(scene.tenant.send("GET", f"{path}/{OPERATORS}", None), "get", "secrets", [TOKEN])
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{scene.folders}.{OPERATORS}"}}
    require_no_right(scene.tenant.send("POST", path, secret), "create", "secrets")


# Volumes of others


def make_or_change_a_volume(scene: Scene, turn: int) -> None:
    path, name = "/api/v1/persistentvolumes", _volume(scene)["metadata"]["name"]
    spec = {"accessModes": ["ReadOnlyMany"], "capacity": {"storage": "1Mi"}, "hostPath": {"path": "/"}}
    body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"node-{turn}"}, "spec": spec}
    require_no_right(scene.tenant.send("POST", path, body), "create", "persistentvolumes")
    change = {"spec": {"claimRef": None}}
    answer = scene.tenant.send("PATCH", f"{path}/{name}", change, "application/merge-patch+json")
    require_no_right(answer, "patch", "persistentvolumes")
    require_no_right(scene.tenant.send("DELETE", f"{path}/{name}", {}), "delete", "persistentvolumes")


def bind_a_claim_to_another_tenants_volume(scene: Scene, turn: int) -> None:
    """By its name, by its label, and by annotations which say that Kubernetes bound the claim already."""
    volume = _volume(scene)
    name = volume["metadata"]["name"]
    by_label = {"matchLabels": {"slipway.inference/volume": name}}
    bound = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
    claims = [
        _claim(f"by-name-{turn}", volumeName=name),
        _claim(f"by-label-{turn}", selector=by_label),
        _claim(f"as-bound-{turn}", volumeName=name),
    ]
    claims[2]["metadata"]["annotations"] = bound
    for claim in claims:
        status, text = scene.tenant.send("POST", _claims_of(scene.home), claim)
        assert status == 201, f"the attack has no claim: {status} {text}"
    _wait_refused(scene, f"by-name-{turn}", "already bound to a different claim")
    _wait_refused(scene, f"by-label-{turn}", "no persistent volumes available for this claim")
    wait(
        "the claim that seems to be bound is lost",
        PATIENCE,
        lambda: _phase(scene, f"as-bound-{turn}"),
        lambda phase: phase == "Lost",
    )
    assert [_phase(scene, f"by-{way}-{turn}") for way in ("name", "label")] == ["Pending", "Pending"]
    _require_never_starts(scene, f"as-bound-{turn}", f"as-bound-{turn}")
    live = scene.cluster.get("PersistentVolume", "", name)
    assert live
    assert live["spec"]["claimRef"] == volume["spec"]["claimRef"]
    assert live["status"]["phase"] == "Bound"
    for claim in claims:
        scene.gone("PersistentVolumeClaim", scene.home, claim["metadata"]["name"])


def mount_another_tenants_claim(scene: Scene, turn: int) -> None:
    """Claims have names in their namespace only, and this one cannot be taken in another: see the next attack."""
    _require_never_starts(scene, f"borrows-{turn}", _volume(scene)["spec"]["claimRef"]["name"])


def take_the_name_of_a_models_claim(scene: Scene, turn: int) -> None:
    theirs = _volume(scene)["spec"]["claimRef"]["name"]
    for name in (theirs, f"{PREFIX}mallory-{turn}"):
        answer = scene.tenant.send("POST", _claims_of(scene.home), _claim(name, volumeName=theirs))
        require_policy(answer, CLAIMS, "are for claims of Slipway")


def _volume(scene: Scene) -> Object:
    """By which the second tenant's pods read its model."""
    volumes = [
        one
        for one in scene.cluster.list("PersistentVolume")
        if one["metadata"]["name"].startswith(PREFIX)
        and one["spec"]["claimRef"]["namespace"] == scene.second.namespace
        and one["spec"]["local"]["path"] == scene.second.folder
    ]
    assert len(volumes) == 1, f"not one volume of {scene.second.folder}: {volumes}"
    return volumes[0]


def _phase(scene: Scene, claim: str) -> str:
    live = scene.tenant.get("PersistentVolumeClaim", scene.home, claim)
    assert live, f"no claim {claim}"
    phase: str = live["status"].get("phase", "")
    return phase


def _wait_refused(scene: Scene, claim: str, message: str) -> None:
    """Kubernetes looked for a volume, and gives the claim none."""
    about = f"involvedObject.kind=PersistentVolumeClaim,involvedObject.name={claim}"

    def messages() -> str:
        return " ".join(event["message"] for event in scene.tenant.list("Event", scene.home, fields=about))

    wait(f"an Event has the reason why {claim} is not bound", PATIENCE, messages, lambda text: message in text)


def _require_never_starts(scene: Scene, name: str, claim: str) -> None:
    """The scheduler rejects a pod because of this claim, and names it."""
    pod = _mounting(name, claim, {}, readOnly=True)
    scene.create("Pod", scene.home, name, {"spec": pod["spec"]})
    wait(
        f"the scheduler rejects a pod with the claim {claim}",
        PATIENCE,
        lambda: condition(scene.tenant.get("Pod", scene.home, name) or {}, "PodScheduled"),
        lambda verdict: verdict.get("status") == "False" and f'persistentvolumeclaim "{claim}"' in verdict["message"],
    )
    scene.tenant.delete("Pod", scene.home, name, grace=0)
    scene.tenant.wait_gone("Pod", scene.home, name)


# The tenant's own claim for a model of the cluster


def write_to_a_model(scene: Scene, turn: int) -> None:
    """By a claim that is not read-only in the pod, and by one that is."""
    for source in ({}, {"readOnly": False}):
        pod = _mounting(f"writes-{turn}", scene.claim, {}, **source)
        answer = scene.tenant.send("POST", f"/api/v1/namespaces/{scene.home}/pods", pod)
        require_policy(answer, MOUNTS, "Set readOnly: true")
    name, script = f"reads-{turn}", {"command": ["sh", "-c", WRITE]}
    spec = {**_mounting(name, scene.claim, script, readOnly=True)["spec"], "restartPolicy": "Never"}
    scene.create("Pod", scene.home, name, {"spec": spec})
    wait(
        f"{name} ends",
        PATIENCE,
        lambda: (scene.tenant.get("Pod", scene.home, name) or {}).get("status", {}).get("phase"),
        lambda phase: phase == "Succeeded",
    )
    log = scene.tenant.logs(scene.home, name)
    assert "it reads the model" in log, f"the attack has no model: {log}"
    assert log.count(READ_ONLY) == 2, log
    assert digests_of(scene.node, folder(scene.second.cluster_model)) == {"tiny.gguf": digest_of_tiny()}
    scene.tenant.delete("Pod", scene.home, name, grace=0)


def change_or_delete_the_claim_of_a_model(scene: Scene, _turn: int) -> None:
    """Also as one of a collection. A claim without its finalizer would end while pods still use it."""
    path = f"{_claims_of(scene.home)}/{scene.claim}"
    for change in CHANGES:
        answer = scene.tenant.send("PATCH", path, {"metadata": change}, "application/merge-patch+json")
        require_policy(answer, CLAIMS, "Only Slipway may change its claims for models")
    collection = f"{_claims_of(scene.home)}?fieldSelector=metadata.name%3D{scene.claim}"
    for place in (path, collection):
        require_policy(scene.tenant.send("DELETE", place, {}), CLAIMS, "Only Slipway may delete its claims for models")
    live = scene.tenant.get("PersistentVolumeClaim", scene.home, scene.claim)
    assert live
    assert "deletionTimestamp" not in live["metadata"]


# Secrets of the operator


def load_with_secrets_of_the_operator(scene: Scene, turn: int) -> None:
    """A gated repository, with the name of a Secret that opens it: one for models of the cluster, and one of the
    second tenant, whose load with it succeeds."""
    for number, key in enumerate((OPERATORS, f"{scene.second.namespace}.{HUB}")):
        _require_secret_of_the_namespace(scene, f"gated-{turn}-{number}", key)
    scene.second.load_a_model(GATED, key=HUB)


def _require_secret_of_the_namespace(scene: Scene, name: str, key: str) -> None:
    path, secret = f"{ROOT}/{scene.folders}/{name}", f"{scene.folders}.{key}"
    scene.make_base_model(scene.folders, name, GATED, path=path, key=key)

    def message() -> str:
        model = scene.tenant.get("BaseModel", scene.folders, name) or {}
        assert TOKEN not in json.dumps(model), "the token is in the model"
        return " ".join(one.get("message", "") for one in model.get("status", {}).get("conditions", []))

    wait("the hub refuses the load", PATIENCE, message, lambda text: REFUSED in text and f"the Secret {secret}" in text)
    model = scene.tenant.get("BaseModel", scene.folders, name)
    assert model
    assert model["status"].get("state") == "Failed", model["status"]
    jobs = [job for job in scene.cluster.list("Job", JOBS) if owner_of(job).uid == model["metadata"]["uid"]]
    assert len(jobs) == 1, f"{len(jobs)} Jobs of {name}"
    assert _secrets_of(jobs[0]) == {secret}
    assert digests_of(scene.node, path) == {}
    scene.gone("BaseModel", scene.folders, name)


def _secrets_of(job: Object) -> set[str]:
    """That the containers of a Job read."""
    spec = job["spec"]["template"]["spec"]
    containers = [*spec["containers"], *spec.get("initContainers", [])]
    sources = [one.get("valueFrom", {}) for container in containers for one in container.get("env", [])]
    sources += [source for container in containers for source in container.get("envFrom", [])]
    sources += spec.get("volumes", [])
    places = [source.get("secretKeyRef") or source.get("secretRef") or source.get("secret") or {} for source in sources]
    return {name for one in places if (name := one.get("name") or one.get("secretName"))}


ATTACKS: list[Attack[Scene]] = [
    Attack("S7", run_a_pod_with_files_or_rights_of_the_node),
    Attack("S7", change_the_level_of_a_namespace),
    Attack("S7", run_in_the_operators_namespace),
    Attack("S7", make_or_change_a_volume),
    Attack("S7", bind_a_claim_to_another_tenants_volume),
    Attack("S7", mount_another_tenants_claim),
    Attack("S7", take_the_name_of_a_models_claim),
    Attack("S7", write_to_a_model),
    Attack("S7", change_or_delete_the_claim_of_a_model),
    Attack("S7", load_with_secrets_of_the_operator),
]
