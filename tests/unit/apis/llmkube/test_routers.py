"""ModelRouters: rules become targets of a route, and what no route can say is refused with the reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from slipway.apis.llmkube import ROUTERS
from slipway.apis.llmkube.types.router import MODEL_ROUTER, ModelRouterSpec
from slipway.apis.llmkube.types.service import KIND as INFERENCE_SERVICE
from slipway.kube.schemas.crd import to_yaml
from slipway.serving.contract.api import InvalidSpecError, Reference, Rejection, World
from slipway.serving.contract.settings import Settings
from slipway.serving.routing.route import ROUTE, Route, Target, TargetConditions
from tests import documents, worlds
from tests.conformance.llmkube import SAMPLES
from tests.schemas import definition_of, faults, filled, schema_of

ROOT = Path(__file__).parents[4]
SCHEMA = schema_of(definition_of(MODEL_ROUTER))["properties"]["spec"]
ROUTER_MANIFESTS = [
    pytest.param(manifest, id=path.stem)
    for path in sorted(SAMPLES.glob("*.yaml"))
    for manifest in documents.load_all(path.read_text())
    if isinstance(manifest, dict) and manifest.get("kind") == "ModelRouter"
]
JWT = {"provider": "p", "issuer": "https://i", "jwksURI": "https://i/keys", "teamClaim": "team"}
OUTSIDE = {"name": "out", "external": {"provider": "openai", "model": "gpt"}}


def backend(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inferenceServiceRef": {"name": name}, **more}


def rule(*backends: str, match: Any = None, strategy: str = "primary-fallback", **more: Any) -> dict[str, Any]:
    spec = {"name": f"rule-{'-'.join(backends)}", "route": {"backends": list(backends), "strategy": strategy}, **more}
    return spec | ({"match": match} if match else {})


def world(*services: str, **spec: Any) -> World:
    """A router over a, b and c; `services`: existing InferenceServices; those with a + answer."""
    metadata = {"name": "r", "namespace": "models", "uid": "r-1", "generation": 3}
    spec = {"backends": [backend("a"), backend("b"), backend("c")]} | spec
    objects = {
        Reference(INFERENCE_SERVICE, "models", name.rstrip("+")): {
            "metadata": {"name": name.rstrip("+"), "namespace": "models"},
            "spec": {},
            "status": {"readyReplicas": int("+" in name)},
        }
        for name in services
    }
    return World(
        resource={"metadata": metadata | {"creationTimestamp": "2026-11-21T09:00:00Z"}, "spec": spec},
        children={},
        pods=[],
        routed=[],
        settings=Settings(),
        now=1_795_252_000.0,
        listers=worlds.known_world(ROUTERS, objects=objects),
    )


def route(**spec: Any) -> Route:
    [service] = worlds.plan(ROUTERS, world(**spec)).children
    return msgspec.json.decode(service["metadata"]["annotations"][ROUTE], type=Route)


def targets(**spec: Any) -> tuple[Target, ...]:
    return route(**spec).targets


def refused(**spec: Any) -> tuple[str, str]:
    """Reason and message."""
    with pytest.raises(InvalidSpecError) as caught:
        worlds.plan(ROUTERS, world(**spec))
    return caught.value.reason, caught.value.message


def status_of(world: World, rejection: Rejection | None = None) -> dict[str, Any]:
    return worlds.status(ROUTERS, world, rejection).status


def test_the_router_is_one_id_of_a_service_without_pods() -> None:
    [service] = worlds.plan(ROUTERS, world(defaultRoute="a")).children
    assert "selector" not in service["spec"]
    gateway_route = route(defaultRoute="a")
    assert (gateway_route.models, gateway_route.name, gateway_route.targets) == (("r",), "r", (Target("a"),))


def test_the_backends_of_a_rule_follow_each_other_and_the_default_comes_last() -> None:
    assert targets(rules=[rule("a", "b")], defaultRoute="c") == (
        Target("a"),
        Target("b", order=1),
        Target("c", order=2),
    )


def test_a_weighted_rule_is_one_order() -> None:
    spec = {"backends": [backend("a", weight=3), backend("b"), backend("c", weight=0)]}
    assert targets(**spec, rules=[rule("a", "b", "c", strategy="weighted", failClosed=True)]) == (
        Target("a", weight=3, only=True),
        Target("b", weight=1, only=True),
        Target("c", weight=0, only=True),
    )


def test_a_request_that_fails_closed_goes_to_no_other_backend() -> None:
    pii = {"dataClassification": ["pii", "phi"]}
    actual = targets(rules=[rule("a", "b", match=pii, failClosed=True)], defaultRoute="c")
    when = TargetConditions({"x-llmkube-classification": ("pii", "phi")})
    assert actual == (Target("a", when=when), Target("b", order=1, when=when, only=True), Target("c", order=2))


def test_all_conditions_of_a_rule_are_headers_and_have_to_hold() -> None:
    match = {"headers": {"X-Team": "search"}, "taskComplexity": "complex", "dataClassification": ["public"]}
    policy = {"classification": {"headerKey": "X-Class"}}
    [target] = targets(rules=[rule("a", match=match)], policy=policy)
    assert target.when.headers == {
        "x-team": ("search",),
        "x-class": ("public",),
        "x-llmkube-task-complexity": ("complex",),
    }


def test_a_header_must_meet_both_of_two_requirements() -> None:
    match = {"headers": {"X-LLMKube-Classification": "pii"}, "dataClassification": ["public", "pii"]}
    [target] = targets(rules=[rule("a", match=match, failClosed=True)])
    assert target.when.headers == {"x-llmkube-classification": ("pii",)}
    match["dataClassification"] = ["public"]
    assert targets(rules=[rule("a", match=match)], defaultRoute="b") == (Target("b"),)


def test_ids_of_rules_are_aliases_and_patterns_choose_among_the_routers_ids() -> None:
    rules = [rule("a", match={"models": ["gpt-4o", "r"]}), rule("b", match={"models": ["gpt-*", "*/r"]})]
    gateway_route = route(rules=rules)
    assert gateway_route.aliases == ("gpt-4o",)
    assert [target.when.models for target in gateway_route.targets] == [("r", "gpt-4o"), ("models/r", "gpt-4o")]
    assert refused(rules=[rule("a", match={"models": ["claude-*"]})])[0] == "NoRoute"


def test_backends_that_cannot_do_what_a_rule_needs_are_left_out() -> None:
    spec = {"backends": [backend("a"), backend("b", capabilities=["tools", "vision"])]}
    needs = {"requiredCapabilities": ["tools"]}
    assert targets(**spec, rules=[rule("a", "b", match=needs)]) == (Target("b"),)
    snapshot = world(**spec, rules=[rule("a", match=needs)], defaultRoute="a")
    assert status_of(snapshot)["activeRules"] == 0


def test_the_nearest_timeout_counts() -> None:
    spec = {"backends": [backend("a", timeout="1m"), backend("b")], "proxy": {"responseHeaderTimeout": "1500ms"}}
    actual = targets(**spec, rules=[rule("a", timeout="5s"), rule("a", "b")])
    assert [target.answer_seconds for target in actual] == [5, 60, 2]


@pytest.mark.parametrize(
    ("spec", "reason", "word"),
    [
        ({"backends": [OUTSIDE]}, "ExternalNotServed", "backends[out].external"),
        ({"policy": {"budgets": [{"name": "x", "scope": "router", "maxUSD": "5"}]}}, "BudgetNotServed", "budgets"),
        ({"policy": {"classification": {"mode": "hybrid"}}}, "ClassificationNotServed", "mode"),
        ({"mcpServer": {"enabled": True}}, "McpNotServed", "mcpServer"),
        ({"dataPlane": "Gateway", "policy": {"auth": {"jwt": JWT}}}, "AuthNotServed", "spec.policy.auth"),
        ({"dataPlane": "Gateway", "policy": {"auth": {"allowlists": [{"team": "a"}]}}}, "AuthNotServed", "API keys"),
        ({"rules": [rule("a", "b", strategy="shadow")]}, "ShadowNotServed", "rules[rule-a-b].route.strategy"),
        ({"rules": [rule("a", match={"latencySLOMs": 200})]}, "LatencyNotServed", "latencySLOMs"),
        ({"rules": [rule("missing")]}, "UnknownBackend", "'missing'"),
        ({"defaultRoute": "missing"}, "UnknownBackend", "'missing'"),
        ({}, "NoRoute", "defaultRoute"),
        ({"rules": [rule("a", match={"dataClassification": ["pii"]})]}, "NotFailClosed", "'pii'"),
        ({"rules": [rule(*"abc", name=f"r{n}") for n in range(6)]}, "TooManyTargets", "19"),
        ({"rules": [rule("a"), rule("a")]}, "InvalidSpec", "the same name"),
        ({"backends": [backend("a"), backend("a")]}, "InvalidSpec", "the same name"),
        ({"backends": [{"name": "a"}]}, "InvalidSpec", "inferenceServiceRef"),
        ({"rules": [rule("a", timeout="soon")]}, "InvalidSpec", "'soon'"),
        ({"rules": [rule("a", match={"headers": {"a b": "c"}})]}, "InvalidSpec", "headers"),
        ({"rules": [rule("a", match={"models": ["no id"]})]}, "InvalidSpec", "'no id'"),
        ({"rules": [rule("a", match={"headers": {"x": "y" * 300}})]}, "InvalidSpec", "route"),
    ],
)
def test_unsupported_models_are_rejected_with_the_reason(spec: dict[str, Any], reason: str, word: str) -> None:
    fields = {"defaultRoute": "a"} | spec if reason not in ("NoRoute", "ExternalNotServed") else spec
    refusal_reason, message = refused(**fields)
    assert refusal_reason == reason
    assert word in message
    status = status_of(world(**fields), Rejection(refusal_reason, message))
    assert status["phase"] == "Failed"
    assert {one["type"]: one["reason"] for one in status["conditions"]}["Accepted"] == reason


def test_data_of_a_class_that_is_sensitive_leaves_no_tier_but_the_local_one() -> None:
    spec = {"backends": [backend("a", tier="cloud")], "policy": {"classification": {"sensitiveClassifications": ["x"]}}}
    closed = rule("a", match={"dataClassification": ["x"]}, failClosed=True)
    assert refused(**spec, rules=[closed])[0] == "NotFailClosed"
    assert targets(**spec, rules=[rule("a", match={"dataClassification": ["pii"]})])


@pytest.mark.parametrize(
    ("services", "phase", "silent"),
    [
        (("a+", "b+", "c+"), "Ready", ""),
        (("a+", "b", "c+"), "Degraded", "b"),
        (("a", "b"), "Pending", "a, b, c"),
    ],
)
def test_the_phase_says_how_many_backends_answer(services: tuple[str, ...], phase: str, silent: str) -> None:
    status = status_of(world(*services, defaultRoute="a"))
    assert status["phase"] == phase
    [ready] = [one for one in status["conditions"] if one["type"] == "BackendsReady"]
    assert ready["message"] == (f"These do not answer: {silent}." if silent else "Every backend answers.")


def test_fields_without_effect_are_reported() -> None:
    spec = {"backends": [backend("a", costPerMillionTokens={"promptUSD": "1"})], "defaultRoute": "a"}
    status = status_of(world(**spec, endpoint={"type": "NodePort"}, policy={"auditLog": {"sink": "otlp"}}))
    [used] = [one for one in status["conditions"] if one["type"] == "FieldsUsed"]
    assert used["status"] == "False"
    assert all(field in used["message"] for field in ("endpoint", "auditLog", "costPerMillionTokens"))
    assert "proxy" not in used["message"]
    quiet = status_of(world(defaultRoute="a", proxy={"responseHeaderTimeout": "5s"}))
    assert [one["status"] for one in quiet["conditions"] if one["type"] == "FieldsUsed"] == ["True"]


@pytest.mark.parametrize(
    ("spec", "ignored"),
    [
        ({"dataPlane": "Proxy", "defaultRouteStrategy": "Static"}, ""),
        ({"dataPlane": "Gateway"}, "dataPlane"),
        ({"gatewayRef": {"name": "g", "namespace": "n"}}, "gatewayRef"),
        ({"backends": [backend("a", displayName="A")]}, "backends[].displayName"),
        ({"backends": [backend("a", displayName="A")], "defaultRouteStrategy": "BackendNameMatch"}, ""),
        ({"backends": [backend("a", displayName="A b")], "defaultRouteStrategy": "BackendNameMatch"}, "displayName"),
        ({"endpoint": {"type": "NodePort", "nodePort": 30080}}, "endpoint"),
        ({"endpoint": {"gateway": {"enabled": True, "gatewayRef": {"name": "g"}, "modelName": "m"}}}, "endpoint"),
        ({"policy": {"auth": {"jwt": JWT}}}, "policy.auth"),
        ({"policy": {"auth": {"allowlists": [{"team": "a", "models": ["m"]}]}}}, "policy.auth"),
        ({"policy": {"auth": {}}}, ""),
        ({"proxy": {"nodeSelector": {"a": "b"}}}, "proxy"),
        ({"proxy": {"revisionHistoryLimit": 0}}, "proxy"),
    ],
)
def test_every_field_of_the_latest_original_is_accepted_and_reported_if_it_has_no_effect(
    spec: dict[str, Any], ignored: str
) -> None:
    fields = {"backends": [backend("a")], "defaultRoute": "a"} | spec
    assert faults(SCHEMA, fields) == []
    assert targets(**fields)
    [used] = [one for one in status_of(world(**fields))["conditions"] if one["type"] == "FieldsUsed"]
    assert used["status"] == ("False" if ignored else "True")
    assert ignored in used["message"]


def test_a_router_as_an_original_api_server_returns_it_is_taken() -> None:
    """With the defaults of 0.9.19, and its status."""
    schema = schema_of(definition_of(MODEL_ROUTER))["properties"]
    gateway = {"endpoint": "http://g", "modelName": "m", "routeReady": True, "authEnabled": False}
    assert faults(schema["status"], {"phase": "Ready", "gateway": gateway}) == []
    spec = filled(SCHEMA, {"backends": [backend("a")], "defaultRoute": "a"})
    assert (spec["dataPlane"], spec["defaultRouteStrategy"]) == ("Proxy", "Static")


def test_a_request_may_name_a_backend() -> None:
    spec = {
        "backends": [backend("a"), backend("b", displayName="gpt-4o"), backend("c", displayName="The third")],
        "rules": [rule("a", match={"headers": {"x-team": "search"}})],
        "defaultRoute": "c",
        "defaultRouteStrategy": "BackendNameMatch",
    }
    gateway_route = route(**spec)
    assert gateway_route.aliases == ("a", "gpt-4o", "c")
    assert gateway_route.targets == (
        Target("a", when=TargetConditions({"x-team": ("search",)})),
        Target("a", order=1, when=TargetConditions({}, ("a",))),
        Target("b", order=2, when=TargetConditions({}, ("gpt-4o",))),
        Target("c", order=3, when=TargetConditions({}, ("c",))),
        Target("c", order=4),
    )
    assert targets(**{**spec, "rules": [], "defaultRoute": ""}) == tuple(
        Target(name, order=order, when=TargetConditions({}, (label,)))
        for order, (name, label) in enumerate((("a", "a"), ("b", "gpt-4o"), ("c", "c")))
    )


@pytest.mark.parametrize("observed", ROUTER_MANIFESTS)
def test_a_manifest_of_the_original_is_valid_and_read(observed: dict[str, Any]) -> None:
    assert faults(SCHEMA, observed["spec"]) == []
    spec = msgspec.convert(filled(SCHEMA, observed["spec"]), ModelRouterSpec)
    assert spec == msgspec.convert(observed["spec"], ModelRouterSpec)


@pytest.mark.parametrize("version", ["llmkube", "llmkube-v0.8.7"])
def test_the_definition_agrees_with_the_original(version: str, tmp_path: Path) -> None:
    shared = ROOT.parent / "shared"
    reference = shared / f"reference/crds/{version}-inference.llmkube.dev_modelrouters.yaml"
    if not reference.exists():
        pytest.skip("the original's definitions do not lie beside this checkout")
    (tmp_path / "ours.yaml").write_text(to_yaml(MODEL_ROUTER.manifest()))
    allowed = ROOT / "tests/conformance/allowed.txt"
    compare = shared / "conformance/crd_diff.py"
    command = [sys.executable, str(compare), str(tmp_path), str(reference), "--allow", str(allowed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_closed_rule_that_no_backend_can_meet_is_refused_and_not_left_out() -> None:
    closed = rule("a", match={"requiredCapabilities": ["vision"]}, failClosed=True)
    assert refused(rules=[closed], defaultRoute="b")[0] == "NoCapableBackend"


def test_a_router_of_any_size_costs_its_author_alone() -> None:
    patterns = [f"m{number}*" for number in range(2000)]
    assert refused(rules=[rule("a", match={"models": patterns})], defaultRoute="b")[0] == "TooManyTargets"
