"""What the status of an InferenceService says, and of what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slipway.apis.ome.services.table import SERVICES
from slipway.apis.ome.types import fields_ignored
from slipway.apis.ome.types.service import LATER
from slipway.kube.objects import DEPLOYMENT, Object
from slipway.serving.containers.diagnosis import TEMPLATE
from slipway.serving.contract.readiness import summarize
from slipway.serving.pods.groups import LEADER_WORKER_SET
from tests import worlds

from . import services as bench
from .services import conditions, find_child, observed, reasons, running, service, status, world

ONE = {"minReplicas": 1, "maxReplicas": 1}
PARTS = {"router": ONE, "decoder": ONE}


def ready(observed: Any) -> tuple[bool, bool]:
    """Ready, and Stalled."""
    readiness = SERVICES.readiness
    assert readiness is not None
    by_type = {one.type: one.status == "True" for one in summarize(observed, readiness, 1)}
    return by_type["Ready"], by_type["Stalled"]


def pod(part: str, deployment: Object, name: str = "p", ready: bool = False, **status: Any) -> Object:
    template = deployment["spec"].get("template") or deployment["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    mark = template["metadata"]["annotations"][TEMPLATE]
    pod_conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "metadata": {
            "name": name,
            "namespace": "models",
            "labels": {"component": part.partition("-")[0], "app": f"chat-{part}"},
            "annotations": {TEMPLATE: mark},
            "creationTimestamp": "2026-11-21T09:01:00Z",
        },
        "status": {"phase": "Running", "conditions": pod_conditions, **status},
    }


def crashed(message: str = "CUDA error: no kernel image", code: int = 1, restarts: int = 5) -> Object:
    ended = {"exitCode": code, "message": message, "finishedAt": "2026-11-21T09:04:00Z", "reason": "Error"}
    return {
        "containerStatuses": [
            {
                "name": "ome-container",
                "image": "engine:1",
                "restartCount": restarts,
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": ended},
            }
        ]
    }


def test_a_service_is_ready_when_all_of_its_parts_are() -> None:
    snapshot = world(**PARTS)
    names = [f"chat-{part}" for part in ("engine", "decoder", "router")]
    for part in ("Engine", "Decoder", "Router"):
        others = [name for name in names if name != f"chat-{part.lower()}"]
        partly = running(snapshot, *others)
        assert reasons(partly)[f"{part}Ready"] == ("False", "WaitingForPods")
        assert reasons(partly)["Available"] == ("False", "WaitingForPods")
    done = running(snapshot, *names)
    assert {reasons(done)[f"{part}Ready"] for part in ("Engine", "Decoder", "Router")} == {("True", "Ready")}
    assert reasons(done)["Progressing"] == ("False", "Complete")
    assert reasons(done)["IngressReady"] == ("True", "IngressDisabled")
    assert ready(status(done))[0]


def test_it_says_where_it_answers() -> None:
    service_status = status(running(world(router=ONE), "chat-engine", "chat-router"))
    assert service_status["url"] == service_status["address"]["url"] == "http://chat.models.svc.cluster.local:8080"
    engine = service_status["components"]["engine"]
    assert engine["url"] == engine["restURL"] == "http://chat-engine.models.svc.cluster.local:8080"
    assert (service_status["replicas"], service_status["readyReplicas"]) == (1, 1)


def test_a_group_of_nodes_is_reported_as_one_replica() -> None:
    snapshot = world(service(), bench.model(), bench.runtime(engineConfig=bench.GROUP))
    group = observed(find_child(snapshot, LEADER_WORKER_SET, "lws-chat-engine"))
    done = world(snapshot.resource, bench.model(), bench.runtime(engineConfig=bench.GROUP), children=(group,))
    assert reasons(done)["EngineReady"] == ("True", "Ready")
    assert reasons(done)["Progressing"] == ("False", "Complete")
    assert status(done)["components"]["engine"]["latestReadyRevision"].startswith("chat-engine-")


# The model


def test_pods_that_find_no_node_wait_for_the_model_and_have_not_failed() -> None:
    snapshot = world(service(), bench.model(state="In_Transit"), bench.runtime())
    deployment = observed(find_child(snapshot, DEPLOYMENT, "chat-engine"), ready=0)
    nowhere = {
        "type": "PodScheduled",
        "status": "False",
        "lastTransitionTime": "2026-11-21T08:00:00Z",
        "message": "0/3",
    }
    waiting = pod("engine", deployment, conditions=[nowhere])
    there = {"children": (deployment,), "pods": (waiting,)}
    late = world(snapshot.resource, bench.model(state="In_Transit"), bench.runtime(), **there)
    assert reasons(late)["Available"] == ("False", "BaseModelNotReady")
    assert reasons(late)["Progressing"] == ("True", "BaseModelNotReady")
    assert not any(ready(status(late)))
    settled = world(snapshot.resource, bench.model(), bench.runtime(), **there)
    assert reasons(settled)["Available"] == ("False", "Unschedulable")


def test_answering_pods_do_not_wait_while_the_model_is_loaded_again() -> None:
    snapshot = running(world(service(), bench.model(state="In_Transit"), bench.runtime()), "chat-engine")
    assert reasons(snapshot)["Progressing"] == ("False", "Complete")


def test_a_group_takes_the_place_of_a_deployment_that_is_still_there() -> None:
    old = observed(find_child(world(), DEPLOYMENT, "chat-engine"))
    snapshot = world(service(), bench.model(), bench.runtime(engineConfig=bench.GROUP), children=(old,))
    assert reasons(snapshot)["EngineReady"] == ("False", "WaitingForPods")


def test_adapters_are_waited_for_as_their_model_is() -> None:
    resource = service(model={"name": "tiny", "fineTunedWeights": ["poet"]})
    for state, reason in (("In_Transit", "BaseModelNotReady"), ("Ready", "WaitingForPods")):
        poet = bench.weight("poet") | {"status": {"state": state}}
        assert reasons(world(resource, bench.model(), bench.runtime(), poet))["Available"] == ("False", reason)


def test_a_model_of_which_nothing_is_known_yet_is_waited_for() -> None:
    unread = bench.model(state="In_Transit", modelFormat=None, modelFramework=None, modelArchitecture=None)
    snapshot = world(service(), unread, bench.runtime())
    assert reasons(snapshot)["Accepted"] == ("Unknown", "BaseModelNotReady")
    assert reasons(snapshot)["Progressing"] == ("True", "BaseModelNotReady")
    assert not any(ready(status(snapshot)))
    assert status(snapshot)["modelStatus"]["transitionStatus"] == "InProgress"
    named = world(service(runtime={"name": "rt"}), unread, bench.runtime())
    assert find_child(named, DEPLOYMENT, "chat-engine") is not None
    assert "RuntimeFits" not in reasons(named)


def test_a_model_that_cannot_be_loaded_is_reported_with_its_pod_and_its_last_log_lines() -> None:
    deployment = observed(find_child(world(), DEPLOYMENT, "chat-engine"), ready=0)
    snapshot = world(children=(deployment,), pods=(pod("engine", deployment, **crashed()),))
    model_status = status(snapshot)["modelStatus"]
    assert model_status["transitionStatus"] == "BlockedByFailedLoad"
    assert model_status["modelRevisionStates"] == {
        "activeModelState": "FailedToLoad",
        "targetModelState": "FailedToLoad",
    }
    assert model_status["modelCopies"] == {"failedCopies": 1, "totalCopies": 0}
    info = model_status["lastFailureInfo"]
    assert (info["location"], info["reason"], info["exitCode"]) == ("p", "ModelLoadFailed", 1)
    assert "CUDA error" in info["message"]
    assert ready(status(snapshot)) == (False, True)


def test_an_image_that_cannot_be_pulled_says_nothing_of_the_model() -> None:
    deployment = observed(find_child(world(), DEPLOYMENT, "chat-engine"), ready=0)
    waiting = {"name": "ome-container", "image": "x", "state": {"waiting": {"reason": "ErrImagePull"}}}
    snapshot = world(children=(deployment,), pods=(pod("engine", deployment, containerStatuses=[waiting]),))
    assert reasons(snapshot)["EngineReady"] == ("False", "ImagePullBackOff")
    assert status(snapshot)["modelStatus"]["transitionStatus"] == "InProgress"


def test_a_failure_of_one_part_is_not_reported_for_another() -> None:
    snapshot = world(decoder=ONE)
    parts = [observed(find_child(snapshot, DEPLOYMENT, f"chat-{part}"), ready=0) for part in ("engine", "decoder")]
    # Of the same template, as prefill and decode may be.
    broken = pod("decoder", parts[0], **crashed())
    parts[1]["spec"]["template"] = parts[0]["spec"]["template"]
    later_snapshot = world(snapshot.resource, bench.model(), bench.runtime(), children=tuple(parts), pods=(broken,))
    assert reasons(later_snapshot)["DecoderReady"] == ("False", "CrashLoopBackOff")
    assert reasons(later_snapshot)["EngineReady"] == ("False", "WaitingForPods")


@pytest.mark.parametrize(
    ("pods", "workload", "transition", "active"),
    [
        ((), None, "InProgress", "Pending"),
        ((False,), {"ready": 0}, "InProgress", "Loading"),
        ((True,), {}, "UpToDate", "Loaded"),
        ((True, False), {"complete": False}, "InProgress", "Loaded"),
    ],
)
def test_how_far_the_model_is(pods: tuple[bool, ...], workload: Object | None, transition: str, active: str) -> None:
    made_ = find_child(world(), DEPLOYMENT, "chat-engine")
    there = () if workload is None else (observed(made_, **workload),)
    seen = tuple(pod("engine", made_, f"p{number}", ready=one) for number, one in enumerate(pods))
    model_status = status(world(children=there, pods=seen))["modelStatus"]
    assert model_status["transitionStatus"] == transition
    assert model_status["modelRevisionStates"]["activeModelState"] == active
    assert model_status["modelCopies"]["totalCopies"] == sum(pods)


@pytest.mark.parametrize(
    ("requested", "reason"),
    [
        (world(service(model={"name": "none"})), "BaseModelNotFound"),
        (
            world(service(), bench.model(), bench.runtime(modelSizeRange={"min": "1T"}, disabled=True)),
            "NoSupportingRuntime",
        ),
    ],
)
def test_a_spec_that_cannot_be_served_has_the_originals_word_for_it(requested: Any, reason: str) -> None:
    model_status = status(requested)["modelStatus"]
    assert model_status["transitionStatus"] == "InvalidSpec"
    assert model_status["lastFailureInfo"]["reason"] == reason
    assert ready(status(requested)) == (False, True)


def test_running_pods_keep_answering_while_the_new_spec_is_rejected() -> None:
    deployment = observed(find_child(world(), DEPLOYMENT, "chat-engine"))
    resource = service(model={"name": "none"})
    resource["status"] = {"url": "http://chat.models.svc.cluster.local:8080"}
    snapshot = world(resource, children=(deployment,))
    assert reasons(snapshot)["Available"] == ("True", "Ready")
    assert reasons(snapshot)["Accepted"] == ("False", "BaseModelNotFound")
    assert status(snapshot)["url"] == resource["status"]["url"]


# Runtimes


def test_the_runtime_that_serves_is_reported_and_stays_while_it_fits() -> None:
    better = bench.runtime("a-better", supportedModelFormats=[{**_format(), "priority": 9}])
    first = status(world(service(), bench.model(), bench.runtime()))["runtime"]
    assert (first["name"], first["kind"], first["chosen"]) == ("rt", "ClusterServingRuntime", "Selection")
    resource = service()
    resource["status"] = {"runtime": first}
    runtime = status(world(resource, bench.model(), bench.runtime(), better))["runtime"]
    assert (runtime["name"], runtime["better"]["name"]) == ("rt", "a-better")
    changed = status(world(service(), bench.model(), bench.runtime(), better))["runtime"]
    assert changed["name"] == "a-better"


def _format() -> Object:
    model_format: Object = bench.runtime()["spec"]["supportedModelFormats"][0]
    return model_format


def test_a_runtime_that_the_service_names_serves_though_it_does_not_fit_and_that_is_reported() -> None:
    unfit = bench.runtime("other", supportedModelFormats=[{**_format(), "modelArchitecture": "BertModel"}])
    snapshot = world(service(runtime={"name": "other"}), bench.model(), unfit)
    assert reasons(snapshot)["RuntimeFits"] == ("False", "RuntimeUnfit")
    assert "BertModel" in conditions(snapshot)["RuntimeFits"]["message"]
    assert reasons(snapshot)["Accepted"][0] == "True"


def test_if_no_runtime_fits_the_closest_are_listed_with_their_reasons() -> None:
    unfit = [
        bench.runtime(f"rt-{number}", supportedModelFormats=[{**_format(), "modelArchitecture": "Bert"}])
        for number in range(60)
    ]
    service_status = status(world(service(), bench.model(), *unfit))
    assert service_status["excludedCount"] == 60
    assert len(service_status["excluded"]) == 50
    assert set(service_status["excluded"][0]) == {"name", "kind", "reason"}


# Zero


def test_an_engine_that_sleeps_is_no_failure_of_its_router() -> None:
    snapshot = world(engine={"minReplicas": 0, "maxReplicas": 2}, router=ONE)
    engine = observed(find_child(snapshot, DEPLOYMENT, "chat-engine"), ready=0)
    router = observed(find_child(snapshot, DEPLOYMENT, "chat-router"), ready=0)
    restarted = crashed("no workers")
    restarted["containerStatuses"][0]["name"] = "router"
    pods = (pod("router", router, **restarted),)
    later_snapshot = world(snapshot.resource, bench.model(), bench.runtime(), children=(engine, router), pods=pods)
    assert reasons(later_snapshot)["Available"] == ("False", "ScaledToZero")
    assert reasons(later_snapshot)["Progressing"] == ("False", "Complete")
    assert ready(status(later_snapshot)) == (True, False)
    assert reasons(later_snapshot)["RouterReady"] == ("False", "WaitingForPods")


def test_a_router_that_fails_although_it_has_engines_is_reported() -> None:
    snapshot = world(router=ONE)
    engine = observed(find_child(snapshot, DEPLOYMENT, "chat-engine"))
    router = observed(find_child(snapshot, DEPLOYMENT, "chat-router"), ready=0)
    broken = crashed("bad flag")
    broken["containerStatuses"][0]["name"] = "router"
    pods = (pod("router", router, **broken),)
    later_snapshot = world(snapshot.resource, bench.model(), bench.runtime(), children=(engine, router), pods=pods)
    assert reasons(later_snapshot)["RouterReady"] == ("False", "CrashLoopBackOff")


# Revisions


def test_revisions_and_shares_are_reported_in_the_originals_fields() -> None:
    def canary(percent: int | None, *children: Object, image: str = "engine:2", before: Any = None) -> Any:
        share = {} if percent is None else {"canaryTrafficPercent": percent}
        resource = service(engine={**ONE, "runner": {"name": "ome-container", "image": image}, **share})
        return world(resource | ({"status": before} if before else {}), children=children)

    first = canary(None, image="engine:1")
    stable = observed(find_child(first, DEPLOYMENT, "chat-engine"))
    before = status(canary(None, stable, image="engine:1"))
    old = before["components"]["engine"]["latestRolledoutRevision"]
    tried = observed(find_child(canary(10, stable), DEPLOYMENT, "chat-engine-canary"))
    during = status(canary(10, stable, tried, before=before))
    engine = during["components"]["engine"]
    new = engine["latestCreatedRevision"]
    assert new == engine["latestReadyRevision"] != old
    assert [(one["revisionName"], one["percent"], one["tag"]) for one in engine["traffic"]] == [
        (new, 10, "latest"),
        (old, 90, "prev"),
    ]
    waiting = status(canary(10, stable, observed(tried, ready=0), before=before))["components"]["engine"]
    assert [(one["revisionName"], one["percent"]) for one in waiting["traffic"]] == [(new, 0), (old, 100)]
    rolling = observed(find_child(canary(100, stable, tried), DEPLOYMENT, "chat-engine"), complete=False)
    assert status(canary(100, rolling, tried, before=during))["components"]["engine"]["latestRolledoutRevision"] == old
    rolled = observed(find_child(canary(100, stable, tried), DEPLOYMENT, "chat-engine"))
    after = status(canary(100, rolled, before=during))["components"]["engine"]
    assert after["latestRolledoutRevision"] == new
    assert after["previousRolledoutRevision"] == old
    assert after["traffic"] == [{"revisionName": new, "latestRevision": True, "percent": 100}]


def test_a_canary_that_fails_is_reported_and_leaves_the_service_ready() -> None:
    tenth = {**ONE, "canaryTrafficPercent": 10, "runner": {"name": "ome-container", "image": "engine:2"}}
    stable = observed(find_child(world(), DEPLOYMENT, "chat-engine"))
    first = world(engine=tenth, children=(stable,))
    tried = observed(find_child(first, DEPLOYMENT, "chat-engine-canary"), ready=0)
    pods = (pod("engine-canary", tried, **crashed()), pod("engine", stable, ready=True))
    snapshot = world(engine=tenth, children=(stable, tried), pods=pods)
    assert reasons(snapshot)["CanaryReady"] == ("False", "CrashLoopBackOff")
    assert ready(status(snapshot))[0]
    assert status(snapshot)["modelStatus"]["transitionStatus"] == "UpToDate"
    assert "CanaryReady" not in reasons(first)


# What has no effect


def _set(spec: Object, field: str) -> Object:
    """The spec with a value at this place."""
    name, _dot, rest = field.partition(".")
    value = _set(spec.get(name) or {}, rest) if rest else {"x": 1} if field in LATER else 7
    return {**spec, name: value}


@pytest.mark.parametrize("field", fields_ignored.SERVICES)
def test_each_field_of_a_service_without_effect_is_named_with_the_reason(field: str) -> None:
    plain = service(**PARTS)
    if field.startswith("predictor."):
        plain["spec"] = {"predictor": {"model": {"baseModel": "tiny"}, **ONE}}
    assert "FieldsIgnored" not in conditions(world(plain))
    value = _set(plain["spec"], field)
    if field.endswith(("storageUri", "Version", "topologyKey", "deploymentMode")):
        value = json.loads(json.dumps(value).replace("7", '"7"'))
    one = conditions(world({**plain, "spec": value}))["FieldsIgnored"]
    assert (one["status"], one["reason"]) == ("True", "UnsupportedFields")
    assert f"spec.{field} (" in one["message"]


@pytest.mark.parametrize("expected", [None, "", {}])
def test_a_field_without_a_value_is_not_named(expected: Any) -> None:
    assert fields_ignored.ignored({"engine": {"timeoutSeconds": expected}}, fields_ignored.SERVICES) == []


def test_the_documentation_lists_the_fields_without_effect() -> None:
    text = (Path(__file__).parents[4] / "docs/reference/apis/ome.md").read_text()
    table = text.partition("| field | why |\n| --- | --- |\n")[2].partition("\n\n")[0]
    assert table.splitlines() == fields_ignored.rows()


def test_fields_of_later_versions_and_the_predictor_are_reported() -> None:
    snapshot = world(rollout={"steps": []})
    assert reasons(snapshot)["FieldsIgnored"] == ("True", "UnsupportedFields")
    old = service(engine=None, predictor={"model": {"baseModel": "tiny"}, **ONE})
    del old["spec"]["model"], old["spec"]["engine"]
    assert reasons(world(old))["PredictorDeprecated"] == ("True", "Deprecated")
    assert find_child(world(old), DEPLOYMENT, "chat-engine") is not None
    assert "PredictorDeprecated" not in reasons(world())


def test_a_status_is_the_same_twice() -> None:
    snapshot = running(world(**PARTS), "chat-engine")
    outcome = worlds.status(SERVICES, snapshot)
    again = msgspec.structs.replace(snapshot, resource={**snapshot.resource, "status": outcome.status})
    assert worlds.status(SERVICES, again).status == outcome.status
