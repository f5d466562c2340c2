"""The conditions that sum up a status, as the controller writes them, against the scripted API server."""

from __future__ import annotations

from slipway.kube.objects import CONFIG_MAP, DEPLOYMENT, Key
from slipway.serving.contract.readiness import AnyOf, Condition, Readiness

from .conftest import TOY, changes


def conditions(cluster, name="a"):
    return {one["type"]: one for one in cluster.get_status(name).get("conditions", [])}


def summary(cluster, name="a"):
    conditions_by_type = conditions(cluster, name)
    names = ("Ready", "Reconciling", "Stalled")
    return [
        (conditions_by_type[name]["status"], conditions_by_type[name]["reason"])
        for name in names
        if name in conditions_by_type
    ]


async def test_ready_reconciling_and_stalled_come_after_the_conditions_of_the_api(cluster, parts, eventually):
    await cluster.config()
    await cluster.toy()
    await eventually(lambda: cluster.reason() == "Valid")
    assert [*conditions(cluster)] == ["Accepted", "Ready", "Reconciling", "Stalled"]
    assert summary(cluster) == [("True", "Ready"), ("False", "Complete"), ("False", "AsExpected")]


async def test_the_change_failed_only_if_the_newest_spec_is_not_what_answers(server, cluster, parts, eventually):
    accepted, refused = Condition("Accepted"), Condition("Accepted", "False")
    parts.api.readiness = Readiness(
        ready=accepted, answering=AnyOf((accepted, refused)), failed=refused, telling=(accepted,)
    )
    await cluster.config()
    await cluster.toy()
    await eventually(lambda: cluster.reason() == "Valid")
    await server.remove(cluster.path(CONFIG_MAP, "config", "system"))
    await eventually(lambda: cluster.reason() == "NoConfig")
    deployment = cluster.get(DEPLOYMENT)
    for updated, reason in ((1, "ChangeFailed"), (2, "NoConfig")):
        status = {"replicas": 2, "readyReplicas": 1, "updatedReplicas": updated}
        await server.store(cluster.path(DEPLOYMENT, "a"), {**deployment, "status": status})
        expected = [("True", reason), ("False", "NoConfig"), ("True", "NoConfig")]
        await eventually(lambda expected=expected: summary(cluster) == expected)


async def test_they_are_of_the_generation_that_was_looked_at(server, cluster, parts, eventually):
    await cluster.config()
    await cluster.toy()
    await eventually(lambda: cluster.reason() == "Valid")
    toy = cluster.get(TOY)
    await server.store(cluster.path(TOY, "a"), {**toy, "spec": {**toy["spec"], "colour": "red"}})
    changed = cluster.get(TOY)["metadata"]["generation"]
    assert changed > toy["metadata"]["generation"]
    await eventually(lambda: conditions(cluster)["Ready"]["observedGeneration"] == changed)
    assert {conditions(cluster)[one]["observedGeneration"] for one in ("Reconciling", "Stalled")} == {changed}


async def test_a_time_tells_when_it_went_from_one_to_the_other(server, cluster, parts, eventually):
    await cluster.toy()
    await eventually(lambda: summary(cluster) == [("False", "NoConfig"), ("False", "NoConfig"), ("True", "NoConfig")])
    old = "2026-01-01T00:00:00Z"
    status = {"conditions": [{**one, "lastTransitionTime": old} for one in cluster.get_status()["conditions"]]}
    await server.store(cluster.path(TOY, "a"), {**cluster.get(TOY), "status": status})
    await cluster.config()
    await eventually(lambda: conditions(cluster)["Ready"]["status"] == "True")
    conditions_by_type = conditions(cluster)
    assert old not in (
        conditions_by_type["Ready"]["lastTransitionTime"],
        conditions_by_type["Stalled"]["lastTransitionTime"],
    )
    assert conditions_by_type["Reconciling"]["lastTransitionTime"] == old


async def test_nothing_is_written_while_nothing_changes(server, cluster, parts, eventually, rest):
    await cluster.toy("refused")
    await eventually(lambda: cluster.reason("refused") == "NoConfig")
    await cluster.config()
    await cluster.toy("served")
    await eventually(lambda: cluster.reason("served") == cluster.reason("refused") == "Valid")
    await server.remove(cluster.path(CONFIG_MAP, "config", "system"))
    await eventually(lambda: cluster.reason("served") == cluster.reason("refused") == "NoConfig")
    await eventually(lambda: parts.at_rest(server))
    written = changes(server)
    for name in ("refused", "served"):
        parts.controller.queue.add(Key("models", name))
    await eventually(lambda: parts.at_rest(server))
    assert changes(server) == written


async def test_a_reason_is_reported_by_one_event(cluster, parts, eventually, monkeypatch):
    reasons = []
    monkeypatch.setattr(parts.recorder, "record", lambda _kind, _obj, _type, reason, _text: reasons.append(reason))
    await cluster.toy()
    await eventually(lambda: cluster.reason() == "NoConfig")
    await cluster.config()
    await eventually(lambda: "Valid" in reasons)
    assert reasons == ["NoConfig", "Valid"]


async def test_an_api_that_says_nothing_of_readiness_keeps_its_conditions_to_itself(cluster, parts, eventually):
    parts.api.readiness = None
    await cluster.config()
    await cluster.toy()
    await eventually(lambda: cluster.reason() == "Valid")
    assert [*conditions(cluster)] == ["Accepted"]
