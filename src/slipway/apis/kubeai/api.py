"""KubeAI's pure functions: a Model becomes its children, and what became of them becomes its status."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from slipway.apis.kubeai import cache, names, pods
from slipway.apis.kubeai.model import Model, read, references
from slipway.apis.kubeai.status import failing, status
from slipway.apis.kubeai.types import MODEL
from slipway.apis.labels import RESERVED
from slipway.kube.crd import CustomResource
from slipway.kube.objects import (
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD_DISRUPTION_BUDGET,
    SERVICE,
    Kind,
    Object,
    labels,
)
from slipway.serving import network, policies, workload
from slipway.serving.freedoms import Freedom, freedoms
from slipway.serving.plan import Invalid, Plan, Reference, Refusal, Verdict, World
from slipway.serving.scaling import STATE, Scaling
from slipway.serving.server import Scale, Server
from slipway.serving.settings import Settings


class KubeAI:
    """See :class:`slipway.serving.plan.Api`."""

    name = "kubeai"
    resources: tuple[CustomResource, ...] = (MODEL,)
    child_kinds: tuple[Kind, ...] = (SERVICE, CONFIG_MAP, DEPLOYMENT, JOB, POD_DISRUPTION_BUDGET, NETWORK_POLICY)
    shared_kinds: tuple[Kind, ...] = (CONFIG_MAP, PERSISTENT_VOLUME_CLAIM)
    user_kinds: tuple[Kind, ...] = ()
    foreign_finalizers = frozenset({names.FINALIZER})
    pod_labels = pods.OWN_LABELS

    def references(self, resource: Object, settings: Settings) -> tuple[Reference, ...]:
        return references(resource, settings)

    def concerned(self, old: Object | None, new: Object | None) -> Collection[str] | None:
        return cache.concerned(old, new)

    def plan(self, world: World) -> Plan:
        model = read(world)
        server, scale = pods.server(model), pods.scale(model)
        observed = world.children.get((DEPLOYMENT.kind, server.name))
        addresses = pods.addresses(model, failing=failing(world, observed))
        *others, deployment = workload.workload(server, scale, addresses)
        before = (*network.ingress(server, world.settings, policed=world.policed), *others)
        budget = policies.disruption_budget(server, scale, world.settings)
        deployment = workload.with_labels_of(deployment, pods.rightly_labelled(observed))
        filed, absent = _files(model, server)
        if not model.spec.cache_profile:
            jobs, notes, record = cache.left(world, deployment)
            return Plan(
                children=(*before, *jobs, deployment, *budget),
                absent=absent,
                notes=notes,
                own=_own(model, record | filed),
                adapters=pods.adapters(model),
            )
        claim = cache.claim(model)
        jobs, notes = cache.loading(model, world) if not cache.loaded(world) else ((), ())
        ready = (deployment,) if cache.loaded(world) else _kept(observed, model)
        return Plan(
            children=(*before, *jobs, *ready, *budget),
            awaited=() if ready == (deployment,) else (deployment,),
            absent=absent,
            shared=(claim,),
            notes=notes,
            own=_own(model, {names.PROFILE: model.spec.cache_profile} | filed),
            finalizer=names.FINALIZER,
            adapters=pods.adapters(model),
        )

    def granted(self, world: World, plan: Plan) -> frozenset[Freedom]:
        """What the system configuration gives to every Model of this kind, what its patches add, and the Jobs."""
        model = read(world)
        whole, plain = pods.server(model), pods.server(pods.plain(model))
        jobs = freedoms(made for made in plan.children if made["kind"] == JOB.kind)
        usual = _freedoms(msgspec.structs.replace(plain, patches=(), volumes=()))
        patched = _freedoms(whole) - _freedoms(msgspec.structs.replace(whole, patches=())) if whole.patches else usual
        return jobs | usual | patched

    def finish(self, world: World) -> Plan | None:
        return cache.finish(world)

    def scaling(self, world: World) -> Scaling | None:
        try:
            model = read(world)
        except Invalid:
            return None
        spec, pace = model.spec, model.config.model_autoscaling
        if spec.autoscaling_disabled:
            return None
        return Scaling(
            replicas=model.replicas,
            min_replicas=spec.min_replicas,
            max_replicas=spec.max_replicas,
            target_requests=spec.target_requests,
            interval=pace.interval,
            window=pace.time_window,
            scale_down_delay=float(spec.scale_down_delay_seconds),
            state=pace.state_config_map_name or STATE,
        )

    def status(self, world: World, refusal: Refusal | None) -> Verdict:
        return status(world, refusal)


def _freedoms(server: Server) -> frozenset[Freedom]:
    return freedoms((workload.deployment(server, Scale(1)),), RESERVED)


def _files(model: Model, server: Server) -> tuple[Object, tuple[Reference, ...]]:
    """Annotations that say that there is a ConfigMap with files, and the one that is to go. It is asked for by name, so
    only a Model that ever had files costs that."""
    if server.files:
        return {names.FILES: "true"}, ()
    had = names.FILES in (model.resource["metadata"].get("annotations") or {})
    return {}, (Reference(CONFIG_MAP, model.namespace, workload.files_name(server)),) if had else ()


def _own(model: Model, annotations: Object) -> Object:
    """The Model's feature labels, without those of features that it no longer has, and its replicas in their bounds."""
    stale = {name: None for name in labels(model.resource) if name.startswith(names.FEATURE)}
    wanted = {name: value for name, value in model.labels.items() if name.startswith(names.FEATURE)}
    fields = {"labels": {**stale, **wanted}, "annotations": annotations}
    metadata = {field: changes for field, changes in fields.items() if changes}
    patch: Object = {"metadata": metadata} if metadata else {}
    return patch if model.spec.autoscaling_disabled else {**patch, "spec": {"replicas": model.replicas}}


def _kept(observed: Object | None, model: Model) -> tuple[Object, ...]:
    """A Deployment of before the cache was asked for serves on while it is filled."""
    return (workload.kept(observed, model.replicas),) if observed else ()
