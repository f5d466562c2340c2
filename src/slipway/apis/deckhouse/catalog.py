"""ModelCatalogSource: a catalog of another cluster, read again and again. Pure."""

from __future__ import annotations

import msgspec

from slipway.apis.deckhouse import types
from slipway.kube.conditions import READY, Condition, timestamp
from slipway.kube.objects import Object, generation, key
from slipway.serving.api import InvalidSpecError, Plan, Rejection, StatusResult, World
from slipway.serving.catalogs import Catalog, CatalogAddress
from slipway.serving.status import build_status, verdict
from slipway.serving.times import parse_duration

REFRESH_SECONDS, SHORTEST_SECONDS = 600.0, 30.0


def plan(view: World) -> Plan:
    """Raises InvalidSpecError."""
    try:
        spec = msgspec.convert(view.resource.get("spec"), types.CatalogSourceSpec)
    except msgspec.ValidationError as error:
        raise InvalidSpecError("InvalidSpec", f"{error}.") from error
    return Plan(
        children=(),
        catalog=CatalogAddress(
            url=spec.url.rstrip("/"),
            credentials=spec.credentials_secret_name,
            authority=spec.ca_secret_name or "",
            refresh_seconds=_seconds(spec.refresh_interval),
        ),
    )


def _seconds(interval: str | None) -> float:
    """Raises InvalidSpecError."""
    try:
        return max(parse_duration(interval), SHORTEST_SECONDS) if interval else REFRESH_SECONDS
    except ValueError as error:
        raise InvalidSpecError("InvalidRefreshInterval", f"spec.refreshInterval: {error}") from error


def status(view: World, rejection: Rejection | None) -> StatusResult:
    """What was read last stays there while nothing newer is known, as after the controller's start."""
    before: Object = view.resource.get("status") or {}
    known, observed = view.catalogs.get(key(view.resource).name), generation(view.resource)
    if known is None and rejection is None and before.get("observedGeneration") == observed:
        return StatusResult(before)
    told: Object = {name: value for name, value in before.items() if name != "conditions"}
    if known is not None and known.refreshed is not None:
        count, time = len(known.active), timestamp(known.refreshed)
        told = {"catalogRevision": known.revision, "entryCount": count, "lastSuccessfulRefreshTime": time}
    ready = Condition(READY, *_ready(known)) if rejection is None else verdict(rejection, "", type_=READY)
    return build_status(view.resource, told, (ready,))


def _ready(known: Catalog | None) -> tuple[str, str, str]:
    if known is None:
        return "False", "Pending", "The catalog has not been read yet."
    if not known.fault:
        return "True", "Ready", f"The catalog has {len(known.active)} active entries."
    if known.ready and known.refreshed is not None:
        since = timestamp(known.refreshed)
        text = f"The entries from {since} remain valid, because the catalog cannot be read: {known.message}"
        return "True", "Stale", text
    return "False", known.fault, known.message
