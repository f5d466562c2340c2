"""Caches: a Model's weights on a volume that many pods share. Pure.

There is one claim for each cache profile and namespace, and it stays. A load Job fills the Model's folder on it; an
annotation of the claim says that it is complete, so that this is known whatever happens to the Job. On deletion an
eviction Job removes the folder, and the annotation goes last. It goes first where the Model stays, but without a cache:
the folder is no place for weights from then on, and it may be asked for again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import msgspec

from slipway.apis.kubeai import names
from slipway.apis.kubeai.config import InvalidConfig, SystemConfig, parse
from slipway.apis.kubeai.model import Model, claim_reference, profile_of, read_config
from slipway.apis.kubeai.pods import CACHE, env_from, loader_env, loader_image, loader_options, pod_security
from slipway.apis.kubeai.sources import credentials
from slipway.decoding import DecodingError, decode_json
from slipway.kube.conditions import timestamp
from slipway.kube.objects import MANAGED_BY, PERSISTENT_VOLUME_CLAIM, Object, controller_owner, deleting, uid
from slipway.serving import agent, volumes
from slipway.serving.diagnosis import remains, template_digest
from slipway.serving.job import Task, ended, job
from slipway.serving.loader import asked_by_the_controller
from slipway.serving.plan import Note, Plan, Reference, World
from slipway.serving.server import Container, Mount
from slipway.serving.settings import Settings
from slipway.serving.times import unix_time

LOADED = "models.kubeai.org/"
"""Prefix of the claim's annotation for each Model whose weights are complete on it."""
NOTE_BYTES = 16384
"""Of such an annotation. One that is longer is none of ours, as its url would be longer than a Model may have."""
RETRIES = 4
RETRY_SECONDS = 300
"""After a load that failed for good another one is tried, as what was wrong may lie in no object that we watch."""
EVICTION_SECONDS = 600
"""From a Model's deletion on, after which it goes with its weights left on the volume."""
ROOT = "models"


def load_name(model: str) -> str:
    return f"load-cache-{model}"


def evict_name(model: str) -> str:
    return f"evict-cache-{model}"


def claim_of(world: World) -> tuple[Reference, Object | None]:
    """The claim that the Model's cache lies on, and what is observed of it."""
    reference = claim_reference(world.resource["metadata"]["namespace"], profile_of(world.resource))
    return reference, world.referenced.get(reference)


def _place(world: World) -> str:
    """The Model's url without its options, be it valid or not."""
    url: str = world.resource["spec"]["url"]
    return url.partition("?")[0]


def loaded(world: World) -> bool:
    """Whether the weights of this very Model and url are complete: neither those of an earlier Model of its name, nor
    those that it had before it was without a cache for a while, when its url may change."""
    _reference, claim = claim_of(world)
    if claim is None or deleting(claim):
        return False
    text = (claim["metadata"].get("annotations") or {}).get(LOADED + world.resource["metadata"]["name"], "{}")
    try:
        told = decode_json(text, dict[str, Any], most=NOTE_BYTES)
    except DecodingError:
        return False
    # The original writes no url.
    return told.get("uid") == uid(world.resource) and told.get("url", _place(world)) == _place(world)


def concerned(old: Object | None, new: Object | None) -> Collection[str] | None:
    """The Models whose note on a claim differs, as each reads no other one's. None: all that refer to the object."""
    if old is None or new is None or new["kind"] != PERSISTENT_VOLUME_CLAIM.kind or deleting(old) != deleting(new):
        return None
    before, after = (obj["metadata"].get("annotations") or {} for obj in (old, new))
    changed = (name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return {name.removeprefix(LOADED) for name in changed if name.startswith(LOADED)}


def claim(model: Model) -> Object:
    """Raises Invalid: UnknownCacheProfile."""
    profile = model.config.cache_profile(model.spec.cache_profile)
    spec: Object = {
        "accessModes": ["ReadWriteMany"],
        # Empty where only a volume is named: without it the cluster's default class is put here, and no volume fits.
        "storageClassName": profile.storage_class_name,
        "resources": {"requests": {"storage": profile.storage_size}},
    }
    if profile.persistent_volume_name:
        spec["volumeName"] = profile.persistent_volume_name
    reference = claim_reference(model.namespace, model.spec.cache_profile)
    kind = PERSISTENT_VOLUME_CLAIM
    metadata = {"name": reference.name, "namespace": reference.namespace}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}


def load_job(model: Model) -> Object:
    """Fills the Model's folder. Its pod may run where the profile's taints are, as the volume may be reachable there
    only; the profile's node selector does not bind it, as it needs no GPU."""
    access = credentials((model.url.scheme,), model.config.secret_names)
    pods, folder = model.config.model_server_pods, model.cache_folder
    container = Container(
        name=agent.CONTAINER,
        image=loader_image(model.config, model.settings),
        args=("loader", "load", model.url.place, f"/{folder}", *loader_options(model)),
        env=loader_env(model, access),
        env_from=env_from(model),
        mounts=(Mount(CACHE, f"/{folder}", sub_path=folder), *access.mounts),
        security=_writer(model.config, model.settings),
    )
    return job(
        Task(
            name=load_name(model.name),
            namespace=model.namespace,
            labels=_labels(load_name(model.name)),
            container=asked_by_the_controller(container, model.controller_key),
            volumes=(
                volumes.claim(CACHE, claim_reference(model.namespace, model.spec.cache_profile).name),
                *access.volumes,
            ),
            retries=RETRIES,
            image_pull_secrets=tuple(secret.name for secret in pods.image_pull_secrets),
            service_account=pods.service_account_name,
            security=pod_security(model.config, model.settings),
            tolerations=model.config.resource_profile(model.spec.resource_profile).tolerations,
        )
    )


def _observed_load(world: World) -> Object | None:
    """The load Job, unless it fetches what the Model's url said earlier: that one is only in the way of the next."""
    made = world.children.get(("Job", load_name(world.resource["metadata"]["name"])))
    containers = made["spec"]["template"]["spec"]["containers"] if made else ()
    return made if any(_place(world) in container.get("args", ()) for container in containers) else None


def note(model: Model, world: World) -> Note | None:
    """What is written on the claim once the load Job has done its work."""
    done = ended(_observed_load(world), "Complete")
    if done is None:
        return None
    reference, _claim = claim_of(world)
    told = {"uid": uid(model.resource), "url": _place(world), "timestamp": timestamp(done)}
    return Note(reference, {LOADED + model.name: msgspec.json.encode(told).decode()})


def failed_since(world: World) -> float | None:
    """Unix seconds at which the load Job gave up; None: it has not, or it is time for another one."""
    since = ended(_observed_load(world), "Failed")
    return since if since is not None and world.now - since < RETRY_SECONDS else None


def loading(model: Model, world: World) -> tuple[tuple[Object, ...], tuple[Note, ...]]:
    """Children and notes that bring the weights to the claim: none while the claim goes, or what was there before."""
    observed = _observed_load(world)
    reference, there = claim_of(world)
    if eviction(world) == "running":
        return (_evict_job(world, reference.name),), ()
    overdue = ended(observed, "Failed") is not None and failed_since(world) is None
    if overdue or (there is not None and deleting(there)):
        return (), ()
    made = note(model, world)
    return (load_job(model),), (made,) if made else ()


def left(world: World, deployment: Object) -> tuple[tuple[Object, ...], tuple[Note, ...], Object]:
    """Children, notes and annotations of a Model that may have had a cache and has none: the weights there are removed
    once none of its pods can have them mounted. ``deployment``: as it is wanted now."""
    if not profile_of(world.resource):
        return (), (), {}
    name, (reference, there) = world.resource["metadata"]["name"], claim_of(world)
    if there is None or deleting(there) or eviction(world) == "over":
        return (), (), {names.PROFILE: None}
    if _mounted(world, deployment):
        return (), (), {}
    if LOADED + name in (there["metadata"].get("annotations") or {}):
        return (), (Note(reference, {LOADED + name: None}),), {}
    return (_evict_job(world, reference.name),), (), {}


def _mounted(world: World, deployment: Object) -> bool:
    """Whether there are pods that may use the cache: of an earlier template, or of the load."""
    name, wanted = world.resource["metadata"]["name"], template_digest(deployment["spec"]["template"])
    observed = world.children.get(("Deployment", deployment["metadata"]["name"]))
    if observed is not None and template_digest(observed["spec"]["template"]) != wanted:
        return True
    older = (pod for pod in world.pods if job_of(pod) != evict_name(name) and template_digest(pod) != wanted)
    return ("Job", load_name(name)) in world.children or any(remains(pod, world.now) for pod in older)


def eviction(world: World) -> Literal["", "running", "over"]:
    """How far the Job is that removes the weights."""
    made = world.children.get(("Job", evict_name(world.resource["metadata"]["name"])))
    over = ended(made, "Complete") is not None or ended(made, "Failed") is not None
    return "over" if over else "running" if made else ""


def finish(world: World) -> Plan | None:
    """What is left to do for a Model that goes: its pods end, then its folder is removed, then the claim forgets it.

    It ends in any case: without a claim, a configuration or a working Job, and after a time.
    """
    metadata = world.resource["metadata"]
    name, since = metadata["name"], unix_time(metadata["deletionTimestamp"])
    if any(remains(pod, world.now) for pod in world.pods if job_of(pod) != evict_name(name)):
        return Plan(children=())
    if not profile_of(world.resource):
        return None
    reference, there = claim_of(world)
    if there is None or deleting(there):
        return None
    now = eviction(world)
    if now != "over" and world.now - since <= EVICTION_SECONDS:
        return Plan(children=(_evict_job(world, reference.name),))
    if LOADED + name not in (there["metadata"].get("annotations") or {}):
        return None
    kept = (_evict_job(world, reference.name),) if now else ()
    return Plan(children=kept, notes=(Note(reference, {LOADED + name: None}),))


def job_of(pod: Object) -> str:
    """Name of the Job that made the pod; empty: none did."""
    owner = controller_owner(pod)
    return owner.name if owner and owner.kind == "Job" else ""


def _evict_job(world: World, claim_name: str) -> Object:
    metadata = world.resource["metadata"]
    name, namespace = metadata["name"], metadata["namespace"]
    try:
        config = read_config(world)
    except InvalidConfig:
        config = parse("")
    pods = config.model_server_pods
    container = Container(
        name="evictor",
        image=loader_image(config, world.settings),
        args=("loader", "evict", f"/{ROOT}/{name}-{uid(world.resource)}"),
        mounts=(Mount(CACHE, f"/{ROOT}", sub_path=ROOT),),
        security=_writer(config, world.settings),
    )
    return job(
        Task(
            name=evict_name(name),
            namespace=namespace,
            labels=_labels(evict_name(name)),
            container=container,
            volumes=(volumes.claim(CACHE, claim_name),),
            retries=RETRIES,
            image_pull_secrets=tuple(secret.name for secret in pods.image_pull_secrets),
            service_account=pods.service_account_name,
            security=pod_security(config, world.settings),
            tolerations=({"operator": "Exists"},),
        )
    )


def _labels(instance: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "model-loader",
        "app.kubernetes.io/instance": instance,
        MANAGED_BY: "kubeai",
    }


def _writer(config: SystemConfig, settings: Settings) -> Object:
    """The folders of a volume that a pod mounts by their path belong to root: what writes to them has to be that, where
    neither the operator nor the cluster says anything else."""
    pods = config.model_server_pods
    asked = pods.pod_security_context | pods.security_context
    other = settings.assigned_ids or "runAsUser" in asked or asked.get("runAsNonRoot")
    return pods.security_context if other else {**pods.security_context, "runAsUser": 0}
