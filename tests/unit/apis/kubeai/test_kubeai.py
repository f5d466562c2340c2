"""What a KubeAI Model becomes, beyond the golden examples: its edges."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.apis.kubeai import KUBEAI, names
from slipway.apis.kubeai.models import cache
from slipway.apis.kubeai.models.resolve import references, resolve
from slipway.kube.caches.store import Change
from slipway.kube.objects import CONFIG_MAP, DEPLOYMENT, JOB, PERSISTENT_VOLUME_CLAIM, Key, Kind
from slipway.kube.schemas.conditions import timestamp
from slipway.kube.values.times import unix_time
from slipway.serving.contract.api import InvalidSpecError, Plan, Reference, Rejection, World
from slipway.serving.contract.settings import Settings
from slipway.serving.routing.route import routed_service
from slipway.serving.wire import agent
from tests import worlds
from tests.worlds import at

UID = "33333333-0000-0000-0000-000000000001"
CACHED = {"cacheProfile": "shared"}
CONFIG = "cacheProfiles: {shared: {sharedFilesystem: {storageClassName: nfs}}}"
OLD_IMAGES = "modelServers: {VLLM: {images: {default: vllm/vllm-openai:v0.10.2, cpu: acme/vllm-cpu:v0.10.2}}}"
DELETED = "2026-11-21T09:00:00Z"
NOW = unix_time("2026-11-21T09:05:00Z")


def world(name: str = "tiny", config: str = CONFIG, settings: Settings | None = None, **spec: Any) -> World:
    metadata = {"name": name, "namespace": "models", "uid": UID, "generation": 1, "creationTimestamp": DELETED}
    given = {"url": "hf://acme/tiny", "engine": "VLLM", "features": [], "resourceProfile": "cpu:1"} | spec
    reference = Reference(CONFIG_MAP, "system", "slipway-kubeai")
    settings = settings or Settings(system_namespace="system")
    return World(
        resource={"metadata": metadata, "spec": given},
        children={},
        pods=[],
        routed=[],
        settings=settings,
        now=NOW,
        listers=worlds.known_world(KUBEAI, settings, {reference: {"data": {"system.yaml": config}}}),
    )


def plan(world: World) -> Plan:
    return worlds.plan(KUBEAI, world)


def child(world: World, kind: str) -> dict[str, Any]:
    return next(child for child in plan(world).children if child["kind"] == kind)


def service_of(world: World) -> dict[str, Any]:
    """The Model's Service as the API server would show it."""
    service = child(world, "Service")
    return {**service, "metadata": {**service["metadata"], "creationTimestamp": DELETED}}


def container(world: World) -> dict[str, Any]:
    server: dict[str, Any] = child(world, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    return server


def condition(world: World, type_: str) -> dict[str, Any] | None:
    return next((one for one in worlds.status(KUBEAI, world).status["conditions"] if one["type"] == type_), None)


def environment(world: World) -> dict[str, Any]:
    return {variable["name"]: variable for variable in container(world)["env"]}


def with_claim(world: World, annotations: dict[str, str], **metadata: Any) -> World:
    reference = references(world.resource, world.settings)[1]
    claim = {"metadata": {"name": reference.name, "annotations": annotations, **metadata}}
    return worlds.with_objects(world, {reference: claim})


def leaving(world: World, now: float = NOW) -> World:
    metadata = world.resource["metadata"] | {"deletionTimestamp": DELETED, "finalizers": [names.FINALIZER]}
    return msgspec.structs.replace(world, resource=world.resource | {"metadata": metadata}, now=now)


def test_the_digest_of_an_adapters_url_is_the_originals() -> None:
    assert agent.label("hf://test-repo/test-adapter") == "579485db59"
    assert agent.label("s3://test-bucket/test-path") == "54dcb9d8d5"


def test_names_of_services_are_no_two_models_the_same() -> None:
    assert names.service_name("llama-3") == "model-llama-3"
    assert names.service_name("llama.3") != names.service_name("llama-3")
    assert names.adapter_service_name("a", "b-c") != names.adapter_service_name("a-b", "c")
    assert names.adapter_service_name("a", "b") != names.service_name("a-b")
    longest = names.adapter_service_name("x" * 40, "y" * 63)
    assert len(longest) == 63
    assert "." not in names.adapter_service_name("a.b", "c")


@pytest.mark.parametrize(
    ("spec", "replicas"),
    [
        ({}, 0),
        ({"minReplicas": 1}, 1),
        ({"minReplicas": 1, "replicas": 0}, 1),
        ({"replicas": 5}, 5),
        ({"replicas": 5, "maxReplicas": 3}, 3),
        ({"autoscalingDisabled": True}, None),
        ({"replicas": 5, "maxReplicas": 3, "autoscalingDisabled": True}, None),
    ],
)
def test_replicas_are_brought_into_their_bounds_unless_they_are_the_users(
    spec: dict[str, Any], replicas: int | None
) -> None:
    snapshot = world(**spec)
    assert plan(snapshot).self_patch.get("spec", {}).get("replicas") == replicas
    actual = child(snapshot, "Deployment")["spec"]["replicas"]
    assert actual == (replicas if replicas is not None else spec.get("replicas", 0))


def test_the_users_variables_win_and_stand_once() -> None:
    snapshot = world(env={"HF_TOKEN": "mine", "HF_ENDPOINT": "http://mine", "A": "1"})
    mirrored = msgspec.structs.replace(
        snapshot, settings=Settings(system_namespace="system", hugging_face_endpoint="http://hub")
    )
    listed = [variable["name"] for variable in container(mirrored)["env"]]
    assert listed == ["A", "HF_ENDPOINT", "HF_TOKEN"]
    assert environment(mirrored)["HF_ENDPOINT"]["value"] == "http://mine"


def test_a_hub_of_the_user_replaces_the_configured_one() -> None:
    snapshot = msgspec.structs.replace(
        world(env={"HF_ENDPOINT": "http://other:1"}),
        settings=Settings(system_namespace="system", hugging_face_endpoint="http://hub:8000"),
    )
    assert environment(snapshot)["HF_ENDPOINT"]["value"] == "http://other:1"


def test_working_arguments_that_kubeai_accepts_stay() -> None:
    args = ["--port=8000", "--host", "0.0.0.0", "--served_model_name", "tiny", "--seed=1"]
    assert container(world(args=args))["args"][-len(args) :] == args


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"args": ["--served_model_name=other"]}, "--served_model_name"),
        ({"args": ["--uds", "/tmp/socket"]}, "--uds"),
        ({"engine": "LlamaCpp", "args": ["-a", "x", "--port", "1"]}, "-a, --port"),
        ({"engine": "LlamaCpp", "url": "pvc://claim"}, r"\?model="),
        ({"engine": "OLlama", "url": "pvc://claim/store"}, r"\?model="),
        ({"engine": "Infinity", "features": ["TextEmbedding"], "url": "s3://bucket/x"}, "cacheProfile"),
        ({"engine": "Infinity", "features": ["TextGeneration"]}, "TextEmbedding, Reranking, not TextGeneration"),
        ({"engine": "LlamaCpp", "features": ["TextGeneration", "Reranking"]}, "a second Model for Reranking"),
        ({"url": "gs://bucket/x"}, "cacheProfile"),
        ({"url": "pvc://claim", "cacheProfile": "shared"}, "caches support only"),
        ({"url": "nonsense"}, "scheme://place"),
        ({"engine": "OLlama", "url": "ollama://x", "adapters": [{"name": "a", "url": "hf://a/b"}]}, "VLLM.*merged in$"),
        (
            {"engine": "LlamaCpp", "url": "hf://x/y", "adapters": [{"name": "a", "url": "hf://a/b"}]},
            r"merged in, or load one at startup with --lora FILE in spec\.args",
        ),
        ({"adapters": [{"name": "a-", "url": "hf://a/b"}]}, "begin and end"),
        ({"adapters": [{"name": "a", "url": "ollama://a"}]}, "must begin with one of hf"),
        ({"adapters": [{"name": "a", "url": "hf://a/b"}] * 2}, "occurs twice"),
        ({"resourceProfile": ""}, "name:count"),
        ({"features": 5}, "array"),
    ],
)
def test_invalid_settings_are_rejected_before_a_pod_is_created(spec: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidSpecError, match=complaint) as refused:
        plan(world(**spec))
    assert refused.value.reason == "InvalidSpec"


def test_a_key_of_the_configuration_that_is_not_known_stops_no_model_and_is_reported() -> None:
    snapshot = world(config="{modelServers: {VLLM: {image: a}}, later: 1}")
    snapshot.resource["metadata"]["labels"] = {"krypton.ai/model": "x"}
    assert plan(snapshot).children
    fields_ignored = {one["type"]: one for one in worlds.status(KUBEAI, snapshot).status["conditions"]}["FieldsIgnored"]
    assert fields_ignored["reason"] == "ReservedLabels"
    assert fields_ignored["message"].endswith("unknown keys without effect: modelServers.VLLM.image, later.")
    del snapshot.resource["metadata"]["labels"]
    fields_ignored = {one["type"]: one for one in worlds.status(KUBEAI, snapshot).status["conditions"]}["FieldsIgnored"]
    assert (fields_ignored["status"], fields_ignored["reason"]) == ("True", "UnknownKeys")


@pytest.mark.parametrize(("replication", "ignored"), [(None, False), (20, False), (256, False), (100, True)])
def test_another_size_of_the_hash_ring_is_reported_as_ignored(replication: int | None, ignored: bool) -> None:
    hashed = {} if replication is None else {"replication": replication}
    reported = condition(world(loadBalancing={"strategy": "PrefixHash", "prefixHash": hashed}), "FieldsIgnored")
    assert bool(reported) is ignored
    assert reported is None or reported["reason"] == "UnsupportedFields"
    assert reported is None or "prefixHash.replication" in reported["message"]


def test_a_profile_gets_its_devices_by_a_claim() -> None:
    profile = "resourceProfiles: {gpu: {requests: {cpu: 1, rdma/ib: 1}, dra: {resourceClaimTemplateName: one-gpu}}}"
    snapshot = world(config=profile, resourceProfile="gpu:2")
    pod = child(snapshot, "Deployment")["spec"]["template"]["spec"]
    assert pod["resourceClaims"] == [{"name": "gpu-claim", "resourceClaimTemplateName": "one-gpu"}]
    assert container(snapshot)["resources"] == {
        "requests": {"cpu": "2", "rdma/ib": "2"},
        "claims": [{"name": "gpu-claim", "request": "gpu"}],
    }

    shared = "{resourceClaimName: all, claimName: mine, claimRequest: ''}"
    snapshot = world(config=profile.replace("{resourceClaimTemplateName: one-gpu}", shared), resourceProfile="gpu:1")
    pod = child(snapshot, "Deployment")["spec"]["template"]["spec"]
    assert pod["resourceClaims"] == [{"name": "mine", "resourceClaimName": "all"}]
    assert container(snapshot)["resources"]["claims"] == [{"name": "mine"}]


def test_infinity_alone_has_no_security_context() -> None:
    assert "securityContext" not in container(world(engine="Infinity"))
    config = "modelServerPods: {securityContext: {runAsUser: 7}}"
    assert "securityContext" not in container(world(engine="Infinity", config=config))
    assert container(world(engine="VLLM", config=config))["securityContext"] == {"runAsUser": 7}


@pytest.mark.parametrize(
    ("url", "file", "folder"),
    [
        ("pvc://claim/path/model.gguf", "/model/model.gguf", "path"),
        ("pvc://claim/deep/path/Model.GGUF", "/model/Model.GGUF", "deep/path"),
        ("pvc://claim/model.gguf", "/model/model.gguf", None),
        ("pvc://claim/path?model=model.gguf", "/model/model.gguf", "path"),
        ("pvc://claim/path.gguf?model=model.gguf", "/model/model.gguf", "path.gguf"),
    ],
)
def test_llama_cpp_takes_a_file_of_a_claim_by_its_path(url: str, file: str, folder: str | None) -> None:
    server = container(world(engine="LlamaCpp", url=url))
    (mount,) = (mount for mount in server["volumeMounts"] if mount["mountPath"] == "/model")
    assert server["args"][server["args"].index("--model") + 1] == file
    assert mount.get("subPath") == folder


@pytest.mark.parametrize(
    ("engine", "flags"), [("LlamaCpp", ["--embedding", "--reranking"]), ("SGLang", ["--is-embedding"])]
)
def test_a_process_that_embeds_reranks_as_well(engine: str, flags: list[str]) -> None:
    args = container(world(engine=engine, features=["TextEmbedding", "Reranking"]))["args"]
    assert [arg for arg in args if "embedding" in arg or "rerank" in arg] == flags


@pytest.mark.parametrize(("given", "refused"), [(99, False), (100, True)])
def test_too_many_labels_for_a_route_are_refused_in_both_conditions(given: int, refused: bool) -> None:
    snapshot = world(features=["TextGeneration"])
    snapshot.resource["metadata"]["labels"] = {f"team-{number}": "x" for number in range(given)}
    if not refused:
        assert len(routed_service(service_of(snapshot)).route.labels) == 100
        return
    with pytest.raises(InvalidSpecError, match=r"metadata\.labels: 101 .* exceed the limit of 100") as excinfo:
        plan(snapshot)
    status = worlds.status(KUBEAI, snapshot, Rejection(excinfo.value.reason, excinfo.value.message)).status
    conditions = {condition["type"]: condition for condition in status["conditions"]}
    assert conditions["Accepted"]["message"] == f"{excinfo.value.message}."
    assert conditions["Available"]["reason"] == "InvalidSpec", "the column REASON of kubectl get"


def test_labels_of_more_text_than_a_route_may_have_are_refused() -> None:
    snapshot = world(features=["TextGeneration"])
    snapshot.resource["metadata"]["labels"] = {f"{number}-{'k' * 60}": "v" * 63 for number in range(80)}
    with pytest.raises(InvalidSpecError, match=r"metadata\.labels: they exceed the limit of 8192 characters"):
        plan(snapshot)


def test_an_engine_without_image_is_refused() -> None:
    with pytest.raises(InvalidSpecError) as refused:
        plan(world(config="modelServers: {VLLM: {images: {default: ''}}}", resourceProfile="nvidia-gpu-h100:1"))
    assert refused.value.reason == "NoImage"
    assert container(world(config="modelServers: {VLLM: {images: {default: ''}}}", image="own:1"))["image"] == "own:1"


def test_patches_must_leave_the_pod_findable() -> None:
    config = "modelServerPods: {jsonPatches: [{op: remove, path: /metadata/labels/model}]}"
    with pytest.raises(InvalidSpecError, match="labels app=model, model=tiny") as refused:
        plan(world(config=config))
    assert refused.value.reason == "InvalidConfig"


def test_patches_of_a_model_change_its_pods_before_those_of_the_operator() -> None:
    own = [
        {"op": "add", "path": "/spec/hostname", "value": "mine"},
        {"op": "add", "path": "/spec/terminationGracePeriodSeconds", "value": 600},
        {"op": "copy", "from": "/metadata/labels/model", "path": "/metadata/labels/team"},
    ]
    config = "modelServerPods: {jsonPatches: [{op: replace, path: /spec/hostname, value: theirs}]}"
    template = child(world(config=config, jsonPatches=own), "Deployment")["spec"]["template"]
    assert (template["spec"]["hostname"], template["spec"]["terminationGracePeriodSeconds"]) == ("theirs", 600)
    assert template["metadata"]["labels"]["team"] == "tiny"


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"op": "remove", "path": "/spec/nothing"}, "spec.jsonPatches cannot be applied to the pod: operation 0"),
        ({"op": "add", "path": "/spec/hostname"}, "spec.jsonPatches cannot be applied to the pod: operation 0"),
        ({"op": "remove", "path": "/metadata/labels/model"}, "spec.jsonPatches must keep the pod's spec"),
        ({"op": "replace", "path": "/spec", "value": 1}, "spec.jsonPatches must keep the pod's spec"),
    ],
)
def test_patches_of_a_model_that_cannot_be_applied_are_refused(patch: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidSpecError) as refused:
        plan(world(jsonPatches=[patch]))
    assert refused.value.reason == "InvalidSpec"
    assert expected in refused.value.message


def test_a_changed_file_makes_other_pods_and_a_changed_label_does_not() -> None:
    one, two = (world(files=[{"path": "/a", "content": content}]) for content in ("1", "2"))
    deployment = child(one, "Deployment")
    running = msgspec.structs.replace(one, children={at(DEPLOYMENT, "model-tiny"): deployment})
    running.resource["metadata"]["labels"] = {"new": "label"}
    assert child(running, "Deployment")["spec"]["template"] == deployment["spec"]["template"]
    assert child(two, "Deployment")["spec"]["template"] != deployment["spec"]["template"]


def test_two_files_never_share_a_key() -> None:
    paths = ["/a/b", "/a_b", "/a b", "/" + "x" * 300]
    snapshot = world(files=[{"path": path, "content": path} for path in paths])
    data = child(snapshot, "ConfigMap")["data"]
    mounts = {
        mount["mountPath"]: mount["subPath"] for mount in container(snapshot)["volumeMounts"] if "subPath" in mount
    }
    assert {path: data[mounts[path]] for path in paths} == {path: path for path in paths}


def test_requests_wait_long_for_a_pod_that_waits_for_a_node_but_not_for_one_that_crashes() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": DELETED}
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": DELETED, "message": "out of luck"}}
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    crashed = {"name": "server", "restartCount": 3, "state": waits, "lastState": ended}
    metadata = {"name": "model-tiny-1", "namespace": "models", "uid": "p1", "creationTimestamp": DELETED}
    for status, long in (({"conditions": [condition]}, True), ({"containerStatuses": [crashed]}, False)):
        pod = {"metadata": metadata, "status": {"phase": "Pending", **status}}
        route = routed_service(service_of(msgspec.structs.replace(world(), pods=[pod]))).route
        assert (route.scale is not None) is long


def test_only_the_desired_scaling_is_passed_on() -> None:
    assert worlds.scaling(KUBEAI, world(autoscalingDisabled=True)) is None
    assert worlds.scaling(KUBEAI, world(resourceProfile="cpu")) is not None
    scaling = worlds.scaling(
        KUBEAI, world(config="modelAutoscaling: {timeWindow: 1m}", targetRequests=5, maxReplicas=3)
    )
    assert scaling is not None
    assert (scaling.target_requests, scaling.max_replicas, scaling.window) == (5, 3, 60.0)


def test_a_model_with_a_cache_has_no_pods_before_it_is_filled() -> None:
    kinds = [child["kind"] for child in plan(world(**CACHED)).children]
    assert kinds == ["Service", "Job"]
    filled = with_claim(world(**CACHED), {"models.kubeai.org/tiny": f'{{"uid":"{UID}"}}'})
    assert [child["kind"] for child in plan(filled).children] == ["Service", "Deployment"]


@pytest.mark.parametrize(
    "text", ["", "no json", "[]", '{"uid": "other"}', f'{{"uid":"{UID}","url":"hf://acme/other"}}']
)
def test_an_annotation_that_is_not_this_models_means_not_loaded(text: str) -> None:
    assert not cache.is_loaded(resolve(with_claim(world(**CACHED), {"models.kubeai.org/tiny": text})))


@pytest.mark.parametrize("url", ["", "hf://acme/tiny"])
def test_the_originals_word_counts_without_a_url_and_options_change_no_weights(url: str) -> None:
    note = {"uid": UID} | ({"url": url} if url else {})
    snapshot = world(url="hf://acme/tiny?model=a.gguf", engine="LlamaCpp", **CACHED)
    assert cache.is_loaded(
        resolve(with_claim(snapshot, {"models.kubeai.org/tiny": msgspec.json.encode(note).decode()}))
    )


@pytest.mark.parametrize("how", ["Complete", "Failed"])
def test_a_load_of_the_url_of_before_has_neither_filled_the_cache_nor_failed_to(how: str) -> None:
    snapshot = with_claim(world(**CACHED), {})
    done = {"type": how, "status": "True", "lastTransitionTime": "2026-11-21T09:04:50Z"}
    observed = child(snapshot, "Job") | {"status": {"conditions": [done]}}
    own = msgspec.structs.replace(snapshot, children={at(JOB, "load-cache-tiny"): observed})
    assert bool(plan(own).metadata_patches) == (how == "Complete")
    assert (cache.failed_since(resolve(own)) is not None) == (how == "Failed")
    resource = {**snapshot.resource, "spec": {**snapshot.resource["spec"], "url": "hf://acme/other"}}
    changed = msgspec.structs.replace(own, resource=resource)
    assert not plan(changed).metadata_patches
    assert cache.failed_since(resolve(changed)) is None
    assert child(changed, "Job")["spec"]["template"] != observed["spec"]["template"]


def load_job(world: World, **status: Any) -> dict[str, Any]:
    """The Job that loads the cache, as the API server would show it."""
    job = child(world, "Job")
    return job | {"metadata": job["metadata"] | {"uid": "job", "creationTimestamp": DELETED}, "status": status}


def load_pod(name: str, words: str, job: str = "job") -> dict[str, Any]:
    """One that failed. ``job``: uid of the Job that made it."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "load-cache-tiny", "uid": job, "controller": True}
    ended = {"name": "loader", "state": {"terminated": {"exitCode": 1, "message": words}}}
    metadata = {"name": name, "namespace": "models", "uid": name, "creationTimestamp": DELETED}
    return {
        "metadata": metadata | {"ownerReferences": [owner]},
        "status": {"phase": "Failed", "containerStatuses": [ended]},
    }


def test_attempts_of_an_earlier_job_of_the_same_name_do_not_count() -> None:
    snapshot = with_claim(world(**CACHED), {})
    pods = [load_pod("new", "no answer"), *(load_pod(f"old-{one}", "no space", "before") for one in range(3))]
    seen = msgspec.structs.replace(snapshot, children={at(JOB, "load-cache-tiny"): load_job(snapshot)}, pods=pods)
    message = worlds.status(KUBEAI, seen).status["cache"]["message"]
    assert "1 attempt failed: no answer" in message


def failed_load(words: str, seconds: float) -> World:
    """A Model whose load gave up with these words, so long ago."""
    snapshot = with_claim(world(**CACHED), {})
    over = {"type": "Failed", "status": "True", "lastTransitionTime": timestamp(NOW - seconds)}
    jobs = {at(JOB, "load-cache-tiny"): load_job(snapshot, conditions=[over])}
    return msgspec.structs.replace(snapshot, children=jobs, pods=[load_pod("p", words)])


def jobs_of(world: World) -> list[str]:
    return [manifest["metadata"]["name"] for manifest in plan(world).children if manifest["kind"] == "Job"]


@pytest.mark.parametrize("fault", ["SourceNotAllowed", "InvalidFileSet", "IntegrityCheckFailed"])
def test_a_load_that_another_try_does_not_help_is_not_repeated(fault: str) -> None:
    snapshot = failed_load(f"{fault}: it is no use", 9000)
    assert jobs_of(snapshot) == ["load-cache-tiny"]
    outcome = worlds.status(KUBEAI, snapshot)
    text = "it is no use. Change the spec, or delete the Job load-cache-tiny to try again."
    assert outcome.status["cache"]["message"] == f"The weights could not be loaded into the cache: {text}"
    assert {"CacheLoadFailed"} == {
        one["reason"] for one in outcome.status["conditions"] if one["type"] == "CacheLoaded"
    }
    assert outcome.recheck_seconds is None


def test_a_load_that_another_try_may_help_is_repeated_after_five_minutes() -> None:
    soon, due = failed_load("no answer", 250), failed_load("no answer", 300)
    assert (jobs_of(soon), jobs_of(due)) == (["load-cache-tiny"], [])
    assert worlds.status(KUBEAI, soon).recheck_seconds == 50
    assert "It is retried automatically." in worlds.status(KUBEAI, soon).status["cache"]["message"]


def test_a_note_on_a_claim_concerns_its_model_and_the_claims_end_concerns_all() -> None:
    def claim(notes: dict[str, str], **metadata: Any) -> dict[str, Any]:
        annotations = {"pv.kubernetes.io/bind-completed": "yes"} | {
            f"models.kubeai.org/{n}": v for n, v in notes.items()
        }
        name = {"name": f"shared-model-cache-{CACHED['cacheProfile']}", "namespace": "models"}
        return {"kind": "PersistentVolumeClaim", "metadata": {**name, "annotations": annotations, **metadata}}

    everybody = {name: world(name, **CACHED).resource for name in ("x", "y")}
    seen = worlds.known_world(KUBEAI, others=everybody.values())
    (watch,) = (one for one in KUBEAI.watches(Settings(system_namespace="s")) if one.kind == PERSISTENT_VOLUME_CLAIM)

    def concerned(old: dict[str, Any] | None, new: dict[str, Any] | None) -> set[str]:
        return {key.name for key in watch.enqueue(Change(old, new), seen)}

    some, bare = claim({"a": "1", "b": "1"}), claim({})
    assert concerned(some, claim({"a": "1", "b": "2"})) == {"b"}
    assert concerned(some, claim({"b": "1", "c.d": "1"})) == {"a", "c.d"}
    assert concerned(bare, some | {"status": {}}) == {"a", "b"}
    assert concerned(some, some | {"status": {"phase": "Bound"}}) == set()
    assert concerned(some, claim({"a": "1", "b": "1"}, deletionTimestamp=DELETED)) == {"x", "y"}
    assert concerned(None, some) == concerned(some, None) == {"x", "y"}


def test_no_load_starts_on_a_claim_that_is_being_deleted() -> None:
    going = with_claim(world(**CACHED), {}, deletionTimestamp=DELETED)
    assert [child["kind"] for child in plan(going).children] == ["Service"]
    message = worlds.status(KUBEAI, going, None).status["cache"]["message"]
    assert "shared-model-cache-shared is being deleted" in message


def test_a_job_whose_pods_the_cluster_refuses_is_reported_after_a_moment() -> None:
    snapshot = with_claim(world(**CACHED), {})
    manifest = child(snapshot, "Job")
    job = manifest | {"metadata": manifest["metadata"] | {"creationTimestamp": "2026-11-21T09:04:50Z"}}
    waiting = msgspec.structs.replace(snapshot, children={at(JOB, "load-cache-tiny"): job})
    assert worlds.status(KUBEAI, waiting, None).recheck_seconds == 10
    late = worlds.status(KUBEAI, msgspec.structs.replace(waiting, now=NOW + 11), None).status["conditions"]
    assert {condition["type"]: condition["reason"] for condition in late}["CacheLoaded"] == "PodsRejected"


def test_a_missing_account_is_reported_with_the_api_servers_message() -> None:
    snapshot = world(config="modelServerPods: {serviceAccountName: kubeai-models}", minReplicas=1)
    text = (
        'pods "model-tiny-5d9c7b6f4-" is forbidden: error looking up service account models/kubeai-models:'
        ' serviceaccount "kubeai-models" not found'
    )
    failed = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": text}
    deployment = child(snapshot, "Deployment")
    assert deployment["spec"]["template"]["spec"]["serviceAccountName"] == "kubeai-models"
    for seconds, reason in ((4, "WaitingForPods"), (6, "PodsRejected")):
        conditions = [failed | {"lastTransitionTime": DELETED}]
        children = {at(DEPLOYMENT, "model-tiny"): {**deployment, "status": {"conditions": conditions}}}
        seen = msgspec.structs.replace(snapshot, children=children, now=unix_time(DELETED) + seconds)
        conditions_by_type = {
            condition["type"]: condition for condition in worlds.status(KUBEAI, seen, None).status["conditions"]
        }
        assert conditions_by_type["Available"]["reason"] == reason, "the column REASON of kubectl get"
    assert text in conditions_by_type["Available"]["message"]


def test_a_missing_account_is_also_reported_for_a_cache() -> None:
    snapshot = with_claim(
        world(config=f"{CONFIG}\nmodelServerPods: {{serviceAccountName: kubeai-models}}", **CACHED), {}
    )
    manifest = child(snapshot, "Job")
    job = manifest | {"metadata": manifest["metadata"] | {"creationTimestamp": DELETED}}
    waiting = msgspec.structs.replace(snapshot, children={at(JOB, "load-cache-tiny"): job})
    conditions = {
        condition["type"]: condition for condition in worlds.status(KUBEAI, waiting, None).status["conditions"]
    }
    assert conditions["Available"]["reason"] == "PodsRejected"
    assert "needs the ServiceAccount kubeai-models in this namespace" in conditions["Available"]["message"]


def test_labels_of_a_model_cannot_mark_its_pods_as_having_an_adapter() -> None:
    snapshot = world(adapters=[{"name": "a", "url": "hf://acme/a"}])
    names_of_both = [f"{prefix}a" for prefix in (names.ADAPTER_LABEL, agent.SERVING_LABEL)]
    snapshot.resource["metadata"]["labels"] = dict.fromkeys(names_of_both, agent.SERVING) | {"team": "search"}
    labels = child(snapshot, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert labels["team"] == "search"
    assert not labels.keys() & set(names_of_both)


def test_a_pod_gets_no_requests_while_its_engine_lacks_adapters_that_it_had() -> None:
    adapted = world(adapters=[{"name": "a", "url": "hf://acme/a"}])
    containers = child(adapted, "Deployment")["spec"]["template"]["spec"]["containers"]
    probe = next(one for one in containers if one["name"] == agent.CONTAINER)["readinessProbe"]
    assert probe["httpGet"] == {"path": "/healthz", "port": agent.PORT}
    assert (probe["periodSeconds"], probe["failureThreshold"]) == (1, 1)


def test_credentials_go_only_where_they_are_needed() -> None:
    adapted = world(adapters=[{"name": "a", "url": "s3://bucket/a"}])
    spec = child(adapted, "Deployment")["spec"]["template"]["spec"]
    engine, loader = ({variable["name"] for variable in one["env"]} for one in spec["containers"])
    assert engine == {"VLLM_ALLOW_RUNTIME_LORA_UPDATING", "HF_TOKEN"}
    assert loader == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} | OURS


OURS = {"SLIPWAY_CONTROLLER_KEY", "SLIPWAY_POD_UID"}
"""By which a loader knows the controller, and the controller its pod."""


@pytest.mark.parametrize("spec", [{"adapters": [{"name": "a", "url": "s3://bucket/a"}]}, {"cacheProfile": "shared"}])
def test_no_variable_of_a_model_takes_the_place_of_the_controllers_key(spec: dict[str, Any]) -> None:
    snapshot = msgspec.structs.replace(world(**spec, env=dict.fromkeys(OURS, "mine")), controller_key="theirs")
    kind = "Job" if "cacheProfile" in spec else "Deployment"
    containers = child(snapshot, kind)["spec"]["template"]["spec"]["containers"]
    given = [one for container in containers if container["name"] == "loader" for one in container["env"]]
    assert [one for one in given if one["name"] in OURS] == [
        {"name": "SLIPWAY_CONTROLLER_KEY", "value": "theirs"},
        {"name": "SLIPWAY_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
    ]


NOTE, RECORD = "models.kubeai.org/tiny", "slipway.inference/cache-profile"


def without_cache(notes: dict[str, str], **spec: Any) -> World:
    """A Model that used the cache before, and still does only if ``spec`` sets it."""
    snapshot = world(**spec)
    snapshot.resource["metadata"]["annotations"] = {RECORD: "shared"}
    return with_claim(snapshot, notes)


def job_of_eviction(world: World, **status: Any) -> dict[tuple[Kind, Key], Any]:
    manifest = child(world, "Job")
    assert manifest["metadata"]["name"] == "evict-cache-tiny"
    return {at(JOB, "evict-cache-tiny"): {**manifest, "status": status}}


COMPLETE = {"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": DELETED}]}


def test_a_model_remembers_where_its_weights_lie_and_one_without_a_cache_nothing() -> None:
    assert plan(world(**CACHED)).self_patch["metadata"]["annotations"] == {RECORD: "shared"}
    assert "annotations" not in plan(world()).self_patch.get("metadata", {})


def test_the_weights_of_a_cache_that_is_given_up_go_when_no_pod_has_them_mounted() -> None:
    before = child(with_claim(world(**CACHED), {NOTE: f'{{"uid":"{UID}"}}'}), "Deployment")
    snapshot = without_cache({NOTE: "{}"})
    now = child(snapshot, "Deployment")
    pods = [
        {"metadata": {**deployment["spec"]["template"]["metadata"], "creationTimestamp": DELETED}}
        for deployment in (now, before)
    ]
    for observed, running in ((before, []), (now, pods), (now, pods[1:])):
        seen = msgspec.structs.replace(snapshot, children={at(DEPLOYMENT, "model-tiny"): observed}, pods=running)
        assert [one["kind"] for one in plan(seen).children] == ["Service", "Deployment"]
        assert plan(seen).metadata_patches == ()
    free = msgspec.structs.replace(snapshot, children={at(DEPLOYMENT, "model-tiny"): now}, pods=pods[:1])
    (note,) = plan(free).metadata_patches
    assert note.annotations == {NOTE: None}
    assert [one["kind"] for one in plan(free).children] == ["Service", "Deployment"], "the claim forgets them first"


def test_weights_that_are_still_being_loaded_are_not_removed_meanwhile() -> None:
    job = child(with_claim(world(**CACHED), {}), "Job")
    snapshot = msgspec.structs.replace(without_cache({}), children={at(JOB, "load-cache-tiny"): job})
    assert [one["kind"] for one in plan(snapshot).children] == ["Service", "Deployment"]


def test_the_removal_of_weights_is_one_job_and_then_forgotten() -> None:
    snapshot = without_cache({})
    jobs = job_of_eviction(snapshot)
    container = jobs[at(JOB, "evict-cache-tiny")]["spec"]["template"]["spec"]["containers"][0]
    assert container["args"] == ["loader", "evict", f"/models/tiny-{UID}"]
    assert plan(snapshot).self_patch.get("metadata") is None
    over = msgspec.structs.replace(snapshot, children=job_of_eviction(snapshot, **COMPLETE))
    for done in (over, world_without_claim(snapshot)):
        assert [one["kind"] for one in plan(done).children] == ["Service", "Deployment"]
        assert plan(done).self_patch["metadata"]["annotations"] == {RECORD: None}


def world_without_claim(world: World) -> World:
    return worlds.without(world, PERSISTENT_VOLUME_CLAIM)


def test_a_cache_that_is_asked_for_again_is_filled_after_the_removal() -> None:
    removing = job_of_eviction(without_cache({}))
    again = msgspec.structs.replace(without_cache({}, **CACHED), children=removing)
    jobs = [one["metadata"]["name"] for one in plan(again).children if one["kind"] == "Job"]
    assert jobs == ["evict-cache-tiny"]
    assert "being removed" in worlds.status(KUBEAI, again, None).status["cache"]["message"]
    over = msgspec.structs.replace(
        again, children={name: {**job, "status": COMPLETE} for name, job in removing.items()}
    )
    assert [one["metadata"]["name"] for one in plan(over).children if one["kind"] == "Job"] == ["load-cache-tiny"]


def test_the_deletion_of_a_model_that_gave_its_cache_up_removes_the_weights_too() -> None:
    snapshot = leaving(without_cache({NOTE: "{}"}))
    final_plan = worlds.finalize(KUBEAI, snapshot)
    assert final_plan is not None
    assert [one["metadata"]["name"] for one in final_plan.children] == ["evict-cache-tiny"]
    assert worlds.finalize(KUBEAI, leaving(world())) is None


def test_deletion_waits_for_pods_but_not_for_those_of_a_lost_node() -> None:
    filled = leaving(with_claim(world(**CACHED), {"models.kubeai.org/tiny": f'{{"uid":"{UID}"}}'}))
    going = {"metadata": {"name": "p", "deletionTimestamp": DELETED}, "status": {"phase": "Running"}}
    waiting = msgspec.structs.replace(filled, pods=[going], now=unix_time(DELETED) + 10)
    assert worlds.finalize(KUBEAI, waiting) == Plan(children=())
    lost = worlds.finalize(KUBEAI, msgspec.structs.replace(waiting, now=unix_time(DELETED) + 400))
    assert lost is not None
    assert [manifest["metadata"]["name"] for manifest in lost.children] == ["evict-cache-tiny"]


def test_deletion_ends_without_claim_profile_or_configuration() -> None:
    assert worlds.finalize(KUBEAI, leaving(world())) is None
    assert worlds.finalize(KUBEAI, leaving(world(**CACHED))) is None
    assert worlds.finalize(KUBEAI, leaving(with_claim(world(**CACHED), {}, deletionTimestamp=DELETED))) is None
    broken = leaving(with_claim(world(config="nonsense: 1", **CACHED), {}))
    assert worlds.finalize(KUBEAI, broken) is not None
    assert worlds.finalize(KUBEAI, leaving(broken, now=NOW + 1000)) is None


def test_a_deletion_is_looked_at_again_without_an_event() -> None:
    verdict = worlds.status(KUBEAI, leaving(with_claim(world(**CACHED), {})), None)
    assert verdict.recheck_seconds is not None
    reasons = {condition["type"]: condition["reason"] for condition in verdict.status["conditions"]}
    assert reasons["Available"] == "Leaving"


def test_a_spec_that_cannot_be_read_has_a_status_all_the_same() -> None:
    snapshot = world(url="nonsense", adapters=[{"name": "a", "url": "hf://a/b"}], **CACHED)
    status = worlds.status(KUBEAI, snapshot, Rejection("InvalidSpec", "no")).status
    reasons = {condition["type"]: condition["reason"] for condition in status["conditions"]}
    assert reasons["CacheLoaded"] == reasons["AdaptersLoaded"] == reasons["Accepted"] == "InvalidSpec"


def test_a_flag_that_the_default_image_no_longer_has_is_left_out_and_named() -> None:
    snapshot = world(args=["--max-model-len=1024", "--disable-log-requests", "--enable-chunked-prefill=false"])
    assert "--disable-log-requests" not in container(snapshot)["args"]
    assert container(snapshot)["args"][-2:] == ["--max-model-len=1024", "--no-enable-chunked-prefill"]
    fields_ignored = condition(snapshot, "FieldsIgnored")
    assert fields_ignored
    assert fields_ignored["reason"] == "RetiredFlags"
    assert "--disable-log-requests (left out)" in fields_ignored["message"]
    assert "--enable-chunked-prefill (replaced by --no-enable-chunked-prefill)" in fields_ignored["message"]


@pytest.mark.parametrize("chosen", [{"image": "vllm/vllm-openai:v0.33.0"}, {"config": OLD_IMAGES}])
def test_with_an_image_of_an_author_or_operator_every_flag_stays(chosen: dict[str, str]) -> None:
    snapshot = world(args=["--disable-log-requests"], **chosen)
    assert "--disable-log-requests" in container(snapshot)["args"]
    assert condition(snapshot, "FieldsIgnored") is None
