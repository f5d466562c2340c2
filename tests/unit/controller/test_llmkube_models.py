"""Models of LLMKube against the scripted API server: their weights come once, are shared, and go with the last."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import msgspec
import pytest

from slipway.apis.llmkube import MODELS, names
from slipway.apis.llmkube.models import cache
from slipway.apis.llmkube.models import status as model_status
from slipway.apis.llmkube.types.model import KIND
from slipway.apis.llmkube.types.service import KIND as INFERENCE_SERVICE
from slipway.artifacts.documents.report import Report, encode_report
from slipway.artifacts.headers.gguf import Gguf
from slipway.kube.api.client import Client
from slipway.kube.objects import JOB, NODE, PERSISTENT_VOLUME_CLAIM, POD
from slipway.kube.schemas.conditions import timestamp
from slipway.serving.contract.settings import Settings

from .conftest import controlled

SOURCE, OTHER = "https://files.example/tiny.gguf", "https://files.example/other.gguf"
AT = "2026-11-21T09:00:00Z"
HEADER = Gguf(file_version=3, tensor_count=21, architecture="llama", name="Tiny")


@pytest.fixture
async def running(client, session, start) -> AsyncIterator[None]:
    """A controller for Models of LLMKube, which never finds its sources old."""
    async with controlled(MODELS, client, session, start, Settings(apis={"llmkube": {"revalidateSeconds": 0}})):
        yield


async def model(server, cluster, name, source=SOURCE, **spec):
    spec = {"source": source, "format": "gguf", "refreshPolicy": "IfNotPresent"} | spec
    await server.put(cluster.path(KIND, name), kind="Model", apiVersion=KIND.api_version, spec=spec)


async def ended(server, cluster, name, how="Complete", message=""):
    """A Job's pod comes to its end, then the Job. The controller may hear of the Job before it hears of the pod."""
    job = cluster.get(JOB, name)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"], "controller": True}
    labels = job["spec"]["template"]["metadata"]["labels"]
    over = {"exitCode": 0 if how == "Complete" else 3, "message": message}
    container = {"name": "loader", "restartCount": 0, "state": {"terminated": over}}
    status = {"phase": "Succeeded" if how == "Complete" else "Failed", "containerStatuses": [container]}
    metadata = {"labels": labels, "ownerReferences": [owner]}
    await server.put(cluster.path(POD, f"{name}-x"), kind="Pod", metadata=metadata, status=status)
    condition = {"type": how, "status": "True", "lastTransitionTime": timestamp(time.time())}
    await server.store(cluster.path(JOB, name), {**job, "status": {"conditions": [condition]}})


async def deleted(server, cluster, name):
    """What the API server does with an object that has finalizers."""
    resource = cluster.get(KIND, name)
    metadata = {**resource["metadata"], "deletionTimestamp": timestamp(time.time())}
    await server.store(cluster.path(KIND, name), {**resource, "metadata": metadata})


def released(cluster, name):
    return not cluster.get(KIND, name)["metadata"]["finalizers"]


def report(**fields) -> str:
    return encode_report(
        Report(**{"file": "tiny.gguf", "size": 5, "sha256": "ab" * 32, "etag": "1", "gguf": HEADER} | fields)
    ).decode()


def status_field(cluster, name, field="phase"):
    return (cluster.find(KIND, name) or {}).get("status", {}).get(field)


def reason(cluster, name):
    conditions = status_field(cluster, name, "conditions") or [{}]
    return conditions[0].get("reason")


def inventory(cluster):
    carriers = [obj for obj in cluster.server.objects.values() if obj["kind"] in ("PersistentVolumeClaim", "Model")]
    return {key: record for carrier in carriers for key, record in cache.read_records(carrier).items()}


async def test_records_of_an_earlier_versions_claim_are_carried_over_and_nothing_is_loaded_again(
    server, cluster, running, eventually
):
    record = cache.Record(loaded=AT, by="tiny", report=Report(file="tiny.gguf", size=5, sha256="ab" * 32))
    records = {
        f"{names.LOADED}{names.cache_key(source)}": msgspec.json.encode(record).decode() for source in (SOURCE, OTHER)
    }
    await cluster.claim(names.CLAIM, metadata={"annotations": records})
    await model(server, cluster, "tiny")
    await eventually(lambda: records_of_claim(cluster) == [] and reason(cluster, "tiny") == "ModelReady")
    assert inventory(cluster)[names.cache_key(SOURCE)].report == record.report
    assert cluster.find(JOB, "tiny-download") is None
    # Unused weights are removed by the remaining Model.
    await eventually(lambda: cluster.find(JOB, "tiny-evict"))
    await ended(server, cluster, "tiny-evict")
    await eventually(lambda: set(inventory(cluster)) == {names.cache_key(SOURCE)})


def records_of_claim(cluster):
    claim = cluster.get(PERSISTENT_VOLUME_CLAIM, names.CLAIM)
    return [name for name in claim["metadata"].get("annotations") or {} if name.startswith(names.LOADED)]


async def test_a_status_is_written_for_the_model_as_the_record_of_its_weights_left_it(
    server, cluster, running, eventually
):
    """The record is an annotation of the Model itself: a status for the Model of before would be refused."""
    await model(server, cluster, "first")
    await eventually(lambda: cluster.find(JOB, "first-download") and inventory(cluster))
    server.conflicts.clear()
    await ended(server, cluster, "first-download", message=report())
    await eventually(lambda: status_field(cluster, "first") == "Ready")
    assert not server.conflicts


async def test_two_models_of_one_source_load_it_once_and_the_last_one_takes_it_away(
    server, cluster, running, eventually
):
    await model(server, cluster, "first")
    await eventually(lambda: cluster.find(JOB, "first-download") and inventory(cluster))
    assert cluster.get(KIND, "first")["metadata"]["finalizers"] == [names.FINALIZER]
    await ended(server, cluster, "first-download", message=report())
    await eventually(lambda: status_field(cluster, "first") == "Ready")
    await eventually(lambda: cluster.find(JOB, "first-download") is None)
    status = cluster.get(KIND, "first")["status"]
    assert status["gguf"] == {"architecture": "llama", "modelName": "Tiny", "tensorCount": 21, "fileVersion": 3}
    assert status["path"] == f"/models/{names.cache_key(SOURCE)}/tiny.gguf"

    await model(server, cluster, "second")
    await eventually(lambda: status_field(cluster, "second") == "Ready")
    assert cluster.find(JOB, "second-download") is None

    await deleted(server, cluster, "first")
    await eventually(lambda: released(cluster, "first"))
    await server.remove(cluster.path(KIND, "first"))
    assert status_field(cluster, "second") == "Ready"
    assert cluster.find(JOB, "first-evict") is None

    await deleted(server, cluster, "second")
    await eventually(lambda: cluster.find(JOB, "second-evict"))
    assert not any(record.complete for record in inventory(cluster).values())
    await ended(server, cluster, "second-evict")
    await eventually(lambda: released(cluster, "second"))
    assert inventory(cluster) == {}


async def test_a_changed_source_is_loaded_and_unused_weights_are_removed(server, cluster, running, eventually):
    await model(server, cluster, "a")
    await eventually(lambda: cluster.find(JOB, "a-download") and inventory(cluster))
    await ended(server, cluster, "a-download", message=report())
    await eventually(lambda: status_field(cluster, "a") == "Ready" and cluster.find(JOB, "a-download") is None)
    changed = cluster.get(KIND, "a")
    await server.store(cluster.path(KIND, "a"), {**changed, "spec": {**changed["spec"], "source": OTHER}})
    await eventually(lambda: cluster.find(JOB, "a-evict") and cluster.find(JOB, "a-download"))
    await ended(server, cluster, "a-evict")
    await ended(server, cluster, "a-download", message=report(file="other.gguf"))
    await eventually(lambda: status_field(cluster, "a", "path") == f"/models/{names.cache_key(OTHER)}/other.gguf")
    await eventually(lambda: set(inventory(cluster)) == {names.cache_key(OTHER)})


async def test_the_record_of_a_new_source_is_written_once_and_stays(
    server, cluster, running, eventually, rest, monkeypatch
):
    """The controller once acted on a store that did not show its last patch, and removed the record."""
    merge_patch, texts = Client.merge_patch, []

    async def recorded(self, kind, name, body, **options):
        annotations = body["metadata"].get("annotations", {})
        texts.extend(text for place, text in annotations.items() if place.endswith(names.cache_key(OTHER)))
        return await merge_patch(self, kind, name, body, **options)

    monkeypatch.setattr(Client, "merge_patch", recorded)
    await model(server, cluster, "a")
    await eventually(lambda: cluster.find(JOB, "a-download") and inventory(cluster))
    await ended(server, cluster, "a-download", message=report())
    await eventually(lambda: status_field(cluster, "a") == "Ready" and cluster.find(JOB, "a-download") is None)
    current = cluster.get(KIND, "a")
    await server.store(cluster.path(KIND, "a"), {**current, "spec": {**current["spec"], "source": OTHER}})
    await eventually(lambda: cluster.find(JOB, "a-evict") and cluster.find(JOB, "a-download"))
    await rest(lambda: len(server.log))
    assert len(texts) == 1
    assert texts[0] is not None


async def test_weights_of_another_hash_are_refused_for_every_kind_of_source_and_not_fetched_again(
    server, cluster, running, eventually
):
    await model(server, cluster, "a", sha256="cd" * 32)
    await eventually(lambda: cluster.find(JOB, "a-download"))
    await ended(
        server, cluster, "a-download", "Failed", "IntegrityCheckFailed: tiny.gguf has the SHA-256 abab, not cdcd"
    )
    await eventually(lambda: reason(cluster, "a") == "IntegrityCheckFailed")
    assert status_field(cluster, "a") == "Failed"
    job = cluster.get(JOB, "a-download")["metadata"]["uid"]
    await server.remove(cluster.path(JOB, "a-download"))
    await eventually(lambda: (cluster.find(JOB, "a-download") or job) != job)
    assert cluster.get(JOB, "a-download")["metadata"]["uid"] != job


async def test_a_claim_that_comes_later_makes_its_model_ready(server, cluster, running, eventually):
    await model(server, cluster, "a", "pvc://mine/tiny.gguf")
    await eventually(lambda: reason(cluster, "a") == "PVCNotFound")
    await cluster.claim("mine", status={"phase": "Pending"})
    await eventually(lambda: reason(cluster, "a") == "PVCNotBound")
    claim = cluster.get(PERSISTENT_VOLUME_CLAIM, "mine")
    await server.store(cluster.path(PERSISTENT_VOLUME_CLAIM, "mine"), {**claim, "status": {"phase": "Bound"}})
    await eventually(lambda: reason(cluster, "a") == "PVCModelReady")
    await eventually(lambda: cluster.find(JOB, "a-inspect"))
    await ended(server, cluster, "a-inspect", message=report())
    await eventually(lambda: (status_field(cluster, "a", "gguf") or {}).get("architecture") == "llama")
    assert cluster.find(PERSISTENT_VOLUME_CLAIM, names.CLAIM) is None


async def test_an_accelerator_that_comes_and_goes_is_reported(server, cluster, running, eventually):
    await model(server, cluster, "a", "acme/whole", hardware={"accelerator": "cuda", "gpu": {"count": 1}})
    await eventually(lambda: status_field(cluster, "a", "acceleratorReady") is False)
    node = f"{NODE.path()}/one"
    await server.put(node, kind="Node", metadata={"name": "one"}, status={"allocatable": {"nvidia.com/gpu": "4"}})
    await eventually(lambda: status_field(cluster, "a", "acceleratorReady") is True)
    await server.remove(node)
    await eventually(lambda: status_field(cluster, "a", "acceleratorReady") is False)


async def service(server, cluster, **spec):
    """A new spec of the service ``chat``, which has the Model ``tiny``."""
    generation = len(spec) + 1
    metadata = {"generation": generation, "namespace": "models", "name": "chat"}
    await server.put(
        cluster.path(INFERENCE_SERVICE, "chat"),
        kind="InferenceService",
        apiVersion=INFERENCE_SERVICE.api_version,
        metadata=metadata,
        spec={"modelRef": "tiny"} | spec,
    )


async def test_a_service_that_goes_over_to_the_cache_has_its_model_loaded_and_keeps_it(
    server, cluster, running, eventually
):
    await service(server, cluster, modelCache={"persistence": "Ephemeral"})
    await model(server, cluster, "tiny")
    await eventually(lambda: reason(cluster, "tiny") == "WorkloadResolved")
    assert cluster.find(PERSISTENT_VOLUME_CLAIM, names.CLAIM) is None
    await service(server, cluster)
    await eventually(lambda: cluster.find(JOB, "tiny-download") and inventory(cluster))
    await ended(server, cluster, "tiny-download", message=report())
    await eventually(lambda: reason(cluster, "tiny") == "ModelReady")

    uses = {"slipway.inference/uses": f"{names.cache_key(SOURCE)}=1"}
    labels = {"app.kubernetes.io/managed-by": "slipway", names.SERVICE_LABEL: "chat"}
    metadata = {"labels": labels, "annotations": uses}
    await server.put(cluster.path(POD, "chat-x"), kind="Pod", metadata=metadata, status={"phase": "Running"})
    await deleted(server, cluster, "tiny")
    await eventually(lambda: reason(cluster, "tiny") == "InUse")
    assert (
        "the InferenceService chat no longer uses its weights"
        in status_field(cluster, "tiny", "conditions")[0]["message"]
    )
    await server.remove(cluster.path(POD, "chat-x"))
    await server.remove(cluster.path(INFERENCE_SERVICE, "chat"))
    await eventually(lambda: cluster.find(JOB, "tiny-evict"))
    await ended(server, cluster, "tiny-evict")
    await eventually(lambda: released(cluster, "tiny"))


async def test_weights_go_as_soon_as_the_last_pod_that_read_them_is_gone(
    server, cluster, running, eventually, monkeypatch
):
    """Not only when the Model is looked at the next time."""
    for pause in ("IN_USE_SECONDS", "LEAVING_SECONDS"):
        monkeypatch.setattr(model_status, pause, 3600.0)
    await model(server, cluster, "tiny")
    await eventually(lambda: cluster.find(JOB, "tiny-download") and inventory(cluster))
    await ended(server, cluster, "tiny-download", message=report())
    await eventually(lambda: reason(cluster, "tiny") == "ModelReady")
    for name in ("one", "other"):
        metadata = {
            "labels": {"app.kubernetes.io/managed-by": "slipway", names.SERVICE_LABEL: "chat"},
            "annotations": {"slipway.inference/uses": f"{names.cache_key(SOURCE)}=1"},
            "deletionTimestamp": timestamp(time.time()),
        }
        spec = {
            "containers": [],
            "volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "llmkube-model-cache"}}],
        }
        await server.put(cluster.path(POD, name), kind="Pod", metadata=metadata, spec=spec, status={"phase": "Running"})
    await deleted(server, cluster, "tiny")
    await eventually(lambda: reason(cluster, "tiny") == "InUse")
    await server.store(cluster.path(POD, "one"), {**cluster.get(POD, "one"), "status": {"phase": "Succeeded"}})
    await server.remove(cluster.path(POD, "other"))
    await eventually(lambda: cluster.find(JOB, "tiny-evict"))
    await ended(server, cluster, "tiny-evict")
    await eventually(lambda: released(cluster, "tiny"))
