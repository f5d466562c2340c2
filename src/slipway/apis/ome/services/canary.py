"""Canaries, which receive a share of the requests to try a new spec before its rollout. Pure.

A service with a canary has two Deployments: the stable one, and the canary with the new spec and its own Service. The
gateway sends the canary's share of the requests to that Service. The state of a canary is derived from the two
Deployments, so it is not stored anywhere else.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from slipway.kube.objects import Object
from slipway.serving.containers.diagnosis import template_digest
from slipway.serving.routing.route import Target
from slipway.serving.status.report import complete

ALL = 100
"""Percentage of requests at which a new spec is rolled out instead of being tried in a canary."""

Phase = Literal["none", "running", "promoting"]
"""``none``: the only Deployment has the latest spec. ``running``: the stable Deployment stays unchanged, and the canary
has the latest spec. ``promoting``: both Deployments have the latest spec, and the canary receives requests until the
stable Deployment is complete."""


class Revision(msgspec.Struct, frozen=True):
    """The observed revision of a Deployment."""

    digest: str
    """Digest of the Deployment's pod template. Empty if the template has none. See
    :data:`slipway.serving.containers.diagnosis.TEMPLATE`."""
    complete: bool
    """Whether all replicas run the revision and are ready."""
    replicas: int = 1
    """Desired number of replicas."""
    ready: int = 1
    """Number of ready replicas."""


class Split(msgspec.Struct, frozen=True):
    """Desired state of the stable Deployment and the canary, and their shares of the requests."""

    phase: Phase
    stable: str
    """Desired pod template digest of the stable Deployment."""
    canary: str = ""
    """Desired pod template digest of the canary. Empty if there should be no canary; an existing canary is then
    deleted."""
    percent: int = 0
    """Requested percentage of the requests for the canary. It also determines the canary's number of replicas."""
    max_supported_percent: int = ALL
    """Percentage of the requests that the canary's ready replicas can handle, compared with the replicas of the stable
    Deployment."""

    @property
    def keeps_stable(self) -> bool:
        """Whether the stable Deployment stays unchanged, regardless of the spec."""
        return self.phase == "running"

    @property
    def share(self) -> int:
        """Percentage of the requests that the canary currently gets, limited by the number of its ready replicas."""
        return min(self.percent, self.max_supported_percent)

    @property
    def shares(self) -> tuple[tuple[str, int], ...]:
        """Pod template digest and percentage of each revision that gets requests."""
        both = ((self.stable, ALL - self.share), (self.canary, self.share))
        return tuple((digest, percent) for digest, percent in both if percent)

    def targets(self, service: str) -> tuple[Target, ...]:
        """Return the targets of the InferenceService's route, or an empty tuple if the canary gets no requests.
        ``service`` is the name of the canary's Service."""
        return (Target(weight=ALL - self.share), Target(service, self.share)) if self.share else ()


def revision(deployment: Object | None) -> Revision | None:
    """Return the revision that an observed Deployment runs, or None if there is no Deployment."""
    if deployment is None:
        return None
    spec, status = deployment["spec"], deployment.get("status") or {}
    mark = template_digest(spec.get("template") or {}) or ""
    return Revision(mark, complete(deployment), spec.get("replicas", 1), status.get("readyReplicas", 0))


def decide(desired: str, percent: int | None, stable: Revision | None, canary: Revision | None) -> Split:
    """Return the desired state of the two Deployments. ``desired`` is the pod template digest of the latest spec.
    ``percent`` is the requested share of the canary; both None and 100 mean a rollout. ``stable`` and ``canary`` are
    the observed revisions, or None for a Deployment that does not exist.

    The first spec of a service gets no canary, because no other Deployment could serve the remaining requests. If the
    spec is changed back to that of the stable Deployment, the canary is deleted at once.
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
