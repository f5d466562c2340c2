"""The page's data from resources, routing table and counters."""

from __future__ import annotations

from typing import Any

import pytest

from slipway.gateway.haproxy.metrics import BackendCounters, RawCounters, parse_counters
from slipway.gateway.ui import overview, resources
from slipway.gateway.ui.overview import Model
from tests.ui.worlds import CHAT, KRYPTON, KUBEAI, READY, ROUTED, SCALE, World, every_state, summary


def models_by_name(world: World, counted: dict[str, BackendCounters] | None = None) -> dict[str, Model]:
    cluster, table = world.shown()
    return {f"{model.namespace}/{model.name}": model for model in overview.build_models(cluster, table, counted or {})}


@pytest.mark.parametrize(
    ("name", "state", "reason"),
    [
        ("default/tiny", "ready", "Ready"),
        ("default/tiny-from-zero", "asleep", "Ready"),
        ("legacy/by-hand", "ready", ""),
        ("research/llama-70b", "starting", "Unschedulable"),
        ("research/mistral", "failed", "ImagePullBackOff"),
        ("sandbox/draft", "unreachable", "NotRouted"),
        ("sandbox/gone", "leaving", ""),
        ("sandbox/new", "unseen", ""),
        ("sandbox/old", "stopped", "Suspended"),
        ("support/helper", "degraded", "OutOfGpuMemory"),
        ("support/summarizer", "updating", "RollingOut"),
    ],
)
def test_the_state_of_a_model_follows_from_its_status_and_the_routing_table(name: str, state: str, reason: str) -> None:
    model = models_by_name(every_state())[name]
    assert (model.state, model.reason) == (state, reason)


def test_the_advice_is_that_of_the_troubleshooting_page() -> None:
    models = models_by_name(every_state())
    assert models["research/mistral"].advice.startswith(
        "Check `spec.image`, and check from a node that the registry responds."
    )
    assert models["support/helper"].advice.startswith("Use a shorter context")
    assert models["default/tiny"].advice == ""


def test_a_model_that_no_controller_has_seen_leads_to_the_controller() -> None:
    assert (
        models_by_name(every_state())["sandbox/new"].advice
        == "Check that Slipway's controller is running and serves this API."
    )


def test_the_message_selects_the_advice_of_a_reason_with_several_causes() -> None:
    world = World()
    conditions = summary(("False", "DownloadFailed", "hf:a/b: the hub limits requests for now (429)"), stalled=True)
    world.declare(KRYPTON, "ns", "m", *conditions)
    assert models_by_name(world)["ns/m"].advice == "Wait: the pod retries. Or use a token, or a mirror."


def test_the_id_to_use_comes_first_and_the_one_with_the_namespace_last() -> None:
    assert models_by_name(every_state())["support/helper"].ids == ("helper", "support-bot", "support/helper")


def test_an_id_of_an_older_service_is_a_conflict() -> None:
    world = every_state()
    assert models_by_name(world)["team-b/tiny"].ids == ("team-b/tiny",)
    assert models_by_name(world)["team-b/tiny"].conflicts == (
        "the ID 'tiny' belongs to Service default/tiny, which is older",
    )
    conflicts = [(one.namespace, one.service) for one in overview.find_conflicts(*world.shown())]
    assert conflicts == [("sandbox", "draft"), ("team-b", "tiny")]


def test_a_fault_of_a_service_is_shown_with_its_model() -> None:
    (conflict,) = models_by_name(every_state())["sandbox/draft"].conflicts
    assert "strategy" in conflict


def test_replicas_of_an_adapter_are_those_of_its_model() -> None:
    world = World()
    uid = world.declare(KUBEAI, "ns", "base", *READY, replicas=2)
    world.serve("ns", "base", uid, pods=2, features=CHAT)
    world.serve("ns", "base-adapter", uid, pods=0, models=["base_adapter"])
    world.slices[-1]["endpoints"] = world.slices[0]["endpoints"][:1]
    model = models_by_name(world)["ns/base"]
    assert model.ready == 2
    assert set(model.ids) == {"base", "ns/base", "base_adapter", "ns/base-adapter"}


def test_requests_of_all_services_of_a_model_are_added_up() -> None:
    world = World()
    uid = world.declare(KUBEAI, "ns", "m", *READY)
    world.serve("ns", "m", uid)
    world.serve("ns", "m-new", uid, internal=True)
    counted = {
        "ns:m": BackendCounters(
            active=2, waiting=1, answered=30, failed=1, first_byte_ms=3000, first_bytes=30, passed_over=1
        ),
        "ns:m-new": BackendCounters(active=1, waiting=0, answered=10, failed=0, first_byte_ms=5000, first_bytes=10),
    }
    model = models_by_name(world, counted)["ns/m"]
    assert model.passed_over == 1
    assert (model.active, model.waiting, model.answered, model.failed, model.first_byte_ms) == (3, 1, 40, 1, 200)


def test_a_service_without_endpoints_is_asleep_if_a_request_can_start_it() -> None:
    world = World()
    world.serve("ns", "cold", pods=0, scale={**SCALE, "name": "cold"})
    world.serve("ns", "empty", pods=0)
    models = models_by_name(world)
    assert (models["ns/cold"].state, models["ns/empty"].state) == ("asleep", "starting")


def test_the_detail_of_a_model_has_its_conditions_and_services() -> None:
    cluster, table = every_state().shown()
    detail = overview.build_detail(cluster, table, {}, "inferenceservices.inference.llmkube.dev", "research", "mistral")
    assert detail is not None
    assert [condition.type for condition in detail.conditions] == [
        "Ready",
        "Reconciling",
        "Stalled",
        "Available",
        "Progressing",
    ]
    assert [(service.name, service.ids) for service in detail.services] == [
        ("mistral", ("mistral", "research/mistral"))
    ]
    by_hand = overview.build_detail(cluster, table, {}, "services", "legacy", "by-hand")
    assert by_hand is not None
    assert by_hand.services[0].endpoints == ("10.0.11.1:8000",)
    assert overview.build_detail(cluster, table, {}, "services", "default", "tiny") is None


@pytest.mark.parametrize(
    "status",
    [
        None,
        [],
        "text",
        {"conditions": "none"},
        {"conditions": [None, 5, {"type": ["x"], "status": None, "reason": {}}]},
    ],
)
def test_a_status_of_any_shape_is_read(status: Any) -> None:
    obj = {"metadata": {"namespace": "ns", "name": "m", "uid": "u"}, "spec": status, "status": status}
    world = World()
    world.resources.append((KUBEAI, obj))
    assert models_by_name(world)["ns/m"].state == "unseen"


def test_long_messages_and_lists_of_conditions_are_cut() -> None:
    conditions = [{"type": f"T{place}", "status": "True", "message": "x" * 50_000} for place in range(500)]
    read = resources.parse_resource(
        KUBEAI, resources.trim({"metadata": {"name": "m", "uid": "u"}, "status": {"conditions": conditions}})
    )
    assert len(read.conditions) == resources.MOST_CONDITIONS
    assert len(read.conditions[0].message) < resources.MOST_MESSAGE + 10


@pytest.mark.parametrize(
    ("spec", "devices"),
    [
        ({"resourceProfile": "nvidia-gpu-l4:2"}, {"nvidia-gpu-l4": 2}),
        ({"resourceProfile": "cpu:1"}, {}),
        ({"resources": {"limits": {"nvidia.com/gpu": "1", "cpu": 4, "memory": "8Gi"}}}, {"nvidia.com/gpu": 1}),
        ({"resources": {"requests": {"amd.com/gpu": 2}, "limits": {"amd.com/gpu": 2}}}, {"amd.com/gpu": 2}),
        ({"resources": {"gpu": 4, "cpu": "2"}}, {"gpu": 4}),
        ({"resources": {"gpu": 0}}, {}),
        ({"engine": {"runner": {"resources": {"limits": {"nvidia.com/gpu": "8"}}}}}, {"nvidia.com/gpu": 8}),
        ({"resources": {"limits": {f"vendor.example/{n}": 1 for n in range(99)}}}, 8),
        ({"resourceProfile": "<b>:1"}, {}),
        ({"resourceProfile": 10**5000, "resources": {"gpu": 10**5000, "limits": {"a.b/c": True, "a.b/d": 1e9}}}, {}),
        ({"resources": {"limits": {"x" * 5000 + "/gpu": 1, "a.b/gpu": "-1", "a.b/mib": "1Gi"}}}, {}),
        ({"resources": "text", "engine": []}, {}),
    ],
)
def test_devices_of_a_replica_are_those_that_the_spec_names(spec: Any, devices: Any) -> None:
    read = resources.parse_resource(KUBEAI, resources.trim({"metadata": {"name": "m", "uid": "u"}, "spec": spec}))
    assert (len(read.devices) if isinstance(devices, int) else read.devices) == devices


@pytest.mark.parametrize(
    ("status", "progress"),
    [
        ({"progress": "17%"}, 17),
        ({"progress": "999%"}, 100),
        ({"progress": "<b>1</b>%"}, None),
        ({"doneBytes": 1, "totalBytes": 3}, 33),
        ({"cache": {"loaded": False, "doneBytes": 5 << 30, "totalBytes": 10 << 30}}, 50),
        ({"doneBytes": -5, "totalBytes": 3}, 0),
        ({"doneBytes": 5, "totalBytes": 0}, None),
        ({"doneBytes": "5", "totalBytes": [9]}, None),
        ({"cache": "text"}, None),
    ],
)
def test_progress_is_a_percentage_in_the_status(status: Any, progress: int | None) -> None:
    read = resources.parse_resource(KUBEAI, resources.trim({"metadata": {"name": "m", "uid": "u"}, "status": status}))
    assert read.progress == progress


def test_progress_is_shown_while_weights_load() -> None:
    world = World()
    world.declare(KUBEAI, "ns", "loads", *summary(("False", "LoadingCache", "Wait."), reconciling=True))
    world.declare(KUBEAI, "ns", "loaded", *READY)
    for _kind, obj in world.resources:
        obj["status"]["cache"] = {"doneBytes": 1, "totalBytes": 2}
    models = models_by_name(world)
    assert (models["ns/loads"].progress, models["ns/loaded"].progress) == (50, None)


def test_weights_are_resources_without_service_and_route() -> None:
    world = every_state()
    world.declare(KUBEAI, "ns", "weights", *READY)
    world.declare(KUBEAI, "ns", "refused", *summary(("False", "InvalidSpec", "No."), stalled=True), ROUTED)
    assert [name for name, model in models_by_name(world).items() if model.weights] == ["ns/weights"]


def test_only_identity_figures_and_conditions_are_kept_of_a_resource() -> None:
    obj = {
        "metadata": {"namespace": "ns", "name": "m", "uid": "u", "annotations": {"secret": "x"}, "labels": {"a": "b"}},
        "spec": {"replicas": 2, "env": {"TOKEN": "x"}, "resourceProfile": "nvidia-gpu-l4:1"},
        "status": {"phase": "Ready", "conditions": [], "progress": "17%", "upload": {"token": "x"}},
    }
    kept = resources.trim(obj)
    assert kept == {
        "metadata": {"namespace": "ns", "name": "m", "uid": "u"},
        "spec": {"replicas": 2},
        "devices": {"nvidia-gpu-l4": 1},
        "progress": 17,
        "status": {"conditions": []},
    }


def test_figures_are_those_of_backends_of_models() -> None:
    statistics = (
        "# pxname,svname,scur,hrsp_1xx,hrsp_2xx,hrsp_3xx,hrsp_4xx,hrsp_5xx,hrsp_other\n"
        "public,FRONTEND,9,0,90,0,0,0,0\nns:m,s1,4,0,7,0,0,0,0\nns:m,BACKEND,4,0,7,0,2,1,0\ncontrol,BACKEND,0,0,3,0,0,0,0\n"
    )
    first_bytes = "0x1: key=ns:m use=0 exp=0 shard=0 gpc0=700 gpc1=7\n"
    assert parse_counters(RawCounters(statistics, first_bytes, "ns:m 3 0 0\n")) == {
        "ns:m": BackendCounters(4, 3, 10, 1, 700, 7)
    }


def test_namespaces_that_are_not_served_are_hidden() -> None:
    cluster, _table = every_state().shown()
    served = cluster.within(lambda namespace: namespace in ("default", "team-b"))
    assert {resource.namespace for resource in served.resources} == {"default", "team-b"}
    assert served.faults == ()
    assert [fault.namespace for fault in cluster.faults] == ["sandbox"]
