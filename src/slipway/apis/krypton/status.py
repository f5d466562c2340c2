"""The status of a Model. Pure."""

from __future__ import annotations

from functools import partial

from slipway.apis.krypton.plan import renewal
from slipway.apis.krypton.resolve import DEFAULT_STARTUP_SECONDS, ModelView
from slipway.engines.definition.log_patterns import Download
from slipway.engines.definition.retired import sentence
from slipway.engines.programs.llamacpp import LLAMACPP
from slipway.kube.objects import DEPLOYMENT, key
from slipway.kube.schemas.conditions import Condition
from slipway.serving.containers.diagnosis import Explain, Limits, diagnose
from slipway.serving.contract.api import Rejection, StatusResult
from slipway.serving.status.builder import build_status
from slipway.serving.status.report import Component, model_id, report, routed


def status(view: ModelView, rejection: Rejection | None) -> StatusResult:
    """Return the Model's status. If the Model cannot be served, its last valid Deployment continues to serve."""
    world, settings = view.world, view.world.settings
    namespace, name = key(world.resource)
    limits = Limits(
        startup_seconds=view.model.startup_seconds if view.model else DEFAULT_STARTUP_SECONDS,
        unschedulable_grace_seconds=settings.unschedulable_grace_seconds,
        container=LLAMACPP.container,
    )
    deployment = world.child(DEPLOYMENT, name)
    diagnosis = diagnose(deployment, world.pods, limits, world.now, _explain(view))
    served, ids = f"{namespace}/{name}", (name,)
    reported = report(
        (Component(deployment, diagnosis),),
        rejection,
        (routed(served, ids, world.routed), *_ignored(view)),
    )
    fields = {
        "phase": reported.phase,
        "replicas": reported.replicas,
        "readyReplicas": reported.ready_replicas,
        "url": f"http://{name}.{namespace}.svc:{world.resource['spec'].get('port', 8080)}/v1",
        **model_id(served, ids, world.routed),
    }
    return build_status(world.resource, fields, reported.conditions, rechecks=(diagnosis.recheck_seconds,))


def _explain(view: ModelView) -> Explain:
    weights = view.model.weights if view.model else None
    return partial(LLAMACPP.explain, download=Download(weights, view.world.settings.hugging_face_endpoint))


def _ignored(view: ModelView) -> tuple[Condition, ...]:
    """Return the condition FieldsIgnored if the Model sets flags that the default image no longer supports, otherwise
    an empty tuple."""
    changes = renewal(view.model.spec, view.world.settings).changes if view.model else {}
    text = sentence(changes, "spec.args")
    return (Condition("FieldsIgnored", "True", "RetiredFlags", text),) if text else ()
