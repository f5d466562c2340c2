"""The children of an InferenceService: its Deployment, and the objects around it. Pure."""

from __future__ import annotations

from slipway.apis.llmkube import names
from slipway.apis.llmkube.models import cache
from slipway.apis.llmkube.models.placement import own_claim
from slipway.apis.llmkube.rules import scheduling
from slipway.apis.llmkube.services import autoscaling, operation, pods
from slipway.apis.llmkube.services.resolve import ServiceView
from slipway.apis.llmkube.services.service import METAL, Service
from slipway.apis.llmkube.settings import llmkube
from slipway.apis.llmkube.types.service import KIND
from slipway.apis.sealed import refuse_sealed
from slipway.kube.objects import Object, owner_reference
from slipway.serving.containers.freedoms import Freedom, freedoms
from slipway.serving.contract.api import Plan
from slipway.serving.pods import network, workload

BEFORE = "spec.initContainers["
"""Prefix of the field paths of init containers. Only Slipway adds init containers, to download weights."""


def plan(view: ServiceView) -> Plan:
    """Return the children of a service; none for a service on a Mac. Raise InvalidSpecError if the service cannot be
    served as written."""
    service, world = view.valid(), view.world
    if service.model.hardware.accelerator == METAL:
        return Plan(children=())
    server, scale = pods.server(service, operation.pod_annotations(view, service)), pods.scale(world, service)
    bundle = workload.workload(server, scale, (pods.address(service, server.engine),))
    deployment = bundle.deployment
    refuse_sealed(deployment, service.engine.container, service.engine)
    scaler = (autoscaling.scaler(service, server, view.most_replicas),) if autoscaling.autoscaled(service) else ()
    others = (*operation.budget(view, service, server, scale), *operation.objective(service, server))
    serving = (deployment,) if view.waits is None else _earlier(view, deployment)
    guards = network.ingress(server, world.settings, policed=world.has_foreign_policies)
    # An autoscaler would report an error for a Deployment that does not exist yet.
    return Plan(
        children=(*guards, *bundle.dependencies, *serving, *(scaler if serving else ()), *others),
        pending=() if serving == (deployment,) else (deployment,),
        shared=(*_classes(service), *_own_claim(view, service)),
        adapters=pods.adapters(service),
    )


def granted(view: ServiceView, plan: Plan) -> frozenset[Freedom]:
    """Return the privileged fields (freedoms) in a service's children that come from the operator: only images, because
    no other setting of the operator needs trust. Raise InvalidSpecError if the service cannot be served as written."""
    service, privileges = view.valid(), freedoms((*plan.children, *plan.pending))
    own = (service.own_image, service.settings.loader_image)
    images = (one for one in privileges if one.setting == "image_prefixes")
    return frozenset(one for one in images if one.field.startswith(BEFORE) or one.value in own)


def _earlier(view: ServiceView, deployment: Object) -> tuple[Object, ...]:
    """Return the existing Deployment, which continues to serve while the service waits for a Model or for GPUs of its
    GPUQuotas, with at most ``view.most_replicas``. The result is empty if there is none."""
    replicas, most = deployment["spec"].get("replicas"), view.most_replicas
    # An autoscaler respects its bounds, but always keeps at least one replica.
    if most is not None and (replicas is not None or most == 0):
        replicas = min(replicas or 0, most)
    return (workload.keep_deployment(view.deployment, replicas),) if view.deployment else ()


def _own_claim(view: ServiceView, service: Service) -> tuple[Object, ...]:
    """Return the dedicated claim of a service, which is deleted with the service and never changed. The result is empty
    if the service needs no such claim."""
    if service.placed.way != "loader" or not own_claim(service.spec, service.settings):
        return ()
    name = names.own_claim(service.name)
    claim = cache.claim(service.namespace, llmkube(service.settings).model_cache, name)
    owned = {"ownerReferences": [owner_reference(KIND, view.world.resource)]}
    return ({**claim, "metadata": {**claim["metadata"], **owned}},)


def _classes(service: Service) -> tuple[Object, ...]:
    if service.spec.priority_class_name:
        return ()
    return (scheduling.own_class(service.spec.priority, preempts=service.settings.authors.preemption),)
