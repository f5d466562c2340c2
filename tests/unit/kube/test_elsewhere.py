"""Children in another namespace than their owner's: an annotation names the owner, in places of the operator."""

from __future__ import annotations

from functools import partial

import pytest

from slipway.controller.inputs.caches import _child_elsewhere
from slipway.kube.caches.expectations import Expectations
from slipway.kube.caches.informer import Informer
from slipway.kube.objects import JOB, MANAGED_BY, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, Key, Kind, uid
from slipway.kube.writes.applier import Applier
from slipway.kube.writes.outcomes import Applied
from slipway.kube.writes.owners import ORIGIN, OWNER, OWNER_ELSEWHERE, by_origin, by_owner, with_owner

from .conftest import refuse

MODEL = Kind("ome.io", "v1beta1", "BaseModel", "basemodels")
MODELS = "/apis/ome.io/v1beta1/namespaces/chat/basemodels"
JOBS, VOLUMES = "/apis/batch/v1/namespaces/ome/jobs", "/api/v1/persistentvolumes"
TEXT = "ome.io/v1beta1 BaseModel chat/tiny owner-uid"
LABELS = {MANAGED_BY: "slipway"}


def owner(identity="owner-uid", **metadata):
    return {"metadata": {"namespace": "chat", "name": "tiny", "uid": identity, **metadata}}


def job(name="load", namespace="ome"):
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": namespace}, "spec": {}}


def volume(name="v"):
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {}}


class Bench:
    def __init__(self, client):
        self.expectations = Expectations()
        trims = {JOB: partial(_child_elsewhere, "ome", dict), PERSISTENT_VOLUME: partial(_child_elsewhere, "", dict)}
        self.informers = {
            kind: Informer(
                client, kind, labels=f"{MANAGED_BY}=slipway", indexes={OWNER: by_owner, ORIGIN: by_origin}, trim=trim
            )
            for kind, trim in trims.items()
        }
        self.claims = Informer(client, PERSISTENT_VOLUME_CLAIM)
        self.applier = Applier(
            client,
            MODEL,
            self.informers,
            self.expectations,
            field_manager="test",
            manager="slipway",
            elsewhere=[JOB, PERSISTENT_VOLUME],
            shared={PERSISTENT_VOLUME_CLAIM: self.claims},
        )

    async def sync(self, resource, children):
        await self.expectations.wait_until_observed(uid(resource))
        return await self.applier.sync(resource, children)


@pytest.fixture
async def bench(client, start):
    new_bench = Bench(client)
    for informer in (*new_bench.informers.values(), new_bench.claims):
        start(informer.run())
        await informer.synced.wait()
    return new_bench


async def test_children_elsewhere_have_an_annotation_and_no_owner_reference(server, bench):
    assert await bench.sync(owner(), [job(), volume()]) == Applied(waited=True)
    for path in (f"{JOBS}/load", f"{VOLUMES}/v"):
        metadata = server.objects[path]["metadata"]
        assert metadata["annotations"][OWNER_ELSEWHERE] == TEXT
        assert "ownerReferences" not in metadata
    assert await bench.sync(owner(), [job(), volume()]) == Applied()
    assert set(bench.applier.children(owner())) == {(JOB, Key("ome", "load")), (PERSISTENT_VOLUME, Key("", "v"))}


async def test_children_elsewhere_that_are_not_named_any_more_go(server, bench):
    await bench.sync(owner(), [job(), volume()])
    await bench.sync(owner(), [job()])
    assert f"{VOLUMES}/v" not in server.objects
    assert f"{JOBS}/load" in server.objects


async def test_in_other_namespaces_the_annotation_means_nothing(server, bench, eventually):
    metadata = {"labels": LABELS, "annotations": {OWNER_ELSEWHERE: TEXT}}
    await server.put(
        "/apis/batch/v1/namespaces/evil/jobs/load", kind="Job", apiVersion="batch/v1", metadata=metadata, spec={}
    )
    await eventually(lambda: len(bench.informers[JOB].store) == 1)
    assert bench.applier.children(owner()) == {}
    await bench.applier.collect(Key("chat", "tiny"), "")
    assert server.writes == []


async def test_objects_of_a_deleted_owner_in_other_namespaces_are_deleted(server, bench):
    await bench.sync(owner(), [job(), volume()])
    await bench.expectations.wait_until_observed("owner-uid")
    await bench.applier.collect(Key("chat", "tiny"), "")
    assert f"{JOBS}/load" not in server.objects
    assert f"{VOLUMES}/v" not in server.objects


async def test_objects_of_an_earlier_owner_with_the_name_in_other_namespaces_are_deleted(server, bench):
    await bench.sync(owner(), [job()])
    await bench.expectations.wait_until_observed("owner-uid")
    await server.put(f"{MODELS}/tiny", kind="BaseModel", apiVersion="ome.io/v1beta1", metadata={"uid": "next"})
    await bench.applier.collect(Key("chat", "tiny"), "next")
    assert f"{JOBS}/load" not in server.objects


async def test_children_of_an_owner_that_is_only_not_seen_stay(server, bench):
    """The cache need not show it: it is older, or the controller is limited to other namespaces."""
    await bench.sync(owner(), [job()])
    await bench.expectations.wait_until_observed("owner-uid")
    await server.put(f"{MODELS}/tiny", kind="BaseModel", apiVersion="ome.io/v1beta1", metadata={"uid": "owner-uid"})
    await bench.applier.collect(Key("chat", "tiny"), "")
    assert f"{JOBS}/load" in server.objects


@pytest.mark.parametrize("answer", [refuse(403, "Forbidden"), refuse(404, "NotFound")])
async def test_children_of_an_owner_that_cannot_be_read_stay(server, bench, answer):
    """A 404 that names no object is about the type, as while its definition is replaced."""
    await bench.sync(owner(), [job()])
    await bench.expectations.wait_until_observed("owner-uid")
    server.fault("GET", MODELS, answer)
    await bench.applier.collect(Key("chat", "tiny"), "")
    assert f"{JOBS}/load" in server.objects


@pytest.mark.parametrize("answer", [refuse(403, "Forbidden"), refuse(409, "Conflict")])
async def test_a_namesake_does_not_wait_for_what_cannot_be_deleted(server, bench, answer):
    await bench.sync(owner(), [job()])
    await bench.expectations.wait_until_observed("owner-uid")
    server.fault("DELETE", JOBS, answer)
    await bench.applier.collect(Key("chat", "tiny"), "next")
    assert f"{JOBS}/load" in server.objects


async def test_claims_of_others_are_discarded_only_with_our_label(server, bench, eventually):
    claims = "/api/v1/namespaces/chat/persistentvolumeclaims"
    for name, labels in (("ours", LABELS), ("theirs", {})):
        metadata = {"labels": labels}
        await server.put(f"{claims}/{name}", kind="PersistentVolumeClaim", apiVersion="v1", metadata=metadata, spec={})
    await eventually(lambda: len(bench.claims.store) == 2)
    await bench.applier.discard((PERSISTENT_VOLUME_CLAIM, Key("chat", name)) for name in ("ours", "theirs", "none"))
    assert f"{claims}/ours" not in server.objects
    assert f"{claims}/theirs" in server.objects


def test_an_owner_reference_goes_before_the_annotation():
    reference = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": True}
    child = {"metadata": {"annotations": {OWNER_ELSEWHERE: TEXT}, "ownerReferences": [reference]}}
    assert with_owner(child) is child
    assert list(by_origin(child)) == []
