"""Plan: the child objects of an InferenceService. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from slipway.apis.ome import names
from slipway.apis.ome.components import grants, keda, overlay, replicas, scaling
from slipway.apis.ome.components.pods import router_account
from slipway.apis.ome.models import volumes as model_volumes
from slipway.apis.ome.services import canary, trust
from slipway.apis.ome.services.resolve import ServiceView, resolve
from slipway.apis.ome.services.rollout import APP, ComponentRollout, canary_name, resolve_rollout, startup_seconds
from slipway.apis.ome.services.service import Part, Service
from slipway.apis.sealed import refuse
from slipway.artifacts.locations.redaction import redact_url
from slipway.kube.objects import (
    ROLE,
    ROLE_BINDING,
    SCALED_OBJECT,
    SERVICE,
    SERVICE_ACCOUNT,
    Object,
    annotations_of,
    created_unix,
)
from slipway.serving.containers.freedoms import Freedom, templates
from slipway.serving.contract.api import InvalidSpecError, Plan, World
from slipway.serving.contract.authors import DEFAULT_ACCOUNT
from slipway.serving.contract.settings import Settings
from slipway.serving.pods import groups, network, policies
from slipway.serving.pods.server import Scale
from slipway.serving.pods.workload import PORT_NAME, Rollout, child, deployment_of, keep_deployment
from slipway.serving.routing.route import Route, ScaleTarget, route_metadata
from slipway.serving.routing.scaling import WAKE, Scaling
from slipway.serving.routing.scaling import ScaleTarget as Target

POD_READER = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
"""RBAC rule for routers, which find their engines' pods by labels."""
SERVICE_TYPES = ("ClusterIP", "NodePort", "LoadBalancer")
SCALED_OBJECT_ROOM = 50
"""Maximum number of characters of a component's name in the name of its ScaledObject. Longer names keep their end."""


def plan(view: ServiceView) -> Plan:
    """Return the plan with the service's child objects. Raise InvalidSpecError if the service cannot be served."""
    service, world = view.valid(), view.world
    children: list[Object] = []
    for part in service.parts:
        component_rollout = resolve_rollout(world, service, part)
        own = _build_service(component_rollout, service, part.name, component_rollout.answering)
        children += [*_build_account(service, part), _with_exposure(own, part.component.extension.annotations)]
        children += _build_workload(component_rollout, service, world)
        if part is service.routed:
            refuse(part.runner, part.recognised.args, part.recognised.engine)
            children += [
                _build_routed_service(component_rollout, service),
                *_build_wake_rights(service, world.settings),
                *_build_network_policies(component_rollout, service, world),
            ]
    claims = model_volumes.build_claims(service.resource, service.mounts, children)
    model_volumes.check_free(world, claims)
    return Plan(children=tuple(children), shared=claims)


def _build_routed_service(component_rollout: ComponentRollout, service: Service) -> Object:
    """Build the Service with the route, which the gateway and other clients use."""
    by, model = service.by_requests, service.model
    aliases = (name for part in service.parts for name in part.recognised.public_names)
    source = redact_url(model["spec"]["storage"]["storageUri"]) if model else ""
    wakes = ScaleTarget(by.kind.group, by.kind.version, by.kind.plural, by.workload_name) if by else None
    route = Route(
        models=service.model_ids,
        aliases=tuple(dict.fromkeys(aliases)),
        port=PORT_NAME,
        created=created_unix(service.resource),
        owned_by="ome",
        source=source,
        labels=service.route_labels,
        scale=wakes,
        targets=component_rollout.split.targets(canary_name(service.name, component_rollout.part.component.name)),
    )
    manifest = _build_service(component_rollout, service, service.name, component_rollout.answering, route)
    return _with_exposure(manifest, annotations_of(service.resource))


def _build_network_policies(component_rollout: ComponentRollout, service: Service, world: World) -> tuple[Object, ...]:
    """Build the NetworkPolicy that allows traffic between the service's pods, and from clients to the port of the
    component that receives requests. Empty if the settings do not enable NetworkPolicies for models."""
    whole = {names.SERVICE_LABEL: service.name}
    return network.among(service.name, service.namespace, whole, component_rollout.part.port, world.settings)


def granted_freedoms(view: ServiceView, plan: Plan) -> frozenset[Freedom]:
    """Return the freedoms that the service may use because its ClusterServingRuntime, which belongs to the operator,
    has them. Raise InvalidSpecError if the service cannot be served."""
    service = view.valid()
    alone = _operator_workloads(view, service)
    queries = [one for one in plan.children if one["kind"] == SCALED_OBJECT.kind]
    scaled = _operator_queries(view, service) if queries else {}
    workloads, files = [one for one in plan.children if templates(one)], trust.files_of(service, view.world.settings)
    return frozenset().union(
        *(grants.granted_freedoms(one, alone.get(one["metadata"]["name"]), files) for one in workloads),
        *(grants.granted_query(one, scaled.get(one["metadata"]["name"])) for one in queries),
    )


def remedy(view: ServiceView, refused: frozenset[Freedom]) -> str:
    """Return advice for an author whose service needs the freedoms in ``refused``, but may not use them."""
    service = view.valid()
    return trust.remedy(service, view.world.settings, refused, _operator_workloads(view, service).values())


def _operator_workloads(view: ServiceView, service: Service) -> dict[str, Object]:
    """Return the workloads, by name, that the operator's runtime alone would create. The entry for a canary is the
    stable workload under the canary's name."""
    workloads = {one["metadata"]["name"]: one for one in _build_operator_objects(view, service) if templates(one)}
    canaries = {one.name: canary_name(service.name, one.component.name) for one in service.parts}
    tried = {canaries[name]: one for name, one in workloads.items() if name in canaries}
    return workloads | {name: {**one, "metadata": {**one["metadata"], "name": name}} for name, one in tried.items()}


def _operator_queries(view: ServiceView, service: Service) -> dict[str, Object]:
    """Return the ScaledObjects, by name, that the operator's runtime alone would create for a service that requests
    KEDA."""
    objects = _build_operator_objects(view, service, annotations={names.AUTOSCALER_CLASS: "keda"})
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == SCALED_OBJECT.kind}


def _build_operator_objects(view: ServiceView, service: Service, **metadata: Object) -> tuple[Object, ...]:
    """Build the objects that the operator's runtime would create for a service whose author sets only the model, the
    runtime and ``metadata``. Return an empty tuple if the runtime does not belong to the operator, or cannot run an
    engine alone."""
    if service.runtime is None or service.runtime["metadata"].get("namespace"):
        return ()
    plain = {name: service.resource["metadata"][name] for name in ("name", "namespace", "uid")}
    resource = {**overlay.bare(service.resource, service.runtime), "metadata": plain | metadata}
    if "engine" not in resource["spec"]:  # every service has an engine
        return ()
    return plan(resolve(msgspec.structs.replace(view.world, resource=resource, children={}))).children


def scaling_of(view: ServiceView) -> Scaling | None:
    """Return the parameters with which Slipway's autoscaler scales one component by requests, or None if no component
    scales by requests or the service cannot be served."""
    service = view.service
    if isinstance(service, InvalidSpecError) or service.by_requests is None or service.routed is None:
        return None
    part, scaler = service.by_requests, service.by_requests.scaler
    observed = view.world.child(part.kind, part.workload_name)
    return Scaling(
        replicas=observed["spec"].get("replicas", 1) if observed else scaler.lowest,
        min_replicas=scaler.lowest,
        max_replicas=scaler.highest,
        target_requests=scaler.target,
        interval=scaling.INTERVAL,
        window=scaling.WINDOW,
        scale_down_delay=scaling.DELAY,
        target=Target(part.kind, part.workload_name),
        # The canary's requests count as well: both need replicas for all requests, or for their shares of them.
        services=(service.name, canary_name(service.name, part.component.name)),
    )


def _replicas(component_rollout: ComponentRollout, service: Service) -> int | None:
    scaler = component_rollout.part.scaler
    if scaler.by == "requests" and component_rollout.part is not service.by_requests:
        return max(scaler.lowest, 1)
    if scaler.by == "none":
        return scaler.lowest
    return replicas.scaled_by_others(component_rollout.observed, scaler.lowest, scaler.highest)


def _build_workload(component_rollout: ComponentRollout, service: Service, world: World) -> list[Object]:
    part, number = component_rollout.part, _replicas(component_rollout, service)
    if component_rollout.worker is not None:
        group = groups.Group(
            name=part.workload_name,
            namespace=service.namespace,
            labels=component_rollout.labels,
            selector=component_rollout.selector,
            replicas=number,
            size=part.component.worker_size + 1,
        )
        workload = groups.leader_worker_set(component_rollout.template, component_rollout.worker, group)
        served = msgspec.structs.replace(group, name=part.name)
        budget = _build_disruption_budget(component_rollout, served, world, group.size)
        return [replicas.record_replicas(workload, number), *_build_scalers(component_rollout, group, service), *budget]
    rollout = _rollout(component_rollout, service, part.name, number)
    workload = _build_deployment(component_rollout, rollout)
    if component_rollout.split.keeps_stable and component_rollout.observed:
        workload = keep_deployment(component_rollout.observed, number)
    budget = _build_disruption_budget(component_rollout, rollout, world)
    tried = _build_canary(component_rollout, service) if component_rollout.split.canary else []
    return [
        replicas.record_replicas(workload, number),
        *tried,
        *_build_scalers(component_rollout, rollout, service),
        *budget,
    ]


def _rollout(component_rollout: ComponentRollout, service: Service, name: str, number: int | None) -> Rollout:
    return Rollout(
        name=name,
        namespace=service.namespace,
        labels=component_rollout.labels,
        selector={APP: name},
        scale=Scale(number, surge=1),
        startup_seconds=startup_seconds(component_rollout.part.runner),
    )


def _build_deployment(component_rollout: ComponentRollout, rollout: Rollout) -> Object:
    deployment, strategy = (
        deployment_of(component_rollout.template, rollout),
        component_rollout.part.component.extension.deployment_strategy,
    )
    return {**deployment, "spec": {**deployment["spec"], "strategy": strategy}} if strategy else deployment


def _build_canary(component_rollout: ComponentRollout, service: Service) -> list[Object]:
    """Build the canary's Deployment, with its share of the replicas but at least one, and its Service."""
    name, running = (
        canary_name(service.name, component_rollout.part.component.name),
        (component_rollout.observed or {"spec": {}})["spec"].get("replicas", 1),
    )
    share = component_rollout.split.percent or component_rollout.part.component.extension.canary_traffic_percent or 0
    rollout = _rollout(component_rollout, service, name, max(math.ceil(running * share / canary.ALL), 1))
    route = Route(internal=True, port=PORT_NAME)
    return [
        _build_deployment(component_rollout, rollout),
        _build_service(component_rollout, service, name, rollout.selector, route),
    ]


def _build_disruption_budget(
    component_rollout: ComponentRollout, served: policies.PolicySubject, world: World, size: int = 1
) -> tuple[Object, ...]:
    """Build the component's PodDisruptionBudget, if any. ``size`` is the number of pods per replica: evicting one pod
    of a group ends the whole group, so a minimum is counted in groups."""
    extension, scaler = component_rollout.part.component.extension, component_rollout.part.scaler
    limit: Object = {}
    if extension.min_available is not None:
        least = extension.min_available
        limit = {"minAvailable": least * size if isinstance(least, int) else least}
    elif extension.max_unavailable is not None:
        limit = {"maxUnavailable": extension.max_unavailable}
    several = Scale(scaler.lowest if scaler.by == "none" else None)
    return policies.disruption_budget(served, several, world.settings, limit=limit)


def _build_scalers(
    component_rollout: ComponentRollout, served: policies.PolicySubject, service: Service
) -> tuple[Object, ...]:
    """Build the HorizontalPodAutoscaler or ScaledObject of the workload, if any. Raise InvalidSpecError if KEDA would
    reject the ScaledObject."""
    part, scaler = component_rollout.part, component_rollout.part.scaler
    if scaler.by == "resources":
        target = policies.Target("Resource", scaler.metric, str(scaler.target))
        return (policies.autoscaler(served, scaler.lowest, scaler.highest, (target,)),)
    if scaler.by != "keda":
        return ()
    engine = part.recognised.engine
    usual = scaling.running_requests(engine.metrics if engine else None, service.namespace, part.workload_name)
    trigger = scaling.trigger(
        part.component.name,
        part.name,
        part.component.extension,
        service.annotations(part),
        service.spec.keda_config,
        usual,
    )
    name = f"scaledobject-{part.name[-SCALED_OBJECT_ROOM:].lstrip('-')}"
    return (keda.scaled_object(name, served, part.kind, scaler.lowest, scaler.highest, trigger),)


def _build_account(service: Service, part: Part) -> list[Object]:
    """Build the service account and the rights with which a router lists the pods of its engines. An account chosen by
    the author gets the same rights, except the ``default`` account, which any pod of the namespace can use. Empty for
    components other than a router."""
    account = router_account(part.component.pod, service.name)
    if part.component.name != "router" or account == DEFAULT_ACCOUNT:
        return []
    name, namespace, own = part.name, service.namespace, {names.SERVICE_LABEL: service.name}
    subject = {"kind": SERVICE_ACCOUNT.kind, "name": account, "namespace": namespace}
    own_account = [child(SERVICE_ACCOUNT, name, namespace, own)] if account == name else []
    return [*own_account, *_build_grant(service, name, POD_READER, subject)]


def _build_wake_rights(service: Service, settings: Settings) -> list[Object]:
    """Build the Role that lets the gateway scale the one workload that it wakes, and the RoleBinding for the Role.
    Empty if no component scales by requests."""
    by = service.by_requests
    if by is None:
        return []
    scale = {"apiGroups": [by.kind.group], "resources": [f"{by.kind.plural}/scale"], "verbs": [*WAKE]}
    gateway = {"kind": SERVICE_ACCOUNT.kind, "name": network.GATEWAY, "namespace": settings.system_namespace}
    return _build_grant(service, f"{service.name}-wake", {**scale, "resourceNames": [by.workload_name]}, gateway)


def _build_grant(service: Service, name: str, rule: Object, subject: Object) -> list[Object]:
    """Build a Role in the service's namespace, and its RoleBinding."""
    namespace, own = service.namespace, {names.SERVICE_LABEL: service.name}
    role = {"apiGroup": ROLE.group, "kind": ROLE.kind, "name": name}
    return [
        {**child(ROLE, name, namespace, own), "rules": [rule]},
        {**child(ROLE_BINDING, name, namespace, own), "roleRef": role, "subjects": [subject]},
    ]


def _build_service(
    component_rollout: ComponentRollout,
    service: Service,
    name: str,
    selector: Mapping[str, str],
    route: Route | None = None,
) -> Object:
    port = component_rollout.part.port
    ports = [{"name": PORT_NAME, "port": port, "targetPort": port, "protocol": "TCP"}]
    spec: Object = {"type": "ClusterIP", "selector": dict(selector), "ports": ports}
    manifest = child(SERVICE, name, service.namespace, component_rollout.labels, spec=spec)
    if route is not None:
        labels, annotations = route_metadata(route)
        manifest["metadata"]["labels"] |= labels
        manifest["metadata"]["annotations"] = dict(annotations)
    return manifest


def _with_exposure(manifest: Object, annotations: Mapping[str, str]) -> Object:
    """Return the Service with the type from the annotations and, for the type LoadBalancer, their load balancer
    address. Raise InvalidSpecError for an unsupported type."""
    kind, address = annotations.get(names.SERVICE_TYPE, "ClusterIP"), annotations.get(names.LOAD_BALANCER_IP)
    if kind not in SERVICE_TYPES:
        text = f"{names.SERVICE_TYPE}: {kind[:32]!r} is not one of {', '.join(SERVICE_TYPES)}"
        raise InvalidSpecError("InvalidSpec", text)
    balanced = {"loadBalancerIP": address} if address and kind == "LoadBalancer" else {}
    return {**manifest, "spec": {**manifest["spec"], "type": kind, **balanced}}
