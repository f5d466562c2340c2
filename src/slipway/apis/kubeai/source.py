"""Source: whether the hub has what a Model that sleeps names, which its pods would find out with the first request.
Pure.

Asked are the urls that a loader can judge as the engine's pod would: those of the hub. An engine may read a bucket as
the node that it runs on, and pull from registries that only it knows; a patch or an image of the author's own may bring
a token or the weights along.
"""

from __future__ import annotations

import re

import msgspec

from slipway.apis.kubeai import access, names, pods
from slipway.apis.kubeai.cache import runner
from slipway.apis.kubeai.resolve import Model, View
from slipway.apis.kubeai.types import MODEL
from slipway.artifacts.huggingface import REPOSITORY
from slipway.kube.objects import Object, generation
from slipway.serving.workload import UNPRIVILEGED
from slipway.weights import checks, jobs
from slipway.weights.checks import Check
from slipway.weights.credentials import of_operator

QUANTIZATION = re.compile(r":[A-Za-z0-9._-]+")
"""What llama.cpp takes behind a repository."""
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
"""Variables with which an engine never asks the hub."""
RESOURCES: Object = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}}
"""Of the Job's container, so that a quota of the namespace takes it."""


def checked(view: View, model: Model) -> Check | None:
    """What is known of the source of a Model that requests may wake, or None where there is nothing to find out: a
    cache's load tells by itself, and a Model that always runs by its pods. Raises InvalidSpecError, as
    :func:`pods.server` does."""
    repository, never_woken = _repository(model), model.spec.min_replicas > 0 or model.spec.autoscaling_disabled
    if not repository or model.place is not None or never_woken or not model.settings.check_sources:
        return None
    job, answered = _job(model, repository), _has_answered(model.resource)
    return checks.check(view.world, MODEL.kind, job, sleeps=model.replicas == 0, answered=answered)


def _has_answered(resource: Object) -> bool:
    """Whether replicas of this very spec answer, as the status says."""
    told = {one["type"]: one for one in (resource.get("status") or {}).get("conditions") or ()}
    usual = {"Available": "Ready", "Progressing": "Complete"}
    found = [(told.get(type_) or {}, reason) for type_, reason in usual.items()]
    of_this_spec = all(one.get("observedGeneration") == generation(resource) for one, _reason in found)
    return of_this_spec and all(one.get("reason") == reason for one, reason in found)


def _repository(model: Model) -> str:
    """``owner/name[@revision]`` of the hub; empty: it is not to be asked."""
    patched = model.spec.json_patches or model.config.model_server_pods.json_patches
    offline = any(name in model.spec.env for name in OFFLINE)
    if model.url.scheme != "hf" or patched or offline or model.spec.image:
        return ""
    reference, at, revision = model.url.ref.partition("@")
    if model.engine.reads == "file":
        reference = QUANTIZATION.sub("", reference)
    return f"{reference}{at}{revision}" if REPOSITORY.fullmatch(reference) else ""


def _job(model: Model, repository: str) -> Object:
    """Asks the hub for a repository. Its pod may run where the profile's taints are, as there may be no other nodes.
    Raises InvalidSpecError for a profile that there is not."""
    sources = of_operator(model.settings.loader) + access.credentials(("hf",), model.config.secret_names)
    file = (f"--file={model.url.model}",) if model.engine.reads == "file" and model.url.model else ()
    options = (f"--attempts={checks.ATTEMPTS}", *file, *pods.loader_options(model))
    words = ("probe", f"hf://{repository}", *options)
    own = msgspec.structs.replace(sources, env=pods.loader_env(model, sources))
    made_by = msgspec.structs.replace(runner(model.config, model.settings), security=UNPRIVILEGED)
    asking = jobs.container(made_by, words, own, name="check", env_from=pods.env_from(model))
    job = jobs.task(
        made_by,
        names.check_name(model.name),
        model.namespace,
        msgspec.structs.replace(asking, resources=RESOURCES),
        sources.volumes,
        tolerations=model.config.resource_profile(model.spec.resource_profile).tolerations,
        retries=0,
        deadline_seconds=checks.DEADLINE_SECONDS,
    )
    return checks.named(job)
