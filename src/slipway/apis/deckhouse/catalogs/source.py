"""ModelCatalogSource: a catalog of another cluster, which is read at regular intervals. Pure."""

from __future__ import annotations

import msgspec

from slipway.apis.deckhouse import types
from slipway.kube.objects import Object, generation, key
from slipway.kube.schemas.conditions import READY, Condition, timestamp
from slipway.kube.values.times import parse_duration
from slipway.serving.contract.api import InvalidSpecError, Plan, Rejection, StatusResult, World
from slipway.serving.status.builder import build_status, verdict
from slipway.serving.wire.catalogs import Catalog, CatalogAddress

REFRESH_SECONDS, SHORTEST_SECONDS = 600.0, 30.0


def plan(view: World) -> Plan:
    """Return a plan with the address of the catalog to read. Raise InvalidSpecError for an invalid spec."""
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
    """Return the number of seconds between two reads of the catalog, at least SHORTEST_SECONDS. ``interval``: the
    interval in the spec, such as ``10m``. None or an empty string means REFRESH_SECONDS. Raise InvalidSpecError for an
    invalid interval."""
    try:
        return max(parse_duration(interval), SHORTEST_SECONDS) if interval else REFRESH_SECONDS
    except ValueError as error:
        raise InvalidSpecError("InvalidRefreshInterval", f"spec.refreshInterval: {error}") from error


def status(view: World, rejection: Rejection | None) -> StatusResult:
    """Return the status of the catalog source. If the catalog has not been read yet, for example after a restart of the
    controller, the previous status is kept if it is for the current spec."""
    before: Object = view.resource.get("status") or {}
    catalog, observed = view.catalogs.get(key(view.resource).name), generation(view.resource)
    if catalog is None and rejection is None and before.get("observedGeneration") == observed:
        return StatusResult(before)
    fields: Object = {name: value for name, value in before.items() if name != "conditions"}
    if catalog is not None and catalog.refreshed is not None:
        count, time = len(catalog.active), timestamp(catalog.refreshed)
        fields = {"catalogRevision": catalog.revision, "entryCount": count, "lastSuccessfulRefreshTime": time}
    ready = Condition(READY, *_ready(catalog)) if rejection is None else verdict(rejection, "", type_=READY)
    return build_status(view.resource, fields, (ready,))


def _ready(catalog: Catalog | None) -> tuple[str, str, str]:
    if catalog is None:
        return "False", "Pending", "The catalog has not been read yet."
    if not catalog.fault:
        return "True", "Ready", f"The catalog has {len(catalog.active)} active entries."
    if catalog.ready and catalog.refreshed is not None:
        since = timestamp(catalog.refreshed)
        text = f"The entries from {since} remain valid, because the catalog cannot be read: {catalog.message}"
        return "True", "Stale", text
    return "False", catalog.fault, catalog.message
