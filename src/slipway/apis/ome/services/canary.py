"""Canaries: a new spec gets a share of the requests before it is rolled out. Pure.

There are two Deployments: the stable one, and the canary with the new spec and its own Service, to which the gateway
sends the share. Each one's revision is read from the Deployment, so that nothing else is stored.
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
"""none: one Deployment, of the newest spec. running: the stable one stays as it is, the canary has the newest spec.
promoting: both have it, and the canary answers until the stable one is complete."""


class Revision(msgspec.Struct, frozen=True):
    """The observed revision of a Deployment."""

    digest: str
    """Of its pods' template: see :data:`slipway.serving.containers.diagnosis.TEMPLATE`."""
    complete: bool
    """Whether all of its replicas run this and answer."""
    replicas: int = 1
    """That it shall have."""
    ready: int = 1
    """That answer."""


class Split(msgspec.Struct, frozen=True):
    """The desired state of the two Deployments, and their shares of the requests."""

    phase: Phase
    stable: str
    """Digest that the stable Deployment shall have."""
    canary: str = ""
    """Digest that the canary shall have; empty: there is none to be, and one that is there goes."""
    percent: int = 0
    """Of the requests that the canary shall have, and so of the replicas that it needs."""
    max_supported_percent: int = ALL
    """Of the requests that its replicas can answer by now, beside those of the stable one."""

    @property
    def keeps_stable(self) -> bool:
        """Whether the stable Deployment stays unchanged, whatever the spec sets now."""
        return self.phase == "running"

    @property
    def share(self) -> int:
        """Percentage of the requests that the canary gets now. A larger share grows with its replicas."""
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
    """``desired``: digest of the newest spec; ``percent``: what the canary is to get, None and 100: roll it out.

    A canary is not made for the first spec, as there is nothing else that could answer. It goes at once when the spec
    becomes again what the stable Deployment has.
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
