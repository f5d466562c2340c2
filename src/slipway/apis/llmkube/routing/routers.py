"""The view, plan and status of a ModelRouter. A router is a Service without pods, whose route has targets. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from slipway.apis.llmkube import readiness
from slipway.apis.llmkube.routing.router_rules import Routing, routing
from slipway.apis.llmkube.rules.fields_used import fields_used
from slipway.apis.llmkube.rules.updated import stamped
from slipway.apis.llmkube.types.router import KIND, MODEL_ROUTER, Backend, ModelRouterSpec
from slipway.apis.llmkube.types.service import KIND as INFERENCE_SERVICE
from slipway.kube.objects import SERVICE, Object, created_unix, key
from slipway.kube.schemas.conditions import Condition
from slipway.kube.values.names import fitting, label_value
from slipway.serving.contract.api import InvalidSpecError, Plan, Reference, Rejection, StatusResult, Watch, World
from slipway.serving.contract.settings import Settings
from slipway.serving.contract.table import Table
from slipway.serving.contract.watches import REFERENCES, by_reference, enqueue_nothing, owned_by, referenced_by
from slipway.serving.pods.workload import child
from slipway.serving.routing.route import MODEL_ID, InvalidRouteError, Route, route_metadata, routed_service
from slipway.serving.status.builder import build_status, first_rejection, permanent, verdict
from slipway.serving.status.report import model_id, routed

CONDITIONS = frozenset({"Accepted", "Available", "Routed", "BackendsReady", "FieldsUsed"})
"""Types of the conditions of ModelRouters."""
ROUTER_LABEL = "inference.llmkube.dev/router"
WITHOUT_EFFECT = {
    "dataPlane": "the gateway routes, whatever it names",
    "gatewayRef": "the gateway routes",
    "policy.auth": "the gateway checks API keys, not tokens",
    "backends[].displayName": "only BackendNameMatch uses it, and only if it is a valid model ID",
    "proxy": "the gateway routes; only responseHeaderTimeout applies",
    "endpoint": "the gateway serves the router's ID",
    "policy.auditLog": "the gateway has an access log",
    "backends[].healthCheck": "pods have their own readiness",
    "backends[].costPerMillionTokens": "costs are not measured",
}


class Router(msgspec.Struct, frozen=True, kw_only=True):
    """A ModelRouter that can be served."""

    spec: ModelRouterSpec
    routing: Routing


class RouterView(msgspec.Struct, frozen=True, kw_only=True):
    """A ModelRouter, valid or not."""

    world: World
    router: Router | InvalidSpecError


def references(resource: Object) -> Iterator[Reference]:
    """Yield the InferenceServices that a router names, whether or not it is valid."""
    for backend in resource["spec"].get("backends") or ():
        name = (backend.get("inferenceServiceRef") or {}).get("name")
        if name:
            yield Reference(INFERENCE_SERVICE, resource["metadata"]["namespace"], name)


def watches(_settings: Settings) -> Sequence[Watch]:
    return (
        *owned_by(KIND, SERVICE),
        Watch(kind=KIND, enqueue=enqueue_nothing, indexes={REFERENCES: by_reference(references)}),
        Watch(kind=INFERENCE_SERVICE, enqueue=referenced_by(KIND, INFERENCE_SERVICE)),
    )


def resolve(world: World) -> RouterView:
    try:
        spec = msgspec.convert(world.resource["spec"], ModelRouterSpec)
        return RouterView(world=world, router=Router(spec=spec, routing=routing(spec, _ids(world.resource))))
    except msgspec.ValidationError as error:
        return RouterView(world=world, router=InvalidSpecError("InvalidSpec", f"spec: {error}"))
    except InvalidSpecError as error:
        return RouterView(world=world, router=error)


def _ids(resource: Object) -> tuple[str, str]:
    namespace, name = key(resource)
    return name, f"{namespace}/{name}"


def service_name(router: str) -> str:
    """Return the name of a router's Service. The original's proxy has the same name."""
    return fitting(f"{router}-router-proxy")


def plan(view: RouterView) -> Plan:
    """Return the router's Service, which carries its route. Raise InvalidSpecError if the router is invalid."""
    if isinstance(view.router, InvalidSpecError):
        raise view.router
    resource = view.world.resource
    namespace, name = key(resource)
    route = Route(
        models=(name,),
        created=created_unix(resource),
        owned_by="llmkube",
        name=name,
        aliases=view.router.routing.aliases,
        targets=view.router.routing.targets,
    )
    labels, annotations = route_metadata(route)
    spec = {"clusterIP": "None", "ports": [{"name": "http", "port": 80}]}
    service = child(SERVICE, service_name(name), namespace, {**labels, ROUTER_LABEL: label_value(name)}, spec=spec)
    service["metadata"]["annotations"] = dict(annotations)
    _check_route(service, resource)
    return Plan(children=(service,))


def _check_route(service: Object, resource: Object) -> None:
    """Raise InvalidSpecError if the gateway would reject the route, for example because of an unsupported
    comparison."""
    since = {"creationTimestamp": resource["metadata"]["creationTimestamp"]}
    try:
        routed_service({**service, "metadata": service["metadata"] | since})
    except InvalidRouteError as error:
        raise InvalidSpecError("InvalidSpec", f"spec.rules cannot be written as a route: {error}") from error


def status(view: RouterView, rejection: Rejection | None) -> StatusResult:
    world, resource = view.world, view.world.resource
    router = view.router if isinstance(view.router, Router) else None
    rejection = first_rejection(rejection, view.router)
    namespace, name = key(resource)
    served = f"{namespace}/{service_name(name)}"
    backends = [_backend(world, backend) for backend in router.spec.backends] if router else []
    answering = sum(backend["healthy"] for backend in backends)
    conditions = (
        verdict(rejection, "The spec is valid and its route is in place."),
        _available(answering, rejection),
        routed(served, (name,), world.routed),
        _backends_ready(backends),
        _fields_used(resource["spec"]),
    )
    fields: Object = {
        "phase": _phase(len(backends), answering, rejection),
        "activeRules": router.routing.active if router else 0,
        "backends": backends,
        **model_id(served, (name,), world.routed),
    }
    return stamped(build_status(resource, fields, conditions), resource, CONDITIONS, world.now)


def _phase(backends: int, answering: int, rejection: Rejection | None) -> str:
    if permanent(rejection):
        return "Failed"
    return "Pending" if not answering else "Ready" if answering == backends else "Degraded"


def _backend(world: World, backend: Backend) -> dict[str, Any]:
    name = backend.inference_service_ref.name if backend.inference_service_ref else ""
    service = world.get(Reference(INFERENCE_SERVICE, key(world.resource).namespace, name))
    service_status: Object = (service or {}).get("status") or {}
    healthy = bool(service_status.get("readyReplicas"))
    backend_status = {"name": backend.name, "tier": backend.tier, "healthy": healthy}
    if service_status.get("endpoint"):
        backend_status["address"] = service_status["endpoint"]
    if service is None:
        backend_status["message"] = f"There is no InferenceService {name} in this namespace."
    elif not healthy:
        backend_status["message"] = f"No pod of the InferenceService {name} is ready. See its status."
    return backend_status


def _available(answering: int, rejection: Rejection | None) -> Condition:
    if answering:
        backends = "backend answers" if answering == 1 else "backends answer"
        return Condition("Available", "True", "Ready", f"{answering} {backends}.")
    if refused := permanent(rejection):
        return Condition("Available", "False", refused.reason, "See the condition Accepted.")
    return Condition("Available", "False", "WaitingForBackends", "No backend answers yet.")


def _backends_ready(backends: Sequence[Object]) -> Condition:
    silent = [backend["name"] for backend in backends if not backend["healthy"]]
    if not backends:
        return Condition("BackendsReady", "Unknown", "NotAccepted", "See the condition Accepted.")
    if silent:
        return Condition("BackendsReady", "False", "BackendsSilent", f"These do not answer: {', '.join(silent)}.")
    return Condition("BackendsReady", "True", "AllReady", "Every backend answers.")


def _fields_used(spec: Object) -> Condition:
    return fields_used({field: why for field, why in WITHOUT_EFFECT.items() if _is_set(spec, field)})


def _is_set(spec: Object, field: str) -> bool:
    if field.startswith("backends[]."):
        backends, name = spec.get("backends"), field.removeprefix("backends[].")
        values = [one.get(name) for one in backends if isinstance(one, dict)] if isinstance(backends, list) else []
        if name == "displayName" and spec.get("defaultRouteStrategy") == "BackendNameMatch":
            return any(value and not MODEL_ID.fullmatch(str(value)) for value in values)
        return any(values)
    value: object = spec
    for name in field.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if field == "proxy" and isinstance(value, dict):
        return bool(value.keys() - {"responseHeaderTimeout"})
    return value == "Gateway" if field == "dataPlane" else bool(value)


ROUTERS = Table(
    name="llmkube",
    resource=MODEL_ROUTER,
    condition_types=CONDITIONS,
    readiness=readiness.MODEL_ROUTER,
    watches=watches,
    resolve=resolve,
    plan=plan,
    status=status,
)
"""The table of ModelRouters. The gateway routes their requests without a proxy."""
