"""Every example in ``models/`` becomes the children, the plan and the status that its expected.txt says.

An example has the ``resource``, the other Models of its namespace (``related``), the services and pods that use them
(``users``), claims that are ``observed``, the operator's ``settings``, and ``jobs``: of those that the Model wants,
what became of them and of their pods.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from slipway.apis.llmkube import MODELS, names
from slipway.apis.llmkube.models import loaders
from slipway.apis.llmkube.models import spec as model_spec
from slipway.apis.llmkube.models.cache import encode_record
from slipway.apis.llmkube.types.model import ModelStatus
from slipway.kube.objects import JOB, NODE, deleting
from slipway.kube.schemas.conditions import timestamp
from slipway.serving.contract.api import InvalidSpecError, Plan, Reference, Rejection, World
from slipway.serving.contract.settings import Settings, Sources
from slipway.serving.wire.agent import AgentReport
from tests import documents, goldens, worlds
from tests.tables import each
from tests.worlds import at

from ..test_golden import CONTROLLER_KEY, NOW, beside_children

EXAMPLES = goldens.examples(Path(__file__).parent / "models")


def example(path: Path) -> World:
    document = documents.read(path)
    resource, settings = document["resource"], msgspec.convert(document.get("settings", {}), Settings)
    for claim in document.get("observed", []):
        claim["metadata"].setdefault("uid", "uid-of-claim")
    others = [*document.get("related", []), *document.get("users", []), *document.get("observed", [])]
    world = world_of(resource, others, settings)
    resource["metadata"].setdefault("annotations", {}).update(carried_over(world))
    reports = {pod: msgspec.convert(report, AgentReport) for pod, report in document.get("agents", {}).items()}
    snapshot = msgspec.structs.replace(world_of(resource, others, settings), agents=reports)
    return with_jobs(snapshot, document.get("jobs", {}))


def world_of(resource: dict[str, Any], others: list[dict[str, Any]], settings: Settings) -> World:
    return World(
        resource=resource,
        children={},
        pods=[],
        routed=[],
        settings=settings,
        controller_key=CONTROLLER_KEY,
        now=NOW,
        listers=worlds.known_world(MODELS, settings, others=[resource, *others]),
    )


def carried_over(world: World) -> dict[str, str]:
    """The records that fall to a Model, off the claim of an example, which has them as earlier versions wrote them."""
    view = MODELS.resolve(world)
    records = {one.place.annotation: encode_record(one.record, view.claim) for one in view.orphaned if one.record}
    for annotation in records:
        view.claim["metadata"]["annotations"].pop(annotation)  # type: ignore[index]
    return records


def with_jobs(world: World, expected: dict[str, Any]) -> World:
    """The Jobs that the Model wants, as the cluster has them a while later."""
    children, pods = {}, []
    plan, _refusal = planned(world)
    manifests = {child["metadata"]["name"]: child for child in plan.children} if plan else {}
    for what, description in expected.items():
        name = names.job_name(world.resource["metadata"]["name"], what)
        job = copy.deepcopy(manifests[name])
        job["metadata"] |= {
            "uid": f"uid-of-{what}",
            "creationTimestamp": description.get("created", "2026-11-21T09:00:00Z"),
        }
        if "ended" in description:
            over = {"status": "True", "lastTransitionTime": description.get("at", "2026-11-21T09:04:00Z")}
            job["status"] = {"conditions": [{"type": description["ended"], **over}]}
        children[at(JOB, name)] = job
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"uid-of-{what}", "controller": True}
        pods += [_pod(number, one, owner) for number, one in enumerate(description.get("pods", []))]
    return msgspec.structs.replace(world, children=children, pods=pods)


def _pod(number: int, status: dict[str, Any], owner: dict[str, Any]) -> dict[str, Any]:
    metadata = {
        "name": f"loader-{number}",
        "namespace": "models",
        "uid": f"uid-of-pod-{number}",
        "creationTimestamp": timestamp(NOW - 200 + number),
        "ownerReferences": [owner],
    }
    return {"metadata": metadata, "status": status}


def planned(world: World) -> tuple[Plan | None, Rejection | None]:
    try:
        return (worlds.finalize(MODELS, world) if deleting(world.resource) else worlds.plan(MODELS, world)), None
    except InvalidSpecError as error:
        return None, Rejection(error.reason, error.message)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_has_the_expected_outcome(path: Path) -> None:
    world = example(path)
    plan, rejection = planned(world)
    verdict = worlds.status(MODELS, world, rejection)
    outcome = {
        "children": list(plan.children) if plan else [],
        "plan": beside_children(plan) if plan else "nothing",
        "status": verdict.status,
        "recheckSeconds": verdict.recheck_seconds,
    }
    goldens.check(path, outcome)


@each(EXAMPLES, ids=lambda path: path.stem)
def test_a_status_has_fields_of_its_schema_only(path: Path) -> None:
    world = example(path)
    status = worlds.status(MODELS, world, planned(world)[1]).status
    assert msgspec.json.decode(msgspec.json.encode(msgspec.convert(status, ModelStatus))) == status
    assert all(condition["reason"] and condition["message"] for condition in status["conditions"])


@each(EXAMPLES, ids=lambda path: path.stem)
def test_planning_twice_gives_the_same(path: Path) -> None:
    world = example(path)
    assert planned(world) == planned(world)


@each(EXAMPLES, ids=lambda path: path.stem)
def test_an_unchanged_status_keeps_its_time(path: Path) -> None:
    world = example(path)
    rejection = planned(world)[1]
    first = worlds.status(MODELS, world, rejection).status
    later = msgspec.structs.replace(world, resource=world.resource | {"status": first}, now=NOW + 0.5)
    assert worlds.status(MODELS, later, rejection).status == first


def test_the_recorded_facts_of_weights_outlast_the_node_that_read_them() -> None:
    world = example(Path(__file__).parent / "models" / "pvc-read.yaml")
    first = worlds.status(MODELS, world, None).status
    assert first["phase"] == "Ready"
    assert first["gguf"]
    resource = world.resource | {"status": first, "spec": world.resource["spec"] | {"sha256": first["sha256"]}}
    alone = msgspec.structs.replace(world, resource=resource, children={}, pods=[])
    later = worlds.status(MODELS, alone, None).status
    assert (later["phase"], later["sha256"], later["gguf"]) == ("Ready", first["sha256"], first["gguf"])
    assert [child["metadata"]["name"] for child in worlds.plan(MODELS, alone).children] == ["tiny-inspect"]
    newer = resource | {"metadata": resource["metadata"] | {"generation": 2}}
    assert worlds.status(MODELS, msgspec.structs.replace(alone, resource=newer), None).status["phase"] == "Pending"
    resource["spec"]["sha256"] = "cd" * 32
    assert worlds.status(MODELS, alone, None).status["phase"] == "Pending"


def test_weights_on_a_claim_that_no_engine_can_read_are_reported() -> None:
    world = example(Path(__file__).parent / "models" / "pvc-read.yaml")
    (terminated,) = (
        one["state"]["terminated"] for pod in world.pods for one in pod["status"].get("containerStatuses", [])
    )
    fault = "tiny.gguf is a Git LFS pointer, not the weights"
    terminated["message"] = json.dumps({**json.loads(terminated["message"]), "fault": fault})
    status = worlds.status(MODELS, world, None).status
    assert (status["phase"], status["conditions"][0]["reason"]) == ("Failed", "UnsupportedSource")
    assert fault in status["conditions"][0]["message"]


@pytest.mark.parametrize(("passed", "noted"), [(0, 0), (59, 0), (61, 1)])
def test_an_answer_is_waited_for_that_is_seen_after_the_end_of_its_job(passed: int, noted: int) -> None:
    world = example(Path(__file__).parent / "models" / "drift-due.yaml")
    over = {"ended": "Complete", "at": timestamp(NOW - passed), "pods": []}
    plan, _refusal = planned(with_jobs(world, {"revalidate": over}))
    assert plan
    assert [child["metadata"]["name"] for child in plan.children] == ["tiny-revalidate"]
    assert len(plan.metadata_patches) == noted


def model(source: str, settings: Settings | None = None, **spec: Any) -> World:
    metadata = {"name": "tiny", "namespace": "models", "uid": "1", "creationTimestamp": "2026-11-21T08:00:00Z"}
    resource = {"metadata": metadata, "spec": {"source": source} | spec}
    given = settings or Settings()
    return World(
        resource=resource,
        children={},
        pods=[],
        routed=[],
        settings=given,
        controller_key=CONTROLLER_KEY,
        now=NOW,
        listers=worlds.known_world(MODELS, given, others=[resource]),
    )


def container(world: World) -> dict[str, Any]:
    (job,) = worlds.plan(MODELS, world).children
    loader: dict[str, Any] = job["spec"]["template"]["spec"]["containers"][0]
    return loader


OURS = {
    "SLIPWAY_CONTROLLER_KEY": {"value": CONTROLLER_KEY},
    "SLIPWAY_POD_UID": {"valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
}


def env(created: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a loader's variables without those that identify the controller."""
    assert [{"name": name, **value} for name, value in OURS.items()] == created["env"][-2:]
    return list(created["env"][:-2])


REMOTE = {
    "web": "https://files.example/tiny.gguf",
    "hub": "hf://acme/tiny/tiny.gguf",
    "bucket": "s3://weights/tiny.gguf",
    "host": "/mnt/models/tiny.gguf",
    "claim": "pvc://weights/tiny.gguf",
}
ALLOWED = Settings(sources=Sources(allowed_host_path_roots=("/mnt/models",)))


@pytest.mark.parametrize("kind", REMOTE)
@pytest.mark.parametrize("persistence", ["Cached", "Ephemeral"])
def test_a_hash_is_checked_for_every_kind_of_source(kind: str, persistence: Literal["Cached", "Ephemeral"]) -> None:
    """The original looks at it for what it copies itself only."""
    settings = msgspec.structs.replace(ALLOWED, apis={"llmkube": {"modelCache": {"persistence": persistence}}})
    world = model(REMOTE[kind], settings, sha256="AB" * 32)
    read = model_spec.parse_model(world.resource, settings)
    job = loaders.inspection(read) if kind == "claim" else loaders.download(read, refresh=False)
    assert f"--sha256={'ab' * 32}" in job["spec"]["template"]["spec"]["containers"][0]["args"]


def test_a_gated_file_is_asked_for_with_a_token() -> None:
    """The original has none for what it downloads."""
    (token,) = env(container(model(REMOTE["hub"])))
    assert token["name"] == "HF_TOKEN"
    assert token["valueFrom"]["secretKeyRef"]["optional"]
    (own,) = env(container(model(REMOTE["hub"], sourceSecretRef={"name": "mine"})))
    assert own["valueFrom"]["secretKeyRef"] == {"name": "mine", "key": "HF_TOKEN", "optional": True}
    none = Settings(apis={"llmkube": {"huggingFaceSecret": ""}})
    assert env(container(model(REMOTE["hub"], none))) == []


def test_the_loader_gets_only_the_credentials_of_a_secret_and_no_endpoint() -> None:
    """The original gives it every key, and so every variable that a program or a library heeds."""
    for source in REMOTE.values():
        children = worlds.plan(MODELS, model(source, ALLOWED, sourceSecretRef={"name": "mine"})).children
        for one in children:
            loader = one["spec"]["template"]["spec"]["containers"][0]
            assert "envFrom" not in loader
            assert {variable["name"] for variable in env(loader)} <= {
                "HF_TOKEN",
                "AWS_ACCESS_KEY_ID",
                "AWS_SECRET_ACCESS_KEY",
                "AWS_SESSION_TOKEN",
                "AWS_REGION",
                "AWS_ENDPOINT_URL",
            }
    variables = env(container(model(REMOTE["bucket"], sourceSecretRef={"name": "mine"})))
    needed = [one["name"] for one in variables if "optional" not in one["valueFrom"]["secretKeyRef"]]
    assert needed == ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]


def test_the_loader_may_go_where_the_accelerators_are_that_the_model_is_for() -> None:
    hardware = {"accelerator": "rocm", "gpu": {"count": 1}}
    (job,) = worlds.plan(MODELS, model(REMOTE["web"], hardware=hardware)).children
    pod = job["spec"]["template"]["spec"]
    assert [taint["key"] for taint in pod["tolerations"]] == ["amd.com/gpu"]
    (liking,) = pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [one["key"] for one in liking["preference"]["matchExpressions"]] == ["amd.com/gpu.product-name"]


def test_no_other_host_gets_a_token() -> None:
    """A Secret that a Model names is for hubs and buckets."""
    for kind in ("web", "host"):
        loader = container(model(REMOTE[kind], ALLOWED, sourceSecretRef={"name": "mine"}))
        assert env(loader) == []
        assert "envFrom" not in loader


def test_a_file_that_looks_like_an_option_is_none() -> None:
    words = container(model("acme/tiny", files=["--allow-host", "10.0.0.0/8", "--refresh"]))["args"]
    assert [word for word in words if word.startswith("--")] == [
        "--file=--allow-host",
        "--file=10.0.0.0/8",
        "--file=--refresh",
        "--header=gguf",
    ]


@pytest.mark.parametrize("passed", [0, 60, 299])
def test_a_copy_that_failed_is_left_alone_for_five_minutes(passed: int) -> None:
    """The original asked again at once, and again."""
    failed = {"ended": "Failed", "at": timestamp(NOW - passed), "pods": []}
    world = with_jobs(model("/mnt/models/tiny.gguf", ALLOWED), {"download": failed})
    assert [child["metadata"]["name"] for child in worlds.plan(MODELS, world).children] == ["tiny-download"]
    verdict = worlds.status(MODELS, world, None)
    assert verdict.status["phase"] == "Failed"
    assert verdict.recheck_seconds == 300 - passed


def test_the_loader_is_no_root_and_nothing_prepares_the_volume_for_it() -> None:
    """The original has a container that runs as root, which restricted Pod Security forbids."""
    (job,) = worlds.plan(MODELS, model(REMOTE["web"])).children
    pod = job["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert "initContainers" not in pod
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(
    ("hardware", "resource"),
    [
        ({"accelerator": "cuda"}, "nvidia.com/gpu"),
        ({"gpu": {"count": 1}}, "nvidia.com/gpu"),
        ({"accelerator": "rocm"}, "amd.com/gpu"),
        ({"accelerator": "rocm", "gpu": {"runtime": "rocm"}}, "devic.es/dri-render"),
        ({"accelerator": "intel"}, "gpu.intel.com/i915"),
        ({"accelerator": "cuda", "gpu": {"resourceName": "nvidia.com/mig-1g.10gb"}}, "nvidia.com/mig-1g.10gb"),
    ],
)
def test_an_accelerator_is_ready_where_some_node_has_what_pods_ask_for(hardware: dict[str, Any], resource: str) -> None:
    world = model("acme/whole", hardware=hardware)
    assert worlds.status(MODELS, world, None).status["acceleratorReady"] is False
    node = {"status": {"allocatable": {resource: "1", "another.example/gpu": "2"}}}
    equipped = worlds.with_objects(world, {Reference(NODE, "", "a"): node})
    assert worlds.status(MODELS, equipped, None).status["acceleratorReady"] is True


@pytest.mark.parametrize("hardware", [{}, {"accelerator": "cpu"}, {"accelerator": "metal"}])
def test_a_processor_and_a_mac_are_ready_without_a_look_at_the_nodes(hardware: dict[str, Any]) -> None:
    assert worlds.status(MODELS, model("acme/whole", hardware=hardware), None).status["acceleratorReady"] is True


def test_loader_jobs_have_the_tolerations_of_their_model() -> None:
    own = {"key": "models", "operator": "Exists"}
    gpu = {"hardware": {"gpu": {"count": 1}}, "prefetchTolerations": [own]}
    children = worlds.plan(MODELS, model("https://models.example/a.gguf", **gpu)).children
    tolerations = [child["spec"]["template"]["spec"]["tolerations"] for child in children if child["kind"] == "Job"]
    assert tolerations == [[{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}, own]]


def test_whether_nodes_have_a_claimed_device_is_not_reported() -> None:
    claims = {"hardware": {"accelerator": "cuda", "gpu": {"resourceClaims": [{"name": "a"}]}}}
    status = worlds.status(MODELS, model("https://models.example/a.gguf", **claims), None).status
    assert "acceleratorReady" not in status
