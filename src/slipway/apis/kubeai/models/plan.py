"""Plan: the child objects of a Model. Pure."""

from __future__ import annotations

import msgspec

from slipway.apis.kubeai import names
from slipway.apis.kubeai.models import cache, pods
from slipway.apis.kubeai.models.cache import Filling
from slipway.apis.kubeai.models.resolve import CONTAINER, Model, ModelView
from slipway.apis.labels import RESERVED
from slipway.apis.sealed import refuse_sealed
from slipway.kube.objects import CONFIG_MAP, JOB, Object, labels
from slipway.serving.containers.freedoms import Freedom, freedoms
from slipway.serving.contract.api import Plan, Reference
from slipway.serving.pods import network, policies, workload
from slipway.serving.pods.server import ModelServer, Scale
from slipway.serving.routing.scaling import STATE, Scaling


def plan(view: ModelView) -> Plan:
    """Return the plan with the Model's child objects. Raise InvalidSpecError if the Model cannot be served."""
    model, world = view.valid(), view.world
    server, scale = pods.server(model), pods.scale(model)
    bundle = workload.workload(server, scale, pods.addresses(model, server.engine, failing=view.failing))
    refuse_sealed(bundle.deployment, CONTAINER, model.engine)
    deployment = workload.with_labels_of(bundle.deployment, pods.rightly_labelled(view.deployment))
    before = (*network.ingress(server, world.settings, policed=world.has_foreign_policies), *bundle.dependencies)
    budget = policies.disruption_budget(server, scale, world.settings)
    filed, absent = _files(model, server)
    cached = model.place is not None
    filling = cache.loading(view, model, model.place) if model.place else cache.remove_leftovers(view, deployment)
    started = not cached or cache.is_loaded(view)
    return Plan(
        children=(*before, *filling.jobs, *((deployment,) if started else _keep_existing(view, model)), *budget),
        pending=() if started else (deployment,),
        absent=absent,
        shared=(cache.claim(model, model.place),) if model.place else (),
        metadata_patches=filling.patches,
        self_patch=_own(model, filling, filed),
        finalizer=names.FINALIZER if cached else "",
        adapters=pods.adapters(model),
    )


def granted(view: ModelView, plan: Plan) -> frozenset[Freedom]:
    """Return the freedoms that the author may use without permission: those that the system configuration and its
    patches give to every Model, and those of the loader's Jobs."""
    model = view.valid()
    whole, plain = pods.server(model), pods.server(pods.plain(model))
    jobs = freedoms(child for child in plan.children if child["kind"] == JOB.kind)
    usual = _freedoms(msgspec.structs.replace(plain, patches=(), volumes=()))
    patched = _freedoms(whole) - _freedoms(msgspec.structs.replace(whole, patches=())) if whole.patches else usual
    return jobs | usual | patched


def scaling(view: ModelView) -> Scaling | None:
    """Return the parameters with which the autoscaler scales the Model, or None if the Model is invalid or its
    autoscaling is disabled."""
    model = view.model
    if not isinstance(model, Model) or model.spec.autoscaling_disabled:
        return None
    spec, pace = model.spec, model.config.model_autoscaling
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


def _freedoms(server: ModelServer) -> frozenset[Freedom]:
    return freedoms((workload.deployment(server, Scale(1)),), RESERVED)


def _keep_existing(view: ModelView, model: Model) -> tuple[Object, ...]:
    """Return the existing Deployment of a Model whose cache is being filled, or an empty tuple. Such a Deployment is
    from before the Model had a cache."""
    return (workload.keep_deployment(view.deployment, model.replicas),) if view.deployment else ()


def _files(model: Model, server: ModelServer) -> tuple[Object, tuple[Reference, ...]]:
    """Return the annotation that records a ConfigMap with files, and the ConfigMap to delete, if any. The ConfigMap is
    read by name, so only Models that have or had files cause a request."""
    if server.files:
        return {names.FILES: "true"}, ()
    had_files = names.FILES in (model.resource["metadata"].get("annotations") or {})
    return {}, (Reference(CONFIG_MAP, model.namespace, workload.files_name(server)),) if had_files else ()


def _own(model: Model, filling: Filling, filed: Object) -> Object:
    """Return the patch of the Model: its feature labels, its annotations about the cache and the files, and, unless
    autoscaling is disabled, its replicas within their bounds. Obsolete feature labels are removed."""
    profile = {names.PROFILE: model.spec.cache_profile} if model.place else {}
    stale = {name: None for name in labels(model.resource) if name.startswith(names.FEATURE)}
    features = {name: value for name, value in model.labels.items() if name.startswith(names.FEATURE)}
    fields = {"labels": {**stale, **features}, "annotations": profile | filling.annotations | filed}
    metadata = {field: changes for field, changes in fields.items() if changes}
    patch: Object = {"metadata": metadata} if metadata else {}
    return patch if model.spec.autoscaling_disabled else {**patch, "spec": {"replicas": model.replicas}}
