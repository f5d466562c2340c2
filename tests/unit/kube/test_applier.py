"""The applier: children become what the plan says, nothing else is touched, nothing is written twice."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from slipway.kube.api.errors import NotLeaderError, ServerError, TooManyRequestsError
from slipway.kube.caches import expectations as expectations_module
from slipway.kube.caches.expectations import Expectations
from slipway.kube.caches.informer import Informer
from slipway.kube.objects import (
    CONFIG_MAP,
    DEPLOYMENT,
    MANAGED_BY,
    ROLE,
    ROLE_BINDING,
    SERVICE,
    SERVICE_ACCOUNT,
    Key,
    Kind,
    uid,
)
from slipway.kube.writes import refusals, write_only
from slipway.kube.writes.applier import Applier
from slipway.kube.writes.outcomes import Applied
from slipway.kube.writes.owners import OWNER, by_owner
from slipway.kube.writes.write_only import REWRITE_SECONDS

from .conftest import PATIENCE

MODEL = Kind("krypton.ai", "v1alpha1", "Model", "models")
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
SERVICES = "/api/v1/namespaces/default/services"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
RBAC = "rbac.authorization.k8s.io/v1"
ROLES, BINDINGS = (f"/apis/{RBAC}/namespaces/default/{plural}" for plural in ("roles", "rolebindings"))
LABELS = {MANAGED_BY: "slipway"}
DONE = Applied(waited=True)
"""There was something to do, and nothing went wrong."""


def owner(name="m", identity="owner-uid", **metadata):
    return {"metadata": {"namespace": "default", "name": name, "uid": identity, **metadata}}


def deployment(name="m", **spec):
    metadata = {"namespace": "default", "name": name}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": 1, **spec}}


def service(name="m"):
    metadata = {"namespace": "default", "name": name}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}}


def reference(identity, name="m", kind="Model"):
    return {"apiVersion": "krypton.ai/v1alpha1", "kind": kind, "name": name, "uid": identity, "controller": True}


class Bench:
    def __init__(self, client):
        self.client = client
        self.expectations = Expectations()
        self.informers = {
            kind: Informer(client, kind, labels=f"{MANAGED_BY}=slipway", indexes={OWNER: by_owner})
            for kind in (DEPLOYMENT, SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING)
        }
        self.applier = self.new(client)

    def new(self, client, mark=""):
        return Applier(
            client,
            MODEL,
            self.informers,
            self.expectations,
            field_manager="test",
            manager="slipway",
            replaceable=frozenset({DEPLOYMENT}),
            unlisted={CONFIG_MAP},
            mark=mark,
        )

    async def sync(self, resource, children, absent=()):
        await self.expectations.wait_until_observed(uid(resource))
        return await self.applier.sync(resource, children, absent=absent)


@pytest.fixture
async def bench(client, start):
    new_bench = Bench(client)
    for informer in new_bench.informers.values():
        start(informer.run())
        await informer.synced.wait()
    return new_bench


async def test_children_are_made_with_owner_and_label(server, bench):
    applied = await bench.sync(owner(), [deployment(), service()])
    assert applied == DONE
    metadata = server.objects[f"{DEPLOYMENTS}/m"]["metadata"]
    assert metadata["labels"] == LABELS
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "krypton.ai/v1alpha1",
            "kind": "Model",
            "name": "m",
            "uid": "owner-uid",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert f"{SERVICES}/m" in server.objects


async def test_nothing_is_written_when_nothing_changed(server, bench):
    outcomes = [await bench.sync(owner(), [deployment(), service()]) for _unused in range(4)]
    assert len(server.writes) == 2
    assert outcomes == [DONE, Applied(), Applied(), Applied()]
    assert set(bench.applier.children(owner())) == {(DEPLOYMENT, Key("default", "m")), (SERVICE, Key("default", "m"))}


async def test_an_object_in_another_namespace_is_not_a_child_and_stays_unchanged(server, bench, eventually):
    """Anybody who may read an object knows its uid. With slashes in it a uid looks like a namespace and another one."""
    await bench.sync(owner(), [deployment()])
    forged = {"aaa": "owner-uid", "zzz": "owner-uid", "yyy": "default/owner-uid", "xxx": "/owner-uid"}
    for namespace, identity in forged.items():
        metadata = {"labels": LABELS, "ownerReferences": [reference(identity)]}
        for name in ("m", "surplus"):
            path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
            await server.put(path, kind="Deployment", apiVersion="apps/v1", metadata=metadata, spec={"replicas": 9})
    await eventually(lambda: len(bench.informers[DEPLOYMENT].store) == 1 + 2 * len(forged))
    written = len(server.writes)
    (child,) = bench.applier.children(owner()).values()
    assert child["metadata"]["namespace"] == "default"
    await bench.sync(owner(), [deployment()])
    assert len(server.writes) == written
    await bench.sync(owner(), [])
    assert [one.path for one in server.writes[written:]] == [f"{DEPLOYMENTS}/m"]


async def test_an_owner_of_the_whole_cluster_has_its_children_where_they_are(bench):
    wide = {"metadata": {"name": "m", "uid": "owner-uid"}}
    for namespace in ("one", "two"):
        metadata = {"name": namespace, "namespace": namespace, "uid": namespace, "resourceVersion": "1"}
        child = {"kind": "Deployment", "metadata": metadata | {"ownerReferences": [reference("owner-uid")]}}
        bench.informers[DEPLOYMENT].store.put(child)
    assert set(bench.applier.children(wide)) == {(DEPLOYMENT, Key("one", "one")), (DEPLOYMENT, Key("two", "two"))}


async def test_objects_without_our_label_are_read_from_the_server(server, bench):
    """The informer of a kind may keep a few fields of what is not ours, for others who read them."""
    trimmed = {"metadata": {"name": "m", "namespace": "default", "uid": "x", "resourceVersion": "1"}}
    bench.informers[SERVICE].store.put({"kind": "Service", **trimmed})
    orphan = {"labels": LABELS}
    await server.put(f"{SERVICES}/m", kind="Service", apiVersion="v1", metadata=orphan)
    applied = await bench.sync(owner(), [service()])
    assert applied == DONE
    (taken,) = server.objects[f"{SERVICES}/m"]["metadata"]["ownerReferences"]
    assert taken["uid"] == "owner-uid"


async def test_no_child_is_made_in_another_namespace_than_its_owners(server, bench):
    astray = deployment()
    astray["metadata"]["namespace"] = "other"
    with pytest.raises(ValueError, match="other/m cannot be a child of default/m"):
        await bench.sync(owner(), [astray])
    assert server.writes == []


async def test_only_the_child_that_changed_is_written(server, bench):
    await bench.sync(owner(), [deployment(), service()])
    await bench.sync(owner(), [deployment(replicas=2), service()])
    assert [one.path for one in server.writes[2:]] == [f"{DEPLOYMENTS}/m"]


async def test_a_change_of_status_writes_nothing(server, bench, eventually):
    await bench.sync(owner(), [deployment()])
    current = server.objects[f"{DEPLOYMENTS}/m"]
    await server.store(f"{DEPLOYMENTS}/m", {**current, "status": {"readyReplicas": 1}})
    await eventually(lambda: "status" in bench.informers[DEPLOYMENT].store.all()[0])
    await bench.sync(owner(), [deployment()])
    assert len(server.writes) == 1


async def test_row_27_an_owned_field_is_restored_once_and_foreign_ones_are_left_alone(server, bench, eventually):
    store = bench.informers[DEPLOYMENT].store
    await bench.sync(owner(), [deployment()])
    current = server.objects[f"{DEPLOYMENTS}/m"]
    metadata = {**current["metadata"], "annotations": {"theirs": "yes"}}
    await server.store(f"{DEPLOYMENTS}/m", {**current, "metadata": metadata, "spec": {"replicas": 7, "paused": True}})
    await eventually(lambda: store.all()[0]["spec"]["replicas"] == 7)
    for _unused in range(3):
        await bench.sync(owner(), [deployment()])
    assert server.objects[f"{DEPLOYMENTS}/m"]["spec"] == {"replicas": 1, "paused": True}
    assert server.objects[f"{DEPLOYMENTS}/m"]["metadata"]["annotations"] == {"theirs": "yes"}
    assert len(server.writes) == 2


async def test_row_27_an_owned_label_is_restored(server, bench, eventually):
    labelled = service()
    labelled["metadata"]["labels"] = {"route": "true"}
    await bench.sync(owner(), [labelled])
    current = server.objects[f"{SERVICES}/m"]
    await server.store(f"{SERVICES}/m", {**current, "metadata": {**current["metadata"], "labels": LABELS}})
    store = bench.informers[SERVICE].store
    await eventually(lambda: "route" not in store.all()[0]["metadata"]["labels"])
    await bench.sync(owner(), [labelled])
    assert server.objects[f"{SERVICES}/m"]["metadata"]["labels"] == {**LABELS, "route": "true"}


async def test_row_29_defaults_and_conversions_of_the_server_write_nothing_again(server, bench, script):
    async def default(request):
        body = await request.json()
        body["spec"] |= {"replicas": "1", "strategy": "RollingUpdate"}
        return web.json_response(await server.store(request.path, body))

    server.fault("PATCH", DEPLOYMENTS, default)
    for _unused in range(3):
        await bench.sync(owner(), [deployment()])
    assert len(server.writes) == 1


async def test_a_child_that_is_no_longer_wanted_is_deleted_with_preconditions(server, bench, eventually):
    await bench.sync(owner(), [deployment(), service()])
    await bench.sync(owner(), [deployment()])
    assert [one.path for one in server.requests("DELETE")] == [f"{SERVICES}/m"]
    assert f"{SERVICES}/m" not in server.objects
    await bench.sync(owner(), [deployment()])
    assert len(server.writes) == 3


async def test_pruning_a_child_that_changed_meanwhile_is_refused_and_tried_again(server, bench):
    await bench.sync(owner(), [service()])
    await bench.expectations.wait_until_observed("owner-uid")
    server.deliver.clear()
    current = server.objects[f"{SERVICES}/m"]
    await server.store(f"{SERVICES}/m", {**current, "spec": {"changed": True}})
    applied = await bench.applier.sync(owner(), [])
    assert [type(error).__name__ for error in applied.errors] == ["ConflictError"]
    assert f"{SERVICES}/m" in server.objects


async def test_nothing_is_pruned_before_every_store_is_filled(server, bench):
    await bench.sync(owner(), [service()])
    await bench.expectations.wait_until_observed("owner-uid")
    bench.informers[DEPLOYMENT].synced.clear()
    await bench.sync(owner(), [])
    assert f"{SERVICES}/m" in server.objects


async def test_no_pods_are_created_with_a_foreign_account(server, bench):
    """A model's account has the model's name, which its author chooses."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": "default", "name": "m"}}
    before = await server.put(f"{ACCOUNTS}/m", kind="ServiceAccount", metadata={"annotations": {"role": "of a bank"}})
    applied = await bench.sync(owner(), [deployment(), service(), account])
    assert [(failure.kind, failure.reason) for failure in applied.failures] == [("ServiceAccount", "NameTaken")]
    assert f"{DEPLOYMENTS}/m" not in server.objects
    assert server.objects[f"{ACCOUNTS}/m"] == before
    await server.remove(f"{ACCOUNTS}/m")
    assert await bench.sync(owner(), [deployment(), service(), account]) == DONE
    assert f"{DEPLOYMENTS}/m" in server.objects


async def test_a_role_is_bound_once_it_is_there_and_ours(server, bench):
    """The API server rejects a binding to a missing role, and a foreign role could grant anything."""
    metadata = {"namespace": "default", "name": "m"}
    role, binding = ({"apiVersion": RBAC, "kind": kind, "metadata": metadata} for kind in ("Role", "RoleBinding"))
    await server.put(f"{ROLES}/m", kind="Role", apiVersion=RBAC, metadata={})
    applied = await bench.sync(owner(), [binding, role])
    assert [(failure.kind, failure.reason) for failure in applied.failures] == [("Role", "NameTaken")]
    assert f"{BINDINGS}/m" not in server.objects
    await server.remove(f"{ROLES}/m")
    written = len(server.writes)
    assert await bench.sync(owner(), [binding, role]) == DONE
    assert [write.path for write in server.writes[written:]] == [f"{ROLES}/m", f"{BINDINGS}/m"]


async def test_no_pods_are_created_while_the_accounts_owner_is_unknown(server, bench, script):
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": "default", "name": "m"}}
    await server.put(f"{ACCOUNTS}/m", kind="ServiceAccount", metadata={"annotations": {"role": "of a bank"}})
    server.fault("GET", ACCOUNTS, script.refuse(500, "InternalError"))
    applied = await bench.sync(owner(), [deployment(), service(), account])
    assert [type(error).__name__ for error in applied.errors] == ["ServerError"]
    assert not server.writes


@pytest.mark.parametrize(
    ("metadata", "holder"),
    [
        ({}, "was not created by Slipway"),
        ({"ownerReferences": [reference("x", "other")]}, "belongs to Model other"),
        ({"labels": LABELS, "ownerReferences": [reference("x", "rs", "ReplicaSet")]}, "belongs to ReplicaSet rs"),
    ],
    ids=["no owner", "another model", "another controller, our label"],
)
async def test_row_30_an_object_with_the_name_stays_and_is_reported(server, bench, eventually, metadata, holder):
    before = await server.put(f"{DEPLOYMENTS}/m", metadata=metadata, spec={"theirs": True})
    if "labels" in metadata:
        await eventually(lambda: len(bench.informers[DEPLOYMENT].store) == 1)
    applied = await bench.sync(owner(), [deployment(), service()])
    (failure,) = applied.failures
    assert (failure.kind, failure.name, failure.reason) == ("Deployment", "m", "NameTaken")
    assert holder in failure.message
    assert applied.retry_after == 30
    assert server.objects[f"{DEPLOYMENTS}/m"] == before
    assert f"{SERVICES}/m" in server.objects
    await bench.sync(owner(), [])
    assert server.objects[f"{DEPLOYMENTS}/m"] == before


@pytest.mark.parametrize(
    "metadata",
    [{"ownerReferences": [reference("owner-uid")]}, {"labels": LABELS}],
    ids=["made by the original system", "orphaned by a deletion"],
)
async def test_a_child_of_ours_is_taken_up(server, bench, metadata):
    await server.put(f"{DEPLOYMENTS}/m", metadata=metadata)
    applied = await bench.sync(owner(), [deployment()])
    assert not applied.failures
    assert server.objects[f"{DEPLOYMENTS}/m"]["metadata"]["labels"] == LABELS


async def test_row_13_what_an_owner_of_the_same_name_left_behind_is_waited_for(server, bench, eventually):
    metadata = {"labels": LABELS, "ownerReferences": [reference("former-uid")]}
    await server.put(f"{DEPLOYMENTS}/m", metadata=metadata)
    await eventually(lambda: len(bench.informers[DEPLOYMENT].store) == 1)
    applied = await bench.sync(owner(), [deployment()])
    assert applied.waiting == ("Deployment m",)
    assert not server.writes
    await server.remove(f"{DEPLOYMENTS}/m")
    await eventually(lambda: len(bench.informers[DEPLOYMENT].store) == 0)
    await bench.sync(owner(), [deployment()])
    assert server.objects[f"{DEPLOYMENTS}/m"]["metadata"]["ownerReferences"][0]["uid"] == "owner-uid"


async def test_row_31_a_deleted_child_is_made_again_once_it_is_really_gone(server, bench, eventually):
    store = bench.informers[DEPLOYMENT].store
    await bench.sync(owner(), [deployment()])
    current = server.objects[f"{DEPLOYMENTS}/m"]
    metadata = {**current["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    await server.store(f"{DEPLOYMENTS}/m", {**current, "metadata": metadata})
    await eventually(lambda: "deletionTimestamp" in store.all()[0]["metadata"])
    assert (await bench.sync(owner(), [deployment()])).waiting == ("Deployment m",)
    assert len(server.writes) == 1
    await server.remove(f"{DEPLOYMENTS}/m")
    await eventually(lambda: len(store) == 0)
    await bench.sync(owner(), [deployment()])
    assert len(server.writes) == 2
    assert f"{DEPLOYMENTS}/m" in server.objects


async def test_row_32_nothing_is_made_for_an_owner_that_is_being_deleted(server, bench):
    await bench.sync(owner(deletionTimestamp="2026-01-01T00:00:00Z"), [deployment()])
    assert not server.writes


@pytest.mark.parametrize(("code", "reason"), [(422, "Invalid"), (403, "Forbidden"), (404, "NotFound")])
async def test_row_24_a_refused_child_is_reported_and_the_others_are_made(server, bench, script, code, reason):
    server.fault("PATCH", DEPLOYMENTS, script.refuse(code, reason, "exceeded quota"))
    applied = await bench.sync(owner(), [deployment(), service()])
    (failure,) = applied.failures
    assert (failure.kind, failure.reason, failure.message) == ("Deployment", reason, "exceeded quota")
    assert applied.retry_after == 60
    applied.raise_transient()
    assert f"{SERVICES}/m" in server.objects
    assert (await bench.sync(owner(), [deployment(), service()])).failures == (failure,)
    assert len(server.requests("PATCH", DEPLOYMENTS)) == 1, "asked again at once"
    assert not (await bench.sync(owner(), [deployment(replicas=2), service()])).failures


async def test_row_24_an_immutable_field_replaces_a_child_of_a_replaceable_kind(
    server, bench, script, eventually, caplog
):
    caplog.set_level("INFO")
    store = bench.informers[DEPLOYMENT].store
    await bench.sync(owner(), [deployment()])
    first = server.objects[f"{DEPLOYMENTS}/m"]["metadata"]["uid"]
    await bench.expectations.wait_until_observed("owner-uid")
    causes = [{"field": "spec.selector", "message": 'Invalid value: {"Env": "hf_secret"}: field is immutable'}]
    server.fault("PATCH", DEPLOYMENTS, script.refuse(422, "Invalid", f"no: {causes}", causes=causes))
    applied = await bench.applier.sync(owner(), [deployment(selector="new")])
    assert applied.waiting == ("Deployment m",)
    assert not applied.failures
    await eventually(lambda: len(store) == 0)
    await bench.sync(owner(), [deployment(selector="new")])
    assert server.objects[f"{DEPLOYMENTS}/m"]["metadata"]["uid"] != first
    assert "because an immutable field changed: spec.selector" in caplog.text
    assert "hf_secret" not in caplog.text


async def test_an_immutable_field_of_another_kind_is_reported(server, bench, script):
    await bench.sync(owner(), [service()])
    await bench.expectations.wait_until_observed("owner-uid")
    server.fault("PATCH", SERVICES, script.refuse(422, "Invalid", "spec.clusterIP: field is immutable"))
    changed = service()
    changed["spec"]["clusterIP"] = "10.0.0.1"
    (failure,) = (await bench.applier.sync(owner(), [changed])).failures
    assert failure.reason == "Invalid"
    assert not server.requests("DELETE")


async def test_row_20_21_passing_trouble_is_raised_after_the_others_are_made(server, bench, script):
    server.fault("PATCH", DEPLOYMENTS, script.refuse(500, "InternalError"))
    applied = await bench.sync(owner(), [deployment(), service()])
    assert f"{SERVICES}/m" in server.objects
    with pytest.raises(ServerError):
        applied.raise_transient()
    server.fault("PATCH", DEPLOYMENTS, script.refuse(429, "TooManyRequests", headers={"Retry-After": "9"}))
    with pytest.raises(TooManyRequestsError) as caught:
        (await bench.sync(owner(), [deployment(), service()])).raise_transient()
    assert caught.value.retry_after == 9


async def test_row_22_a_write_whose_answer_was_lost_is_not_made_twice(server, bench, script, eventually):
    async def lose(request):
        await server.patch(request, await request.json())
        return await script.hang_up(request)

    server.fault("PATCH", DEPLOYMENTS, lose)
    assert (await bench.sync(owner(), [deployment()])).errors
    first = server.objects[f"{DEPLOYMENTS}/m"]["metadata"]
    assert not (await bench.sync(owner(), [deployment()])).errors
    assert server.objects[f"{DEPLOYMENTS}/m"]["metadata"] == first


async def test_row_14_a_reconciliation_sees_what_the_last_one_wrote(server, bench, monkeypatch):
    monkeypatch.setattr(expectations_module, "WAIT_SECONDS", 0.1)
    server.deliver.clear()
    await bench.sync(owner(), [deployment()])
    store = bench.informers[DEPLOYMENT].store
    assert len(store) == 0
    await bench.expectations.wait_until_observed("owner-uid")
    assert store.all()[0]["spec"] == {"replicas": 1}
    await bench.sync(owner(), [deployment()])
    assert len(server.writes) == 1


async def test_row_14_a_reconciliation_sees_what_the_last_one_deleted(server, bench, monkeypatch):
    monkeypatch.setattr(expectations_module, "WAIT_SECONDS", 0.1)
    await bench.sync(owner(), [deployment()])
    await bench.expectations.wait_until_observed("owner-uid")
    server.deliver.clear()
    await bench.sync(owner(), [])
    await bench.expectations.wait_until_observed("owner-uid")
    assert len(bench.informers[DEPLOYMENT].store) == 0


async def test_waiting_for_a_write_ends_as_soon_as_the_watch_tells_it(server, bench):
    server.deliver.clear()
    await bench.sync(owner(), [deployment()])
    before = len(server.requests("GET", "deployments/m"))
    waiting = asyncio.create_task(bench.expectations.wait_until_observed("owner-uid"))
    await bench.client.get(DEPLOYMENT, Key("default", "m"))
    assert not waiting.done()
    server.deliver.set()
    await asyncio.wait_for(waiting, PATIENCE)
    assert len(server.requests("GET", "deployments/m")) == before + 1, "only the test's own request"


async def test_row_38_who_does_not_lead_writes_nothing(server, bench):
    bench.applier = bench.new(bench.client.fenced(lambda: False))
    applied = await bench.sync(owner(), [deployment()])
    with pytest.raises(NotLeaderError):
        applied.raise_transient()
    assert not server.writes


MARK = "test/applied"


async def restarted(bench, client):
    """The applier of a process that knows nothing of the one before it, stores filled."""
    await bench.expectations.wait_until_observed("owner-uid")
    bench.applier = bench.new(client, mark=MARK)


async def test_row_42_a_restart_sends_nothing_that_is_there_as_it_should_be(server, bench, client, eventually):
    await restarted(bench, client)
    await bench.sync(owner(), [deployment(), service()])
    live_deployment = server.objects[f"{DEPLOYMENTS}/m"]
    defaults = {**live_deployment["spec"], "revisionHistoryLimit": 10}
    await server.store(f"{DEPLOYMENTS}/m", {**live_deployment, "spec": defaults, "status": {"replicas": 1}})
    await eventually(lambda: "status" in bench.informers[DEPLOYMENT].store.all()[0])
    written = len(server.writes)
    await restarted(bench, client)
    await bench.sync(owner(), [deployment(), service()])
    assert len(server.writes) == written


async def test_a_restarted_controller_corrects_a_changed_field(server, bench, client, eventually):
    await restarted(bench, client)
    await bench.sync(owner(), [deployment()])
    live_deployment = server.objects[f"{DEPLOYMENTS}/m"]
    await server.store(f"{DEPLOYMENTS}/m", {**live_deployment, "spec": {**live_deployment["spec"], "replicas": 7}})
    await eventually(lambda: bench.informers[DEPLOYMENT].store.all()[0]["spec"]["replicas"] == 7)
    await restarted(bench, client)
    await bench.sync(owner(), [deployment()])
    assert server.objects[f"{DEPLOYMENTS}/m"]["spec"]["replicas"] == 1


async def test_after_a_restart_a_field_that_is_no_longer_wanted_is_released(server, bench, client):
    """The object has all desired fields, but the mark shows that more was sent."""
    await restarted(bench, client)
    await bench.sync(owner(), [deployment(paused=True)])
    written = len(server.writes)
    await restarted(bench, client)
    await bench.sync(owner(), [deployment()])
    assert len(server.writes) == written + 1


async def test_after_a_restart_an_object_of_an_earlier_owner_is_not_taken_for_ours(server, bench, client):
    await restarted(bench, client)
    await bench.sync(owner(), [deployment()])
    await restarted(bench, client)
    applied = await bench.sync(owner(identity="another"), [deployment()])
    assert applied.waiting == ("Deployment m",)


FILES = "/api/v1/namespaces/default/configmaps/m-files"
FILES_KEY = (CONFIG_MAP, Key("default", "m-files"))


def files(text="one"):
    metadata = {"namespace": "default", "name": "m-files"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": text}}


@pytest.fixture
def marking(bench, client):
    bench.applier = bench.new(client, mark="m/applied")
    return bench


async def test_an_unlisted_object_is_created_watched_and_not_rewritten_without_a_change(server, marking):
    for _unused in range(3):
        assert await marking.sync(owner(), [files()]) == DONE
    assert [one.method for one in server.writes] == ["PATCH"]
    assert server.objects[FILES]["metadata"]["ownerReferences"][0]["uid"] == "owner-uid"
    await marking.sync(owner(), [files("two")])
    assert server.objects[FILES]["data"] == {"a": "two"}
    await server.store(FILES, {**server.objects[FILES], "data": {"a": "foreign"}})
    await marking.sync(owner(), [files("two")])
    assert server.objects[FILES]["data"] == {"a": "two"}
    await server.remove(FILES)
    await marking.sync(owner(), [files("two")])
    assert server.objects[FILES]["data"] == {"a": "two"}
    assert [one.path for one in (*server.lists, *server.watches) if "configmaps" in one.path] == []
    assert marking.applier.children(owner()) == {}


async def test_an_unlisted_object_is_not_taken_from_other_owners(server, marking):
    config_map = await server.put(FILES, kind="ConfigMap", data={"a": "theirs"})
    applied = await marking.sync(owner(), [files()])
    assert [failure.reason for failure in applied.failures] == ["NameTaken"]
    await marking.sync(owner(), [], [FILES_KEY])
    assert server.objects[FILES] == config_map


async def test_an_unlisted_object_that_is_no_longer_desired_is_deleted(server, marking):
    await marking.sync(owner(), [files()])
    assert await marking.sync(owner(), [], [FILES_KEY]) == DONE
    assert FILES not in server.objects
    assert await marking.sync(owner(), [], [FILES_KEY]) == DONE


@pytest.mark.parametrize("metadata", [{"ownerReferences": [reference("earlier")]}, {"deletionTimestamp": "now"}])
async def test_an_unlisted_object_that_is_being_deleted_is_retried(server, marking, metadata):
    """No event tells when it is gone."""
    references = {"labels": LABELS, "ownerReferences": [reference("owner-uid")]} | metadata
    await server.put(FILES, kind="ConfigMap", metadata=references)
    applied = await marking.sync(owner(), [files()])
    assert applied.waiting == ()
    assert [error.reason for error in applied.errors] == ["Conflict"]


SECRETS = "/api/v1/namespaces/default/secrets"


def secret(token="b25l", name="m-upload"):  # noqa: S107 - no real one
    metadata = {"namespace": "default", "name": name}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": {"token": token}}


async def test_a_write_only_object_is_sent_once_and_never_read(server, bench):
    outcomes = [await bench.applier.write_only.apply(owner(), [secret()]) for _unused in range(3)]
    assert outcomes == [DONE, Applied(), Applied()]
    assert [one.method for one in server.log if one.path.startswith(SECRETS)] == ["POST"]
    live_secret = server.objects[f"{SECRETS}/m-upload"]
    assert (live_secret["data"], live_secret["metadata"]["labels"]) == ({"token": "b25l"}, LABELS)
    assert live_secret["metadata"]["ownerReferences"][0]["uid"] == "owner-uid"


async def test_a_changed_write_only_object_is_sent_again(server, bench, client):
    await bench.applier.write_only.apply(owner(), [secret()])
    assert await bench.applier.write_only.apply(owner(), [secret("dHdv")]) == DONE
    assert server.objects[f"{SECRETS}/m-upload"]["data"] == {"token": "dHdv"}
    assert await bench.applier.write_only.apply(owner(), [secret("dHdv")]) == Applied()
    before = server.objects[f"{SECRETS}/m-upload"]["metadata"]["resourceVersion"]
    assert await bench.new(client).write_only.apply(owner(), [secret("dHdv")]) == DONE
    assert server.objects[f"{SECRETS}/m-upload"]["metadata"]["resourceVersion"] == before


class Clock:
    """The applier's time."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        for module in (refusals, write_only):
            monkeypatch.setattr(module, "time", self)

    def monotonic(self):
        return self.now


def secret_requests(server):
    return [one.method for one in server.log if one.path.startswith(SECRETS)]


async def test_a_deleted_secret_is_written_again_after_a_while_and_still_never_read(server, bench, monkeypatch):
    clock = Clock(monkeypatch)
    await bench.applier.write_only.apply(owner(), [secret()])
    await server.remove(f"{SECRETS}/m-upload")
    seconds = bench.applier.write_only.due_after(owner())
    assert REWRITE_SECONDS <= seconds <= 1.25 * REWRITE_SECONDS
    clock.now += seconds - 1
    assert await bench.applier.write_only.apply(owner(), [secret()]) == Applied()
    assert bench.applier.write_only.due_after(owner()) == pytest.approx(1)
    clock.now += 1
    assert await bench.applier.write_only.apply(owner(), [secret()]) == DONE
    assert server.objects[f"{SECRETS}/m-upload"]["data"] == {"token": "b25l"}
    assert secret_requests(server) == ["POST", "PUT", "POST"]
    assert bench.applier.write_only.due_after(owner()) == seconds


async def test_an_unchanged_secret_costs_one_request_and_no_version(server, bench, monkeypatch):
    clock = Clock(monkeypatch)
    await bench.applier.write_only.apply(owner(), [secret()])
    before = server.objects[f"{SECRETS}/m-upload"]["metadata"]["resourceVersion"]
    clock.now += bench.applier.write_only.due_after(owner())
    assert await bench.applier.write_only.apply(owner(), [secret()]) == DONE
    assert secret_requests(server) == ["POST", "PUT"]
    assert server.objects[f"{SECRETS}/m-upload"]["metadata"]["resourceVersion"] == before


async def test_a_changed_secret_gets_its_content_back_and_a_strangers_stays(server, bench, monkeypatch):
    clock = Clock(monkeypatch)
    await bench.applier.write_only.apply(owner(), [secret()])
    live_secret = server.objects[f"{SECRETS}/m-upload"]
    await server.store(f"{SECRETS}/m-upload", {**live_secret, "data": {"token": "eA=="}})
    clock.now += bench.applier.write_only.due_after(owner())
    assert await bench.applier.write_only.apply(owner(), [secret()]) == DONE
    assert server.objects[f"{SECRETS}/m-upload"]["data"] == {"token": "b25l"}
    await server.remove(f"{SECRETS}/m-upload")
    await server.put(f"{SECRETS}/m-upload", kind="Secret", apiVersion="v1", data={"password": "eA=="})
    clock.now += bench.applier.write_only.due_after(owner())
    applied = await bench.applier.write_only.apply(owner(), [secret()])
    assert [one.reason for one in applied.failures] == ["NameTaken"]
    assert server.objects[f"{SECRETS}/m-upload"]["data"] == {"password": "eA=="}


async def test_many_owners_share_the_writes_of_unchanged_secrets(bench, monkeypatch):
    clock = Clock(monkeypatch)
    owners = [owner(f"m{number}", f"{number}-uid") for number in range(40)]
    monkeypatch.setattr(write_only, "REWRITES_PER_SECOND", 0.1)
    for one in owners:
        await bench.applier.write_only.apply(one, [secret(name=one["metadata"]["name"])])
    due = sorted(bench.applier.write_only.due_after(one) for one in owners)
    assert due[0] >= 400
    assert due[-1] <= 500
    assert len(set(due)) == len(due)
    clock.now += 399
    assert {await bench.applier.write_only.apply(one, [secret(name=one["metadata"]["name"])]) for one in owners} == {
        Applied()
    }


async def test_secrets_of_vanished_owners_are_forgotten(server, bench, monkeypatch):
    """An owner without a finalizer goes without a word."""
    clock = Clock(monkeypatch)
    for name in ("a", "b", "c"):
        await bench.applier.write_only.apply(owner(name, f"{name}-uid"), [secret(name=name)])
    clock.now += 1.25 * REWRITE_SECONDS
    await bench.applier.write_only.apply(owner("b", "b-uid"), [secret(name="b")])
    assert bench.applier.write_only._writes.keys() == {"a-uid", "b-uid", "c-uid"}, "these may be late"
    clock.now += REWRITE_SECONDS
    await bench.applier.write_only.apply(owner("d", "d-uid"), [])
    assert bench.applier.write_only._writes.keys() == {"b-uid"}
    await bench.applier.write_only.apply(owner("b", "b-uid"), [])
    assert bench.applier.write_only._writes == {}
    assert bench.applier.write_only.due_after(owner("b", "b-uid")) is None


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"labels": LABELS},
        {"labels": LABELS, "ownerReferences": [reference("theirs", "other")]},
        {"ownerReferences": [reference("owner-uid")]},
    ],
    ids=["strange", "orphaned", "of another owner", "without our label"],
)
async def test_a_strangers_object_is_not_overwritten_blindly(server, bench, metadata):
    await server.put(
        f"{SECRETS}/m-upload", kind="Secret", apiVersion="v1", metadata=metadata, data={"password": "eA=="}
    )
    applied = await bench.applier.write_only.apply(owner(), [secret()])
    assert [(one.reason, one.name) for one in applied.failures] == [("NameTaken", "m-upload")]
    assert server.objects[f"{SECRETS}/m-upload"]["data"] == {"password": "eA=="}


async def test_an_apply_waits_until_the_object_of_a_deleted_namesake_is_gone(server, bench):
    metadata = {"labels": LABELS, "ownerReferences": [reference("another-uid")]}
    await server.put(f"{SECRETS}/m-upload", kind="Secret", apiVersion="v1", metadata=metadata, data={"token": "eA=="})
    (error,) = (await bench.applier.write_only.apply(owner(), [secret()])).errors
    assert "is of an owner that is gone" in str(error)
    await server.remove(f"{SECRETS}/m-upload")
    assert await bench.applier.write_only.apply(owner(), [secret()]) == DONE
    assert server.objects[f"{SECRETS}/m-upload"]["data"] == {"token": "b25l"}


async def test_a_rejected_write_only_object_is_reported_without_its_content(server, bench, script):
    server.fault("POST", SECRETS, script.refuse(403, "Forbidden", "secrets is forbidden"))
    applied = await bench.applier.write_only.apply(owner(), [secret()])
    assert [one.reason for one in applied.failures] == ["Forbidden"]
    assert "b25l" not in str(applied)
    assert (await bench.applier.write_only.apply(owner(), [secret()])).failures == applied.failures
    assert len(server.requests("POST", SECRETS)) == 1
