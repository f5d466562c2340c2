"""Models of Deckhouse against the scripted API server: Secrets are written and never read, nothing is written twice,
and what others say of a model stays."""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from slipway.apis.deckhouse import names
from slipway.apis.deckhouse.api import MODELS
from slipway.apis.deckhouse.types import CLUSTER_MODEL, MODEL
from slipway.artifacts.documents.publication import encode_publication
from slipway.kube.objects import JOB, POD, SECRET
from slipway.kube.schemas.conditions import timestamp
from slipway.kube.schemas.crd import CustomResource
from slipway.kube.writes import write_only
from slipway.serving.contract.settings import Settings
from slipway.serving.wire.depot_token import verify_token

from ..apis.deckhouse.cluster import DIGEST, KEY, OWN, publication
from .conftest import controlled

MINE = {"type": "Mine", "status": "True", "reason": "Seen", "lastTransitionTime": "2026-01-01T00:00:00Z", "message": ""}
SYSTEM = "system"
RESULT = encode_publication(publication()).decode()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "hmac").write_bytes(KEY)
    return Settings(apis={"deckhouse": OWN | {"keyFile": str(tmp_path / "hmac")}}, system_namespace=SYSTEM)


@pytest.fixture
async def models(client: Any, session: Any, start: Any, settings: Settings) -> AsyncIterator[None]:
    async with controlled(MODELS[0], client, session, start, settings):
        yield


def place(kind: CustomResource = MODEL) -> str:
    return kind.kind.path("models" if kind.kind.namespaced else "", "tiny")


async def create(server: Any, kind: CustomResource = MODEL, **source: Any) -> None:
    spec = {"source": source or {"url": "https://huggingface.co/acme/tiny"}}
    fields = {"kind": kind.kind.kind, "apiVersion": kind.kind.api_version, "spec": spec}
    await server.put(place(kind), status={"conditions": [MINE]}, **fields)


def status(server: Any, kind: CustomResource = MODEL) -> dict[str, Any]:
    status_fields: dict[str, Any] = server.objects.get(place(kind), {}).get("status", {})
    return status_fields


def phase(server: Any, kind: CustomResource = MODEL) -> str:
    return str(status(server, kind).get("phase", ""))


def jobs(server: Any, namespace: str = "models") -> list[str]:
    return [path for path in server.objects if path.startswith(f"{JOB.path(namespace)}/")]


async def pod(server: Any, path: str, **status: Any) -> None:
    """What becomes of a Job's pod."""
    job = server.objects[path]["metadata"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job["name"], "uid": job["uid"], "controller": True}
    metadata = {"ownerReferences": [owner], "labels": job["labels"]}
    await server.put(POD.path(job["namespace"], job["name"]), kind="Pod", metadata=metadata, status=status)


async def finish(server: Any, path: str, message: str) -> None:
    """A Job's pod succeeds with these last words. The controller may hear of the Job before it hears of the pod."""
    container = {"name": "loader", "state": {"terminated": {"exitCode": 0, "message": message}}}
    await pod(server, path, phase="Succeeded", containerStatuses=[container])
    over = {"type": "Complete", "status": "True", "lastTransitionTime": timestamp(time.time())}
    await server.store(path, {**server.objects[path], "status": {"conditions": [over]}})


async def test_a_model_is_published_and_others_conditions_stay(server, models, eventually, rest) -> None:
    await create(server)
    await eventually(lambda: jobs(server))
    await pod(server, jobs(server)[0], phase="Running")
    await eventually(lambda: phase(server) == "Publishing")
    assert [one["type"] for one in status(server)["conditions"]] == [
        "ArtifactResolved",
        "Turn",
        "Ready",
        "Reconciling",
        "Stalled",
        "Mine",
    ]
    await finish(server, jobs(server)[0], RESULT)
    await eventually(lambda: phase(server) == "Ready" and not jobs(server))
    conditions = {one["type"]: one for one in status(server)["conditions"]}
    assert (conditions["Ready"]["reason"], conditions["Ready"]["message"]) == ("Ready", "Workloads can use the model.")
    assert (conditions["Reconciling"]["status"], conditions["Stalled"]["status"], conditions["Mine"]) == (
        "False",
        "False",
        MINE,
    )
    assert status(server)["artifact"]["digest"] == DIGEST
    await rest(lambda: len(server.writes))
    assert not server.objects[place()]["metadata"].get("annotations")


async def test_the_upload_address_is_written_once_and_never_read(server, models, eventually, rest) -> None:
    await create(server, upload={})
    await eventually(lambda: phase(server) == "WaitForUpload")
    secret = server.objects[SECRET.path("models", "tiny-upload")]
    token = b64decode(secret["data"]["token"]).decode()
    assert verify_token(KEY, token, "upload", 0).uid == server.objects[place()]["metadata"]["uid"]
    assert secret["metadata"]["ownerReferences"][0]["kind"] == "Model"
    await rest(lambda: len(server.writes))
    written = len(server.writes)
    await server.store(place(), {**server.objects[place()], "spec": {"source": {"upload": {}}}, "x": 1})
    await rest(lambda: len(server.log))
    assert len(server.writes) == written
    assert [one.method for one in server.log if "/secrets" in one.path] == ["POST"]
    events = [one for path, one in server.objects.items() if "/events/" in path]
    assert token not in str(status(server)) + str(events)


async def test_an_upload_secret_that_another_writer_deletes_or_changes_is_written_again(
    server, models, eventually, monkeypatch
) -> None:
    monkeypatch.setattr(write_only, "REWRITE_SECONDS", 0.1)
    place_of_secret = SECRET.path("models", "tiny-upload")
    await create(server, upload={})
    await eventually(lambda: phase(server) == "WaitForUpload")
    before = server.objects[place_of_secret]["data"]
    await server.remove(place_of_secret)
    await eventually(lambda: server.objects.get(place_of_secret, {}).get("data") == before)
    await server.store(place_of_secret, {**server.objects[place_of_secret], "data": {"token": "eA=="}})
    await eventually(lambda: server.objects[place_of_secret]["data"] == before)
    assert {one.method for one in server.log if "/secrets" in one.path} == {"POST", "PUT"}
    assert phase(server) == "WaitForUpload"


async def test_an_upload_that_is_complete_is_published(server, models, eventually) -> None:
    await create(server, upload={})
    await eventually(lambda: phase(server) == "WaitForUpload")
    model = server.objects[place()]
    annotations = {**model["metadata"]["annotations"], names.UPLOADED: DIGEST}
    await server.store(place(), {**model, "metadata": {**model["metadata"], "annotations": annotations}})
    await eventually(lambda: jobs(server))
    await pod(server, jobs(server)[0], phase="Running")
    await eventually(lambda: phase(server) == "Publishing")
    assert "upload" not in status(server)


async def test_a_foreign_secret_stays_and_is_reported(server, models, eventually) -> None:
    await server.put(SECRET.path("models", "tiny-upload"), kind="Secret", apiVersion="v1", data={"password": "eA=="})
    await create(server, upload={})
    await eventually(lambda: phase(server) == "Failed")
    assert "exists and was not created by Slipway" in status(server)["conditions"][0]["message"]
    assert server.objects[SECRET.path("models", "tiny-upload")]["data"] == {"password": "eA=="}


async def test_a_model_that_is_deleted_leaves_the_registry_and_then_goes(server, models, eventually) -> None:
    await create(server)
    await eventually(lambda: jobs(server))
    await finish(server, jobs(server)[0], RESULT)
    await eventually(lambda: phase(server) == "Ready" and not jobs(server))
    model = server.objects[place()]
    assert model["metadata"]["finalizers"] == [names.FINALIZER]
    gone = {**model["metadata"], "deletionTimestamp": timestamp(4e9)}
    await server.store(place(), {**model, "metadata": gone})
    await eventually(lambda: jobs(server))
    await eventually(lambda: phase(server) == "Deleting")
    await finish(server, jobs(server)[0], "")
    await eventually(lambda: not server.objects[place()]["metadata"]["finalizers"])


async def test_a_model_of_the_cluster_is_published_in_the_system_namespace(
    server, client, session, start, settings, eventually
) -> None:
    async with controlled(MODELS[1], client, session, start, settings):
        await create(server, CLUSTER_MODEL)
        await eventually(lambda: jobs(server, SYSTEM))
        await finish(server, jobs(server, SYSTEM)[0], RESULT)
        await eventually(lambda: phase(server, CLUSTER_MODEL) == "Ready")


async def test_models_get_their_turns_as_soon_as_others_end_theirs(server, models, eventually) -> None:
    """Nothing waits for a timer: each change of a status wakes the models that may be next."""
    for number in range(6):
        spec = {"source": {"url": "https://huggingface.co/acme/tiny"}}
        path = MODEL.kind.path("models" if number < 5 else "other", f"m{number}")
        metadata = {"creationTimestamp": timestamp(number)}
        await server.put(path, kind="Model", apiVersion=MODEL.kind.api_version, spec=spec, metadata=metadata)
    await eventually(lambda: (len(jobs(server)), len(jobs(server, "other"))) == (3, 1))
    for job_count in (3, 3, 2, 1, 0):
        ended = jobs(server)[0]
        await finish(server, ended, RESULT)
        await eventually(lambda path=ended, count=job_count: path not in jobs(server) and len(jobs(server)) == count)
