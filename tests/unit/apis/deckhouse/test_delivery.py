"""What a workload gets that asks for models by its annotations, and what is left of that afterwards."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest

from slipway.apis.deckhouse import names
from slipway.apis.deckhouse.delivery import users
from slipway.apis.deckhouse.delivery.workloads import DELIVERY, MODELS_DIR
from slipway.kube.caches.store import Change, Store, Stores
from slipway.kube.objects import (
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    NODE,
    STATEFUL_SET,
    Key,
    Kind,
    Object,
    key,
    metadata_of,
)
from slipway.kube.values.times import unix_time
from slipway.serving.contract.delivery import OBSERVED, WORKLOADS, DeliveryWorld, Outcome, operations, template_of
from slipway.serving.contract.settings import Settings
from slipway.serving.wire.depot_token import Claim, TokenError, verify_token
from slipway.weights.delivery.image_volumes import LIFE, RENEWAL
from slipway.weights.delivery.image_volumes import NAMESPACES as NAMESPACE_WATCH
from slipway.weights.delivery.shared_claim import FILLED

NAMESPACE, NAMESPACES = "ai-demo", NAMESPACE_WATCH.kind
SECRET_KEY = bytes(range(32))
GIB = 1 << 30
NOW = unix_time("2026-11-23T00:01:00Z")
OWN = {"registry": "registry:5000", "depotUrl": "https://depot:8443"}
IMAGES = {**OWN, "delivery": "ImageVolume", "nodeRegistry": "node.example:5000", "image": True}
ENV = ("AI_MODELS_MODELS_DIR", "AI_MODELS_MODELS")


def digest(letter: str) -> str:
    return f"sha256:{letter * 64}"


def model(name: str, letter: str, kind: Kind = names.MODEL, phase: str = "Ready", **metadata: Any) -> Object:
    place = {"namespace": NAMESPACE} if kind.namespaced else {}
    status = {
        "phase": phase,
        "artifact": {"digest": digest(letter), "sizeBytes": 3 * GIB},
        "resolved": {"family": "llama"},
    }
    given = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", **place, **metadata}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": given, "status": status}


def pod() -> Object:
    return {
        "volumes": [{"name": "own", "emptyDir": {}}],
        "initContainers": [{"name": "first", "image": "i"}],
        "containers": [
            {"name": "app", "image": "i", "env": [{"name": "E", "value": "e"}]}
            | {"volumeMounts": [{"name": "own", "mountPath": "/own"}]},
            {"name": "beside", "image": "i"},
        ],
        "nodeSelector": {"gpu": "yes"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    }


def workload(kind: Kind = DEPLOYMENT, name: str = "w", **annotations: str) -> Object:
    model_annotations = {f"{names.GROUP}/{one}": text for one, text in annotations.items()}
    template = {"metadata": {"labels": {"app": name}, "annotations": {"own": "x"}}, "spec": pod()}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    if kind == CRON_JOB:
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "resourceVersion": "7"}
        | {"generation": 1, "annotations": {"own": "y", **model_annotations}},
        "spec": spec,
        "status": {"observedGeneration": 1},
    }


def namespace(uid: str = "uid-ns") -> Object:
    return {"kind": NAMESPACES.kind, "metadata": {"name": NAMESPACE, "uid": uid, "resourceVersion": "1"}}


class Place:
    """A cluster in which outcomes become true at once."""

    def __init__(self, *models: Object, own: Object | None = None) -> None:
        self.stores = {kind: Store() for kind in (names.MODEL, names.CLUSTER_MODEL, NODE, NAMESPACES)}
        self.put(namespace())
        self.claims: dict[str, Object] = {}
        self.jobs: dict[str, Object] = {}
        self.settings = Settings(apis={"deckhouse": own or OWN}, loader_image="slipway:test")
        self.now = NOW
        self.pods: list[Object] = []
        self.made = 0
        for one in models:
            self.put(one)

    def put(self, obj: Object) -> None:
        kind = next(one for one in self.stores if one.kind == obj["kind"])
        self.stores[kind].drop(key(obj))
        list(self.stores[kind].put(obj))

    def outcome(self, kind: Kind, workload: Object) -> Outcome:
        return DELIVERY.deliver(
            DeliveryWorld(
                kind=kind,
                workload=workload,
                claims=self.claims,
                jobs=self.jobs,
                pods=lambda _job: self.pods,
                listers=Stores(self.stores),
                settings=self.settings,
                now=self.now,
                file=lambda _path: SECRET_KEY,
            )
        )

    def step(self, kind: Kind, before: Object) -> Object:
        """Reconciles once. Returns the resulting workload."""
        outcome = self.outcome(kind, before)
        kept = {key(claim).name for claim in outcome.claims}
        for claim in outcome.claims:
            self.made += 1
            claim["metadata"].setdefault("uid", f"claim-{self.made}")
            self.claims[key(claim).name] = {"status": {"phase": "Bound"}, **claim}
        for name in [name for name in self.claims if name not in kept]:
            owners = self.claims[name]["metadata"]["ownerReferences"]
            owners[:] = [one for one in owners if one["uid"] != before["metadata"]["uid"]]
            if not owners:
                del self.claims[name]
        for job in outcome.finished_jobs:
            self.jobs.pop(key(job).name)
        for job in outcome.jobs:
            self.jobs.setdefault(key(job).name, {**job, "metadata": {**job["metadata"], "uid": f"job-{key(job).name}"}})
        after = copy.deepcopy(outcome.workload)
        if template_of(kind, after) != template_of(kind, before):
            after["metadata"]["generation"] += 1
            after["status"] = {"observedGeneration": after["metadata"]["generation"]}
        return after

    def finish_jobs(self, how: str = "Complete") -> None:
        ended = {"type": how, "status": "True", "lastTransitionTime": "2026-11-23T00:00:00Z"}
        for job in self.jobs.values():
            job["status"] = {"conditions": [ended]}

    def deliver(self, kind: Kind, workload: Object) -> Object:
        """Goes on until nothing more is to be done."""
        for _unused in range(20):
            after = self.step(kind, workload)
            if after == workload and not self.jobs and self.step(kind, after) == workload:
                return after
            workload = after
            self.finish_jobs()
        raise AssertionError("comes to no rest")


def containers(kind: Kind, obj: Object) -> list[Object]:
    spec = template_of(kind, obj)["spec"]
    return [*spec["initContainers"], *spec["containers"]]


def env(container: Object) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container.get("env", [])}


def mounts(container: Object) -> dict[str, Object]:
    return {one["mountPath"]: one for one in container.get("volumeMounts", [])}


def blocked(obj: Object) -> str | None:
    reason: str | None = obj["metadata"]["annotations"].get(names.BLOCKED_REASON)
    return reason


@pytest.mark.parametrize("kind", WORKLOADS, ids=lambda kind: kind.kind)
def test_every_container_gets_the_models_read_only_by_one_claim(kind: Kind) -> None:
    place = Place(model("bge-m3", "a"), model("gemma", "b", names.CLUSTER_MODEL))
    after = place.deliver(kind, workload(kind, model="bge-m3", clustermodel="gemma"))
    for container in containers(kind, after):
        variables = env(container)
        assert variables["AI_MODELS_MODELS_DIR"] == "/data/modelcache/models"
        assert json.loads(variables["AI_MODELS_MODELS"]) == [
            {"name": name, "path": f"{MODELS_DIR}/{name}", "digest": digest(letter), "family": "llama"}
            for name, letter in (("bge-m3", "a"), ("gemma", "b"))
        ]
        volume_mounts = mounts(container)
        assert {volume_mounts[f"{MODELS_DIR}/{name}"]["readOnly"] for name in ("bge-m3", "gemma")} == {True}
        assert volume_mounts[f"{MODELS_DIR}/gemma"]["subPath"] == f"sha256-{'b' * 64}"
    (claim,) = place.claims.values()
    volume = template_of(kind, after)["spec"]["volumes"][-1]
    assert volume == {
        "name": "ai-models-shared-pvc",
        "persistentVolumeClaim": {"claimName": claim["metadata"]["name"], "readOnly": True},
    }
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["spec"]["resources"] == {"requests": {"storage": "7Gi"}}
    assert blocked(after) is None
    assert not place.jobs


def test_the_template_says_what_was_delivered() -> None:
    after = Place(model("bge-m3", "a")).deliver(DEPLOYMENT, workload(model="bge-m3"))
    annotations = template_of(DEPLOYMENT, after)["metadata"]["annotations"]
    assert annotations[f"{names.RESOLVED}digest"] == digest("a")
    assert annotations[f"{names.RESOLVED}artifact-uri"] == (
        f"registry:5000/namespaced/ai-demo/bge-m3/uid-bge-m3@{digest('a')}"
    )
    assert annotations[f"{names.RESOLVED}delivery-mode"] == "SharedPVC"
    assert annotations[f"{names.RESOLVED}delivery-reason"] == "RWXSharedVolume"
    assert annotations[f"{names.RESOLVED}artifact-family"] == "llama"


def test_nothing_but_the_delivery_is_changed_and_all_of_it_is_taken_out_again() -> None:
    place, before = Place(model("bge-m3", "a")), workload(model="bge-m3")
    template_of(DEPLOYMENT, before)["spec"]["schedulingGates"] = [{"name": names.GATE}, {"name": "others"}]
    original = copy.deepcopy(before)
    after = place.deliver(DEPLOYMENT, before)
    assert before == original
    assert template_of(DEPLOYMENT, after)["spec"]["schedulingGates"] == [{"name": "others"}]
    del after["metadata"]["annotations"][names.USES_MODEL]
    cleaned_workload = place.deliver(DEPLOYMENT, after)
    del original["metadata"]["annotations"][names.USES_MODEL]
    template_of(DEPLOYMENT, original)["spec"]["schedulingGates"] = [{"name": "others"}]
    assert template_of(DEPLOYMENT, cleaned_workload) == template_of(DEPLOYMENT, original)
    assert cleaned_workload["metadata"]["annotations"] == original["metadata"]["annotations"]
    assert place.claims == {}


def test_delivered_items_keep_their_positions_in_lists() -> None:
    """A template in another order is another template, which replaces pods."""
    place = Place(model("bge-m3", "a"))
    after = place.deliver(DEPLOYMENT, workload(model="bge-m3"))
    spec = template_of(DEPLOYMENT, after)["spec"]
    spec["volumes"].append({"name": "later", "emptyDir": {}})
    for container in (*spec["containers"], *spec["initContainers"]):
        container["env"].insert(0, {"name": "EARLIER", "value": "1"})
        container["volumeMounts"].append({"name": "later", "mountPath": "/later"})
    assert place.outcome(DEPLOYMENT, after).workload == after
    assert operations(DEPLOYMENT, after, place.outcome(DEPLOYMENT, after).workload) == []


def test_a_delivery_restores_what_an_apply_removed() -> None:
    place = Place(model("bge-m3", "a"))
    after = place.deliver(DEPLOYMENT, workload(model="bge-m3"))
    spoiled = copy.deepcopy(after)
    template = template_of(DEPLOYMENT, spoiled)
    del template["metadata"]["annotations"], template["spec"]["containers"][0]["env"]
    template["spec"]["containers"][1].update({"volumeMounts": []})
    template["spec"]["containers"].append({"name": "new", "image": "i"})
    repaired = place.deliver(DEPLOYMENT, spoiled)
    for container in containers(DEPLOYMENT, repaired):
        assert {*ENV} <= env(container).keys()
        assert f"{MODELS_DIR}/bge-m3" in mounts(container)


@pytest.mark.parametrize(
    ("annotations", "says"),
    [
        ({"model": ""}, "is not a model name"),
        ({"model": "a,,b"}, "is not a model name"),
        ({"model": "a,"}, "is not a model name"),
        ({"model": "other/a"}, "is not a model name"),
        ({"model": "a=b"}, "is not a model name"),
        ({"model": "A"}, "is not a model name"),
        ({"model": "x" * 254}, "is not a model name"),
        ({"model": "a" * 9000}, "is not a model name"),
        ({"model": "a,a"}, "listed twice"),
        ({"model": "a", "clustermodel": "a"}, "listed twice"),
        ({"model": ",".join(f"m{number}" for number in range(33))}, "at most 32"),
    ],
)
def test_annotations_that_mean_nothing_say_so_and_change_no_pod(annotations: dict[str, str], says: str) -> None:
    before = workload(**annotations)
    outcome = Place(model("a", "a")).outcome(DEPLOYMENT, before)
    assert blocked(outcome.workload) == "InvalidSpec"
    assert says in outcome.workload["metadata"]["annotations"][names.BLOCKED_MESSAGE]
    assert outcome.workload["spec"] == before["spec"]
    assert (outcome.claims, outcome.jobs) == ((), ())


def test_spaces_between_names_do_no_harm() -> None:
    place = Place(model("a", "a"), model("b", "b"))
    after = place.deliver(DEPLOYMENT, workload(model="a, b"))
    assert {f"{MODELS_DIR}/a", f"{MODELS_DIR}/b"} <= mounts(containers(DEPLOYMENT, after)[0]).keys()


@pytest.mark.parametrize(
    ("models", "reason"),
    [
        ([], "ModelNotFound"),
        ([model("a", "a", phase="Publishing")], "ModelNotReady"),
        ([model("a", "a", phase="Failed")], "ModelNotReady"),
        ([model("a", "a", deletionTimestamp="2026-11-23T00:00:00Z")], "ModelNotReady"),
        ([model("a", "a", namespace="other")], "ModelNotFound"),
        ([model("a", "a", names.CLUSTER_MODEL)], "ModelNotFound"),
    ],
)
def test_a_model_that_is_not_ready_is_waited_for(models: list[Object], reason: str) -> None:
    before = workload(model="a")
    outcome = Place(*models).outcome(DEPLOYMENT, before)
    assert blocked(outcome.workload) == reason
    assert outcome.workload["spec"] == before["spec"]
    assert outcome.claims == ()


@pytest.mark.parametrize("path", [MODELS_DIR, f"{MODELS_DIR}/", f"{MODELS_DIR}/a", f"{MODELS_DIR}/other/x"])
def test_a_path_that_is_taken_is_reported(path: str) -> None:
    before = workload(model="a")
    template_of(DEPLOYMENT, before)["spec"]["initContainers"][0]["volumeMounts"] = [{"name": "own", "mountPath": path}]
    outcome = Place(model("a", "a")).outcome(DEPLOYMENT, before)
    assert blocked(outcome.workload) == "InvalidSpec"
    assert "Container first" in outcome.workload["metadata"]["annotations"][names.BLOCKED_MESSAGE]
    assert outcome.claims == ()


def test_a_volume_above_the_models_causes_no_conflict() -> None:
    before = workload(model="a")
    template_of(DEPLOYMENT, before)["spec"]["containers"][0]["volumeMounts"].append(
        {"name": "own", "mountPath": "/data"}
    )
    assert blocked(Place(model("a", "a")).deliver(DEPLOYMENT, before)) is None


def test_pods_stay_as_they_are_until_every_model_is_on_the_claim() -> None:
    place, before = Place(model("a", "a"), model("b", "b")), workload(model="a,b")
    waiting = place.step(DEPLOYMENT, before)
    assert blocked(waiting) == "SharedPVCClaimPending"
    assert place.jobs == {}
    waiting = place.step(DEPLOYMENT, waiting)
    assert blocked(waiting) == "SharedPVCMaterializerPending"
    assert len(place.jobs) == 1
    place.finish_jobs()
    waiting = place.step(DEPLOYMENT, waiting)
    assert blocked(waiting) == "SharedPVCMaterializerPending"
    assert waiting["spec"] == before["spec"]
    (claim,) = place.claims.values()
    assert claim["metadata"]["annotations"][FILLED] == digest("a")
    after = place.deliver(DEPLOYMENT, waiting)
    assert blocked(after) is None
    assert after["spec"] != before["spec"]


def test_a_job_brings_one_model_by_its_digest_where_the_workload_may_run() -> None:
    place, before = Place(model("a", "a")), workload(model="a")
    place.step(DEPLOYMENT, place.step(DEPLOYMENT, before))
    (job,), (claim,) = place.jobs.values(), place.claims.values()
    spec = job["spec"]["template"]["spec"]
    assert spec["containers"][0]["args"] == [
        "loader",
        "pull",
        f"registry:5000/namespaced/ai-demo/a/uid-a@{digest('a')}",
        f"/models/sha256-{'a' * 64}",
    ]
    assert (spec["nodeSelector"], spec["tolerations"]) == ({"gpu": "yes"}, pod()["tolerations"])
    (owner,) = job["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("PersistentVolumeClaim", claim["metadata"]["uid"])
    assert job["metadata"]["labels"][DELIVERY.label] == claim["metadata"]["labels"][DELIVERY.label] == "true"


def test_a_job_of_an_earlier_claim_of_that_name_counts_for_nothing() -> None:
    place, before = Place(model("a", "a")), workload(model="a")
    before = place.step(DEPLOYMENT, place.step(DEPLOYMENT, before))
    place.finish_jobs()
    (claim,) = place.claims.values()
    claim["metadata"]["uid"] = "another"
    assert blocked(place.outcome(DEPLOYMENT, before).workload) == "SharedPVCMaterializerPending"


def test_a_job_that_failed_is_reported_and_tried_again() -> None:
    place, before = Place(model("a", "a")), workload(model="a")
    before = place.step(DEPLOYMENT, place.step(DEPLOYMENT, before))
    place.finish_jobs("Failed")
    outcome = place.outcome(DEPLOYMENT, before)
    assert blocked(outcome.workload) == "SharedPVCMaterializerFailed"
    assert outcome.recheck_seconds is not None
    place.now += outcome.recheck_seconds + 1
    assert place.outcome(DEPLOYMENT, before).finished_jobs == tuple(place.jobs.values())
    before = place.step(DEPLOYMENT, before)
    assert place.jobs == {}
    place.step(DEPLOYMENT, before)
    assert len(place.jobs) == 1


def test_workloads_with_the_same_models_share_a_claim_until_the_last_one_goes() -> None:
    place = Place(model("a", "a"), model("b", "b"))
    first = place.deliver(DEPLOYMENT, workload(name="one", model="a,b"))
    second = place.deliver(STATEFUL_SET, workload(STATEFUL_SET, name="two", model="b,a"))
    (claim,) = place.claims.values()
    assert [(one["kind"], one["name"]) for one in claim["metadata"]["ownerReferences"]] == [
        ("Deployment", "one"),
        ("StatefulSet", "two"),
    ]
    assert not any(one.get("controller") for one in claim["metadata"]["ownerReferences"])
    for kind, obj in ((DEPLOYMENT, first), (STATEFUL_SET, second)):
        assert place.claims
        del obj["metadata"]["annotations"][names.USES_MODEL]
        place.deliver(kind, obj)
    assert not place.claims


def test_another_digest_rolls_the_workload_and_the_old_claim_stays_until_its_pods_are_gone() -> None:
    place = Place(model("a", "a"))
    first = place.deliver(DEPLOYMENT, workload(model="a"))
    (old,) = place.claims
    place.put(model("a", "c"))
    after = first
    for _unused in range(2):
        after = place.step(DEPLOYMENT, after)
        assert after["spec"] == first["spec"]
        assert old in place.claims
        place.finish_jobs()
    after = place.step(DEPLOYMENT, after)
    assert digest("c") in env(containers(DEPLOYMENT, after)[0])["AI_MODELS_MODELS"]
    after["status"] |= {"replicas": 2, "updatedReplicas": 1}
    outcome = place.outcome(DEPLOYMENT, after)
    assert old in {key(claim).name for claim in outcome.claims}
    assert outcome.recheck_seconds is not None
    after["status"] |= {"replicas": 1}
    place.step(DEPLOYMENT, after)
    assert old not in place.claims


@pytest.mark.parametrize(
    ("kind", "busy", "calm"),
    [
        (DEPLOYMENT, {"replicas": 2, "updatedReplicas": 1}, {"replicas": 1, "updatedReplicas": 1}),
        (STATEFUL_SET, {"observedGeneration": 0}, {}),
        (DAEMON_SET, {"desiredNumberScheduled": 3, "updatedNumberScheduled": 1}, {"updatedNumberScheduled": 3}),
        (CRON_JOB, {"active": [{"name": "running"}]}, {"active": []}),
    ],
    ids=lambda value: value.kind if isinstance(value, Kind) else "",
)
def test_a_claim_stays_while_pods_read_it(kind: Kind, busy: Object, calm: Object) -> None:
    place = Place(model("a", "a"))
    after = place.deliver(kind, workload(kind, model="a"))
    del after["metadata"]["annotations"][names.USES_MODEL]
    after = place.step(kind, after)
    running = after["status"]
    after["status"] = {**running, **busy}
    assert place.outcome(kind, after).claims
    after["status"] = {**running, **calm}
    assert place.outcome(kind, after).claims == ()


def test_a_model_that_goes_leaves_the_pods_what_they_have() -> None:
    place = Place(model("a", "a"))
    after = place.deliver(DEPLOYMENT, workload(model="a"))
    place.put(model("a", "a", deletionTimestamp="2026-11-23T00:00:00Z"))
    outcome = place.outcome(DEPLOYMENT, after)
    assert blocked(outcome.workload) == "ModelNotReady"
    assert outcome.workload["spec"] == after["spec"]
    assert len(outcome.claims) == 1


def test_a_workload_that_is_deleted_is_left_alone() -> None:
    gone = workload(model="a")
    gone["metadata"]["deletionTimestamp"] = "2026-11-23T00:00:00Z"
    assert Place(model("a", "a")).outcome(DEPLOYMENT, gone) == Outcome(workload=gone)


def test_the_shared_claim_may_be_read_write_once() -> None:
    place = Place(model("a", "a"), own={**OWN, "accessMode": "ReadWriteOnce", "storageClassName": "local"})
    after = place.deliver(DEPLOYMENT, workload(model="a"))
    (claim,) = place.claims.values()
    assert (claim["spec"]["accessModes"], claim["spec"]["storageClassName"]) == (["ReadWriteOnce"], "local")
    annotations = template_of(DEPLOYMENT, after)["metadata"]["annotations"]
    assert annotations[f"{names.RESOLVED}delivery-reason"] == "RWOSharedVolume"


# Image volumes


def node(kubelet: str = "v1.36.4", runtime: str = "containerd://2.1.3", **labels: str) -> Object:
    node_info = {"kubeletVersion": kubelet, "containerRuntimeVersion": runtime}
    metadata = {"name": f"n-{kubelet}-{runtime[-3:]}", "uid": "n", "resourceVersion": "1", "labels": labels}
    return {"kind": "Node", "metadata": metadata, "status": {"nodeInfo": node_info}}


def with_image(name: str, letter: str, image: str, kind: Kind = names.MODEL) -> Object:
    return model(name, letter, kind, annotations={names.IMAGE_DIGEST: digest(image)})


def test_image_volumes_need_no_claim_and_no_job() -> None:
    place = Place(with_image("a", "a", "d"), node(gpu="yes"), own=IMAGES)
    after = place.deliver(DEPLOYMENT, workload(model="a"))
    spec = template_of(DEPLOYMENT, after)["spec"]
    assert spec["volumes"][-1]["image"] == {
        "reference": f"node.example:5000/namespaced/ai-demo/a/uid-a@{digest('d')}",
        "pullPolicy": "IfNotPresent",
    }
    assert (place.claims, place.jobs) == ({}, {})
    for container in containers(DEPLOYMENT, after):
        assert mounts(container)[f"{MODELS_DIR}/a"]["readOnly"]
    (secret,) = place.outcome(DEPLOYMENT, after).secrets
    assert spec["imagePullSecrets"] == [{"name": secret["metadata"]["name"]}]
    credentials = json.loads(base64.b64decode(secret["data"][".dockerconfigjson"]))["auths"]["node.example:5000"]
    claim = verify_token(SECRET_KEY, credentials["password"], "pull", NOW)
    assert (claim.namespace, claim.uid) == (NAMESPACE, "uid-ns")
    del after["metadata"]["annotations"][names.USES_MODEL]
    cleaned_workload = place.deliver(DEPLOYMENT, after)
    assert template_of(DEPLOYMENT, cleaned_workload) == template_of(DEPLOYMENT, workload())


def pull_claim(outcome: Outcome, now: float) -> Claim:
    (secret,) = outcome.secrets
    credentials = json.loads(base64.b64decode(secret["data"][".dockerconfigjson"]))["auths"]["node.example:5000"]
    return verify_token(SECRET_KEY, credentials["password"], "pull", now)


def test_a_pull_token_ends_after_days_and_is_renewed_before() -> None:
    place = Place(with_image("a", "a", "d"), node(gpu="yes"), own=IMAGES)
    after = place.deliver(DEPLOYMENT, workload(model="a"))
    first = place.outcome(DEPLOYMENT, after)
    claim = pull_claim(first, place.now)
    assert LIFE - RENEWAL < claim.expires - place.now <= LIFE
    assert first.recheck_seconds is not None
    place.now += first.recheck_seconds - 1
    same = place.outcome(DEPLOYMENT, after)
    assert same.secrets == first.secrets
    place.now += 1
    renewed = place.outcome(DEPLOYMENT, after)
    assert pull_claim(renewed, place.now).expires == claim.expires + RENEWAL
    assert renewed.secrets[0]["metadata"] == first.secrets[0]["metadata"]
    assert renewed.workload == first.workload  # no pod is replaced
    with pytest.raises(TokenError, match="expired"):
        pull_claim(first, claim.expires)


def test_pull_tokens_of_a_namespace_that_was_created_again_are_others() -> None:
    place = Place(with_image("a", "a", "d"), node(gpu="yes"), own=IMAGES)
    before = pull_claim(place.outcome(DEPLOYMENT, workload(model="a")), NOW)
    place.put(namespace("uid-again"))
    assert pull_claim(place.outcome(DEPLOYMENT, workload(model="a")), NOW).uid != before.uid


def test_a_namespace_that_is_not_yet_known_is_waited_for() -> None:
    place = Place(with_image("a", "a", "d"), node(gpu="yes"), own=IMAGES)
    place.stores[NAMESPACES] = Store()
    outcome = place.outcome(DEPLOYMENT, workload(model="a"))
    assert outcome.secrets == ()
    assert outcome.blocked
    assert outcome.blocked.waiting
    assert outcome.recheck_seconds


@pytest.mark.parametrize(
    ("own", "nodes", "image", "says"),
    [
        ({"nodeRegistry": ""}, [node(gpu="yes")], "d", "No registry that nodes can reach"),
        ({}, [node("v1.32.1", gpu="yes")], "d", "need 1.33"),
        ({}, [node(runtime="containerd://1.7.2", gpu="yes")], "d", "need containerd 2.1"),
        ({}, [node(runtime="docker://28.0", gpu="yes")], "d", "need containerd 2.1"),
        ({}, [node(gpu="yes")], "", "without an image"),
    ],
)
def test_image_volumes_that_cannot_be_say_why(own: Object, nodes: list[Object], image: str, says: str) -> None:
    resource = with_image("a", "a", image) if image else model("a", "a")
    before = workload(model="a")
    outcome = Place(resource, *nodes, own={**IMAGES, **own}).outcome(DEPLOYMENT, before)
    assert blocked(outcome.workload) == "ImageVolumeUnavailable"
    assert says in outcome.workload["metadata"]["annotations"][names.BLOCKED_MESSAGE]
    assert outcome.workload["spec"] == before["spec"]
    assert outcome.secrets == ()


def test_only_nodes_count_on_which_the_pods_may_run() -> None:
    place = Place(with_image("a", "a", "d"), node(gpu="yes"), node("v1.30.0", gpu="no"), own=IMAGES)
    assert blocked(place.deliver(DEPLOYMENT, workload(model="a"))) is None


# Who uses a model


def test_nothing_is_kept_of_a_workload_without_a_request() -> None:
    assert users.trim_workload(workload()) is None


def test_a_workload_counts_as_a_user_as_long_as_it_has_something_of_the_model() -> None:
    place = Place(model("a", "a"), model("g", "b", names.CLUSTER_MODEL))
    after = place.deliver(DEPLOYMENT, workload(model="a", clustermodel="g"))
    del after["metadata"]["annotations"][names.USES_MODEL], after["metadata"]["annotations"][names.USES_CLUSTER_MODEL]
    kept = users.trim_workload(after)
    assert kept is not None
    assert set(users.by_model(kept)) == {f"{NAMESPACE}/a", "/g"}
    assert "own" not in kept["metadata"]["annotations"]
    cleaned_workload = place.deliver(DEPLOYMENT, after)
    assert users.trim_workload(cleaned_workload) is None


def test_models_of_other_namespaces_do_not_wait_for_who_says_that_he_has_them() -> None:
    forged = workload(model="a")
    forged["metadata"]["annotations"][users.DELIVERED] = f"victims/m,{NAMESPACE}/b,/g,,c"
    kept = users.trim_workload(forged)
    assert kept is not None
    assert list(users.by_model(kept)) == [f"{NAMESPACE}/a", f"{NAMESPACE}/b", "/g"]


def test_a_model_is_enqueued_when_a_workload_starts_or_stops_using_it() -> None:
    before, after = users.trim_workload(workload(model="a", clustermodel="c")), users.trim_workload(workload(model="b"))
    change = Change(before, after)
    of_models, of_cluster_models = (
        {key for watch in users.watches(kind) for key in watch.enqueue(change, None)}
        for kind in (names.MODEL, names.CLUSTER_MODEL)
    )
    assert of_models == {Key(NAMESPACE, "a"), Key(NAMESPACE, "b")}
    assert of_cluster_models == {Key("", "c")}
    assert {watch.kind for watch in users.watches(names.MODEL)} == {metadata_of(kind) for kind in WORKLOADS}
    assert all(kind.metadata_only for kind in OBSERVED)
