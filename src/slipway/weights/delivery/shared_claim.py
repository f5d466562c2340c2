"""Shared claims: models on a claim that Jobs fill. All workloads of a namespace with the same models share the claim.
Pure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

from slipway.kube.objects import MANAGED_BY, PERSISTENT_VOLUME_CLAIM, Key, Object, deleting, key, owner_reference, uid
from slipway.serving.containers import volumes
from slipway.serving.contract.delivery import Blocked, DeliveryWorld, owner, owners, template_of
from slipway.serving.pods.job import pods_of
from slipway.serving.pods.workload import MANAGER, UNPRIVILEGED, restricted
from slipway.weights.delivery.delivered import Choices, DeliveredModel, DeliveryMethod
from slipway.weights.jobs import loads as jobs
from slipway.weights.jobs.loads import Run, Runner
from slipway.weights.place import claim, claim_reference
from slipway.weights.sources.credentials import mounted, of_operator
from slipway.weights.sources.registry_access import of_registry

FILLED = "slipway.inference/filled"
"""Annotation of a claim with the digests of the models that the claim completely contains."""
FOLDER = "/models"
"""Path at which a Job mounts the claim."""
CLAIM_PENDING, FILLING, NOT_FILLED = (
    "SharedPVCClaimPending",
    "SharedPVCMaterializerPending",
    "SharedPVCMaterializerFailed",
)
GIB, MARGIN = 1 << 30, 1.1
REASONS = {"ReadWriteMany": "RWXSharedVolume", "ReadWriteOnce": "RWOSharedVolume"}


def plan_delivery(world: DeliveryWorld, choices: Choices, models: Sequence[DeliveredModel]) -> DeliveryMethod:
    """Return the claim for these models and, once the claim contains all of them, the mounts for the pods. Until then,
    return the reason for the wait and, if the claim exists, the Job that loads the next model. While the claim is being
    deleted, return only the claim and the reason."""
    digests = {one.digest: one for one in models}
    set_digest = hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()[:12]
    place = Key(key(world.workload).namespace, f"{choices.prefix}cache-{set_digest}")
    pvc = world.claims.get(place.name)
    if pvc is not None and deleting(pvc):
        return DeliveryMethod(
            claims=(pvc,), blocked=Blocked(CLAIM_PENDING, f"The claim {place.name} is being deleted.", True)
        )
    runs = {one: _run(world, pvc, place.name, one) for one in sorted(digests)}
    recorded = _filled_digests(pvc)
    filled = recorded | {one for one, run in runs.items() if run.complete_since is not None}
    over = tuple(run.job for one, run in runs.items() if run.job is not None and one in recorded)
    spec = _spec(choices, sum(one.size for one in digests.values()))
    desired_pvc = _claim(world, choices, pvc or claim(claim_reference(*place), spec), filled & digests.keys())
    missing = next((one for one in sorted(digests) if one not in filled), None)
    if missing is None:
        return DeliveryMethod(
            mode="SharedPVC",
            reason=REASONS[choices.access_mode],
            registry=choices.registry,
            volumes=(volumes.claim(_volume(choices), place.name, read_only=True),),
            mounts=tuple(
                {"name": _volume(choices), "mountPath": f"{choices.folder}/{one.name}", "subPath": _folder(one.digest)}
                | {"readOnly": True}
                for one in models
            ),
            claims=(desired_pvc,),
            finished_jobs=over,
        )
    run, again = runs[missing], runs[missing].retried_at()
    if run.job is not None and run.outlived(world.now):
        return DeliveryMethod(
            claims=(desired_pvc,), finished_jobs=(*over, run.job), blocked=_progress(pvc, place.name, run)
        )
    new_jobs = () if pvc is None else (_job(world, choices, pvc, digests[missing], run),)
    delay = None if again is None else max(again - world.now, 0.0)
    blocked = _progress(pvc, place.name, run)
    return DeliveryMethod(
        claims=(desired_pvc,), jobs=new_jobs, finished_jobs=over, blocked=blocked, recheck_seconds=delay
    )


def _volume(choices: Choices) -> str:
    """Return the name of the volume in the pods."""
    return f"{choices.prefix}shared-pvc"


def _filled_digests(pvc: Object | None) -> set[str]:
    annotations = (pvc or {"metadata": {}})["metadata"].get("annotations") or {}
    return {one for one in annotations.get(FILLED, "").split(",") if one}


def _claim(world: DeliveryWorld, choices: Choices, pvc: Object, filled: set[str]) -> Object:
    """Return the claim with this workload among its owners, and with the digests of the models that it contains."""
    metadata, mine = pvc["metadata"], owner(world.kind, world.workload)
    others = [one for one in owners(pvc) if one.get("uid") != mine["uid"]]
    annotations = {**(metadata.get("annotations") or {}), **({FILLED: ",".join(sorted(filled))} if filled else {})}
    labels = {**(metadata.get("labels") or {}), choices.label: "true", MANAGED_BY: MANAGER}
    remaining = owners(pvc) if len(others) < len(owners(pvc)) else [*others, mine]
    changed = {**metadata, "labels": labels, "ownerReferences": remaining} | (
        {"annotations": annotations} if annotations else {}
    )
    return {**pvc, "metadata": changed}


def _spec(choices: Choices, size: int) -> Object:
    room = max(1, math.ceil(size * MARGIN / GIB))
    spec: Object = {"accessModes": [choices.access_mode], "resources": {"requests": {"storage": f"{room}Gi"}}}
    return spec | ({"storageClassName": choices.storage_class_name} if choices.storage_class_name else {})


def _folder(digest: str) -> str:
    return digest.replace(":", "-")


def _run(world: DeliveryWorld, pvc: Object | None, claim_name: str, digest: str) -> Run:
    """Return the state of the Job that loads a model onto this claim. The result has no Job if there is none, if it is
    being deleted, or if it is for an earlier claim of the same name."""
    name = f"{claim_name}-{digest.partition(':')[2][:8]}"
    job = world.jobs.get(name)
    if job is None or pvc is None or deleting(job) or all(one.get("uid") != uid(pvc) for one in owners(job)):
        return Run(name=name)
    return Run(name=name, job=job, pods=pods_of(job, world.pods(name)))


def _job(world: DeliveryWorld, choices: Choices, pvc: Object, model: DeliveredModel, run: Run) -> Object:
    """Return the Job that copies a model to the claim. The Job runs on nodes on which the workload can run, because the
    first pod can bind the claim's volume permanently to its own location."""
    settings, pod = world.settings, template_of(world.kind, world.workload)["spec"]
    runner = Runner(
        image=settings.loader_image,
        manager=MANAGER,
        labels={choices.label: "true"},
        security=UNPRIVILEGED,
        pod_security=_security(settings.user(choices.run_as_user)),
    )
    access = of_operator(settings.loader) + of_registry(choices.ca)
    access += mounted(volumes.claim(_volume(choices), key(pvc).name), FOLDER)
    arguments = ("pull", f"{choices.registry}/{model.repository}@{model.digest}", f"{FOLDER}/{_folder(model.digest)}")
    container = jobs.container(runner, arguments, access, name="puller")
    affinity = {part: rules for part, rules in (pod.get("affinity") or {}).items() if part == "nodeAffinity"}
    job = jobs.task(
        runner,
        run.name,
        key(pvc).namespace,
        container,
        access.volumes,
        tolerations=tuple(pod.get("tolerations") or ()),
        affinity=affinity,
    )
    if pod.get("nodeSelector"):
        job["spec"]["template"]["spec"]["nodeSelector"] = pod["nodeSelector"]
    job["metadata"]["ownerReferences"] = [owner_reference(PERSISTENT_VOLUME_CLAIM, pvc)]
    return job


def _security(user: int | None) -> Object:
    return restricted(user) | {"runAsNonRoot": user != 0}


def _progress(pvc: Object | None, name: str, run: Run) -> Blocked:
    if run.failed_since is not None:
        return Blocked(NOT_FILLED, f"The Job {run.name} failed: {run.fault[1]}")
    if pvc is None or (pvc.get("status") or {}).get("phase") != "Bound":
        text = f"The claim {name} is waiting for a volume. If this persists, see kubectl describe pvc {name}."
        return Blocked(CLAIM_PENDING, text, waiting=True)
    return Blocked(FILLING, f"The Job {run.name} is copying the model to the claim {name}.", waiting=True)
