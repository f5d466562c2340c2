"""Delivery: the changes to another owner's workload that requests models with an annotation. Pure.

Models are delivered as image volumes, or on a claim that Jobs fill. The workloads of a namespace with the same models
share a claim. The workload's pod template stays unchanged until the claim is filled or the images exist. New pods wait
behind a scheduling gate, which an admission policy adds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from slipway.apis.deckhouse import names
from slipway.apis.deckhouse.delivery.contents import Contents, Names, find_conflict, with_contents
from slipway.apis.deckhouse.delivery.users import DELIVERED, MOST_BYTES, USERS, split
from slipway.apis.deckhouse.settings import DeckhouseSettings, deckhouse
from slipway.kube.objects import Key, Object, annotations_of, deleting, key
from slipway.kube.values.compare import digest
from slipway.serving.contract.api import Watch
from slipway.serving.contract.delivery import (
    ROLLOUT_SECONDS,
    Blocked,
    DeliveryWorld,
    NotDeliverableError,
    Outcome,
    is_rolled_out,
    owned_by,
    template_of,
    with_template,
)
from slipway.serving.contract.settings import Settings
from slipway.serving.pods.server import variables
from slipway.weights.delivery import image_volumes, shared_claim
from slipway.weights.delivery.delivered import Choices, DeliveredModel, DeliveryMethod

LABEL = f"{names.GROUP}/shared-pvc"
"""Label of claims with delivered models, and of the Jobs that fill them."""
PREFIX = "ai-models-"
MODELS_DIR = "/data/modelcache/models"
"""Directory of models in containers. Each model has a subdirectory."""
DIR_VARIABLE, MODELS_VARIABLE = "AI_MODELS_MODELS_DIR", "AI_MODELS_MODELS"
OURS = Names(
    annotations=names.RESOLVED,
    variables=(DIR_VARIABLE, MODELS_VARIABLE),
    volumes=(f"{PREFIX}shared-pvc", f"{PREFIX}image-"),
    pull_secrets=f"{PREFIX}pull-",
    gate=names.GATE,
)
INVALID = "InvalidSpec"
MOST_MODELS = 32
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class Deliveries:
    """Delivery of Deckhouse models to workloads. See :class:`slipway.serving.contract.delivery.Delivery`."""

    name = "deckhouse"
    models = (names.MODEL, names.CLUSTER_MODEL)
    users = USERS
    label = LABEL
    gate = names.GATE
    blocked = (names.BLOCKED_REASON, names.BLOCKED_MESSAGE)

    def offered(self, model: Object) -> object:
        status = model.get("status") or {}
        image = annotations_of(model).get(names.IMAGE_DIGEST)
        return status.get("phase"), status.get("artifact"), image, deleting(model)

    def deliver(self, world: DeliveryWorld) -> Outcome:
        shared = tuple(claim for claim in world.claims.values() if owned_by(claim, world.workload))
        if deleting(world.workload):
            return Outcome(workload=world.workload, claims=shared)
        try:
            keys = _requested_models(world.workload)
            if not keys:
                return _finished(world, Contents(), {}, DeliveryMethod(), shared)
            models = [_resolve_model(world, one) for one in keys]
            means = _choose_method(world, models)
        except NotDeliverableError as error:
            return _blocked(world, error.blocked, DeliveryMethod(), shared)
        if means.blocked is not None:
            return _blocked(world, means.blocked, means, shared)
        marks = {DELIVERED: ",".join(f"{one.namespace}/{one.name}" for one in keys)}
        return _finished(world, _contents(models, means), marks, means, shared)


def watches(settings: Settings) -> tuple[Watch, ...]:
    """Return the watches for nodes and namespaces if models are delivered as image volumes, otherwise an empty
    tuple."""
    return (image_volumes.NODES, image_volumes.NAMESPACES) if deckhouse(settings).delivery == "ImageVolume" else ()


def _requested_models(workload: Object) -> list[Key]:
    """Return the keys of the models that a workload names. The keys of ClusterModels have an empty namespace. Raise
    NotDeliverableError for invalid names, duplicates or too many models."""
    annotations, namespace = annotations_of(workload), key(workload).namespace
    keys: list[Key] = []
    for annotation, place in ((names.USES_MODEL, namespace), (names.USES_CLUSTER_MODEL, "")):
        text = annotations.get(annotation)
        if text is None:
            continue
        listed = split(text[: MOST_BYTES + 1])
        wrong = next((name for name in listed if len(name) > 253 or not NAME.fullmatch(name)), None)
        if wrong is not None or len(text) > MOST_BYTES:
            raise NotDeliverableError(
                INVALID, f"Annotation {annotation}: {(wrong or text)[:64]!r} is not a model name."
            )
        keys += [Key(place, name) for name in listed]
    twice = next((one.name for one in keys if sum(other.name == one.name for other in keys) > 1), None)
    if twice is not None:
        raise NotDeliverableError(INVALID, f"The model {twice} is listed twice. Each model can be mounted only once.")
    if len(keys) > MOST_MODELS:
        raise NotDeliverableError(
            INVALID, f"The annotations name {len(keys)} models; a workload can have at most {MOST_MODELS}."
        )
    return keys


def _resolve_model(world: DeliveryWorld, place: Key) -> DeliveredModel:
    """Return a model in the form for delivery. Raise NotDeliverableError if the model is missing, not Ready or being
    deleted."""
    kind = names.MODEL if place.namespace else names.CLUSTER_MODEL
    model = world.listers.get(kind, place)
    if model is None:
        raise NotDeliverableError("ModelNotFound", f"There is no {kind.kind} {place.name}.", waiting=True)
    status = model.get("status") or {}
    artifact = status.get("artifact") or {}
    if status.get("phase") != "Ready" or not artifact.get("digest") or deleting(model):
        text = f"The {kind.kind} {place.name} is {status.get('phase') or 'Pending'}; it must be Ready to be delivered."
        raise NotDeliverableError("ModelNotReady", text, waiting=status.get("phase") != "Failed")
    image = annotations_of(model).get(names.IMAGE_DIGEST, "")
    return DeliveredModel(
        name=place.name,
        repository=names.repository(model),
        digest=artifact["digest"],
        image=image,
        size=artifact.get("sizeBytes", 0),
        family=(status.get("resolved") or {}).get("family", ""),
    )


def _choose_method(world: DeliveryWorld, models: Sequence[DeliveredModel]) -> DeliveryMethod:
    """Return the method by which pods get the models. If its ``blocked`` is set, the models are not available yet.
    Raise NotDeliverableError if they cannot be mounted."""
    if conflict := find_conflict(template_of(world.kind, world.workload), MODELS_DIR, OURS):
        text = "Container {} already mounts a volume at {}, the directory of the models. Use another path."
        raise NotDeliverableError(INVALID, text.format(*conflict))
    own = deckhouse(world.settings)
    means = image_volumes.plan_delivery if own.delivery == "ImageVolume" else shared_claim.plan_delivery
    return means(world, _choices(own, world), models)


def _choices(own: DeckhouseSettings, world: DeliveryWorld) -> Choices:
    return Choices(
        folder=MODELS_DIR,
        label=LABEL,
        prefix=PREFIX,
        registry=own.registry,
        ca=own.ca,
        access_mode=own.access_mode,
        storage_class_name=own.storage_class_name,
        run_as_user=own.run_as_user,
        node_registry=own.node_registry,
        key=world.file(own.key_file),
    )


def _contents(models: Sequence[DeliveredModel], means: DeliveryMethod) -> Contents:
    listed = [
        {"name": one.name, "path": f"{MODELS_DIR}/{one.name}", "digest": one.digest, "family": one.family}
        for one in models
    ]
    text = json.dumps(listed, separators=(",", ":"))
    resolved = {
        "digest": ",".join(one.digest for one in models),
        "artifact-uri": ",".join(f"{means.registry}/{one.repository}@{one.digest}" for one in models),
        "artifact-family": ",".join(one.family for one in models),
        "delivery-mode": means.mode,
        "delivery-reason": means.reason,
        "models": text,
    }
    resolved["signature"] = f"blake2b:{digest([resolved, means.mounts, means.volumes]).hex()}"
    return Contents(
        annotations={f"{names.RESOLVED}{field}": value for field, value in resolved.items()},
        env=variables({DIR_VARIABLE: MODELS_DIR, MODELS_VARIABLE: text}),
        mounts=means.mounts,
        volumes=means.volumes,
        pull_secrets=means.pull_secrets,
    )


def _finished(
    world: DeliveryWorld, contents: Contents, marks: dict[str, str], means: DeliveryMethod, shared: tuple[Object, ...]
) -> Outcome:
    """Return the outcome that delivers ``contents``. Claims of earlier contents are kept until the last pod that reads
    them is replaced."""
    before = template_of(world.kind, world.workload)
    after = with_contents(before, contents, OURS)
    over = before == after and is_rolled_out(world.kind, world.workload)
    claim_names = {key(claim).name for claim in means.claims}
    old = () if over else tuple(claim for claim in shared if key(claim).name not in claim_names)
    workload = _annotated(with_template(world.kind, world.workload, after), marks)
    return Outcome(
        workload=workload,
        claims=(*means.claims, *old),
        finished_jobs=means.finished_jobs,
        secrets=means.secrets,
        recheck_seconds=ROLLOUT_SECONDS if old else means.recheck_seconds,
    )


def _blocked(world: DeliveryWorld, blocked: Blocked, means: DeliveryMethod, shared: tuple[Object, ...]) -> Outcome:
    """Return the outcome for a blocked workload. The workload keeps its earlier models, and only its annotations with
    the reason change."""
    annotations = annotations_of(world.workload)
    marks = {DELIVERED: annotations[DELIVERED]} if DELIVERED in annotations else {}
    explanation = {names.BLOCKED_REASON: blocked.reason, names.BLOCKED_MESSAGE: blocked.message}
    claim_names = {key(claim).name for claim in means.claims}
    return Outcome(
        workload=_annotated(world.workload, {**marks, **explanation}),
        claims=(*means.claims, *(claim for claim in shared if key(claim).name not in claim_names)),
        jobs=means.jobs,
        finished_jobs=means.finished_jobs,
        blocked=blocked,
        recheck_seconds=means.recheck_seconds,
    )


def _annotated(workload: Object, marks: dict[str, str]) -> Object:
    """Return the workload with the delivery annotations ``marks``, and without other delivery annotations."""
    metadata = workload["metadata"]
    ours = (names.BLOCKED_REASON, names.BLOCKED_MESSAGE, DELIVERED)
    others = {name: text for name, text in (metadata.get("annotations") or {}).items() if name not in ours}
    return {**workload, "metadata": {**metadata, "annotations": {**others, **marks}}}


DELIVERY = Deliveries()
