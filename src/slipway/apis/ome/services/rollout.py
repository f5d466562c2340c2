"""Rollout: the pod templates, existing Deployments and canary of a component. Pure."""

from __future__ import annotations

import msgspec

from slipway.apis.ome import names
from slipway.apis.ome.components import overlay, pods
from slipway.apis.ome.components.overlay import Component
from slipway.apis.ome.services import canary
from slipway.apis.ome.services.canary import Split
from slipway.apis.ome.services.service import Part, Service
from slipway.kube.objects import DEPLOYMENT, Object
from slipway.serving.containers.diagnosis import template_digest
from slipway.serving.contract.api import InvalidSpecError, World
from slipway.serving.pods import groups
from slipway.serving.pods.server import failure_window_seconds
from slipway.serving.pods.workload import digest

APP = "app"
"""Label of pods. The value is the name of the component's Service or, for pods of the canary, of the canary's
Service."""
START_SECONDS = 600
"""Seconds that a container may take to start if it has no startup probe."""
INTERNAL = "slipway.inference/"
"""Prefix of labels that have a meaning on a Service. They are removed from the labels of a component's objects, because
authors must not set them."""


class ComponentRollout(msgspec.Struct, frozen=True, kw_only=True):
    """The pod templates of a component, and its existing workloads."""

    part: Part
    template: Object
    worker: Object | None
    observed: Object | None
    canary: Object | None
    """The observed Deployment of the canary, if any."""
    split: Split

    @property
    def selector(self) -> dict[str, str]:
        """Labels that select the pods of the component's workload, but not those of its canary. It is the selector of
        the original OME, so that existing Deployments can be adopted."""
        return {APP: self.part.name}

    @property
    def answering(self) -> dict[str, str]:
        """Selector for the component's pods that receive requests."""
        return {**self.selector, **(groups.LEADERS if self.part.group else {})}

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the component's objects: the labels of its pods except those with the prefix INTERNAL."""
        pod_labels = self.template["metadata"].get("labels") or {}
        return {name: value for name, value in pod_labels.items() if not name.startswith(INTERNAL)}


def resolve_rollout(world: World, service: Service, part: Part) -> ComponentRollout:
    """Build a component's pod templates, and decide how the requests are split between its canary and its stable
    Deployment. Raise InvalidSpecError if the component cannot be served."""
    component, context = _without_startup_limit(part.component, service), service.context(world.settings)
    template = pods.template(component, "leader" if part.group else "pod", context)
    worker = pods.template(component, "worker", context) if part.group else None
    observed, tried = (
        world.child(part.kind, part.workload_name),
        world.child(DEPLOYMENT, canary_name(service.name, component.name)),
    )
    percent = component.extension.canary_traffic_percent
    if percent not in (None, canary.ALL) and (part.group or part is not service.routed):
        text = f"spec.{component.name}.canaryTrafficPercent: the gateway splits requests between two Deployments, which"
        why = "is not possible behind a router or on several nodes. Remove the field"
        raise InvalidSpecError("CanaryNotServed", f"{text} {why}")
    split = Split("none", "")
    if not part.group and part is service.routed:
        newest = template_digest(template) or digest(template["spec"])
        split = canary.decide(newest, percent, canary.revision(observed), canary.revision(tried))
    return ComponentRollout(part=part, template=template, worker=worker, observed=observed, canary=tried, split=split)


def _without_startup_limit(component: Component, service: Service) -> Component:
    """Return the component without the router's startup probe if its engines may be scaled to zero, and the probe sends
    the same HTTP request as the readiness probe. The startup probe fails while there are no engines. The kubelet would
    then restart the router at growing intervals, and the router would become ready minutes after its engines."""
    main = overlay.runner(component.pod)
    asleep = any(part.scaler.lowest == 0 for part in service.parts if part.component.name != "router")
    probes = [(main.get(name) or {}).get("httpGet") for name in ("startupProbe", "readinessProbe")]
    if component.name != "router" or not asleep or probes[0] is None or probes[0] != probes[1]:
        return component
    rest = {field: value for field, value in main.items() if field != "startupProbe"}
    pod = {**component.pod, "containers": [rest, *component.pod["containers"][1:]]}
    return msgspec.structs.replace(component, pod=pod)


def canary_name(service: str, component: str) -> str:
    """Return the name of the Deployment and Service of a component's canary."""
    return names.component_name(service, f"{component}-canary")


def startup_seconds(runner: Object) -> int:
    """Return the number of seconds that a container may take to start: START_SECONDS without a startup probe."""
    probe = runner.get("startupProbe")
    return failure_window_seconds(probe) if probe else START_SECONDS
