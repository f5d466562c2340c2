"""Source: whether the hub has the weights of a sleeping Model, which its pods would report after the first request.
Pure.

Only urls of the hub are checked. An engine may read a bucket with the identity of its node, or pull from a registry
that only the node knows. A patch or the author's own image may bring a token or the weights.
"""

from __future__ import annotations

import re

import msgspec

from slipway.apis.kubeai import access, names, pods
from slipway.apis.kubeai.cache import runner
from slipway.apis.kubeai.resolve import Model, View
from slipway.artifacts.huggingface import REPOSITORY
from slipway.kube.conditions import find
from slipway.kube.objects import Object, generation
from slipway.serving.workload import UNPRIVILEGED
from slipway.weights import checks, jobs
from slipway.weights.checks import Check
from slipway.weights.credentials import of_operator

QUANTIZATION = re.compile(r":[A-Za-z0-9._-]+")
"""What llama.cpp accepts after a repository."""
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
"""Variables with which an engine, or a loader of the operator, never contacts the hub."""
RESOURCES: Object = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}}
"""Resources of the Job's container. A quota of the namespace may require them."""


def check_source(view: View, model: Model) -> Check | None:
    """None if there is nothing to check: the load of a cache reports its source, and so do the pods of a Model that
    always runs. Raises InvalidSpecError for an unknown profile."""
    repository = _repository(model)
    is_woken = model.spec.min_replicas == 0 and not model.spec.autoscaling_disabled
    if not repository or model.place is not None or not is_woken:
        return None
    job, answered = _job(model, repository), _has_answered(model.resource)
    return checks.check(view.world, job, sleeps=model.replicas == 0, answered=answered)


def _has_answered(resource: Object) -> bool:
    """Whether replicas of this generation answer, by the status."""
    conditions = [find(resource, type_) or {} for type_ in ("Available", "Progressing")]
    current = all(one.get("observedGeneration") == generation(resource) for one in conditions)
    return current and [one.get("reason") for one in conditions] == ["Ready", "Complete"]


def _repository(model: Model) -> str:
    """``owner/name[@revision]`` of the hub. Empty: there is nothing to check."""
    patched = model.spec.json_patches or model.config.model_server_pods.json_patches
    offline = any(name in env for name in OFFLINE for env in (model.spec.env, model.settings.loader.env))
    if model.url.scheme != "hf" or patched or offline or model.spec.image:
        return ""
    reference, at, revision = model.url.ref.partition("@")
    if model.engine.reads == "file":
        reference = QUANTIZATION.sub("", reference)
    return f"{reference}{at}{revision}" if REPOSITORY.fullmatch(reference) else ""


def _job(model: Model, repository: str) -> Object:
    """The Job that queries the hub. Its pod tolerates the profile's taints, as there may be no other nodes. Raises
    InvalidSpecError for an unknown profile."""
    sources = of_operator(model.settings.loader) + access.credentials(("hf",), model.config.secret_names)
    file = (f"--file={model.url.model}",) if model.engine.reads == "file" and model.url.model else ()
    words = ("probe", f"hf://{repository}", f"--attempts={checks.ATTEMPTS}", *file, *pods.loader_options(model))
    own = msgspec.structs.replace(sources, env=pods.loader_env(model, sources))
    job_runner = msgspec.structs.replace(runner(model.config, model.settings), security=UNPRIVILEGED)
    container = jobs.container(job_runner, words, own, name="check", env_from=pods.env_from(model))
    job = jobs.task(
        job_runner,
        names.check_name(model.name),
        model.namespace,
        msgspec.structs.replace(container, resources=RESOURCES),
        sources.volumes,
        tolerations=model.config.resource_profile(model.spec.resource_profile).tolerations,
        retries=0,
        deadline_seconds=checks.DEADLINE_SECONDS,
    )
    return checks.identified(job)
