"""LLMKube's pure functions for InferenceServices: a service becomes its children, what became of them its status."""

from __future__ import annotations

from slipway.apis.llmkube import autoscaling, pods, queue
from slipway.apis.llmkube.model_types import KIND as MODEL
from slipway.apis.llmkube.reading import METAL, Service, read, references, waits_for
from slipway.apis.llmkube.service_status import status
from slipway.apis.llmkube.service_types import INFERENCE_SERVICE
from slipway.kube.crd import CustomResource
from slipway.kube.objects import (
    DEPLOYMENT,
    HORIZONTAL_POD_AUTOSCALER,
    NETWORK_POLICY,
    POD_DISRUPTION_BUDGET,
    PRIORITY_CLASS,
    SERVICE,
    Kind,
    Object,
)
from slipway.serving import network, policies, workload
from slipway.serving.freedoms import Freedom, freedoms
from slipway.serving.plan import Plan, Reference, Refusal, Verdict, World
from slipway.serving.scaling import Scaling
from slipway.serving.settings import Settings

BEFORE = "spec.initContainers["
"""Where the containers stand that load weights, which are ours."""


class Services:
    """See :class:`slipway.serving.plan.Api`."""

    name = "llmkube"
    resources: tuple[CustomResource, ...] = (INFERENCE_SERVICE,)
    child_kinds: tuple[Kind, ...] = (
        SERVICE,
        DEPLOYMENT,
        HORIZONTAL_POD_AUTOSCALER,
        POD_DISRUPTION_BUDGET,
        NETWORK_POLICY,
    )
    shared_kinds: tuple[Kind, ...] = (MODEL, PRIORITY_CLASS)
    user_kinds: tuple[Kind, ...] = ()
    foreign_finalizers: frozenset[str] = frozenset()
    pod_labels = pods.OWN_LABELS

    def references(self, resource: Object, _settings: Settings) -> tuple[Reference, ...]:
        return references(resource)

    def granted(self, world: World, plan: Plan) -> frozenset[Freedom]:
        """Images alone, as nothing else that the operator sets needs trust."""
        own, made = pods.own_image(read(world)), freedoms((*plan.children, *plan.awaited))
        images = (one for one in made if one.setting == "image_prefixes")
        return frozenset(one for one in images if one.field.startswith(BEFORE) or one.value == own)

    def finish(self, _world: World) -> Plan | None:
        return None

    def scaling(self, _world: World) -> Scaling | None:
        """Kubernetes' autoscaler does that, where the service asks for it."""
        return None

    def concerned(self, _old: Object | None, _new: Object | None) -> None:
        return None  # each service that refers to a Model tells of it

    def plan(self, world: World) -> Plan:
        service = read(world)
        if service.model.hardware.accelerator == METAL:
            return Plan(children=())
        server, scale = pods.server(service), pods.scale(world, service)
        address, deployment = workload.workload(server, scale, (pods.address(service),))
        scaler = (autoscaling.scaler(service, server),) if autoscaling.autoscaled(service) else ()
        protected = service.spec.eviction_protection
        budget = policies.disruption_budget(server, scale, world.settings, protected=protected)
        serving = (deployment,) if waits_for(world, service) is None else _earlier(world, deployment)
        guards = network.ingress(server, world.settings, policed=world.policed)
        # An autoscaler would complain of a Deployment that is not there yet.
        return Plan(
            children=(*guards, address, *serving, *(scaler if serving else ()), *budget),
            awaited=() if serving == (deployment,) else (deployment,),
            shared=_classes(service),
        )

    def status(self, world: World, refusal: Refusal | None) -> Verdict:
        return status(world, refusal)


def _earlier(world: World, deployment: Object) -> tuple[Object, ...]:
    """The Deployment that there is serves on while a Model is not ready, or not ready any more."""
    name = deployment["metadata"]["name"]
    observed = world.children.get((DEPLOYMENT.kind, name))
    return (workload.kept(observed, deployment["spec"].get("replicas")),) if observed else ()


def _class(service: Service) -> Object:
    return queue.own_class(service.spec.priority, preempts=service.settings.authors.preemption)


def _classes(service: Service) -> tuple[Object, ...]:
    return () if service.spec.priority_class_name else (_class(service),)
