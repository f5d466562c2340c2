"""A service laid over its runtime: which components there are, what runs in them, and how many."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import pytest

from slipway.apis.ome.components.overlay import Component, bare, components, runner
from slipway.kube.objects import Object
from slipway.serving.contract.api import InvalidSpecError
from tests.unit.apis.ome.cases import rows

MAIN: Object = {"name": "ome-container", "image": "engine:1", "command": ["serve"], "args": ["--a"]}


def service(**spec: Any) -> Object:
    return {"metadata": {"name": "chat", "namespace": "models"}, "spec": spec}


def runtime(**spec: Any) -> Object:
    return {"metadata": {"name": "rt"}, "spec": spec}


def build_component(engine: Object | None, config: Object | None, name: str = "engine") -> Component:
    (component,) = components(service(**{name: engine}), runtime(**{f"{name}Config": config} if config else {}))
    return component


def refused(engine: Object, config: Object | None = None) -> InvalidSpecError:
    with pytest.raises(InvalidSpecError) as caught:
        build_component(engine, config)
    return caught.value


def test_a_component_is_there_if_the_service_declares_it() -> None:
    config = {"runner": MAIN}
    everything = runtime(engineConfig=config, decoderConfig=config, routerConfig=config)
    assert [one.name for one in components(service(engine={}, router={}), everything)] == ["engine", "router"]
    assert components(service(), everything) == ()


def test_the_service_takes_precedence() -> None:
    config = {
        "runner": {**MAIN, "env": [{"name": "A", "value": "1"}], "resources": {"limits": {"cpu": "1"}}},
        "tolerations": [{"key": "gpu"}],
        "labels": {"team": "a", "tier": "gold"},
        "minReplicas": 2,
        "maxReplicas": 5,
    }
    engine = {
        "runner": {"name": "ome-container", "image": "engine:2", "args": ["--b"], "env": [{"name": "B", "value": "2"}]},
        "nodeSelector": {"disk": "ssd"},
        "labels": {"team": "b"},
        "maxReplicas": 8,
    }
    component = build_component(engine, config)
    assert component.pod["nodeSelector"] == {"disk": "ssd"}
    assert component.pod["tolerations"] == [{"key": "gpu"}]
    assert runner(component.pod) == {
        "name": "ome-container",
        "image": "engine:2",
        "command": ["serve"],
        "args": ["--b"],
        "env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}],
        "resources": {"limits": {"cpu": "1"}},
    }
    assert component.extension.labels == {"team": "b", "tier": "gold"}
    assert (component.extension.min_replicas, component.extension.max_replicas) == (2, 8)


def test_a_pod_has_only_what_pods_have() -> None:
    config = {"runner": MAIN, "acceleratorOverride": {"acceleratorClass": "a"}, "labels": {"a": "b"}, "minReplicas": 1}
    assert build_component({"maxReplicas": 3, "runtimeClassName": "nvidia"}, config).pod == {
        "runtimeClassName": "nvidia",
        "containers": [MAIN],
    }


def test_an_empty_image_or_name_overwrites_nothing() -> None:
    """The original's bug 447: a router's image is gone when the service sets its resources."""
    patch = {"name": "", "image": "", "resources": {"limits": {"cpu": "1"}}}
    expected = {**MAIN, "resources": {"limits": {"cpu": "1"}}}
    assert build_component({"runner": patch}, {"runner": MAIN}, "router").pod["containers"] == [expected]
    named = {**patch, "name": "ome-container"}
    assert build_component({"containers": [named]}, {"containers": [MAIN]}).pod["containers"] == [expected]


@pytest.mark.parametrize(
    ("config", "engine", "names", "args"),
    [
        ({"containers": [{"name": "log", "image": "l"}, MAIN]}, {}, ["ome-container", "log"], ["--a"]),
        ({"containers": [MAIN]}, {"runner": {"name": "ome-container", "args": ["--b"]}}, ["ome-container"], "ab"),
        ({"containers": [{"name": "log", "image": "l"}], "runner": MAIN}, {}, ["ome-container", "log"], ["--a"]),
        ({"containers": [{**MAIN, "name": "x"}]}, {"containers": [{"name": "log", "image": "l"}]}, ["x", "log"], "a"),
        ({"containers": [{**MAIN, "name": "x"}, {"name": "y"}]}, {}, ["x", "y"], ["--a"]),
    ],
)
def test_the_container_that_answers_comes_first(config: Object, engine: Object, names: list[str], args: Any) -> None:
    containers = build_component(engine, config).pod["containers"]
    assert [one["name"] for one in containers] == names
    assert containers[0]["args"] == [f"--{letter.strip('-')}" for letter in args]


def test_a_runner_without_a_name_has_the_usual_one() -> None:
    assert runner(build_component({"runner": {"image": "a"}}, None).pod)["name"] == "ome-container"


@pytest.mark.parametrize(
    ("name", "engine", "config", "bounds"),
    [
        ("engine", {}, {}, (1, 3)),
        ("decoder", {}, {}, (1, 3)),
        ("router", {}, {}, (1, 2)),
        ("router", {"minReplicas": 4}, {}, (4, 4)),
        ("engine", {"minReplicas": 0}, {}, (0, 3)),
        ("engine", {"maxReplicas": 0}, {}, (1, 3)),
        ("engine", {"minReplicas": 2, "maxReplicas": 5}, {}, (2, 5)),
        ("engine", {"minReplicas": 8}, {"maxReplicas": 5}, (8, 8)),
        ("engine", {"maxReplicas": 2}, {"minReplicas": 4}, (2, 2)),
        ("engine", {}, {"minReplicas": 2, "maxReplicas": 5}, (2, 5)),
        ("engine", {"minReplicas": 3, "maxReplicas": 2}, {}, (3, 3)),
        ("decoder", {"minReplicas": 3, "maxReplicas": 2}, {}, (3, 3)),
        ("router", {"minReplicas": 3, "maxReplicas": 1}, {}, (3, 3)),
        ("engine", {}, {"minReplicas": 3, "maxReplicas": 2}, (3, 3)),
        ("engine", {"minReplicas": 3, "maxReplicas": 2}, {"minReplicas": 5, "maxReplicas": 8}, (3, 3)),
    ],
)
def test_how_many_replicas_there_are(name: str, engine: Object, config: Object, bounds: tuple[int, int]) -> None:
    extension = build_component(engine, {**config, "runner": MAIN}, name).extension
    assert (extension.min_replicas, extension.max_replicas) == bounds


def test_a_service_says_its_disruptions_and_its_strategy_as_a_whole() -> None:
    config = {
        "runner": MAIN,
        "minAvailable": 1,
        "deploymentStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
    }
    extension = build_component({"maxUnavailable": "50%", "deploymentStrategy": {"type": "Recreate"}}, config).extension
    assert (extension.min_available, extension.max_unavailable) == (None, "50%")
    assert extension.deployment_strategy == {"type": "Recreate"}


def test_a_group_has_a_leader_and_workers() -> None:
    config = {
        "leader": {"runner": MAIN, "hostNetwork": True},
        "worker": {"size": 1, "runner": {**MAIN, "args": ["--worker"]}},
    }
    component = build_component({"worker": {"size": 3, "nodeSelector": {"a": "b"}}}, config)
    assert component.leader == {"hostNetwork": True, "containers": [MAIN]}
    assert component.worker == {"nodeSelector": {"a": "b"}, "containers": [{**MAIN, "args": ["--worker"]}]}
    assert component.worker_size == 3
    assert component.pod == component.leader


def test_a_pod_of_a_group_that_does_not_say_what_runs_is_like_the_component() -> None:
    component = build_component(
        {"worker": {"size": 2, "nodeSelector": {"a": "b"}}}, {"runner": MAIN, "tolerations": [{"key": "gpu"}]}
    )
    assert component.leader == {"tolerations": [{"key": "gpu"}], "containers": [MAIN]}
    assert component.worker == {**component.leader, "nodeSelector": {"a": "b"}}


def test_a_group_may_be_a_leader_alone() -> None:
    """The original ends with a nil pointer."""
    component = build_component({}, {"leader": {"runner": MAIN}})
    assert (component.leader, component.worker, component.worker_size) == ({"containers": [MAIN]}, None, 0)


def test_a_routers_config_is_the_services_over_the_runtimes() -> None:
    config = {"runner": MAIN, "config": {"A": "1", "B": "1"}}
    assert build_component({"config": {"B": "2"}}, config, "router").config == {"A": "1", "B": "2"}


def test_runtimes_of_earlier_versions_are_read_as_an_engine() -> None:
    old = runtime(containers=[MAIN], nodeSelector={"a": "b"}, labels={"c": "d"}, supportedModelFormats=[])
    (component,) = components(service(engine={}), old)
    assert component.pod == {"containers": [MAIN], "nodeSelector": {"a": "b"}}
    assert component.extension.labels == {"c": "d"}


COMPUTING = ("engine", "decoder")
GROUP: Object = {"leader": {"runner": MAIN}, "worker": {"size": 1, "runner": MAIN}}
OLD: Object = {
    "nodeSelector": {"pool": "gpu"},
    "containers": [{**MAIN, "resources": {"limits": {"cpu": "4", "memory": "8Gi"}, "requests": {"cpu": "2"}}}],
    "tolerations": [{"key": "gpu"}],
    "labels": {"a": "b"},
    "hostNetwork": True,
}
"""What a runtime says of a pod as those of earlier versions do."""


def pods(name: str, part: Object, config: Object, **spec: Any) -> list[Object]:
    """Those that a component consists of: one, or leader and worker."""
    (component,) = components(service(**{name: part}), runtime(**{f"{name}Config": config}, **spec))
    return [component.leader, component.worker] if component.leader and component.worker else [component.pod]


@pytest.mark.parametrize("config", [{"runner": MAIN}, {"containers": [MAIN]}, GROUP], ids=["runner", "pod", "group"])
@pytest.mark.parametrize("name", COMPUTING)
def test_the_runtimes_own_selector_and_resources_count_beside_its_parts(name: str, config: Object) -> None:
    for pod in pods(name, {}, config, **OLD):
        assert pod == {
            "nodeSelector": {"pool": "gpu"},
            "containers": [{**MAIN, "resources": OLD["containers"][0]["resources"]}],
        }


def test_the_runtimes_own_selector_and_resources_are_not_for_routers() -> None:
    assert pods("router", {}, {"runner": MAIN}, **OLD) == [{"containers": [MAIN]}]


@pytest.mark.parametrize(
    ("config", "engine", "expected"),
    [
        ({}, {}, {"pool": "gpu"}),
        ({"nodeSelector": {"pool": "part", "disk": "ssd"}}, {}, {"pool": "gpu", "disk": "ssd"}),
        ({}, {"nodeSelector": {"gpu": "h100"}}, {"pool": "gpu", "gpu": "h100"}),
        ({}, {"nodeSelector": {"pool": "mine"}}, {"pool": "mine"}),
    ],
)
@pytest.mark.parametrize("name", COMPUTING)
@pytest.mark.parametrize("runs", [{"runner": MAIN}, GROUP], ids=["pod", "group"])
def test_a_services_selector_goes_before_the_runtimes_and_that_before_its_parts(
    runs: Object, name: str, config: Object, engine: Object, expected: Object
) -> None:
    for pod in pods(name, engine, {**runs, **config}, nodeSelector={"pool": "gpu"}):
        assert pod["nodeSelector"] == expected


@pytest.mark.parametrize(
    ("runner", "expected"),
    [
        ({}, {"cpu": "1", "memory": "8Gi"}),
        ({"resources": {}}, {"cpu": "1", "memory": "8Gi"}),
        ({"resources": {"limits": {"nvidia.com/gpu": "1"}}}, {"cpu": "1", "nvidia.com/gpu": "1"}),
    ],
)
def test_resources_of_the_runtimes_own_container_are_the_default(runner: Object, expected: Object) -> None:
    config = {"runner": {**MAIN, "resources": {"limits": {"cpu": "1"}}}}
    (pod,) = pods("engine", {"runner": runner}, config, **OLD)
    assert pod["containers"][0]["resources"]["limits"] == expected


def test_resources_of_another_container_are_not_the_runners() -> None:
    (pod,) = pods("engine", {}, {"runner": {**MAIN, "name": "other"}}, **OLD)
    assert "resources" not in pod["containers"][0]


@pytest.mark.parametrize(
    ("config", "engine", "expected"),
    [
        ({}, {"serviceAccount": "a"}, "a"),
        ({"serviceAccount": "a"}, {}, "a"),
        ({"serviceAccountName": "a"}, {"serviceAccount": "b"}, "b"),
        ({"serviceAccount": "a"}, {"serviceAccountName": "b"}, "b"),
        ({}, {"serviceAccount": "a", "serviceAccountName": "b"}, "b"),
    ],
)
def test_a_service_account_is_known_by_either_field(config: Object, engine: Object, expected: str) -> None:
    for name in ("engine", "decoder", "router"):
        (pod,) = pods(name, engine, {"runner": MAIN, **config})
        assert pod == {"containers": [MAIN], "serviceAccountName": expected}


EVERYWHERE: Object = {
    "nodeSelector": {"gpu": "h100"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "volumes": [{"name": "v", "emptyDir": {}}],
    "imagePullSecrets": [{"name": "s"}],
    "serviceAccountName": "sa",
    "priorityClassName": "high",
    "runtimeClassName": "nvidia",
    "hostNetwork": True,
    "initContainers": [{"name": "i", "image": "i"}],
}


@pytest.mark.parametrize("field", EVERYWHERE)
@pytest.mark.parametrize("name", COMPUTING)
@pytest.mark.parametrize("by", ["service", "runtime"])
def test_an_override_of_a_component_applies_to_all_pods_of_a_group(by: str, name: str, field: str) -> None:
    override = {field: EVERYWHERE[field]}
    config, part = (GROUP, override) if by == "service" else ({**GROUP, **override}, {})
    for pod in pods(name, part, config):
        assert pod == {**override, "containers": [MAIN]}


def test_a_leader_and_a_worker_go_before_the_component() -> None:
    group = {
        "leader": {"runner": MAIN, "nodeSelector": {"role": "leader"}, "tolerations": [{"key": "leader"}]},
        "worker": {"size": 1, "runner": MAIN, "nodeSelector": {"gpu": "a100"}},
    }
    leader, worker = pods("engine", {"nodeSelector": {"gpu": "h100"}, "tolerations": [{"key": "all"}], **group}, GROUP)
    assert leader["nodeSelector"] == {"gpu": "h100", "role": "leader"}
    assert leader["tolerations"] == [{"key": "leader"}]
    assert worker["nodeSelector"] == {"gpu": "a100"}
    assert worker["tolerations"] == [{"key": "all"}]


def test_a_services_selector_goes_before_one_of_the_runtimes_leader() -> None:
    config = {**GROUP, "leader": {"runner": MAIN, "nodeSelector": {"gpu": "a100"}}}
    leader, _worker = pods("engine", {"nodeSelector": {"gpu": "h100"}}, config)
    assert leader["nodeSelector"] == {"gpu": "h100"}


def test_containers_of_a_component_are_none_of_a_group_that_says_what_runs() -> None:
    config = {**GROUP, "runner": {**MAIN, "image": "single:1"}, "containers": [{"name": "log", "image": "l"}]}
    for pod in pods("engine", {}, config):
        assert pod == {"containers": [MAIN]}


@pytest.mark.parametrize(
    ("workers", "size", "expected"),
    [
        ({}, 0, None),
        ({"size": 2}, 2, {}),
        ({"nodeSelector": {"role": "worker"}}, 1, {"nodeSelector": {"a": "b", "role": "worker"}}),
        ({"size": 3, "tolerations": [{"key": "gpu"}]}, 3, {"tolerations": [{"key": "gpu"}]}),
        (
            {"size": 1, "containers": [{**MAIN, "image": "worker:1"}]},
            1,
            {"containers": [{**MAIN, "image": "worker:1"}]},
        ),
        (
            {"size": 1, "hostNetwork": True, "volumes": [{"name": "v"}]},
            1,
            {"hostNetwork": True, "volumes": [{"name": "v"}]},
        ),
    ],
)
def test_workers_of_a_runtime_of_earlier_versions_make_a_group(
    workers: Object, size: int, expected: Object | None
) -> None:
    spec = {"containers": [MAIN], "nodeSelector": {"a": "b"}, "workers": workers}
    (component,) = components(service(engine={}), runtime(**spec))
    leader = {"containers": [MAIN], "nodeSelector": {"a": "b"}}
    assert component.worker_size == size
    assert (component.leader, component.worker) == (
        (None, None) if expected is None else (leader, {**leader, **expected})
    )


def test_workers_of_a_runtime_have_no_effect_beside_parts() -> None:
    (component,) = components(service(engine={}), runtime(engineConfig={"runner": MAIN}, workers={"size": 2}))
    assert (component.leader, component.worker) == (None, None)


def test_a_services_own_workers_go_before_the_runtimes() -> None:
    own = {"worker": {"size": 4, "nodeSelector": {"a": "c"}}}
    (component,) = components(service(engine=own), runtime(containers=[MAIN], workers={"size": 2}))
    assert (component.worker_size, component.worker) == (4, {"nodeSelector": {"a": "c"}, "containers": [MAIN]})


@pytest.mark.parametrize(
    ("engine", "config", "reason", "text"),
    [
        ({}, None, "NoRunner", "spec.engine"),
        ({"worker": {"size": 1}}, {"leader": {"runner": MAIN}}, "NoRunner", "spec.engine.worker"),
        ({"runner": {"name": "a"}}, {"runner": {"name": "b", "args": ["c"]}}, "NoImage", "container a"),
        ({"minReplicas": -1}, {"runner": MAIN}, "InvalidSpec", "spec.engine: .*minReplicas"),
        ({"worker": {"size": 0}}, {"runner": MAIN}, "InvalidSpec", "size is 0"),
        ({"canaryTrafficPercent": 101}, {"runner": MAIN}, "InvalidSpec", "canaryTrafficPercent"),
    ],
)
def test_invalid_pods_are_rejected(engine: Object, config: Object | None, reason: str, text: str) -> None:
    error = refused(engine, config)
    assert error.reason == reason
    assert re.search(text, error.message)


def test_nothing_that_is_merged_is_changed() -> None:
    one = service(engine={"runner": {"name": "ome-container", "args": ["--b"]}, "worker": {"size": 1}})
    other = runtime(engineConfig={"containers": [MAIN], "leader": {"containers": [MAIN], "runner": MAIN}})
    before = deepcopy((one, other))
    components(one, other)
    assert (one, other) == before


def test_a_bare_service_has_the_same_components_as_the_runtime_has_them() -> None:
    rt = runtime(engineConfig={"runner": MAIN})
    (component,) = components(bare(service(engine={"runner": {"image": "other"}, "hostNetwork": True}), rt), rt)
    assert component.pod == {"containers": [MAIN]}


ROWS = [
    *(
        ("decoder", row, row["isvcDecoder"], row["runtimeDecoder"], row["expectedDecoder"])
        for row in rows("TestMergeDecoderSpec")
    ),
    *(("router", row, row["isvcRouter"], row["runtimeRouter"], row["expected"]) for row in rows("TestMergeRouterSpec")),
]


@pytest.mark.parametrize(("name", "row", "text", "config", "expected"), ROWS, ids=[str(row[1]["name"]) for row in ROWS])
def test_components_are_as_in_the_originals_tables(
    name: str, row: Object, text: Object | None, config: Object | None, expected: Object | None
) -> None:
    actual = components(service(**{name: text}), runtime(**{f"{name}Config": config}))
    if expected is None:
        assert actual == ()
        return
    one = actual[0]
    given = config or {}
    for role, pod in (
        (expected, one.pod),
        (expected.get("leader") or {}, one.leader),
        (expected.get("worker") or {}, one.worker),
    ):
        for field in ("containers", "volumes", "nodeSelector"):
            assert field not in role or (pod or {}).get(field) == role[field]
    for field, value in (("minReplicas", one.extension.min_replicas), ("maxReplicas", one.extension.max_replicas)):
        assert field not in expected or value == expected[field]
    assert one.worker_size == (expected.get("worker") or {}).get("size", 0)
    if "runner" in expected:  # with an empty name in the table, see the bug 447
        assert runner(one.pod) == {**expected["runner"], "name": given["runner"]["name"]}


@pytest.mark.parametrize("name", ["Engine", "Router"])
def test_replicas_are_as_in_the_originals_tables(name: str) -> None:
    for row in rows(f"TestDefaultComponents__default{name}"):
        extension = build_component(row[name.lower()], {"runner": MAIN}, name.lower()).extension
        assert (extension.min_replicas, extension.max_replicas) == (row["wantMinReplicas"], row["wantMaxReplicas"])
