"""Caches: the weights of Models on a volume that many pods share. Pure.

Each namespace has one claim for each cache profile, which is never deleted. A load Job fills the Model's directory on
the claim. An annotation of the claim records that the directory is complete, independently of the Job. When the Model
is deleted, an eviction Job removes the directory, and then the annotation is removed. If the Model stays but no longer
has a cache, the annotation is removed first: the directory then no longer counts as complete, and can be filled again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from slipway.apis.kubeai import names
from slipway.apis.kubeai.models import access, pods
from slipway.apis.kubeai.models.resolve import Model, ModelView, url_of
from slipway.apis.kubeai.settings import SystemConfig
from slipway.apis.kubeai.types import KIND
from slipway.decoding import DecodingError, decode_json
from slipway.kube.caches.store import Change
from slipway.kube.objects import JOB, PERSISTENT_VOLUME_CLAIM, Key, Object, deleting, uid
from slipway.kube.schemas.conditions import timestamp
from slipway.serving.containers.diagnosis import may_use_volumes, template_digest
from slipway.serving.contract.api import Listers, MetadataPatch, Plan
from slipway.serving.contract.settings import Settings
from slipway.serving.contract.watches import referenced_by
from slipway.serving.pods.job import job_of
from slipway.weights import place
from slipway.weights.jobs import loads as jobs
from slipway.weights.jobs.loads import Runner
from slipway.weights.place import Place
from slipway.weights.sources.credentials import of_operator

NOTE_BYTES = 16384
"""Maximum size of a Model's record in bytes. A longer record was not written by the controller, because its URL would
exceed the limit for Models."""


def is_loaded(view: ModelView) -> bool:
    """Whether the claim has a record that the Model's weights for its current URL are complete in the cache. False
    while the claim is being deleted. Records of an earlier Model with the same name do not count. A record of the
    original KubeAI, which has no URL, counts for any URL."""
    text = view.place.record(view.claim) if view.place else None
    try:
        record = decode_json(text or "{}", dict[str, Any], most=NOTE_BYTES)
    except DecodingError:
        return False
    resource = view.world.resource
    # The original KubeAI does not write the URL.
    return record.get("uid") == uid(resource) and record.get("url", url_of(resource)) == url_of(resource)


def of_claim(change: Change, listers: Listers) -> Iterable[Key]:
    """Return the Models whose record on a claim changed. If the claim was created or deleted, return all Models that
    refer to the claim."""
    old, new = change.old, change.new
    if old is None or new is None or deleting(old) != deleting(new):
        return referenced_by(KIND, PERSISTENT_VOLUME_CLAIM)(change, listers)
    return [Key(change.key.namespace, name) for name in place.changed(old, new, names.LOADED)]


class Filling(msgspec.Struct, frozen=True, kw_only=True):
    """The objects and changes that a cache currently needs."""

    jobs: tuple[Object, ...] = ()
    patches: tuple[MetadataPatch, ...] = ()
    annotations: Object = {}
    """Changes of the Model's own annotations. The value None removes an annotation."""


def claim(model: Model, where: Place) -> Object:
    """Build the claim that all Models with the same cache profile share in a namespace. Raise InvalidSpecError with the
    reason UnknownCacheProfile if the system configuration has no such profile."""
    profile = model.config.cache_profile(model.spec.cache_profile)
    spec: Object = {
        "accessModes": ["ReadWriteMany"],
        # Empty if only a volume is named: otherwise the cluster's default class would be used, and no volume would
        # match.
        "storageClassName": profile.storage_class_name,
        "resources": {"requests": {"storage": profile.storage_size}},
    }
    if profile.persistent_volume_name:
        spec["volumeName"] = profile.persistent_volume_name
    return place.claim(where.claim, spec)


def failed_since(view: ModelView) -> float | None:
    """Return the Unix time at which the load Job failed. Return None if it has not failed, or if it is time for a new
    Job."""
    retried = view.load.retried_at()
    return None if retried is not None and view.world.now >= retried else view.load.failed_since


def loading(view: ModelView, model: Model, where: Place) -> Filling:
    """Return the objects that load the weights onto the claim, and the record of the weights once the load Job is
    complete. Empty if the record exists, while the claim is being deleted, or if a failed load Job must be deleted
    before a new one. If earlier weights are being removed, only the eviction Job is kept."""
    if is_loaded(view):
        return Filling()
    if is_evicting(view):
        return Filling(jobs=(_evict_job(view, where),))
    overdue = view.load.failed_since is not None and failed_since(view) is None
    if overdue or (view.claim is not None and deleting(view.claim)):
        return Filling()
    done = view.load.complete_since
    if done is None:
        return Filling(jobs=(_load_job(model, where),))
    record = {"uid": uid(model.resource), "url": url_of(model.resource), "timestamp": timestamp(done)}
    note = where.recorded(where.claim, msgspec.json.encode(record).decode())
    return Filling(jobs=(_load_job(model, where),), patches=(note,))


def remove_leftovers(view: ModelView, deployment: Object) -> Filling:
    """Return the objects that remove the weights of a Model that no longer has a cache. They are only returned after
    the last pod that may have mounted the weights has ended. Once the weights or the claim are gone, only the
    annotation with the cache profile is removed. Empty if the Model has no earlier cache. ``deployment``: the desired
    Deployment."""
    where = view.place
    if where is None:
        return Filling()
    if view.claim is None or deleting(view.claim) or view.eviction.over:
        return Filling(annotations={names.PROFILE: None})
    if _mounted(view, deployment):
        return Filling()
    if where.record(view.claim) is not None:
        return Filling(patches=(where.recorded(where.claim, None),))
    return Filling(jobs=(_evict_job(view, where),))


def _mounted(view: ModelView, deployment: Object) -> bool:
    """Whether pods may be using the cache: pods of an earlier template, or of an existing load Job."""
    world, digest = view.world, template_digest(deployment["spec"]["template"])
    if view.deployment is not None and template_digest(view.deployment["spec"]["template"]) != digest:
        return True
    older = (pod for pod in _reading(view) if template_digest(pod) != digest)
    return world.child(JOB, names.load_name(view.name)) is not None or any(
        may_use_volumes(pod, world.now) for pod in older
    )


def _reading(view: ModelView) -> list[Object]:
    """Return the pods that may use the weights: all pods except those of the eviction Job."""
    evict = names.evict_name(view.name)
    return [pod for pod in view.world.pods if (maker := job_of(pod)) is None or maker.name != evict]


def is_evicting(view: ModelView) -> bool:
    """Whether an eviction Job is removing the weights."""
    return view.eviction.job is not None and not view.eviction.over


def finalize(view: ModelView) -> Plan | None:
    """Return the plan for the next step of a Model's deletion. Its pods end first, then its directory is removed, and
    then its record on the claim. Return None if nothing remains to be done.

    The deletion always completes: it does not need the claim, a valid configuration or a working Job, and has a time
    limit.
    """
    world, where = view.world, view.place
    if any(may_use_volumes(pod, world.now) for pod in _reading(view)):
        return Plan(children=())
    if where is None or view.claim is None or deleting(view.claim):
        return None
    late = jobs.is_late(world.resource["metadata"]["deletionTimestamp"], world.now)
    if not view.eviction.over and not late:
        return Plan(children=(_evict_job(view, where),))
    if where.record(view.claim) is None:
        return None
    children = (_evict_job(view, where),) if view.eviction.job else ()
    return Plan(children=children, metadata_patches=(where.recorded(where.claim, None),))


def _load_job(model: Model, where: Place) -> Object:
    """Build the Job that fills the Model's directory. Its pod tolerates the taints of the resource profile, because
    only nodes with these taints may reach the volume. It ignores the profile's node selector, because it needs no
    GPU."""
    runner = _runner(model.config, model.settings, model.controller_key)
    sources = of_operator(model.settings.loader)
    sources += access.credentials((model.url.scheme,), model.config.secret_names)
    mounts = where.access(pods.CACHE) + sources
    arguments = ("load", model.url.place, where.path, *pods.loader_options(model))
    own = msgspec.structs.replace(mounts, env=pods.loader_env(model, sources))
    return jobs.task(
        runner,
        names.load_name(model.name),
        model.namespace,
        jobs.container(runner, arguments, own, env_from=pods.env_from(model)),
        mounts.volumes,
        tolerations=model.config.resource_profile(model.spec.resource_profile).tolerations,
    )


def _evict_job(view: ModelView, where: Place) -> Object:
    runner = _runner(view.config, view.world.settings)
    return jobs.evict(runner, names.evict_name(view.name), where.claim.namespace, where, pods.CACHE)


def _runner(config: SystemConfig, settings: Settings, controller_key: str = "") -> Runner:
    server_pods = config.model_server_pods
    return Runner(
        image=pods.loader_image(config, settings),
        manager=pods.MANAGER,
        security=_writer(config, settings),
        pod_security=pods.pod_security(config, settings),
        service_account=server_pods.service_account_name,
        image_pull_secrets=tuple(secret.name for secret in server_pods.image_pull_secrets),
        controller_key=controller_key,
    )


def _writer(config: SystemConfig, settings: Settings) -> Object:
    """Return the security context of the containers that fill and empty caches. Volume directories that are mounted by
    path belong to root, so the containers run as root unless the operator or the cluster sets another user, or the
    operator forbids root."""
    server_pods = config.model_server_pods
    security_context = server_pods.pod_security_context | server_pods.security_context
    other = settings.assigned_ids or "runAsUser" in security_context or security_context.get("runAsNonRoot")
    return server_pods.security_context if other else {**server_pods.security_context, "runAsUser": 0}
