"""Models of Deckhouse are published by one Job each, and taken out of the registry again."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import msgspec
import pytest

from slipway.apis.deckhouse import names
from slipway.apis.deckhouse.api import MODELS
from slipway.apis.deckhouse.delivery import users
from slipway.kube.objects import Key
from slipway.serving.containers.freedoms import Labels
from slipway.serving.contract.api import InvalidSpecError, Rejection
from slipway.serving.contract.authors import NOT_ALLOWED, build_allowed_plan
from slipway.serving.wire import upload_notes
from slipway.serving.wire.depot_token import verify_token
from slipway.weights.jobs import turns
from tests import worlds

from .cluster import DIGEST, HUB, KEY, OWN, START, SYSTEM, Cluster, publication, words

TARGET = f"{OWN['registry']}/namespaced/chat/tiny/uid-tiny"


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def published(cluster: Cluster, name: str = "tiny", **facts: Any) -> None:
    cluster.reconcile(name)
    cluster.ends(name, publication(**facts))
    cluster.reconcile(name)


# Publishing


def test_a_model_is_published_by_a_job_of_its_namespace(cluster: Cluster) -> None:
    cluster.create("tiny")
    cluster.reconcile("tiny")
    ((place, job),) = cluster.jobs.items()
    assert place.namespace == "chat"
    assert words(job) == ["loader", "publish", "hf://acme/tiny", TARGET]
    assert job["spec"]["backoffLimit"] == 0
    assert cluster.phase("tiny") == "Publishing"
    cluster.ends("tiny", publication(format="Safetensors", family="llama", parameters=5))
    assert cluster.phase("tiny") == "Ready"
    status = cluster.status("tiny")
    assert status["artifact"] == {
        "kind": "OCI",
        "digest": DIGEST,
        "mediaType": "application/vnd.cncf.model.manifest.v1+json",
        "sizeBytes": 100,
    }
    assert status["source"] == {"resolvedType": "HuggingFace", "resolvedRevision": "abc"}
    assert (status["resolved"]["family"], status["resolved"]["parameterCount"]) == ("llama", 5)
    assert status["progress"] == "100%"
    cluster.reconcile("tiny")
    assert cluster.jobs == {}
    assert cluster.status("tiny") == status
    assert cluster.annotations("tiny") == {}


def test_a_model_of_the_cluster_is_published_in_the_system_namespace(cluster: Cluster) -> None:
    cluster.create("tiny", kind="ClusterModel")
    cluster.reconcile("tiny")
    ((place, job),) = cluster.jobs.items()
    assert place.namespace == SYSTEM
    assert words(job)[3] == f"{OWN['registry']}/cluster/tiny/uid-tiny"
    api, world = MODELS[1], cluster.world("tiny")
    assert build_allowed_plan(api, world, api.resolve(world), Labels()).children


def test_a_model_of_the_system_namespace_is_refused(cluster: Cluster) -> None:
    cluster.create("tiny")
    cluster.models["tiny"]["metadata"]["namespace"] = SYSTEM
    api, world = MODELS[0], cluster.world("tiny")
    with pytest.raises(InvalidSpecError) as refused:
        build_allowed_plan(api, world, api.resolve(world), Labels())
    assert refused.value.reason == NOT_ALLOWED


def test_the_publisher_has_a_token_of_its_own_account_and_no_right(cluster: Cluster) -> None:
    cluster.create("tiny")
    cluster.reconcile("tiny")
    pod = cluster.job("tiny")["spec"]["template"]["spec"]
    assert (pod["automountServiceAccountToken"], "serviceAccountName" in pod) == (False, False)
    (volume,) = pod["volumes"]
    claim = {"audience": "slipway-depot", "expirationSeconds": 3600, "path": "token"}
    assert volume["projected"]["sources"] == [{"serviceAccountToken": claim}]
    (container,) = pod["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert env["SLIPWAY_DEPOT_TOKEN_FILE"] == "/var/run/secrets/slipway.inference/depot/token"
    assert env["SLIPWAY_REGISTRY_CA"] == OWN["ca"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_secret_gives_the_first_of_its_three_keys_and_nothing_else(cluster: Cluster) -> None:
    cluster.create("tiny", authSecretRef={"name": "hub"})
    cluster.reconcile("tiny")
    (container,) = cluster.job("tiny")["spec"]["template"]["spec"]["containers"]
    keys = [one["valueFrom"]["secretKeyRef"] for one in container["env"] if "secretKeyRef" in one.get("valueFrom", {})]
    assert [one["key"] for one in keys] == ["token", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"]
    assert all(one["optional"] and one["name"] == "hub" for one in keys)
    assert "envFrom" not in container


def test_the_operators_mirrors_are_passed_on(cluster: Cluster) -> None:
    cluster = Cluster(ollamaEndpoint="https://ollama.internal")
    cluster.settings = msgspec.structs.replace(cluster.settings, hugging_face_endpoint="https://hub.internal")
    cluster.create("tiny", "https://ollama.com/library/qwen3:8b")
    cluster.reconcile("tiny")
    (container,) = cluster.job("tiny")["spec"]["template"]["spec"]["containers"]
    env = {one["name"]: one.get("value") for one in container["env"]}
    assert (env["HF_ENDPOINT"], env["OLLAMA_ENDPOINT"]) == ("https://hub.internal", "https://ollama.internal")
    assert words(cluster.job("tiny"))[2] == "ollama://qwen3:8b"


def test_the_image_form_is_asked_for_where_it_is_wanted_and_its_digest_kept(cluster: Cluster) -> None:
    cluster = Cluster(image=True)
    cluster.create("tiny")
    cluster.reconcile("tiny")
    assert words(cluster.job("tiny"))[4:] == ["--image"]
    cluster.ends("tiny", msgspec.structs.replace(publication(), image=DIGEST))
    cluster.reconcile("tiny")
    cluster.reconcile("tiny")
    assert cluster.annotations("tiny") == {names.IMAGE_DIGEST: DIGEST}


@pytest.mark.parametrize(
    "url",
    ["https://huggingface.co/datasets/acme/tiny", "https://hf.co/acme", "https://ollama.com/library/a b"],
)
def test_a_request_without_a_model_fails_at_once(cluster: Cluster, url: str) -> None:
    cluster.create("tiny", url)
    cluster.reconcile("tiny")
    assert cluster.jobs == {}
    assert cluster.phase("tiny") == "Failed"
    assert cluster.condition("tiny", "ArtifactResolved") == ("False", "UnsupportedSource")
    assert cluster.condition("tiny") == ("False", "Failed")
    assert cluster.status("tiny")["source"]["resolvedType"] in ("HuggingFace", "Ollama")
    cluster.delete("tiny")
    cluster.reconcile("tiny")
    assert cluster.models == {}


def test_a_secret_for_ollama_is_refused(cluster: Cluster) -> None:
    cluster.create("tiny", "https://ollama.com/library/qwen3", authSecretRef={"name": "hub"})
    assert cluster.condition("tiny", "ArtifactResolved") == ("False", "UnsupportedSource")


def test_without_a_registry_all_wait_and_say_so() -> None:
    cluster = Cluster(registry="")
    cluster.create("tiny")
    cluster.create("mine", upload={})
    cluster.reconcile_all()
    assert (cluster.phase("tiny"), cluster.phase("mine"), cluster.jobs) == ("Pending", "Pending", {})
    assert "has no registry" in cluster.message("tiny")
    cluster.delete("tiny")
    cluster.reconcile("tiny")
    assert "tiny" not in cluster.models


# Turns


def test_four_are_published_at_a_time_over_both_kinds_the_oldest_first(cluster: Cluster) -> None:
    for number in range(6):
        cluster.create(f"m{number}", kind=("Model", "ClusterModel")[number % 2])
    for name in ("m5", "m3", "m4", "m1", "m2", "m0"):
        cluster.reconcile(name)
    cluster.reconcile_all()
    assert cluster.busy() == ["m0", "m1", "m2", "m3"]
    assert (cluster.phase("m4"), cluster.condition("m4")) == ("Pending", ("False", "Pending"))
    assert "waits for other publications" in cluster.message("m4")
    assert cluster.recheck("m4") == 30
    cluster.ends("m2", publication())
    cluster.reconcile("m2")
    cluster.reconcile("m5")
    cluster.reconcile("m4")
    assert cluster.busy() == ["m0", "m1", "m3", "m4"]


def test_a_load_that_cannot_start_blocks_no_other() -> None:
    cluster = Cluster(publicationsAtOnce=1)
    cluster.create("awaited", upload={})
    cluster.create("imported", catalog={"name": "a"})
    cluster.create("tiny")
    cluster.reconcile_all()
    assert cluster.busy() == ["tiny"]


def test_a_model_that_is_tried_again_keeps_its_place() -> None:
    cluster = Cluster(publicationsAtOnce=1)
    cluster.create("old")
    cluster.reconcile("old")
    cluster.create("new")
    cluster.ends("old", fails="the connection broke")
    cluster.reconcile_all()
    assert (cluster.phase("old"), cluster.busy()) == ("Publishing", [])
    cluster.now += 10
    cluster.reconcile("new")
    cluster.reconcile("old")
    assert cluster.busy() == ["old"]


def test_an_older_model_that_comes_later_does_not_take_the_place_of_one_that_is_tried_again() -> None:
    cluster = Cluster(publicationsAtOnce=1)
    cluster.create("old", upload={})
    cluster.create("young")
    cluster.reconcile_all()
    cluster.ends("young", fails="the connection broke")
    cluster.uploaded("old")
    cluster.now += 10
    cluster.reconcile_all(2)
    assert cluster.busy() == ["young"]


def test_a_model_that_failed_for_good_makes_way() -> None:
    cluster = Cluster(publicationsAtOnce=1)
    cluster.create("old")
    cluster.reconcile("old")
    cluster.create("new")
    cluster.ends("old", fails="UnsupportedSource: model.bin is a pickle")
    cluster.reconcile_all()
    assert (cluster.phase("old"), cluster.busy()) == ("Failed", ["new"])


# Resuming and failing


def test_the_next_pod_continues_where_the_last_one_stopped(cluster: Cluster) -> None:
    cluster.create("tiny")
    cluster.reconcile("tiny")
    first = cluster.job("tiny")
    cluster.tells("tiny", 50, 100, '{"layer": 3}')
    cluster.reconcile("tiny")
    assert json.loads(cluster.annotations("tiny")[names.PUBLICATION])["resume"] == '{"layer": 3}'
    assert cluster.job("tiny") is first
    cluster.ends("tiny", fails="killed")
    cluster.reconcile("tiny")
    assert (cluster.phase("tiny"), cluster.recheck("tiny")) == ("Publishing", 10)
    assert "1 attempt failed: killed." in cluster.message("tiny")
    cluster.now += 10
    cluster.reconcile("tiny")
    assert cluster.job("tiny")["metadata"]["name"] != first["metadata"]["name"]
    assert words(cluster.job("tiny"))[4:] == ['--resume={"layer": 3}']


def test_a_publisher_that_gets_on_is_never_given_up(cluster: Cluster) -> None:
    cluster.create("tiny")
    cluster.reconcile("tiny")
    for number in range(20):
        cluster.tells("tiny", number, 100, f"at {number}")
        cluster.reconcile("tiny")
        cluster.ends("tiny", fails="killed")
        cluster.reconcile("tiny")
        assert (cluster.phase("tiny"), cluster.recheck("tiny")) == ("Publishing", 10)
        cluster.now += 10
        cluster.reconcile("tiny")
    assert words(cluster.job("tiny"))[4:] == ["--resume=at 19"]


def test_a_publisher_that_gets_nowhere_fails_and_is_tried_more_slowly(cluster: Cluster) -> None:
    cluster.create("tiny")
    cluster.reconcile("tiny")
    pauses = []
    while cluster.phase("tiny") == "Publishing":
        cluster.ends("tiny", fails="the registry does not answer")
        cluster.reconcile("tiny")
        pauses.append(cluster.recheck("tiny"))
        if cluster.phase("tiny") == "Publishing":
            cluster.now += pauses[-1] or 0
            cluster.reconcile("tiny")
    assert pauses == [10, 20, 40, 80, 300]
    assert cluster.condition("tiny", "ArtifactResolved") == ("False", "PublicationFailed")
    assert cluster.message("tiny").endswith("the registry does not answer. It is retried automatically.")
    cluster.now += 300
    cluster.reconcile("tiny")
    assert cluster.phase("tiny") == "Publishing"
    cluster.ends("tiny", publication())
    assert cluster.phase("tiny") == "Ready"


def test_one_large_file_that_advances_is_never_given_up_however_often_its_publisher_dies(cluster: Cluster) -> None:
    """Its place to resume stays the same, so only the progress shows that it advances."""
    cluster.create("large")
    cluster.reconcile("large")
    for number in range(1, 10):
        cluster.tells("large", number, 100)
        cluster.reconcile("large")
        cluster.ends("large", fails="killed")
        cluster.reconcile("large")
        assert (cluster.phase("large"), cluster.recheck("large")) == ("Publishing", 10)
        cluster.now += 10
        cluster.reconcile("large")


@pytest.mark.parametrize(
    ("words_", "reason", "recheck"),
    [
        ("UnsupportedSource: weights.pkl is a pickle", "UnsupportedSource", None),
        ("InsufficientStorage: 5 GiB are needed, 1 GiB is free", "InsufficientStorage", 300),
        ("SourceNotFound: the hub has no such repository", "PublicationFailed", 300),
        ("IntegrityCheckFailed: a.safetensors is another one", "PublicationFailed", None),
    ],
)
def test_a_failure_that_has_a_name_ends_it_at_once(
    cluster: Cluster, words_: str, reason: str, recheck: float | None
) -> None:
    cluster.create("tiny")
    cluster.reconcile("tiny")
    cluster.ends("tiny", fails=words_)
    assert cluster.phase("tiny") == "Failed"
    assert cluster.condition("tiny", "ArtifactResolved") == ("False", reason)
    assert cluster.recheck("tiny") == recheck
    assert words_.partition(": ")[2] in cluster.message("tiny")
    cluster.now += 10_000 if recheck is None else 0
    cluster.reconcile("tiny")
    assert cluster.busy() == []


def test_last_words_that_are_lost_are_asked_for_again(cluster: Cluster) -> None:
    cluster.create("tiny")
    cluster.reconcile("tiny")
    cluster.ends("tiny", "nonsense")
    assert (cluster.phase("tiny"), cluster.recheck("tiny")) == ("Publishing", 60)
    cluster.now += 60
    cluster.reconcile("tiny")
    assert cluster.busy() == ["tiny"]


@pytest.mark.parametrize("character", ['"', "\u00e9", "\U0001f600"])
def test_an_odd_report_of_a_publisher_never_destroys_the_record(cluster: Cluster, character: str) -> None:
    cluster.create("tiny")
    cluster.reconcile("tiny")
    cluster.tells("tiny", 1, 2, character * 2048)
    cluster.reconcile("tiny")
    cluster.reconcile("tiny")
    assert len(cluster.jobs) == 1
    assert json.loads(cluster.annotations("tiny")[names.PUBLICATION])["resume"] == character * 2048
    for unusable in (character * 2049, "a\x00", "a\n"):
        cluster.tells("tiny", 1, 2, unusable)
        cluster.reconcile("tiny")
    assert json.loads(cluster.annotations("tiny")[names.PUBLICATION])["resume"] == character * 2048


def test_progress_never_goes_back(cluster: Cluster) -> None:
    cluster.create("tiny")
    cluster.reconcile("tiny")
    seen = []
    for done in (0, 30, 60, 10, 100):
        cluster.tells("tiny", done, 100)
        cluster.reconcile("tiny")
        seen.append(cluster.status("tiny")["progress"])
    assert seen == ["0%", "30%", "60%", "60%", "99%"]
    cluster.ends("tiny", publication())
    assert cluster.status("tiny")["progress"] == "100%"


@pytest.mark.parametrize("text", ["", "null", "[]", "{", '{"attempt": -1}', '{"resume": 5}', "x" * 20_000, "[" * 5_000])
def test_a_forged_record_is_ignored(cluster: Cluster, text: str) -> None:
    cluster.create("tiny")
    cluster.models["tiny"]["metadata"]["annotations"] = {names.PUBLICATION: text}
    cluster.reconcile("tiny")
    assert words(cluster.job("tiny"))[4:] == []


def test_children_that_cannot_be_made_are_reported(cluster: Cluster) -> None:
    cluster.create("tiny")
    status = cluster.status("tiny", Rejection("Forbidden", "Job tiny: exceeded quota"))
    assert (status["phase"], status["conditions"][0]["reason"]) == ("Failed", "PublicationFailed")
    assert status["conditions"][0]["message"] == "Job tiny: exceeded quota."
    later = cluster.status("tiny", Rejection("Retrying", "The API server is busy.", retryable=True))
    assert (later["phase"], later["conditions"][0]["message"]) == ("Pending", "The API server is busy.")


# Room


def test_a_model_without_room_takes_none() -> None:
    """Its publisher reports a size only when it begins to send."""
    cluster = Cluster(capacityLimit="1000", namespaceShare=100)
    cluster.create("large")
    cluster.reconcile("large")
    cluster.ends("large", fails="InsufficientStorage: 900 bytes are needed, 800 are free")
    cluster.reconcile("large")
    assert cluster.condition("large", "ArtifactResolved") == ("False", "InsufficientStorage")
    cluster.create("tiny")
    cluster.reconcile("tiny")
    assert words(cluster.job("tiny"))[4:] == ["--capacity-free=1000"]


@pytest.mark.parametrize("total", [1, 999, 1000, 1001, 10**18])
def test_a_forged_size_in_an_annotation_leaves_others_their_room(total: int) -> None:
    cluster = Cluster(capacityLimit="1000", namespaceShare=100)
    cluster.create("mine")
    cluster.reconcile("mine")
    cluster.annotations("mine")[names.PUBLICATION] = f'{{"attempt":1,"total":{total}}}'
    cluster.create("tiny", namespace="other")
    cluster.reconcile("tiny")
    assert (cluster.phase("tiny"), cluster.busy()) == ("Pending", ["mine"])
    cluster.now += 61
    cluster.reconcile("mine")  # its status must not take the size from the annotation
    cluster.reconcile("tiny")
    assert words(cluster.job("tiny"))[4:] == ["--capacity-free=1000"]


def test_a_reported_size_keeps_its_room_when_the_author_changes_the_annotation() -> None:
    cluster = Cluster(capacityLimit="1000", namespaceShare=100)
    cluster.create("mine")
    cluster.reconcile("mine")
    cluster.tells("mine", 0, 650)
    cluster.reconcile("mine")
    cluster.reports.clear()
    cluster.annotations("mine")[names.PUBLICATION] = '{"attempt":1}'
    cluster.reconcile("mine")
    cluster.create("tiny", namespace="other")
    cluster.reconcile("tiny")
    assert words(cluster.job("tiny"))[4:] == ["--capacity-free=350"]


def test_room_is_what_others_leave() -> None:
    cluster = Cluster(capacityLimit="1000", namespaceShare=100)
    cluster.create("there")
    published(cluster, "there", size=300)
    cluster.reconcile("there")
    cluster.create("coming")
    cluster.reconcile("coming")
    assert words(cluster.job("coming"))[4:] == ["--capacity-free=700"]
    cluster.create("tiny")
    cluster.reconcile("tiny")
    assert (cluster.phase("tiny"), cluster.busy()) == ("Pending", ["coming"])
    cluster.tells("coming", 0, 650)
    cluster.reconcile("coming")
    cluster.reconcile("tiny")
    assert words(cluster.job("tiny"))[4:] == ["--capacity-free=50"]


def test_a_publisher_that_never_says_how_much_it_brings_holds_others_up_for_a_minute() -> None:
    cluster = Cluster(capacityLimit="1Ki", namespaceShare=100)
    cluster.create("coming")
    cluster.create("tiny")
    cluster.reconcile_all()
    assert cluster.busy() == ["coming"]
    cluster.now += 61
    cluster.reconcile("tiny")
    assert words(cluster.job("tiny"))[4:] == ["--capacity-free=1024"]


def test_a_namespace_leaves_a_part_of_the_storage_to_others() -> None:
    cluster = Cluster(capacityLimit="1000")
    cluster.create("mine")
    published(cluster, "mine", size=800)
    cluster.create("more")
    cluster.reconcile("more")
    assert words(cluster.job("more"))[4:] == ["--capacity-free=100"]
    cluster.tells("more", 0, 100)
    cluster.reconcile("more")
    cluster.create("yours", namespace="other")
    cluster.reconcile("yours")
    assert words(cluster.job("yours"))[4:] == ["--capacity-free=100"]


def test_the_status_has_the_reported_size_as_a_number() -> None:
    cluster = Cluster(capacityLimit="1000")
    cluster.create("mine")
    cluster.reconcile("mine")
    cluster.tells("mine", 0, 650)
    cluster.reconcile("mine")
    assert cluster.status("mine")["artifact"] == {"sizeBytes": 650}
    assert "650" not in str(cluster.status("mine")["conditions"])
    cluster.tells("mine", 0, 1 << 90)
    cluster.reconcile("mine")
    assert cluster.status("mine")["artifact"] == {"sizeBytes": (1 << 63) - 1}


@pytest.mark.parametrize("namespace", ["chat", "other"])
def test_a_model_that_failed_keeps_what_it_sent_counted(namespace: str) -> None:
    cluster = Cluster(capacityLimit="1000", namespaceShare=90)
    cluster.create("bad")
    cluster.reconcile("bad")
    cluster.tells("bad", 850, 850)
    cluster.reconcile("bad")
    cluster.ends("bad", fails="IntegrityCheckFailed: a file differs from its announcement")
    cluster.reconcile("bad")
    assert (cluster.phase("bad"), cluster.status("bad")["artifact"]) == ("Failed", {"sizeBytes": 850})
    cluster.create("next", namespace=namespace)
    cluster.reconcile("next")
    assert words(cluster.job("next"))[4:] == [f"--capacity-free={50 if namespace == 'chat' else 150}"]


@pytest.mark.parametrize("phase", ["Failed", "Pending"])
def test_models_that_failed_take_no_more_than_the_share_of_their_namespace(phase: str) -> None:
    cluster = Cluster(capacityLimit="1000", namespaceShare=50)
    for name in ("one", "two", "three"):
        cluster.create(name)
        cluster.models[name]["status"] = {"phase": phase, "artifact": {"sizeBytes": 1 << 62}}
    cluster.create("yours", namespace="other")
    cluster.reconcile("yours")
    assert words(cluster.job("yours"))[4:] == ["--capacity-free=500"]


def test_a_publication_that_makes_way_keeps_its_room() -> None:
    cluster = Cluster(capacityLimit="1000", publicationsAtOnce=1)
    cluster.create("mine")
    cluster.reconcile("mine")
    cluster.tells("mine", 0, 650)
    cluster.reconcile("mine")
    cluster.create("yours", namespace="other")
    cluster.reconcile("yours")
    cluster.now += turns.SLICE_SECONDS + 1
    cluster.reconcile_all()
    assert (cluster.phase("mine"), cluster.status("mine")["artifact"]) == ("Pending", {"sizeBytes": 650})
    assert words(cluster.job("yours"))[4:] == ["--capacity-free=350"]


@pytest.mark.parametrize("claimed", [300, 500, 999, 1000, 1001, 1 << 62])
def test_sizes_that_publishers_claim_take_no_more_than_the_share_of_their_namespace(claimed: int) -> None:
    cluster = Cluster(capacityLimit="1000", namespaceShare=50)
    for name in ("one", "two", "three"):
        cluster.create(name)
        cluster.reconcile(name)
        cluster.tells(name, 0, claimed)
        cluster.reconcile(name)
    assert len(cluster.busy()) == 3
    cluster.create("yours", namespace="other")
    cluster.reconcile("yours")
    [word] = words(cluster.job("yours"))[4:]
    assert int(word.removeprefix("--capacity-free=")) >= 500


def test_a_model_that_is_an_image_too_takes_twice_its_size() -> None:
    cluster = Cluster(capacityLimit="1000", namespaceShare=90, image=True)
    cluster.create("there")
    published(cluster, "there", size=300)
    for name, namespace, free in (("mine", "chat", 300), ("yours", "other", 400)):
        cluster.create(name, namespace=namespace)
        cluster.reconcile(name)
        assert words(cluster.job(name))[4:] == ["--image", f"--capacity-free={free}"]
        cluster.delete(name)
        cluster.reconcile_all(2)


@pytest.mark.parametrize(("signer", "remaining"), [(KEY, 300), (bytes(32), 1000)], ids=["proven", "forged"])
def test_an_upload_keeps_the_room_that_the_depot_found_for_it(signer: bytes, remaining: int) -> None:
    cluster = Cluster(capacityLimit="1000", namespaceShare=100)
    cluster.create("upload", upload={})
    cluster.reconcile("upload")
    proof = upload_notes.proof(signer, "uid-upload", 700, 9_000_000_000)
    note = upload_notes.Note(length=700, proof=proof, expires=9_000_000_000)
    cluster.annotations("upload")[upload_notes.UPLOAD] = msgspec.json.encode(note).decode()
    assert cluster.phase("upload") == "WaitForUpload"
    cluster.create("tiny", namespace="other")
    cluster.reconcile("tiny")
    assert words(cluster.job("tiny"))[4:] == [f"--capacity-free={remaining}"]


def test_a_namespace_that_has_its_share_gets_no_more() -> None:
    cluster = Cluster(capacityLimit="1000", namespaceShare=20)
    for name in ("one", "two"):
        cluster.create(name)
        published(cluster, name, size=150)
    cluster.create("more")
    cluster.reconcile("more")
    assert words(cluster.job("more"))[4:] == ["--capacity-free=0"]


# Uploads


def test_an_upload_has_a_secret_with_a_token_for_half_an_hour(cluster: Cluster) -> None:
    cluster.create("mine", upload={})
    cluster.reconcile("mine")
    status = cluster.status("mine")
    assert status["phase"] == "WaitForUpload"
    assert status["upload"] == {
        "expiresAt": "2027-01-15T08:30:00Z",
        "secretName": "mine-upload",
        "secretNamespace": "chat",
    }
    assert cluster.condition("mine", "ArtifactResolved") == ("False", "WaitingForUserUpload")
    assert (status["progress"], status["source"]) == ("0%", {"resolvedType": "Upload"})
    data = {
        name: b64decode(text).decode() for name, text in cluster.secrets[Key("chat", "mine-upload")]["data"].items()
    }
    assert data["url"] == "https://depot.example/v1/upload/chat/mine/uid-mine"
    claim = verify_token(KEY, data["token"], "upload", START)
    assert (claim.namespace, claim.name, claim.uid, claim.expires) == ("chat", "mine", "uid-mine", START + 1800)
    assert data["command"] == f"curl --fail -H 'Authorization: Bearer {data['token']}' -T FILE '{data['url']}'"
    assert data["token"] not in json.dumps(cluster.models["mine"])


def test_the_same_secret_is_planned_again_and_again(cluster: Cluster) -> None:
    cluster.create("mine", upload={})
    cluster.reconcile("mine")
    before = dict(cluster.secrets)
    cluster.now += 100
    cluster.reconcile("mine")
    assert cluster.secrets == before


def test_the_upload_of_a_model_of_the_cluster_is_the_system_namespaces(cluster: Cluster) -> None:
    cluster.create("mine", kind="ClusterModel", upload={})
    cluster.reconcile("mine")
    (place,) = cluster.secrets
    assert place == Key(SYSTEM, "mine-upload")
    url = b64decode(cluster.secrets[place]["data"]["url"]).decode()
    assert url == "https://depot.example/v1/upload/-/mine/uid-mine"


def test_an_upload_is_published(cluster: Cluster) -> None:
    cluster.create("mine", upload={})
    cluster.reconcile("mine")
    cluster.uploaded("mine")
    cluster.now += 10_000
    cluster.reconcile("mine")
    status = cluster.status("mine")
    assert (status["phase"], "upload" in status) == ("Publishing", False)
    assert words(cluster.job("mine"))[2] == "pieces://"
    cluster.ends("mine", publication())
    cluster.reconcile("mine")
    cluster.reconcile("mine")
    assert (cluster.phase("mine"), cluster.annotations("mine").keys()) == ("Ready", {names.UPLOADED})


def test_a_model_whose_artifact_vanished_fails_until_it_is_back(cluster: Cluster) -> None:
    cluster.create("tiny")
    cluster.reconcile("tiny")
    cluster.reconcile("tiny")
    cluster.ends("tiny", publication())
    cluster.reconcile("tiny")
    there = cluster.status("tiny")
    cluster.annotations("tiny")[names.VANISHED] = there["artifact"]["digest"]
    cluster.reconcile("tiny")
    cluster.reconcile("tiny")
    assert cluster.busy() == []
    lost = cluster.status("tiny", Rejection("Unavailable", "The API server is overloaded.", retryable=True))
    assert (lost["phase"], lost["artifact"], lost["resolved"]) == ("Failed", there["artifact"], there["resolved"])
    assert cluster.condition("tiny", "ArtifactResolved") == ("False", "ArtifactVanished")
    assert cluster.condition("tiny", "Ready") == ("False", "Failed")
    assert "Delete the model and create it again" in cluster.message("tiny")
    cluster.annotations("tiny")[names.VANISHED] = "sha256:" + "0" * 64
    cluster.reconcile("tiny")
    assert cluster.phase("tiny") == "Ready"


def test_a_session_expires(cluster: Cluster) -> None:
    cluster.create("mine", upload={})
    cluster.reconcile("mine")
    assert cluster.recheck("mine") == 1800
    cluster.now += 1800
    cluster.write_only = 0
    cluster.reconcile("mine")
    assert (cluster.phase("mine"), cluster.write_only) == ("Failed", 0)
    assert cluster.condition("mine", "ArtifactResolved") == ("False", "PublicationFailed")
    assert "the session expired" in cluster.message("mine")


@pytest.mark.parametrize("text", ["99999999999999", "x", "-1", "", "9999999999"])
def test_a_forged_annotation_does_not_extend_a_session(cluster: Cluster, text: str) -> None:
    cluster.create("mine", upload={})
    cluster.models["mine"]["metadata"]["annotations"] = {names.UPLOAD: text}
    cluster.reconcile("mine")
    assert cluster.annotations("mine")[names.UPLOAD] == str(int(START) + 1800)


@pytest.mark.parametrize("key_", [b"", b"short", bytes(33)])
def test_without_the_key_an_upload_waits(cluster: Cluster, key_: bytes) -> None:
    cluster.key = key_
    cluster.create("mine", upload={})
    cluster.reconcile("mine")
    assert (cluster.phase("mine"), cluster.secrets, cluster.annotations("mine")) == ("Pending", {}, {})
    assert "role depot" in cluster.message("mine")


# Catalogs


def test_a_model_of_a_catalog_that_is_not_there_waits(cluster: Cluster) -> None:
    cluster.create("tiny", catalog={"name": "tiny"})
    cluster.reconcile("tiny")
    assert (cluster.phase("tiny"), cluster.jobs) == ("Pending", {})
    assert cluster.status("tiny")["source"] == {"resolvedType": "Catalog"}


# End


def test_a_model_that_is_deleted_leaves_the_registry_first(cluster: Cluster) -> None:
    cluster.create("tiny")
    published(cluster)
    cluster.reconcile("tiny")
    cluster.delete("tiny")
    cluster.reconcile("tiny")
    assert words(cluster.job("tiny")) == ["loader", "unpublish", TARGET]
    assert (cluster.phase("tiny"), cluster.condition("tiny")) == ("Deleting", ("False", "Pending"))
    cluster.ends("tiny")
    cluster.reconcile("tiny")
    assert (cluster.models, cluster.jobs) == ({}, {})


def test_a_publication_ends_before_the_model_leaves_the_registry(cluster: Cluster) -> None:
    cluster.create("tiny")
    cluster.reconcile("tiny")
    cluster.delete("tiny")
    cluster.reconcile("tiny")
    assert cluster.jobs == {}
    cluster.reconcile("tiny")
    assert words(cluster.job("tiny"))[1] == "unpublish"


def test_a_model_that_never_began_goes_at_once() -> None:
    cluster = Cluster(publicationsAtOnce=1)
    cluster.create("first")
    cluster.create("tiny")
    cluster.reconcile_all()
    cluster.delete("tiny")
    cluster.reconcile("tiny")
    assert "tiny" not in cluster.models


def test_pieces_of_an_upload_that_was_never_complete_go_too(cluster: Cluster) -> None:
    cluster.create("mine", upload={})
    cluster.reconcile("mine")
    cluster.delete("mine")
    cluster.reconcile("mine")
    assert words(cluster.job("mine"))[1] == "unpublish"


def forged(cluster: Cluster, name: str) -> None:
    """Replaces the model's Job by one in a tenant's namespace that names the cluster-scoped model as its owner."""
    ((place, job),) = cluster.jobs.items()
    there = {"metadata": job["metadata"] | {"namespace": "tenant"}, "status": {"active": 1}}
    cluster.jobs = {Key("tenant", place.name): job | there}


def test_a_job_of_a_tenant_does_not_keep_a_model_of_the_cluster() -> None:
    cluster = Cluster()
    cluster.create("tiny", kind="ClusterModel")
    cluster.reconcile("tiny")
    forged(cluster, "tiny")
    cluster.delete("tiny")
    final_plan = worlds.finalize(MODELS[1], cluster.world("tiny"))
    assert final_plan is not None
    assert [words(child)[1] for child in final_plan.children] == ["unpublish"]


def test_a_tenants_job_for_a_cluster_model_takes_no_turn() -> None:
    cluster = Cluster(publicationsAtOnce=1)
    cluster.create("tiny", kind="ClusterModel")
    cluster.reconcile("tiny")
    forged(cluster, "tiny")
    cluster.models["tiny"]["status"] = {"phase": "Ready"}
    cluster.create("mine")
    cluster.reconcile("mine")
    assert cluster.busy() == ["mine"]


def test_a_registry_that_is_gone_keeps_no_model(cluster: Cluster) -> None:
    cluster.create("tiny")
    published(cluster)
    cluster.delete("tiny")
    cluster.reconcile_all(2)
    cluster.ends("tiny", fails="the registry does not answer")
    cluster.reconcile("tiny")
    assert cluster.condition("tiny") == ("False", "Failed")
    assert "the registry does not answer" in cluster.message("tiny")
    cluster.now += 601
    cluster.reconcile("tiny")
    assert cluster.models == {}


def test_a_model_that_workloads_read_waits_with_their_names(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    readers = ("Deployment chat/a", "StatefulSet chat/b")
    monkeypatch.setattr("slipway.apis.deckhouse.models.plan.users", lambda _world: readers)
    cluster.create("tiny")
    published(cluster)
    cluster.reconcile("tiny")
    cluster.delete("tiny")
    cluster.now += 5000
    cluster.reconcile("tiny")
    status = cluster.status("tiny")
    assert (status["phase"], cluster.jobs) == ("Deleting", {})
    assert cluster.condition("tiny", "ArtifactResolved") == ("True", "ArtifactPublished")
    assert "Deployment chat/a, StatefulSet chat/b" in cluster.message("tiny")
    assert status["artifact"]["digest"] == DIGEST
    monkeypatch.setattr("slipway.apis.deckhouse.models.plan.users", users.users)
    cluster.reconcile("tiny")
    assert words(cluster.job("tiny"))[1] == "unpublish"


def test_a_long_model_name_fits_every_object_that_carries_it(cluster: Cluster) -> None:
    name = "a" * 60 + "." + "b" * 190
    cluster.create(name, upload={})
    cluster.create("x." + name, HUB)
    cluster.models["x." + name]["metadata"]["uid"] = "0" * 36
    cluster.reconcile_all()
    ((place, _secret),) = cluster.secrets.items()
    ((job, manifest),) = cluster.jobs.items()
    assert len(place.name) <= 63
    assert len(job.name) <= 63
    assert all(len(text) <= 63 for text in manifest["metadata"]["labels"].values())
    assert len(words(manifest)[3].partition("/")[2]) <= 255


@pytest.mark.parametrize("api", MODELS)
def test_the_indexes_read_a_resource_without_a_spec(api: Any) -> None:
    listers = worlds.known_world(
        api, others=[{"kind": "Model", "metadata": {"name": "a", "namespace": "b", "uid": "c"}}]
    )
    assert listers.list(names.MODEL, "Turn", "waits/b")
