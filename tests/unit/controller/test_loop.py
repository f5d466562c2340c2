"""One resource's way through the loop, against the scripted API server."""

from __future__ import annotations

import json

from slipway.kube.objects import DEPLOYMENT, JOB, PERSISTENT_VOLUME_CLAIM, POD, Key

from .conftest import FINALIZER, TOY, changes


def wrote(server, kind, method="PATCH"):
    return [one for one in server.writes if one.method == method and f"/{kind}" in one.path]


async def test_own_fields_and_the_finalizer_come_first_and_in_one_write(server, cluster, parts, eventually):
    await cluster.config()
    await cluster.toy(cached="10Gi")
    await eventually(lambda: cluster.reason() == "Valid")
    toy = cluster.get(TOY)
    assert toy["metadata"]["finalizers"] == [FINALIZER]
    assert toy["metadata"]["labels"] == {"sort": "toy"}
    assert cluster.get(DEPLOYMENT)["spec"]["replicas"] == toy["spec"]["replicas"] == 1
    assert server.writes[0].path == cluster.path(TOY, "a")
    assert len([one for one in wrote(server, "toys") if not one.path.endswith("status")]) == 1


async def test_own_fields_that_the_server_refuses_are_reported_and_sent_again_with_another_spec(
    server, cluster, parts, eventually, rest, script
):
    async def refused(request):
        messages.append(f"spec.x: no {len(messages)}")  # as of an admission webhook that numbers its answers
        return await script.refuse(422, "Invalid", messages[-1])(request)

    messages: list[str] = []
    fault = server.fault("PATCH", "toys/a?", refused, times=99)
    await cluster.config()
    await cluster.toy(cached="10Gi")
    await eventually(lambda: cluster.reason() == "Invalid")
    await cluster.config("two")
    await rest(lambda: len(server.log))
    assert messages == ["spec.x: no 0"]
    fault.times = 0
    await cluster.toy(cached="20Gi")
    await eventually(lambda: cluster.reason() == "Valid")


async def test_nothing_is_written_while_nothing_changes(server, cluster, parts, eventually, rest):
    await cluster.config()
    await cluster.toy(cached="10Gi")
    await eventually(lambda: cluster.reason() == "Valid")
    await eventually(lambda: parts.at_rest(server))
    written, planned = changes(server), parts.api.planned["a"]
    parts.controller.queue.add(Key("models", "a"))
    await eventually(lambda: parts.at_rest(server))
    assert (changes(server), parts.api.planned["a"]) == (written, planned + 1)


async def test_a_resource_without_changes_is_reconciled_once(server, cluster, parts, eventually, rest, monkeypatch):
    await cluster.config()
    await cluster.toy(services=["a"])
    await eventually(lambda: cluster.reason() == "Valid")
    await rest(lambda: len(server.writes))
    looked, resolve = [], parts.api.resolve
    monkeypatch.setattr(parts.api, "resolve", lambda world: looked.append(world) or resolve(world))
    parts.controller.queue.add(Key("models", "a"))
    await eventually(lambda: looked)
    await rest(lambda: len(looked))
    assert len(looked) == 1


async def test_a_status_is_of_what_was_made_a_moment_before(server, cluster, parts, eventually, rest, monkeypatch):
    await cluster.config()
    await cluster.toy()
    await eventually(lambda: cluster.reason() == "Valid")
    await rest(lambda: len(server.writes))
    counts, status = [], parts.api.status
    monkeypatch.setattr(
        parts.api, "status", lambda world, why: counts.append(len(world.children)) or status(world, why)
    )
    toy = cluster.get(TOY)
    await server.store(cluster.path(TOY, "a"), {**toy, "spec": {**toy["spec"], "services": ["a", "b"]}})
    await eventually(lambda: counts)
    assert counts[0] == 3


async def test_row_28_replicas_of_others_are_left_alone(server, cluster, parts, eventually):
    """Only what the plan says of the resource itself is written: not the replicas when these are within bounds."""
    await cluster.config()
    await cluster.toy(replicas=3)
    await eventually(lambda: cluster.reason() == "Valid")
    toy = cluster.get(TOY)
    await server.store(cluster.path(TOY, "a"), {**toy, "spec": {"replicas": 7}})
    await eventually(lambda: cluster.get(DEPLOYMENT)["spec"]["replicas"] == 7)
    await server.store(cluster.path(TOY, "a"), {**cluster.get(TOY), "metadata": {**toy["metadata"], "labels": {}}})
    await eventually(lambda: cluster.labels(TOY, "a") == {"sort": "toy"})
    assert cluster.get(TOY)["spec"]["replicas"] == 7


async def test_row_28_a_scale_in_between_is_not_overwritten(server, cluster, parts, eventually, script):
    """Someone scales between the controller's reading and its write of a label: 409, then both are there."""
    await cluster.config()

    async def scaled_first(request):
        toy = cluster.get(TOY)
        await server.store(cluster.path(TOY, "a"), {**toy, "spec": {**toy["spec"], "replicas": 5}})
        return await server.patch(request, await request.json())

    server.fault("PATCH", "toys/a", scaled_first)
    await cluster.toy(replicas=0)
    await eventually(lambda: cluster.reason() == "Valid")
    assert cluster.get(TOY)["spec"]["replicas"] == 5
    assert cluster.labels(TOY, "a") == {"sort": "toy"}


async def test_shared_objects_are_made_once_never_changed_and_have_no_owner(server, cluster, parts, eventually):
    await cluster.config()
    await cluster.toy("a", cached="10Gi")
    await cluster.toy("b", cached="20Gi")
    await eventually(lambda: cluster.reason("a") == cluster.reason("b") == "Valid")
    claim = cluster.get(PERSISTENT_VOLUME_CLAIM, "shared")
    assert "ownerReferences" not in claim["metadata"]
    assert claim["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "slipway"}
    assert claim["metadata"]["annotations"] == {"loaded/a": "yes", "loaded/b": "yes"}
    assert claim["spec"]["size"] in ("10Gi", "20Gi")
    assert {one.method for one in wrote(server, "persistentvolumeclaims")} == {"PATCH"}


async def test_a_shared_object_of_another_maker_is_used_as_it_is(server, cluster, parts, eventually):
    await cluster.config()
    await server.put(
        cluster.path(PERSISTENT_VOLUME_CLAIM, "shared"), kind="PersistentVolumeClaim", spec={"size": "5Gi"}
    )
    await cluster.toy(cached="10Gi")
    await eventually(lambda: cluster.reason() == "Valid")
    assert cluster.get(PERSISTENT_VOLUME_CLAIM, "shared")["spec"] == {"size": "5Gi"}
    assert wrote(server, "persistentvolumeclaims", "POST") == []


async def test_a_refused_shared_object_is_reported_and_not_retried_at_once(server, cluster, parts, eventually, script):
    server.fault("POST", "persistentvolumeclaims", script.refuse(403, "Forbidden", "exceeded quota"), times=99)
    await cluster.config()
    await cluster.toy(cached="10Gi")
    await eventually(lambda: cluster.reason() == "Forbidden")
    await cluster.config("two")
    await eventually(lambda: cluster.get(DEPLOYMENT)["spec"]["image"] == "two")
    assert len(wrote(server, "persistentvolumeclaims", "POST")) == 1


async def test_row_36_a_reference_that_appears_changes_and_vanishes_concerns_those_that_name_it(
    server, cluster, parts, eventually, rest
):
    await cluster.toy("a")
    await eventually(lambda: cluster.reason() == "NoConfig")
    await cluster.config("one")
    await eventually(lambda: cluster.reason() == "Valid")
    await cluster.config("two")
    await eventually(lambda: cluster.get(DEPLOYMENT)["spec"]["image"] == "two")
    await eventually(lambda: parts.at_rest(server))
    before = changes(server)
    await cluster.claim("other")
    await eventually(lambda: parts.at_rest(server))
    assert changes(server) == before
    await server.remove("/api/v1/namespaces/system/configmaps/config")
    await eventually(lambda: cluster.reason() == "NoConfig")
    assert cluster.get(DEPLOYMENT)["spec"]["image"] == "two"


async def test_a_note_on_a_shared_object_brings_back_the_one_that_it_is_for(server, cluster, parts, eventually, rest):
    await cluster.config()
    names = [f"toy-{number}" for number in range(30)]
    for name in names:
        await cluster.toy(name, cached="10Gi")
    await eventually(lambda: all(cluster.reason(name) == "Valid" for name in names))
    await rest(lambda: len(server.writes) + sum(parts.api.planned.values()))
    parts.api.planned.clear()
    claim, path = cluster.get(PERSISTENT_VOLUME_CLAIM, "shared"), cluster.path(PERSISTENT_VOLUME_CLAIM, "shared")
    annotations = {**claim["metadata"]["annotations"], "loaded/toy-7": "no"}
    await server.store(path, {**claim, "metadata": {**claim["metadata"], "annotations": annotations}})
    await eventually(
        lambda: cluster.get(PERSISTENT_VOLUME_CLAIM, "shared")["metadata"]["annotations"]["loaded/toy-7"] == "yes"
    )
    await rest(lambda: len(server.writes) + sum(parts.api.planned.values()))
    assert set(parts.api.planned) == {"toy-7"}
    assert parts.api.planned["toy-7"] <= 3
    await server.remove(path)
    await eventually(lambda: set(parts.api.planned) == set(names))


def notes_of(cluster):
    claim = cluster.find(PERSISTENT_VOLUME_CLAIM, "shared")
    return {note.removeprefix("loaded/") for note in (claim or {"metadata": {}})["metadata"].get("annotations", {})}


async def test_all_notes_on_one_object_are_one_write(server, cluster, parts, eventually):
    await cluster.config()
    await cluster.toy(cached="10Gi", notes=["b", "c"])
    await eventually(lambda: cluster.reason() == "Valid")
    assert notes_of(cluster) == {"a", "b", "c"}
    assert len(wrote(server, "persistentvolumeclaims")) == 1


async def test_labels_of_another_object_are_written_and_removed_with_its_annotations(
    server, cluster, parts, eventually
):
    def labels_of(claim):
        return {name: value for name, value in claim["metadata"].get("labels", {}).items() if name in ("state", "old")}

    await cluster.config()
    await cluster.toy(cached="10Gi", marks={"state": "Ready", "old": "yes"})
    claim = cluster.path(PERSISTENT_VOLUME_CLAIM, "shared")
    await eventually(lambda: "state" in labels_of(server.objects.get(claim, {"metadata": {}})))
    toy = cluster.get(TOY)
    spec = toy["spec"] | {"marks": {"state": "Updating", "old": None}}
    await server.store(cluster.path(TOY, "a"), {**toy, "spec": spec})
    await eventually(lambda: labels_of(server.objects[claim]) == {"state": "Updating"})
    assert len(wrote(server, "persistentvolumeclaims")) == 2


async def test_if_the_notes_exceed_the_limit_together_those_that_fit_are_written(
    server, cluster, parts, eventually, script
):
    async def answer(request):
        body = await request.read()
        if b"loaded/a" in body:
            return await script.refuse(422, "Invalid", "too long")(request)
        return await server.patch(request, json.loads(body))

    server.fault("PATCH", "persistentvolumeclaims", answer, times=99)
    await cluster.config()
    await cluster.toy(cached="10Gi", notes=["b"])
    await eventually(lambda: notes_of(cluster) == {"b"} and cluster.reason() == "Invalid")


async def test_row_36_nothing_is_polled_while_a_reference_is_missing(server, cluster, parts, eventually, rest):
    await cluster.toy("a")
    await eventually(lambda: cluster.reason() == "NoConfig")
    await rest(lambda: len(server.log), 0.5)


async def test_references_that_raise_stop_their_resource_only(server, cluster, parts, eventually):
    await cluster.config()
    await cluster.toy("a", poison=True)
    await cluster.toy("b")
    await eventually(lambda: cluster.reason("b") == "Valid")


async def deleted(server, cluster, name="a"):
    toy = cluster.get(TOY, name)
    metadata = {**toy["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    await server.store(cluster.path(TOY, name), {**toy, "metadata": metadata})


async def test_row_4_a_deletion_waits_for_its_job_and_then_ends(server, cluster, parts, eventually):
    await cluster.config()
    await cluster.toy(cached="10Gi")
    await eventually(lambda: cluster.reason() == "Valid")
    await deleted(server, cluster)
    await eventually(lambda: cluster.find(JOB, "clean-a"))
    assert cluster.find(DEPLOYMENT) is None
    assert server.propagation[cluster.path(DEPLOYMENT, "a")] == "Foreground"
    job = cluster.get(JOB, "clean-a")
    assert job["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] is False
    assert cluster.get(TOY)["metadata"]["finalizers"] == [FINALIZER]
    await server.store(cluster.path(JOB, "clean-a"), {**job, "status": {"succeeded": 1}})
    await eventually(lambda: not cluster.get(TOY)["metadata"].get("finalizers"))
    assert cluster.get(PERSISTENT_VOLUME_CLAIM, "shared")["metadata"]["annotations"] == {}


async def test_row_33_a_deletion_while_the_controller_was_away_is_finished(server, cluster, client, parts, eventually):
    await cluster.config()
    annotations = {"annotations": {"loaded/a": "yes"}}
    await server.put(
        cluster.path(PERSISTENT_VOLUME_CLAIM, "shared"), kind="PersistentVolumeClaim", metadata=annotations
    )
    metadata = {"finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    spec = {"cached": "10Gi"}
    await server.put(cluster.path(TOY, "a"), kind="Toy", apiVersion=TOY.api_version, metadata=metadata, spec=spec)
    await eventually(lambda: cluster.find(JOB, "clean-a"))
    await server.store(cluster.path(JOB, "clean-a"), {**cluster.get(JOB, "clean-a"), "status": {"succeeded": 1}})
    await eventually(lambda: not cluster.get(TOY)["metadata"].get("finalizers"))


async def test_a_deletion_in_a_namespace_that_goes_does_not_wait_for_what_cannot_be_made(
    server, cluster, parts, eventually, script
):
    text = "forbidden: unable to create new content in namespace models because it is being terminated"
    server.fault("PATCH", "jobs", script.refuse(403, "Forbidden", text), times=99)
    await cluster.config()
    await cluster.toy(cached="10Gi")
    await eventually(lambda: cluster.reason() == "Valid")
    await deleted(server, cluster)
    await eventually(lambda: not cluster.get(TOY)["metadata"].get("finalizers"))


async def test_row_32_nothing_is_done_for_one_that_others_hold(server, cluster, parts, eventually):
    await cluster.config()
    metadata = {"finalizers": ["others/hold"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    spec = {"cached": "10Gi"}
    await server.put(cluster.path(TOY, "a"), kind="Toy", apiVersion=TOY.api_version, metadata=metadata, spec=spec)
    await eventually(lambda: parts.at_rest(server))
    assert server.writes == []


async def test_pods_of_deployments_and_jobs_lead_to_their_resource(server, cluster, parts, eventually):
    await cluster.config()
    await cluster.toy()
    await eventually(lambda: cluster.reason() == "Valid")
    owner = cluster.get(DEPLOYMENT)["metadata"]["ownerReferences"]
    await server.put(
        cluster.path(JOB, "fill-a"),
        kind="Job",
        metadata={"labels": {"app.kubernetes.io/managed-by": "slipway"}, "ownerReferences": owner},
    )
    for name, maker, manager in (("a-1-x", ("ReplicaSet", "a-1"), "kubeai"), ("b", ("ReplicaSet", "a-1"), "others")):
        await server.put(cluster.path(POD, name), metadata=pod_metadata(*maker, manager))
    await eventually(lambda: cluster.get(TOY)["status"]["pods"] == 1)
    # A child that the plan does not name goes, its pod with it in a real cluster.
    await eventually(lambda: cluster.find(JOB, "fill-a") is None)
    assert server.propagation[cluster.path(JOB, "fill-a")] == "Background"


def pod_metadata(kind: str, name: str, manager: str) -> dict:
    references = [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "1", "controller": True}]
    labels = {"app.kubernetes.io/managed-by": manager, "pod-template-hash": "1"}
    return {"labels": labels, "ownerReferences": references}
