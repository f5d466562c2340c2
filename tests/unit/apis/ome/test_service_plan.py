"""What an InferenceService becomes, mode by mode."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from slipway.apis.ome import names
from slipway.apis.ome.services.table import SERVICES
from slipway.apis.ome.types.service import SERVICE as SERVICE_DEFINITION
from slipway.kube.objects import DEPLOYMENT, ROLE, ROLE_BINDING, SCALED_OBJECT, SERVICE, SERVICE_ACCOUNT, Object
from slipway.serving.containers.freedoms import NO_LABELS
from slipway.serving.contract.api import InvalidSpecError
from slipway.serving.contract.authors import NOT_ALLOWED, build_allowed_plan
from slipway.serving.contract.settings import NetworkPolicies, Settings
from slipway.serving.pods.groups import LEADER_WORKER_SET
from slipway.serving.routing.route import ROUTE, Route, Target
from slipway.serving.routing.scaling import ScaleTarget
from tests import worlds
from tests.schemas import schema_of

from . import services as bench
from .services import find_child, objects, observed, plan, refusal, service, world

KEDA = {"ome.io/autoscalerClass": "keda"}
ONE = {"minReplicas": 1, "maxReplicas": 1}
LONG = "a" * 63
WITHOUT_BUDGETS = msgspec.structs.replace(bench.SETTINGS, disruption_budgets=False)


def route(requested: Any, name: str = "chat") -> Route:
    return msgspec.json.decode(find_child(requested, SERVICE, name)["metadata"]["annotations"][ROUTE], type=Route)


def test_an_engine_alone_is_a_deployment_that_the_gateway_reaches_by_the_services_name() -> None:
    snapshot = world()
    assert objects(snapshot) == ["Deployment chat-engine", "Service chat", "Service chat-engine"]
    deployment = find_child(snapshot, DEPLOYMENT, "chat-engine")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for name in ("chat", "chat-engine"):
        spec = find_child(snapshot, SERVICE, name)["spec"]
        assert spec["selector"].items() <= labels.items()
        assert [(port["port"], port["targetPort"]) for port in spec["ports"]] == [(8080, 8080)]
    assert ROUTE not in find_child(snapshot, SERVICE, "chat-engine")["metadata"]["labels"]


def test_it_answers_to_its_name_its_adapters_and_the_names_in_its_arguments() -> None:
    with_weights = {"name": "tiny", "fineTunedWeights": ["poet", "lawyer"]}
    snapshot = world(
        service(model=with_weights), bench.model(), bench.runtime(), *map(bench.weight, ("poet", "lawyer"))
    )
    gateway_route = route(snapshot)
    assert gateway_route.models == ("chat", "poet", "lawyer")
    assert gateway_route.aliases == ("meta/Tiny-1B",)
    assert gateway_route.source == "hf://meta/tiny"
    assert gateway_route.scale is None


def test_requests_go_to_the_router_which_may_look_for_its_engines() -> None:
    snapshot = world(router=ONE)
    assert find_child(snapshot, SERVICE, "chat")["spec"]["selector"] == {"app": "chat-router"}
    assert {name for name in objects(snapshot) if "router" in name} == {
        "Deployment chat-router",
        "Role chat-router",
        "RoleBinding chat-router",
        "Service chat-router",
        "ServiceAccount chat-router",
    }
    assert find_child(snapshot, ROLE, "chat-router")["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    ]
    binding = find_child(snapshot, "RoleBinding", "chat-router")
    assert [one["name"] for one in (binding["roleRef"], *binding["subjects"])] == ["chat-router"] * 2


def test_prefill_and_decode_are_workloads_of_their_own_behind_the_router() -> None:
    snapshot = world(router=ONE, decoder={**ONE, "runner": {"args": ["--served-model-name", "meta/Decoded"]}})
    assert route(snapshot).aliases == ("meta/Tiny-1B", "meta/Decoded")
    assert [name for name in objects(snapshot) if name.startswith("Deployment")] == [
        "Deployment chat-decoder",
        "Deployment chat-engine",
        "Deployment chat-router",
    ]
    assert find_child(snapshot, SERVICE, "chat")["spec"]["selector"] == {"app": "chat-router"}


def test_several_nodes_are_a_group_whose_leaders_answer() -> None:
    snapshot = world(service(), bench.model(), bench.runtime(engineConfig=bench.GROUP))
    assert objects(snapshot) == ["LeaderWorkerSet lws-chat-engine", "Service chat", "Service chat-engine"]
    spec = find_child(snapshot, LEADER_WORKER_SET, "lws-chat-engine")["spec"]
    assert (spec["replicas"], spec["leaderWorkerTemplate"]["size"]) == (1, 3)
    leaders = {"app": "chat-engine", "leaderworkerset.sigs.k8s.io/worker-index": "0"}
    assert [find_child(snapshot, SERVICE, name)["spec"]["selector"] for name in ("chat", "chat-engine")] == [
        leaders
    ] * 2


def test_a_leader_without_workers_is_a_group_of_one() -> None:
    alone = {"leader": {"runner": bench.runner()}}
    snapshot = world(service(), bench.model(), bench.runtime(engineConfig=alone))
    template = find_child(snapshot, LEADER_WORKER_SET, "lws-chat-engine")["spec"]["leaderWorkerTemplate"]
    assert template["size"] == 1
    assert template["workerTemplate"]["spec"]["containers"], "Kubernetes wants a template though nothing is made of it"


def test_a_virtual_service_is_nothing_but_a_status() -> None:
    snapshot = world(service(annotations={"ome.io/deploymentMode": "VirtualDeployment"}))
    assert objects(snapshot) == []
    assert bench.reasons(snapshot)["Available"] == ("True", "VirtualDeployment")


@pytest.mark.parametrize("parts", [{}, {"router": ONE}, {"router": ONE, "decoder": ONE}])
def test_the_longest_name_leaves_room_for_every_part(parts: Object) -> None:
    group = bench.runtime(engineConfig=bench.GROUP)
    for rt in (bench.runtime(), group):
        for one in plan(world(service(LONG, **parts), bench.model(), rt)).children:
            assert len(one["metadata"]["name"]) <= 63, one["metadata"]["name"]


@pytest.mark.parametrize(
    ("annotation", "instead"),
    [("Serverless", "minReplicas 0"), ("MultiNodeRayVLLM", "a leader and a worker")],
)
def test_modes_that_are_not_served_are_refused_with_what_to_write(annotation: str, instead: str) -> None:
    for snapshot in (
        world(service(annotations={"ome.io/deploymentMode": annotation})),
        world(engine={"annotations": {"ome.io/deploymentMode": annotation}}),
    ):
        refused = refusal(snapshot)
        assert refused.reason == "ModeNotServed"
        assert instead in refused.message


@pytest.mark.parametrize(
    "requested",
    [
        world(service(annotations={"ome.io/accelerator-class": "h100"})),
        world(acceleratorSelector={"policy": "Cheapest"}),
        world(engine={"acceleratorOverride": {"acceleratorClass": "h100"}}),
    ],
)
def test_requests_for_an_accelerator_class_are_rejected(requested: Any) -> None:
    assert refusal(requested).reason == "AcceleratorClassNotServed"


@pytest.mark.parametrize(
    ("requested", "reason"),
    [
        (world(service(model={"name": "none"})), "BaseModelNotFound"),
        (world(service(), bench.model(disabled=True), bench.runtime()), "BaseModelDisabled"),
        (world(service(), bench.model(), bench.runtime(disabled=True)), "NoRuntime"),
        (world(service(runtime={"name": "rt"}), bench.model(), bench.runtime(disabled=True)), "RuntimeDisabled"),
        (world(service(runtime={"name": "none"})), "RuntimeNotFound"),
        (world(model=None), "InvalidSpec"),
        (world(engine=None), "InvalidSpec"),
        (world(engine={"scaleMetric": "rps", "minReplicas": 1, "maxReplicas": 2}), "ScaleMetricNotServed"),
        (world(engine={"annotations": {"ome.io/service-type": "ExternalName"}}), "InvalidSpec"),
        (world(service(model={"name": "tiny", "fineTunedWeights": ["none"]})), "FineTunedWeightNotFound"),
        (
            world(
                service(model={"name": "tiny", "fineTunedWeights": ["w"]}),
                *(bench.model(), bench.runtime(), bench.weight("w", "other")),
            ),
            "FineTunedWeightMismatch",
        ),
        (
            world(
                service(),
                bench.model(storage={"storageUri": "pvc://claim/tiny"}),
                bench.runtime(),
            ),
            "ClaimOfOtherNamespace",
        ),
    ],
)
def test_a_model_that_cannot_be_served_is_rejected_with_one_reason(requested: Any, reason: str) -> None:
    refused = refusal(requested)
    assert refused.reason == reason
    assert bench.reasons(requested)["Accepted"] == ("False", reason)


@pytest.mark.parametrize("model", [None, {"name": "tiny"}])
def test_a_service_that_says_all_itself_needs_no_runtime(model: Object | None) -> None:
    snapshot = world(
        service(model=model, engine={"runner": bench.runner(image="own:1")}), bench.model(), bench.runtime()
    )
    assert image_of(find_child(snapshot, DEPLOYMENT, "chat-engine")) == "own:1"
    assert "runtime" not in bench.status(snapshot)


def test_a_service_with_an_image_of_its_own_takes_the_rest_from_a_runtime_where_one_fits() -> None:
    own = service(engine={"runner": {"name": "ome-container", "image": "own:1"}})
    for runtime, command in ((bench.runtime(), True), (bench.runtime(disabled=True), False)):
        container = find_child(world(own, bench.model(), runtime), DEPLOYMENT, "chat-engine")["spec"]["template"][
            "spec"
        ]
        assert container["containers"][0]["image"] == "own:1"
        assert ("command" in container["containers"][0]) == command


def test_a_model_of_the_namespace_takes_precedence_over_one_of_the_cluster() -> None:
    own = bench.model(namespace="models", storage={"storageUri": "hf://own/tiny", "path": "/raid/models/models/own"})
    snapshot = world(service(), bench.model(), own, bench.runtime())
    assert route(snapshot).source == "hf://own/tiny"


# Scaling


def test_cpu_and_memory_are_kubernetes_own_autoscalers() -> None:
    snapshot = world(engine={"minReplicas": 1, "maxReplicas": 4, "scaleMetric": "memory", "scaleTarget": 60})
    spec = find_child(snapshot, "HorizontalPodAutoscaler", "chat-engine")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (1, 4)
    assert spec["metrics"][0]["resource"] == {
        "name": "memory",
        "target": {"type": "Utilization", "averageUtilization": 60},
    }
    assert worlds.scaling(SERVICES, snapshot) is None


def test_equal_bounds_need_no_autoscaler_and_unset_ones_are_the_originals() -> None:
    assert find_child(world(), "HorizontalPodAutoscaler", "chat-engine") is None
    spec = find_child(world(engine={}), "HorizontalPodAutoscaler", "chat-engine")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (1, 3)


def test_from_zero_the_gateway_starts_the_engine_though_a_router_answers() -> None:
    snapshot = world(engine={"minReplicas": 0, "maxReplicas": 2}, router=ONE)
    assert find_child(snapshot, DEPLOYMENT, "chat-engine")["spec"]["replicas"] == 0
    assert find_child(snapshot, DEPLOYMENT, "chat-router")["spec"]["replicas"] == 1
    woken = route(snapshot).scale
    assert woken is not None
    assert (woken.group, woken.plural, woken.name) == ("apps", "deployments", "chat-engine")
    scaling = worlds.scaling(SERVICES, snapshot)
    assert scaling is not None
    assert scaling.target == ScaleTarget(DEPLOYMENT, "chat-engine")
    assert (scaling.min_replicas, scaling.max_replicas) == (0, 2)
    assert scaling.services == ("chat", "chat-engine-canary"), "whose requests are those for the service"


@pytest.mark.parametrize(("lowest", "probed"), [(0, False), (1, True)])
def test_a_router_whose_engines_sleep_is_not_restarted_for_that(lowest: int, probed: bool) -> None:
    probe = {"httpGet": {"path": "/readiness", "port": 8080}, "periodSeconds": 20}
    router = {
        "runner": {**bench.ROUTER["runner"], "startupProbe": probe, "readinessProbe": {**probe, "periodSeconds": 5}}
    }
    snapshot = world(
        service(engine={"minReplicas": lowest}, router=ONE), bench.model(), bench.runtime(routerConfig=router)
    )
    [container] = find_child(snapshot, DEPLOYMENT, "chat-router")["spec"]["template"]["spec"]["containers"]
    assert ("startupProbe" in container) == probed
    assert container["readinessProbe"]["httpGet"] == probe["httpGet"]


def test_concurrency_follows_the_requests_at_the_gateway() -> None:
    snapshot = world(engine={"minReplicas": 1, "maxReplicas": 4, "scaleMetric": "concurrency", "scaleTarget": 7})
    scaling = worlds.scaling(SERVICES, snapshot)
    assert scaling is not None
    assert (scaling.target_requests, scaling.replicas) == (7, 1)
    assert find_child(snapshot, "HorizontalPodAutoscaler", "chat-engine") is None


def test_replicas_of_one_part_only_follow_the_requests_and_the_others_are_reported() -> None:
    snapshot = world(engine={"minReplicas": 0}, router={"minReplicas": 0})
    assert find_child(snapshot, DEPLOYMENT, "chat-router")["spec"]["replicas"] == 1
    assert "router" in bench.conditions(snapshot)["FieldsIgnored"]["message"]


@pytest.mark.parametrize("part", ["engine", "decoder", "router", "predictor"])
@pytest.mark.parametrize("fields", [{}, {"scaleMetric": "memory"}, {"scaleMetric": "concurrency"}, "keda"])
def test_a_minimum_above_the_maximum_is_served_with_as_many(part: str, fields: Object | str) -> None:
    """OME serves it so."""
    bounds = {"minReplicas": 3, "maxReplicas": 2} | (fields if isinstance(fields, dict) else {})
    usual = {"decoder": {}, "engine": {}, "router": {}}
    resource = service(annotations=KEDA if fields == "keda" else {}, **usual | {part: bounds})
    if part == "predictor":
        resource["spec"] = {"predictor": {"model": {"baseModel": "tiny"}, **bounds}}
    schema = schema_of(SERVICE_DEFINITION.manifest())["properties"]["spec"]["properties"][part]
    assert "x-kubernetes-validations" not in schema
    name = "chat-engine" if part == "predictor" else f"chat-{part}"
    snapshot = world(resource)
    if fields == "keda":
        scaled = find_child(snapshot, "ScaledObject", f"scaledobject-{name}")["spec"]
        assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (3, 3)
    else:
        assert find_child(snapshot, DEPLOYMENT, name)["spec"]["replicas"] == 3
        assert find_child(snapshot, "HorizontalPodAutoscaler", name) is None


@pytest.mark.parametrize("field", ["serviceAccountName", "serviceAccount"])
@pytest.mark.parametrize("by", ["service", "runtime"])
def test_a_routers_own_account_may_list_the_pods_of_its_engines(by: str, field: str) -> None:
    config = {"routerConfig": {**bench.ROUTER, field: "sa"}} if by == "runtime" else {}
    snapshot = world(service(router={field: "sa"} if by == "service" else {}), bench.model(), bench.runtime(**config))
    assert find_child(snapshot, DEPLOYMENT, "chat-router")["spec"]["template"]["spec"]["serviceAccountName"] == "sa"
    binding = find_child(snapshot, ROLE_BINDING, "chat-router")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "sa", "namespace": "models"}]
    assert binding["roleRef"]["name"] == find_child(snapshot, ROLE, "chat-router")["metadata"]["name"]
    assert find_child(snapshot, SERVICE_ACCOUNT, "chat-router") is None


@pytest.mark.parametrize("field", ["serviceAccountName", "serviceAccount"])
@pytest.mark.parametrize("by", ["service", "runtime"])
def test_the_default_account_gets_no_rights_as_all_pods_may_have_it(by: str, field: str) -> None:
    config = {"routerConfig": {**bench.ROUTER, field: "default"}} if by == "runtime" else {}
    router = {field: "default"} if by == "service" else {}
    snapshot = world(service(router=router), bench.model(), bench.runtime(**config))
    assert (
        find_child(snapshot, DEPLOYMENT, "chat-router")["spec"]["template"]["spec"]["serviceAccountName"] == "default"
    )
    assert {find_child(snapshot, kind, "chat-router") for kind in (ROLE, ROLE_BINDING, SERVICE_ACCOUNT)} == {None}


def test_replicas_that_another_manager_set_are_never_reverted() -> None:
    for engine in ({"maxReplicas": 4}, {"maxReplicas": 4, "minReplicas": 0}):
        snapshot = world(engine=engine)
        there = observed(find_child(snapshot, DEPLOYMENT, "chat-engine"), wanted=3)
        after = world(engine=engine, children=(there,))
        assert "replicas" not in find_child(after, DEPLOYMENT, "chat-engine")["spec"]


def test_a_part_that_becomes_scaled_keeps_its_replicas_until_its_autoscaler_says_how_many() -> None:
    fixed = observed(find_child(world(engine={"minReplicas": 3, "maxReplicas": 3}), DEPLOYMENT, "chat-engine"))
    scaled = find_child(
        world(engine={"minReplicas": 1, "maxReplicas": 5}, children=(fixed,)), DEPLOYMENT, "chat-engine"
    )
    assert scaled["spec"]["replicas"] == 3


GROUPED = bench.runtime(engineConfig=bench.GROUP, decoderConfig=bench.GROUP)


@pytest.mark.parametrize(
    ("part", "limit"),
    [
        ({"minReplicas": 2, "maxReplicas": 2}, {"maxUnavailable": 1}),
        ({"scaleMetric": "concurrency"}, {"maxUnavailable": 1}),
        ({"minReplicas": 3, "maxUnavailable": 2}, {"maxUnavailable": 2}),
        ({"minReplicas": 3, "maxUnavailable": "50%"}, {"maxUnavailable": "50%"}),
        ({"minReplicas": 3, "minAvailable": 2}, {"minAvailable": 6}),
        ({"minReplicas": 3, "minAvailable": "50%"}, {"minAvailable": "50%"}),
        ({"minAvailable": 1}, {"minAvailable": 3}),
        ({"minReplicas": 1, "maxReplicas": 1}, None),
    ],
)
@pytest.mark.parametrize("name", ["engine", "decoder"])
def test_groups_of_nodes_have_a_budget_as_other_parts(name: str, part: Object, limit: Object | None) -> None:
    snapshot = world(service(**{"engine": ONE, name: part}), bench.model(), GROUPED)
    budget = find_child(snapshot, "PodDisruptionBudget", f"chat-{name}")
    if limit is None:
        assert budget is None
        return
    group = find_child(snapshot, LEADER_WORKER_SET, f"lws-chat-{name}")["spec"]["leaderWorkerTemplate"]
    chosen = budget["spec"].pop("selector")["matchLabels"]
    assert budget["spec"] == {**limit, "unhealthyPodEvictionPolicy": "AlwaysAllow"}
    for template in ("leaderTemplate", "workerTemplate"):
        assert chosen.items() <= group[template]["metadata"]["labels"].items()


def test_an_operator_without_budgets_has_none_for_groups() -> None:
    snapshot = world(service(engine={"minReplicas": 2}), bench.model(), GROUPED, settings=WITHOUT_BUDGETS)
    assert find_child(snapshot, "PodDisruptionBudget", "chat-engine") is None


def test_groups_of_nodes_follow_nothing_unless_they_ask_for_requests() -> None:
    for fields, number in (({}, 2), ({"scaleMetric": "concurrency"}, 2), ({"minReplicas": 0}, 0)):
        engine = {"minReplicas": 2, "maxReplicas": 4, **fields}
        snapshot = world(service(engine=engine), bench.model(), bench.runtime(engineConfig=bench.GROUP))
        assert find_child(snapshot, LEADER_WORKER_SET, "lws-chat-engine")["spec"]["replicas"] == number
        assert not [name for name in objects(snapshot) if name.startswith("Horizontal")]
        scaling = worlds.scaling(SERVICES, snapshot)
        assert (scaling and scaling.target) == (ScaleTarget(LEADER_WORKER_SET, "lws-chat-engine") if fields else None)


def test_keda_takes_the_word_of_the_annotation_then_of_the_part_then_of_the_service() -> None:
    annotations = {**KEDA, "autoscaling.keda.sh/threshold": "5"}
    of_part = {"scalingThreshold": "6", "scalingOperator": "GreaterThan"}
    of_service = {
        "scalingOperator": "LessThan",
        "promServerAddress": "https://prometheus.example",
        "customPromQuery": "up('%s')",
    }
    snapshot = world(
        service(
            annotations=annotations,
            engine={"minReplicas": 0, "maxReplicas": 5, "kedaConfig": of_part},
            kedaConfig=of_service,
        )
    )
    spec = find_child(snapshot, SCALED_OBJECT, "scaledobject-chat-engine")["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (1, 5)
    assert spec["triggers"][0]["metadata"] == {
        "serverAddress": "https://prometheus.example",
        "metricName": "tps",
        "query": "up('chat-engine')",
        "threshold": "5",
        "operator": "GreaterThan",
    }
    assert find_child(snapshot, "HorizontalPodAutoscaler", "chat-engine") is None


def test_keda_is_enabled_by_its_configuration_too() -> None:
    snapshot = world(engine={"maxReplicas": 5}, kedaConfig={"enableKeda": True})
    metadata = find_child(snapshot, SCALED_OBJECT, "scaledobject-chat-engine")["spec"]["triggers"][0]["metadata"]
    assert metadata["query"] == 'sum(sglang:num_running_reqs{namespace="models",pod=~"chat-engine-.*"})'


def test_externally_scaled_models_have_no_autoscaler() -> None:
    snapshot = world(service(annotations={"ome.io/autoscalerClass": "external"}, engine={"maxReplicas": 4}))
    assert objects(snapshot) == [
        "Deployment chat-engine",
        "PodDisruptionBudget chat-engine",
        "Service chat",
        "Service chat-engine",
    ]


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"minAvailable": "50%"}, {"minAvailable": "50%"}),
        ({"maxUnavailable": 2}, {"maxUnavailable": 2}),
        ({"maxReplicas": 2, "minReplicas": 2}, {"maxUnavailable": 1}),
    ],
)
def test_pods_are_protected_as_the_spec_says(fields: Object, limit: Object) -> None:
    spec = find_child(world(engine={**ONE, **fields}), "PodDisruptionBudget", "chat-engine")["spec"]
    assert {name: spec[name] for name in ("minAvailable", "maxUnavailable") if name in spec} == limit


def test_pods_are_replaced_as_the_spec_says() -> None:
    snapshot = world(engine={**ONE, "deploymentStrategy": {"type": "Recreate"}})
    assert find_child(snapshot, DEPLOYMENT, "chat-engine")["spec"]["strategy"] == {"type": "Recreate"}


def test_a_part_can_be_reached_from_outside() -> None:
    annotations = {"ome.io/service-type": "LoadBalancer", "ome.io/load-balancer-ip": "10.0.0.9"}
    snapshot = world(
        service(annotations=annotations, engine={**ONE, "annotations": {"ome.io/service-type": "NodePort"}})
    )
    spec = find_child(snapshot, SERVICE, "chat")["spec"]
    assert (spec["type"], spec["loadBalancerIP"]) == ("LoadBalancer", "10.0.0.9")
    assert find_child(snapshot, SERVICE, "chat-engine")["spec"]["type"] == "NodePort"


def test_labels_of_pods_make_no_service_of_a_part_one_that_the_gateway_routes_to() -> None:
    snapshot = world(engine={**ONE, "labels": {ROUTE: "true", "team": "a"}})
    labels = find_child(snapshot, SERVICE, "chat-engine")["metadata"]["labels"]
    assert labels["team"] == "a"
    assert ROUTE not in labels


def test_pods_of_a_service_reach_each_other_where_others_are_kept_out() -> None:
    settings = Settings(system_namespace="slipway-system", network_policies=NetworkPolicies(models=True))
    snapshot = world(service(router=ONE), bench.model(), bench.runtime(), settings=settings)
    spec = find_child(snapshot, "NetworkPolicy", "chat-ingress")["spec"]
    own = {"matchLabels": {names.SERVICE_LABEL: "chat"}}
    assert spec["podSelector"] == own
    assert spec["ingress"][0] == {"from": [{"podSelector": own}]}
    assert spec["ingress"][1]["ports"] == [{"protocol": "TCP", "port": 8080}]


# Who may what


def privileged(**fields: Any) -> Object:
    return {"runner": bench.runner(securityContext={"privileged": True}, **fields)}


def test_the_operator_vouches_for_a_cluster_runtime_but_not_for_the_fields_of_a_service() -> None:
    strict = Settings(system_namespace="slipway-system")
    api = SERVICES

    def allowed(requested: Any) -> bool:
        view = api.resolve(requested)
        try:
            build_allowed_plan(api, requested, view, NO_LABELS)
        except InvalidSpecError as error:
            return error.reason != NOT_ALLOWED
        return True

    of_cluster = bench.runtime(engineConfig=privileged())
    of_namespace = bench.runtime(namespace="models", engineConfig=privileged())
    assert allowed(world(service(), bench.model(), of_cluster, settings=strict))
    assert not allowed(world(service(), bench.model(), of_namespace, settings=strict))
    for engine in ({"hostNetwork": True}, {"runner": {"name": "ome-container", "image": "mine:1"}}):
        resource = service(engine={**ONE, **engine})
        assert not allowed(world(resource, bench.model(), of_cluster, settings=strict))
    moved = service(engine={**ONE, "canaryTrafficPercent": 10, "tolerations": [{"operator": "Exists"}]})
    there = observed(find_child(world(service(), bench.model(), of_cluster), DEPLOYMENT, "chat-engine"))
    tried = world(moved, bench.model(), of_cluster, settings=strict, children=(there,))
    assert find_child(tried, DEPLOYMENT, "chat-engine-canary")
    assert allowed(tried), "a canary that runs the same is the operator's word as well"
    plain = bench.runtime()
    assert allowed(world(service(engine={**ONE, **engine}), bench.model(), plain, settings=strict))


def test_a_model_in_a_claim_gives_no_access_to_a_folder_of_the_node() -> None:
    strict = Settings(system_namespace="slipway-system")
    claimed = bench.model(namespace="models", storage={"storageUri": "pvc://weights/tiny", "path": "/etc"})
    volume = {"name": "node", "hostPath": {"path": "/etc"}}
    api, snapshot = (
        SERVICES,
        world(service(engine={**ONE, "volumes": [volume]}), claimed, bench.runtime(), settings=strict),
    )

    with pytest.raises(InvalidSpecError, match="hostPath") as refused:
        build_allowed_plan(api, snapshot, api.resolve(snapshot), NO_LABELS)

    assert refused.value.reason == NOT_ALLOWED


def test_a_password_in_the_address_of_a_model_is_not_published() -> None:
    stored = {"storageUri": "https://me:hunter2@models.example/tiny.gguf", "path": "/raid/models/tiny"}

    routed = find_child(world(service(), bench.model(storage=stored), bench.runtime()), SERVICE, "chat")

    assert "models.example" in str(routed)
    assert "hunter2" not in str(routed)


# Canaries


def canary(percent: int | None, *children: Object, image: str = "engine:2", **parts: Any) -> Any:
    engine: Object = {**ONE, "runner": {"name": "ome-container", "image": image}}
    if percent is not None:
        engine["canaryTrafficPercent"] = percent
    return world(service(engine=engine, **parts), bench.model(), bench.runtime(), children=children)


STABLE = observed(find_child(canary(None, image="engine:1"), DEPLOYMENT, "chat-engine"))


def image_of(deployment: Any) -> str:
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])


def test_a_new_spec_is_tried_beside_the_one_that_is_rolled_out() -> None:
    first = canary(10, STABLE)
    assert image_of(find_child(first, DEPLOYMENT, "chat-engine")) == "engine:1"
    tried = find_child(first, DEPLOYMENT, "chat-engine-canary")
    assert image_of(tried) == "engine:2"
    assert tried["spec"]["replicas"] == 1
    canary_service = find_child(first, SERVICE, "chat-engine-canary")
    assert msgspec.json.decode(canary_service["metadata"]["annotations"][ROUTE])["internal"] is True
    selectors = [find_child(first, SERVICE, name)["spec"]["selector"]["app"] for name in ("chat", "chat-engine-canary")]
    assert selectors == ["chat-engine", "chat-engine-canary"]
    assert not route(first).targets, "nothing is there yet that could answer"
    there = canary(10, STABLE, observed(tried))
    assert route(there).targets == (Target(weight=90), Target("chat-engine-canary", 10))


def test_a_canary_of_all_requests_is_rolled_out_and_goes_when_that_is_complete() -> None:
    tried = observed(find_child(canary(10, STABLE), DEPLOYMENT, "chat-engine-canary"))
    for percent in (100, None):
        rolling = canary(percent, STABLE, tried)
        assert image_of(find_child(rolling, DEPLOYMENT, "chat-engine")) == "engine:2"
        assert find_child(rolling, DEPLOYMENT, "chat-engine-canary") is not None
        done = canary(percent, observed(find_child(rolling, DEPLOYMENT, "chat-engine")), tried)
        assert find_child(done, DEPLOYMENT, "chat-engine-canary") is None
        assert not route(done).targets


def test_behind_a_router_and_in_groups_requests_are_not_shared_out() -> None:
    assert refusal(canary(10, STABLE, router=ONE)).reason == "CanaryNotServed"
    group = world(service(engine={"canaryTrafficPercent": 10}), bench.model(), bench.runtime(engineConfig=bench.GROUP))
    assert refusal(group).reason == "CanaryNotServed"
    assert plan(canary(100, STABLE, router=ONE))
