"""Canaries: a new spec gets a share of the requests before it is rolled out. Pure.

There are two Deployments: the stable one, and the canary with the new spec and its own Service, to which the gateway
sends the share. The revisions are read from the Deployments, so nothing else is stored.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from slipway.kube.objects import Object
from slipway.serving.containers.diagnosis import template_digest
from slipway.serving.routing.route import Target
from slipway.serving.status.report import complete

ALL = 100
"""Percent. A spec that gets all requests is rolled out."""

Phase = Literal["none", "running", "promoting"]
"""none: there is one Deployment, with the newest spec. running: the stable Deployment stays unchanged, and the canary
has the newest spec. promoting: both have the newest spec, and the canary receives the requests until the stable
Deployment is complete."""


class Revision(msgspec.Struct, frozen=True):
    """The observed revision of a Deployment."""

    digest: str
    """Digest of the pod template: see :data:`slipway.serving.containers.diagnosis.TEMPLATE`."""
    complete: bool
    """Whether all replicas run this revision and are ready."""
    replicas: int = 1
    """Desired replicas."""
    ready: int = 1
    """Ready replicas."""


class Split(msgspec.Struct, frozen=True):
    """The desired state of the two Deployments, and their shares of the requests."""

    phase: Phase
    stable: str
    """Desired digest of the stable Deployment."""
    canary: str = ""
    """Desired digest of the canary; empty: there should be no canary, and an existing one is deleted."""
    percent: int = 0
    """Requested percentage of the requests for the canary, and therefore of the replicas that it needs."""
    max_supported_percent: int = ALL
    """Percentage of the requests that the canary's ready replicas can handle, relative to those of the stable
    Deployment."""

    @property
    def keeps_stable(self) -> bool:
        """Whether the stable Deployment stays unchanged, whatever the spec now requests."""
        return self.phase == "running"

    @property
    def share(self) -> int:
        """Percentage of the requests that the canary gets now. It grows with the canary's ready replicas."""
        return min(self.percent, self.max_supported_percent)

    @property
    def shares(self) -> tuple[tuple[str, int], ...]:
        """Digest and percentage of each revision that gets requests."""
        both = ((self.stable, ALL - self.share), (self.canary, self.share))
        return tuple((digest, percent) for digest, percent in both if percent)

    def targets(self, service: str) -> tuple[Target, ...]:
        """Returns the targets of the stable Service's route. ``service``: the name of the canary's Service."""
        return (Target(weight=ALL - self.share), Target(service, self.share)) if self.share else ()


def revision(deployment: Object | None) -> Revision | None:
    """Returns the revision that an observed Deployment runs; None: there is no Deployment."""
    if deployment is None:
        return None
    spec, status = deployment["spec"], deployment.get("status") or {}
    mark = template_digest(spec.get("template") or {}) or ""
    return Revision(mark, complete(deployment), spec.get("replicas", 1), status.get("readyReplicas", 0))


def decide(desired: str, percent: int | None, stable: Revision | None, canary: Revision | None) -> Split:
    """Decides on the two Deployments. ``desired``: digest of the newest spec; ``percent``: requested share of the
    canary, where None and 100 mean a rollout.

    The first spec gets no canary, because nothing else could serve the remaining requests. The canary is deleted at
    once if the spec is changed back to that of the stable Deployment.
    """
    if percent is not None and percent < ALL and stable is not None and stable.digest != desired:
        return Split("running", stable.digest, desired, percent, _max_supported_percent(stable, canary))
    current = stable is not None and stable.digest == desired and stable.complete
    if canary is not None and canary.digest == desired and not current:
        return Split("promoting", desired, desired, ALL, _max_supported_percent(stable, canary))
    return Split("none", desired)


def _max_supported_percent(stable: Revision | None, canary: Revision | None) -> int:
    if canary is None:
        return 0
    if stable is None or stable.replicas <= canary.ready:
        return ALL
    return ALL * canary.ready // stable.replicas
